"""The section of a recipe on its text: corpora, filters, treebank."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.linearization import Linearization, Notation
from nmt_cli.recipe.problem import Problem
from nmt_cli.recipe.sections.corpora import (
    Corpus,
    HeldOutFiles,
    HeldOutSets,
    ParallelFiles,
    sets_by_key,
)
from nmt_cli.recipe.sections.mixing import MixingConfig, Stage, problems_of_mixing
from nmt_cli.recipe.sections.model import Normalization
from nmt_cli.recipe.values import (
    Count,
    DataPath,
    Effect,
    Flag,
    Language,
    Number,
    Pieces,
    Section,
    repeated_names,
)

FILTERS_OF_TREES = (  # the others look at the characters and words of a text
    "max_length_ratio",
    "min_length",
    "remove_duplicates",
    "remove_duplicate_sources",
    "remove_duplicate_targets",
    "remove_held_out",
    "remove_held_out_sentences",
)
Amount = Annotated[Count, Field(ge=1, le=10**6)]
Ratio = Annotated[Number, Field(ge=1, le=1_000_000)]
Share = Annotated[Number, Field(ge=0, le=1)]


class Filters(Section):
    """Training pairs to leave out; each rule is counted in the manifest."""

    # They are applied in the order of RULES in corpus/text/cleaning.py.
    max_length_ratio: Ratio | None = None
    """Drop pairs whose longer side has more than this many times the pieces of the other."""
    min_length: Pieces = 1
    """Drop pairs with a side of fewer pieces than this."""
    remove_duplicates: Flag = False
    """Of exactly equal pairs, keep only the one with the best of data.train.scores, or the first.
    """
    min_characters: Amount | None = None
    """Drop pairs with a side of fewer characters than this."""
    max_characters: Amount | None = None
    """Drop pairs with a side of more characters than this."""
    max_characters_ratio: Ratio | None = None
    """Drop pairs whose longer side has more than this many times the characters of the other."""
    min_words: Amount | None = None
    """Drop pairs with a side of fewer words than this."""
    max_words: Amount | None = None
    """Drop pairs with a side of more words than this."""
    max_words_ratio: Ratio | None = None
    """Drop pairs whose longer side has more than this many times the words of the other. Words are
    what white space separates."""
    max_word_length: Amount | None = None
    """Drop pairs with a word of more characters than this."""
    remove_copies: Flag = False
    """Drop pairs whose target is the source itself."""
    min_letters: Share | None = None
    """Drop pairs if letters are less than this share of a side's characters; white space is not
    counted."""
    min_script: Share | None = None
    """Drop pairs if less than this share of a side's letters are of the script of its language."""
    min_equal_digits: Share | None = None
    """Drop pairs if less than this share of their digits 1 to 9 are on both sides. Order, zeros and
    separators do not matter."""
    remove_different_urls: Flag = False
    """Drop pairs whose sides have different URLs or e-mail addresses."""
    max_urls: Share | None = None
    """Drop pairs if URLs and e-mail addresses are more than this share of a side's characters."""
    max_repeated_ngrams: Share | None = None
    """Drop pairs if more than this share of a side's sequences of three words occurred earlier in
    the side; in languages without spaces, sequences of six characters."""
    min_language: Share | None = None
    """Drop pairs if py3langid gives the language of a side a lower probability than this."""
    remove_held_out: Flag = False
    """Drop pairs that are also in data.validation or data.test, also if they differ in case,
    digits, punctuation or spaces."""
    remove_held_out_sentences: Flag = False
    """As remove_held_out, but drop pairs if only their source or only their target is there."""
    remove_duplicate_sources: Flag = False
    """Of pairs with the same source, keep only the one with the best of data.train.scores, or the
    first."""
    remove_duplicate_targets: Flag = False
    """The same for pairs with the same target."""

    @property
    def needs_held_out(self) -> bool:
        """Whether the prepared text depends on data.test."""
        return self.remove_held_out or self.remove_held_out_sentences

    def problems(self) -> Iterator[Problem]:
        """Yield limits that no pair can meet."""
        for unit in ("characters", "words"):
            least, most = getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}")
            if least is not None and most is not None and least > most:
                text = f"must be at most max_{unit} {most:,}, but is {least:,}"
                yield Problem(f"min_{unit}", text, f"max_{unit}")


class TreebankConfig(Section):
    """How a treebank is cleaned, and how its trees are written as tokens."""

    notation: Notation = "angles"
    """angles writes (NP <NN> )NP, brackets (NP NN )NP as Vinyals et al., slashes NP NN /NP as
    Tensor2Tensor."""
    tags: Literal["kept", "XX"] = "kept"
    """XX writes XX in place of each word's tag; parses then have XX too."""
    words: Literal["dropped", "kept"] = "dropped"
    """Whether each word follows its tag."""
    closing: Literal["typed", "plain"] = "typed"
    """typed writes )NP where a constituent ends, plain only )."""
    remove_traces: Flag = True
    """Remove traces (-NONE-) and the constituents left empty."""
    remove_functions: Flag = True
    """Remove functions and indices from labels: NP of NP-SBJ-1."""

    def linearization(self, labels: Labels | None) -> Linearization:
        """Return the notation for trees with ``labels``; None allows all, except for slashes."""
        return Linearization(self.notation, self.tags, self.words, self.closing, labels)


class DataConfig(Section):
    """The text: its files, and how it is changed and filtered."""

    source_language: Annotated[Language, Effect.TEXT]
    """Code of the language translated from."""
    target_language: Annotated[Language, Effect.TEXT]
    """Code of the language translated into."""
    train: Annotated[tuple[Corpus, ...], Field(min_length=1, max_length=10_000)]
    """Corpora to train on, each with its source and target."""
    mixing: Annotated[MixingConfig, Effect.STEPS] = Field(default_factory=MixingConfig)
    """Shares by size, in place of the weights of corpora."""
    stages: Annotated[tuple[Stage, ...], Field(max_length=1000), Effect.STEPS] = ()
    """Mixtures of the corpora, one after the other. Learning rate and optimizer go on; a stage
    begins with a new epoch."""
    validation: Annotated[HeldOutSets, Effect.TEXT]
    """Text on which loss, BLEU or F1 are measured while training; a list holds several sets, each
    with a name."""
    test: Annotated[HeldOutSets | None, Effect.HELD_OUT | Effect.USE] = None
    """Text held out for the final score; training never reads it. A list holds several sets, each
    with a name."""
    treebank: Annotated[TreebankConfig | None, Effect.TEXT] = None
    """How trees are written as tokens. If given, each target is a treebank: trees in the brackets
    of the Penn Treebank; source is the same file, or the words of a tree a line. The model then
    parses."""
    normalization: Annotated[Normalization, Effect.TEXT] = Field(default_factory=Normalization)
    """Changes to the text before it is cut into pieces."""
    filters: Annotated[Filters, Effect.TEXT] = Field(default_factory=Filters)
    """Training pairs to leave out."""
    max_length: Annotated[Pieces, Effect.TEXT] = 1024
    """Longest side of a training pair, in pieces; longer pairs are dropped and counted. Also the
    longest input of translate; see its --too-long."""
    prepared: Annotated[DataPath | None, Effect.USE] = None
    """Folder that preprocess writes and train reads; by default prepared/NAME."""

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of both languages, the source first."""
        return self.source_language, self.target_language

    def languages_of(self, files: ParallelFiles) -> tuple[str, str]:
        """Return the codes of the languages of a corpus, the source first."""
        of_memory = files.columns if files.memory is not None else None
        return files.languages or of_memory or self.languages

    @property
    def validation_sets(self) -> tuple[HeldOutFiles, ...]:
        """The validation sets; one without a name is the only one."""
        return tuple(sets_by_key("validation", self.validation).values())

    @property
    def test_sets(self) -> tuple[HeldOutFiles, ...]:
        """The test sets, or none; one without a name is the only one."""
        return tuple(sets_by_key("test", self.test).values())

    @property
    def corpora(self) -> dict[str, ParallelFiles]:
        """All corpora, validation and test sets, each by its key: train.0."""
        return {
            **{f"train.{index}": corpus for index, corpus in enumerate(self.train)},
            **sets_by_key("validation", self.validation),
            **sets_by_key("test", self.test),
        }

    @property
    def tags(self) -> dict[str, str]:
        """The tags of corpora, validation and test sets, each by its key: train.0.tag.

        With the pieces that stand for inline tags: train.0.inline_tags.
        """
        found = {
            f"{key}.{name}": getattr(files, name)
            for key, files in self.corpora.items()
            for name in ("tag", "inline_tags")
        }
        return {key: tag for key, tag in found.items() if tag is not None}

    def weights(self, sizes: Sequence[int], stage: int = 0) -> list[float]:
        """Return how often each corpus appears in an epoch; ``sizes`` are their pairs."""
        of_stage = self.stages[stage].mixed(self.train, sizes) if self.stages else None
        return self.mixing.weights(self.train, sizes) if of_stage is None else of_stage

    @property
    def is_augmented(self) -> bool:
        """Whether training changes the text of some of its pairs."""
        return any(corpus.augment.probabilities for corpus in self.train)

    def problems(self) -> Iterator[Problem]:
        """Yield unnamed sets, limits that no pair can meet, and what does not suit trees."""
        for key, held_out in (("validation", self.validation), ("test", self.test)):
            if isinstance(held_out, tuple):
                yield from _problems_of_names(sets_by_key(key, held_out))
        if self.treebank is not None:
            for key, text in self._unfit_for_trees():
                yield Problem(key, text, "treebank")
        yield from problems_of_mixing(self.train, self.mixing, self.stages)
        if self.filters.min_length > self.max_length:
            yield Problem(
                "filters.min_length",
                f"must be at most data.max_length {self.max_length:,}, "
                f"but is {self.filters.min_length:,}",
                "max_length",
            )

    def _unfit_for_trees(self) -> Iterator[tuple[str, str]]:
        """Yield the keys in use that are for parallel text only, and what is wrong with each."""
        only_text = "is for text; leave it out beside treebank"
        if self.normalization.punctuation:
            text = "must be false beside treebank, because it would change tags such as ``"
            yield "normalization.punctuation", text
        for name, value in self.filters:
            if value is not None and value is not False and name not in FILTERS_OF_TREES:
                yield f"filters.{name}", only_text
        for key, files in self.corpora.items():
            for form in (name for name in files.paths if name not in ("source", "target")):
                yield f"{key}.{form}", "must be null beside treebank; give source and target"
        for key, tag in self.tags.items():
            text = f"must be null beside treebank, whose sentences have only words, but is {tag}"
            yield key, text
        for number, corpus in enumerate(self.train):
            if corpus.scores is not None:
                yield f"train.{number}.scores", only_text
            if corpus.alignments is not None:
                text = "must be null beside treebank, whose trees have no alignments"
                yield f"train.{number}.alignments", text


def _problems_of_names(sets: Mapping[str, HeldOutFiles]) -> Iterator[Problem]:
    names = [(f"{key}.name", files.name) for key, files in sets.items()]
    for key, name in names:
        if name is None:
            yield Problem(key, "is missing; each set of a list needs a name")
    yield from repeated_names(names)
