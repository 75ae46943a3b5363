"""Scores of each line or document, for ``nmt-cli score --by-line`` and ``--worst``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nmt_cli.commands.score_comparison import NamedText
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.logs import printable
from nmt_cli.metrics.scorer import Scorer


def documents_of(ids: NamedText) -> dict[str, list[int]]:
    """Return the indices of the lines of each document by its id, in the order of first lines.

    Raises UserError if a line has no id.
    """
    documents: dict[str, list[int]] = {}
    for index, line in enumerate(ids.lines):
        if not line.strip():
            raise UserError(
                f"{ids.name}:{index + 1} is blank; --documents needs the id of a document on each "
                "line, as sacrebleu --echo docid prints them."
            )
        documents.setdefault(line.strip(), []).append(index)
    return documents


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
