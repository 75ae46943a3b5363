"""The sections of a recipe on the shares of corpora: by temperature, and in stages."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from operator import add
from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.recipe.problem import Problem
from nmt_cli.recipe.sections.corpora import Corpus
from nmt_cli.recipe.sections.training import TrainingConfig, ValidationConfig
from nmt_cli.recipe.values import Epochs, Number, Section, Steps, Word, not_one_of, repeated_names

ByName = dict[Word, Annotated[Number, Field(ge=0, le=1_000_000)]]


class MixingConfig(Section):
    """Shares of the corpora by their sizes, in place of their weights."""

    temperature: Annotated[Number, Field(ge=1, le=1_000_000)] | None = None
    """Draw pairs in proportion to size ^ (1 / temperature): 1 keeps the sizes, a higher one repeats
    small corpora (usual is 5). A size is pairs times weight. An epoch keeps its number of pairs.
    Null uses the weights alone."""
    over: Literal["corpora", "tags"] = "corpora"
    """What has a size: each corpus, or all corpora with the same tag together."""

    def weights(self, corpora: Sequence[Corpus], sizes: Sequence[int]) -> list[float]:
        """Return how often each corpus appears in an epoch; ``sizes`` are their pairs."""
        if self.temperature is None:
            return [corpus.weight for corpus in corpora]
        by_tag = self.over == "tags"
        groups = [corpus.tag if by_tag else place for place, corpus in enumerate(corpora)]
        weighted = [each.weight * size for each, size in zip(corpora, sizes, strict=True)]
        of_group: defaultdict[Hashable, float] = defaultdict(float)
        for group, size in zip(groups, weighted, strict=True):
            of_group[group] += size
        power = 1 / self.temperature  # a group of n pairs gets a share of n ^ power
        scale = sum(weighted) / (sum(size**power for size in of_group.values()) or 1)
        # At temperature 1 the powers are 1, and so are the factors of the weights, exactly.
        return [
            corpus.weight * scale * of_group[group] ** (power - 1) if size else 0.0
            for corpus, group, size in zip(corpora, groups, weighted, strict=True)
        ]


class Until(Section):
    """The end of a stage, counted from its start; one of these keys."""

    steps: Steps | None = None
    """It ends after this many steps."""
    epochs: Epochs | None = None
    """It ends after this many epochs."""
    patience: Epochs | None = None
    """It ends after this many validations without improvement. They are counted anew for each
    stage."""

    def least_steps(self, validation: ValidationConfig) -> int:
        """Return how many steps a stage with this end has at least."""
        return self.steps or max(1, (self.patience or 0) * (validation.every_steps or 1))

    def least_epochs(self, validation: ValidationConfig) -> int:
        """Return how many epochs, whole or not, a stage with this end has at least."""
        return self.epochs or max(1, (self.patience or 0) * (validation.every_epochs or 1))

    def problems(self) -> Iterator[Problem]:
        """Yield an end that is given twice or not at all."""
        yield from not_one_of(self, "steps", "epochs", "patience")


class Stage(Section):
    """A mixture of the corpora, for a part of the training.

    Without shares and weights it is that of the whole recipe.
    """

    shares: ByName | None = None
    """Share of each corpus by its name, such as {original: 60, back: 40}; others are left out. An
    epoch has as many pairs as these corpora have together."""
    weights: ByName | None = None
    """Weight of each corpus by its name, as in data.train; others are left out. Beside shares, it
    is that of further corpora, whose pairs are added to the epoch."""
    until: Until | None = None
    """When the next stage begins; null for the last stage."""

    @property
    def by_name(self) -> ByName | None:
        """The numbers of the corpora that the stage gives; None if it gives none."""
        if self.shares is None and self.weights is None:
            return None
        return {**(self.shares or {}), **(self.weights or {})}

    def mixed(self, corpora: Sequence[Corpus], sizes: Sequence[int]) -> list[float] | None:
        """Return how often each corpus appears in an epoch; None if the stage gives no numbers."""
        if self.by_name is None:
            return None
        shares, weights = (
            [(numbers or {}).get(corpus.name or "", 0.0) for corpus in corpora]
            for numbers in (self.shares, self.weights)
        )
        return list(map(add, weights, _weights_of_shares(shares, sizes)))


def _weights_of_shares(shares: Sequence[float], sizes: Sequence[int]) -> list[float]:
    drawn = [share if size else 0.0 for share, size in zip(shares, sizes, strict=True)]
    num_pairs = sum(size for share, size in zip(drawn, sizes, strict=True) if share)
    return [
        share * num_pairs / (sum(drawn) * size) if share else 0.0
        for share, size in zip(drawn, sizes, strict=True)
    ]


def problems_of_mixing(
    corpora: Sequence[Corpus], mixing: MixingConfig, stages: Sequence[Stage]
) -> Iterator[Problem]:
    """Yield names of two corpora or of none, and shares of corpora that contradict each other."""
    yield from repeated_names((f"train.{n}.name", each.name) for n, each in enumerate(corpora))
    names = dict.fromkeys(each.name for each in corpora if each.name is not None)
    yield from _contradictions(corpora, mixing, stages)
    for place, stage in enumerate(stages):
        key, is_last = f"stages.{place}", place == len(stages) - 1
        for name in (stage.shares or {}).keys() & (stage.weights or {}):
            text = f"must not have {name}, which has a share"
            yield Problem(f"{key}.weights", text, f"{key}.shares")
        if stage.until is None and not is_last:
            yield Problem(f"{key}.until", "is missing, so the stages after it would never begin")
        if stage.until is not None and is_last:
            text = "must be null, because the last stage ends with the training"
            yield Problem(f"{key}.until", text)
        yield from _problems_of_names(stage, key, names)


def _contradictions(
    corpora: Sequence[Corpus], mixing: MixingConfig, stages: Sequence[Stage]
) -> Iterator[Problem]:
    """Yield a temperature or a weight beside stages that use neither, and tags that are missing."""
    weights = {f"train.{place}.weight": each.weight for place, each in enumerate(corpora)}
    weighted = next((key for key, weight in weights.items() if weight != 1), None)
    if stages and all(stage.by_name is not None for stage in stages):
        text = "has no effect, because each of data.stages has shares or weights"
        if given := "mixing.temperature" if mixing.temperature else weighted:
            yield Problem(given, text, "stages")
    if mixing.over == "tags" and not any(corpus.tag for corpus in corpora):
        yield Problem("mixing.over", "must be corpora, because no corpus has a tag, but is tags")


def _problems_of_names(stage: Stage, key: str, names: Collection[str]) -> Iterator[Problem]:
    if (given := stage.by_name) is None:
        return
    key += ".shares" if stage.shares is not None else ".weights"
    for name in given:
        if name not in names:
            known = f"the names are {', '.join(names)}" if names else "none has a name"
            yield Problem(key, f"no corpus of data.train has the name {name}; {known}")
    if not any(given.values()):
        yield Problem(key, "must leave a corpus with a number above 0")


def problems_of_ends(
    stages: Sequence[Stage], training: TrainingConfig, validation: ValidationConfig
) -> Iterator[Problem]:
    """Yield the first stage that cannot end, because the training ends before."""
    steps = epochs = 0
    for place, stage in enumerate(stages[:-1]):
        until = stage.until or Until(steps=1)
        steps += until.least_steps(validation)
        epochs += until.least_epochs(validation)
        limits = {
            "training.max_steps": (steps, training.max_steps),
            "training.decay_steps": (steps, training.last_step),
            "training.max_epochs": (epochs, training.max_epochs),
            "validation.patience": (until.patience or 0, validation.patience),
        }
        for key, (least, limit) in limits.items():
            if limit is not None and least >= limit:
                what = "a learning rate of 0 at step" if key == "training.decay_steps" else key
                text = f"is never reached, because {what} {limit:,} ends training before"
                yield Problem(f"data.stages.{place}.until", text, key)
                return
