"""Compares systems for ``nmt-cli score --compare``, and scores each line for ``--by-line``.

Each gives text, and figures for JSON. ``--worst`` shows the lines of the lowest scores.
"""

from __future__ import annotations

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

    @classmethod
    def of(
        cls,
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
                f"{needed / GIBIBYTE:.0f} GiB of memory, {MOST_MEMORY // GIBIBYTE} GiB are "
                "allowed; give fewer --samples."
            )
        if num_segments < FEW_SEGMENTS:
            logs.warning(
                f"{counted(num_segments, 'segment')} cannot give a reliable test; compare systems "
                f"on {FEW_SEGMENTS} or more."
            )
        outcomes = []
        with progress("Comparing", "metrics", len(scorers)) as done:
            for scorer in scorers:
                outcomes.append(significance.paired_test(scorer, systems, references, resampling))
                done.advance()
        return cls(systems, references, scorers, outcomes, resampling)

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


def _cells(figures: significance.SystemFigures) -> tuple[str, str]:
    confidence = "" if figures.confidence is None else f" ± {figures.confidence:.2f}"
    return f"{figures.score:.2f}{confidence}", p_value_text(figures.p_value)


def p_value_text(p_value: float | None) -> str:
    """Return a p-value to read; "" if there is none."""
    if p_value is None:
        return ""
    return f"{p_value:.4f}" if p_value >= SMALLEST_SHOWN else f"<{SMALLEST_SHOWN:.4f}"


class Segments(NamedTuple):
    """The texts to score: of lines or, joined, of documents."""

    hypotheses: NamedText
    references: Sequence[NamedText]
    compared: Sequence[NamedText] = ()
    source: NamedText | None = None
    documents: Sequence[str] | None = None  # their ids; None if the segments are lines

    def joined(self, documents: dict[str, list[int]]) -> Segments:
        """Return a segment for each of ``documents``: its lines, with spaces in between."""

        def join(text: NamedText) -> NamedText:
            lines = [" ".join(text.lines[index] for index in each) for each in documents.values()]
            return NamedText(text.name, lines)

        return Segments(
            join(self.hypotheses),
            [*map(join, self.references)],
            [*map(join, self.compared)],
            None if self.source is None else join(self.source),
            list(documents),
        )

    def label(self, index: int) -> dict[str, Any]:
        """Return what names a segment: its line, from 1, or its document."""
        if self.documents is None:
            return {"line": index + 1}
        return {"document": self.documents[index]}

    def texts(self, index: int) -> dict[str, str]:
        """Return the texts of a segment by what they are."""
        several = len(self.references) > 1
        return {
            **({} if self.source is None else {"source": self.source.lines[index]}),
            "hypothesis": self.hypotheses.lines[index],
            **{
                f"reference {number}" if several else "reference": text.lines[index]
                for number, text in enumerate(self.references, 1)
            },
        }


class SegmentScores(NamedTuple):
    """The scores of segments by the metrics' keys: of all, or of the worst with their texts."""

    segments: Segments
    scorers: Sequence[Scorer]
    signatures: dict[str, str]
    scores: Sequence[dict[str, float]]  # of all
    worst: Sequence[int] | None  # the indices of the worst, the lowest first

    @classmethod
    def of(
        cls, segments: Segments, scorers: Sequence[Scorer], num_worst: int | None
    ) -> SegmentScores:
        """Score each segment alone, and find those of the lowest chrF if a number is given.

        BLEU decides between equal ones; alone it is near 0 for many different sentences.
        """
        references = [text.lines for text in segments.references]
        found = {
            scorer.key: scorer.scores_of_each(segments.hypotheses.lines, references)
            for scorer in scorers
        }
        rows = zip(*(scores for scores, _ in found.values()), strict=True)
        scores = [dict(zip(found, row, strict=True)) for row in rows]
        signatures = {key: signature for key, (_, signature) in found.items()}
        worst = None
        if num_worst is not None:
            keys = [(each["chrf"], each["bleu"]) for each in scores]
            worst = sorted(range(len(keys)), key=keys.__getitem__)[:num_worst]
        return cls(segments, scorers, signatures, scores, worst)

    def as_text(self) -> str:
        """Return a paragraph for each of the worst segments, or else TSV with a header."""
        if self.worst is not None:
            return "\n\n".join("\n".join(self._paragraph(index)) for index in self.worst)
        rows = [[*self.segments.label(0), *self.signatures]]
        for index, scores in enumerate(self.scores):
            (label,) = self.segments.label(index).values()
            cells = (f"{score:.2f}" for score in scores.values())
            rows.append([str(label).replace("\t", " "), *cells])
        return "\n".join(map("\t".join, rows))

    def _paragraph(self, index: int) -> Iterator[str]:
        ((unit, label),) = self.segments.label(index).items()
        scores = (f"{each.name} {self.scores[index][each.key]:.2f}" for each in self.scorers)
        yield printable("  ".join([f"{unit} {label}", *scores]))
        texts = self.segments.texts(index)
        width = max(map(len, texts))
        yield from (f"  {name:<{width}}  {printable(text)}" for name, text in texts.items())

    def as_figures(self) -> dict[str, Any]:
        """Return the same for JSON."""
        indices = range(len(self.scores)) if self.worst is None else self.worst
        return {
            "signatures": self.signatures,
            "scores": [
                {
                    **self.segments.label(index),
                    **self.scores[index],
                    **({} if self.worst is None else self.segments.texts(index)),
                }
                for index in indices
            ],
        }
