"""Alignments between the words of a line and those of its translation."""

from collections.abc import Sequence

from nmt_cli.decoding.beams import Hypothesis
from nmt_cli.decoding.over_long import Part
from nmt_cli.decoding.translation import Links
from nmt_cli.errors import UserError
from nmt_cli.model_settings import ModelSettings


class WordAligner:
    """Aligns words by attention. Raises UserError if the model writes trees, not words."""

    def __init__(self, settings: ModelSettings) -> None:
        if settings.trees is not None:
            raise UserError(
                "--alignments are between the words of a line and those of its translation; this "
                "model writes trees."
            )

    def align(self, hypotheses: Sequence[Hypothesis], parts: Sequence[Part]) -> Links:
        """Return, for each target word, the source word that it attends to most.

        A line is translated in ``parts``; each has its own one of ``hypotheses``.
        """
        links: list[tuple[int, int]] = []
        num_sources = num_targets = 0
        for hypothesis, part in zip(hypotheses, parts, strict=True):
            assert hypothesis.attended is not None, "the search was not asked for attention"
            if part.separator == "":  # the part goes on with the last word of the part before
                num_sources, num_targets = max(0, num_sources - 1), max(0, num_targets - 1)
            words = hypothesis.attended.words
            links += [
                (num_sources + source, num_targets + target) for target, source in enumerate(words)
            ]
            num_targets += len(words)
            num_sources += hypothesis.attended.num_source_words
        return tuple(links)
