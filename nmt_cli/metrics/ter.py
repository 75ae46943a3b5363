"""Translation edit rate (Snover et al., 2006), as sacrebleu computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sacrebleu.metrics.ter import TER, TERScore

from nmt_cli.metrics.scorer import Scorer

if TYPE_CHECKING:
    from typing_extensions import Self


class Ter(NamedTuple):
    """The translation edit rate of a corpus: edits per 100 words of the reference."""

    score: float  # 0 or more; 0 is best
    signature: str
    edits: int
    reference_length: float  # in words; the mean of several references

    @classmethod
    def of(cls, score: TERScore, signature: str) -> Self:
        """Return the figures of sacrebleu's ``score``."""
        return cls(score.score, signature, score.num_edits, float(score.ref_length))

    def __str__(self) -> str:
        return (
            f"TER {self.score:.2f}  ({self.edits:,} edits, reference "
            f"{self.reference_length:,.0f} words)  {self.signature}"
        )


class _RememberedTer(TER):
    """TER that computes each segment once, because that is slow and paired tests ask again."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str], list[float]] = {}

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, Any]
    ) -> list[float]:
        key = (hypothesis, repr(ref_kwargs["ref_words"]))
        if key not in self._known:
            self._known[key] = super()._compute_segment_statistics(hypothesis, ref_kwargs)
        return self._known[key]


def ter_scorer() -> Scorer[Ter]:
    """Return sacrebleu's TER with its default settings, which ignore case."""
    return Scorer("ter", "TER", _RememberedTer(), Ter.of, higher_is_better=False)
