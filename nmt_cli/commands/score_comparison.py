"""Compares systems for ``nmt-cli score --compare``: a table, sentences, and figures for JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import GIBIBYTE, aligned, counted
from nmt_cli.messages.logs import printable, progress
from nmt_cli.messages.proposals import any_of
from nmt_cli.metrics import significance
from nmt_cli.metrics.scorer import SIGNIFICANCE_LEVEL, Method, Resampling, Scorer

FEW_SEGMENTS = 100  # with fewer, resampling finds differences that are chance, and misses others
SMALLEST_SHOWN = 0.0001
MOST_MEMORY = 8 * GIBIBYTE
TESTS: dict[Method, str] = {
    "bootstrap": "Paired bootstrap",
    "randomization": "Paired approximate randomization",
}
SENTENCES: dict[significance.Verdict, str] = {
    "better": "{system} is significantly better than {baseline} in {metrics}.",
    "worse": "{system} is significantly worse than {baseline} in {metrics}.",
    "not significant": "{system} and {baseline} do not differ significantly in {metrics}.",
}


class NamedText(NamedTuple):
    """The lines of a file or of standard input."""

    name: str
    lines: Sequence[str]


class Comparison(NamedTuple):
    """Systems, the baseline first, and what a paired test found in each metric."""

    systems: Sequence[NamedText]
    references: Sequence[Sequence[str]]
    scorers: Sequence[Scorer]
    outcomes: Sequence[significance.MetricFigures]  # one for each scorer
    resampling: Resampling

    def as_table(self) -> str:
        """Return a table, sentences about the differences, and how the test was made."""
        return "\n".join([*aligned(self._rows()), "", *self._sentences(), self._explanation()])

    def as_figures(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "baseline": self.systems[0].name,
            "test": {**self.resampling._asdict(), "significance_level": SIGNIFICANCE_LEVEL},
            "signatures": {
                scorer.key: outcome.signature
                for scorer, outcome in zip(self.scorers, self.outcomes, strict=True)
            },
            "systems": [
                {"name": system.name, **self._figures(place)}
                for place, system in enumerate(self.systems)
            ],
        }

    def _figures(self, place: int) -> dict[str, Any]:
        lines = self.systems[place].lines
        return {
            scorer.key: {
                **scorer.score(lines, self.references).figures(),
                **outcome.systems[place]._asdict(),
            }
            for scorer, outcome in zip(self.scorers, self.outcomes, strict=True)
        }

    def _rows(self) -> Iterator[list[str]]:
        yield ["system", *(cell for scorer in self.scorers for cell in (scorer.name, "p"))]
        for place, system in enumerate(self.systems):
            name = printable(system.name) + (" (baseline)" if place == 0 else "")
            figures = [outcome.systems[place] for outcome in self.outcomes]
            yield [name, *(cell for of_metric in figures for cell in _cells(of_metric))]

    def _sentences(self) -> Iterator[str]:
        baseline = printable(self.systems[0].name)
        for place, system in enumerate(self.systems[1:], 1):
            for verdict, sentence in SENTENCES.items():
                metrics = [
                    scorer.name
                    for scorer, outcome in zip(self.scorers, self.outcomes, strict=True)
                    if outcome.systems[place].verdict == verdict
                ]
                if metrics:
                    yield sentence.format(
                        system=printable(system.name),
                        baseline=baseline,
                        metrics=any_of(metrics, "and"),
                    )

    def _explanation(self) -> str:
        method, num_samples, seed = self.resampling
        interval = "; ± is half of the 95 % confidence interval" if method == "bootstrap" else ""
        return (
            f"{TESTS[method]}, {num_samples:,} samples, seed {seed}: a difference is significant "
            f"if p < {SIGNIFICANCE_LEVEL}{interval}."
        )


def compare(
    systems: Sequence[NamedText],
    references: Sequence[Sequence[str]],
    scorers: Sequence[Scorer],
    resampling: Resampling,
) -> Comparison:
    """Test in each metric whether systems differ from the first one, the baseline.

    Raises UserError if the test would need too much memory.
    """
    num_segments = len(systems[0].lines)
    word_order = max(getattr(scorer.metric, "word_order", 0) for scorer in scorers)
    needed = significance.memory_needed(resampling, num_segments, word_order)
    if needed > MOST_MEMORY:
        raise UserError(
            f"{resampling.num_samples:,} samples of {num_segments:,} segments need about "
            f"{needed / GIBIBYTE:.0f} GiB of memory, {MOST_MEMORY // GIBIBYTE} GiB are allowed; "
            "give fewer --samples."
        )
    if num_segments < FEW_SEGMENTS:
        logs.warning(
            f"{counted(num_segments, 'segment')} cannot give a reliable test; compare systems on "
            f"{FEW_SEGMENTS} or more."
        )
    outcomes = []
    with progress("Comparing", "metrics", len(scorers)) as done:
        for scorer in scorers:
            outcomes.append(significance.paired_test(scorer, systems, references, resampling))
            done.advance()
    return Comparison(systems, references, scorers, outcomes, resampling)


def _cells(figures: significance.SystemFigures) -> tuple[str, str]:
    confidence = "" if figures.confidence is None else f" ± {figures.confidence:.2f}"
    return f"{figures.score:.2f}{confidence}", _p_value(figures.p_value)


def _p_value(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return f"{p_value:.4f}" if p_value >= SMALLEST_SHOWN else f"<{SMALLEST_SHOWN:.4f}"
