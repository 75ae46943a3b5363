"""A metric of sacrebleu with its settings, in the form that all metrics here share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

Details = tuple[dict[str, Any], str]  # beside a score: by name for JSON, and as text
# The names of the metrics in text, by their keys in JSON.
NAMES = {"bleu": "BLEU", "paper_bleu": "paper's BLEU", "chrf": "chrF2", "ter": "TER"}


class Score(NamedTuple):
    """The score of a corpus in one metric; its text is one line."""

    score: float  # 0 to 100; TER can be above 100
    signature: str  # the settings and versions that the score depends on
    details: dict[str, Any]
    text: str

    def __str__(self) -> str:
        return self.text

    def figures(self) -> dict[str, Any]:
        """Return everything but the text, for JSON."""
        return {"score": self.score, "signature": self.signature, **self.details}


@dataclass(frozen=True)
class Scorer:
    """Scores corpora with one metric and its settings; not to be shared between threads."""

    key: str  # in JSON
    metric: Metric  # for the paired tests of sacrebleu
    details_of: Callable[[Any], Details] = lambda _: ({}, "")  # of sacrebleu's score
    higher_is_better: bool = True
    of_documents: bool = False

    @property
    def name(self) -> str:
        """The name in text: d-BLEU of documents, chrF2++ with pairs of words."""
        prefix = "d-" if self.of_documents else ""
        return f"{prefix}{NAMES[self.key]}{'+' * getattr(self.metric, 'word_order', 0)}"

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Return the score of ``hypotheses`` against one or several sets of ``references``.

        Raises ValueError if there are no hypotheses, or if a set has another number of lines.
        """
        if not hypotheses or not references:
            raise ValueError("there is nothing to score")
        for reference in references:
            if len(reference) != len(hypotheses):
                raise ValueError(f"{len(hypotheses)} hypotheses, but {len(reference)} references")
        found = self.metric.corpus_score(hypotheses, references)
        signature = str(self.metric.get_signature())
        details, words = self.details_of(found)
        text = "  ".join(filter(None, [f"{self.name} {found.score:.2f}", words, signature]))
        return Score(found.score, signature, details, text)

    def scores_of_each(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> tuple[list[float], str]:
        """Return the score of each hypothesis alone, and the signature of these scores.

        Sentence BLEU has an effective order: n-grams longer than the sentence do not count.
        """
        metric = copy(self.metric)
        if hasattr(metric, "effective_order"):
            metric.effective_order = True
        scores = [
            float(metric.sentence_score(hypothesis, of_it).score)
            for hypothesis, *of_it in zip(hypotheses, *references, strict=True)
        ]
        return scores, str(metric.get_signature())


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
