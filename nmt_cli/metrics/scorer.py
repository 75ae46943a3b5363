"""A metric of sacrebleu with its settings, in the form that all metrics here share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


class Score(Protocol):
    """What each metric returns for a corpus: a NamedTuple whose text is one line."""

    @property
    def score(self) -> float:
        """The score, 0 to 100; TER can be above 100."""
        ...

    @property
    def signature(self) -> str:
        """The settings and versions that the score depends on."""
        ...

    def _asdict(self) -> dict[str, Any]: ...


# The names of the metrics in text, by their keys in JSON.
NAMES = {"bleu": "BLEU", "paper_bleu": "paper's BLEU", "chrf": "chrF2", "ter": "TER"}
ScoreT_co = TypeVar("ScoreT_co", bound=Score, covariant=True)


@dataclass(frozen=True)
class Scorer(Generic[ScoreT_co]):
    """Scores corpora with one metric and its settings; not to be shared between threads."""

    key: str  # in JSON
    metric: Metric  # for the paired tests of sacrebleu
    read: Callable[[Any, str], ScoreT_co]  # makes a Score of sacrebleu's score and its signature
    higher_is_better: bool = True

    @property
    def name(self) -> str:
        """The name in text."""
        return NAMES[self.key]

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> ScoreT_co:
        """Return the score of ``hypotheses`` against one or several sets of ``references``.

        Raises ValueError if there are no hypotheses, or if a set has another number of lines.
        """
        if not hypotheses or not references:
            raise ValueError("there is nothing to score")
        for reference in references:
            if len(reference) != len(hypotheses):
                raise ValueError(f"{len(hypotheses)} hypotheses, but {len(reference)} references")
        score = self.metric.corpus_score(hypotheses, references)
        return self.read(score, str(self.metric.get_signature()))


Method = Literal["bootstrap", "randomization"]

# The defaults of sacrebleu, so that both programs report the same figures.
METHOD: Method = "bootstrap"
NUM_SAMPLES: dict[Method, int] = {"bootstrap": 1_000, "randomization": 10_000}
SEED = 12_345
SIGNIFICANCE_LEVEL = 0.05


class Resampling(NamedTuple):
    """A paired test by resampling: its method and how its samples are drawn."""

    method: Method
    num_samples: int
    seed: int  # 1 or more; sacrebleu takes 0 for no seed

    @classmethod
    def chosen(cls, method: Method | None, num_samples: int | None, seed: int | None) -> Resampling:
        """Return the settings with a default for each that is None."""
        method = method or METHOD
        return cls(method, num_samples or NUM_SAMPLES[method], seed or SEED)
