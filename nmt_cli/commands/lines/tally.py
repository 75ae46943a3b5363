"""What happened to the lines of a text that is translated, or to the segments of a document."""

import time
from collections import Counter

from nmt_cli.files.lines import Line, is_blank
from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted
from nmt_cli.translating.interface.translation import Translation

SHOWN_NUMBERS = 10
LACKING = (
    "most sentences have no translation: {}; --split-sentences translates each sentence of a line "
    "by itself."
)
BY_DEFAULT = (
    "Translated each sentence by itself in {}, because the model was trained on single sentences; "
    "--no-split-sentences translates lines as a whole."
)


class Tally:
    """Counts what happened to the lines; its memory does not grow with their number."""

    def __init__(self, num_before: int, num_failed: int = 0, unit: str = "line") -> None:
        """``num_before`` lines come before those counted here; ``num_failed`` of them failed.

        ``unit`` is what messages call a line.
        """
        self._num_before, self.num_failed, self._unit = num_before, num_failed, unit
        self.num_lines = 0
        self._in_parts = LineNumbers()
        self._truncated = LineNumbers()
        self._lacking = LineNumbers()
        self._by_default = LineNumbers()
        self._empty = LineNumbers()
        self._with_invisible = LineNumbers()
        self._of_unseen = LineNumbers()
        self._with_bad_bytes = LineNumbers()
        self._num_replaced = 0  # byte sequences
        self._not_copied = LineNumbers()
        self._from_memory = LineNumbers()
        self._repaired_trees = LineNumbers()
        self._num_trees, self._repairs = 0, Counter[str]()
        self._started = time.monotonic()

    @property
    def line_number(self) -> int:
        """The number, in the whole text, of the line that was counted last."""
        return self._num_before + self.num_lines

    def count(self, line: Line, translation: Translation) -> None:
        """Count the next line; warn at once if a line of text failed."""
        self.num_lines += 1
        number = self.line_number
        if translation.error is not None:
            self.num_failed += 1
            if self._unit == "line":  # the document names its segments when it is composed
                logs.warning(f"line {number:,} could not be translated: {translation.error}.")
        for numbers, is_one in (
            (self._in_parts, translation.num_parts > 1),
            (self._truncated, translation.truncated),
            (self._lacking, translation.lacks_sentences),
            (self._by_default, translation.splits_by_default),
            (self._empty, translation.score is not None and is_blank(translation.text)),
            (self._with_invisible, translation.drops_invisible),
            (self._of_unseen, translation.copies_unseen),
            (self._not_copied, translation.not_copied),
            (self._from_memory, translation.has_equal_segments),
        ):
            if is_one:
                numbers.add(number)
        if translation.repairs is not None:
            self._num_trees += 1
            self._repairs.update(vars(translation.repairs))
            if translation.repairs.total():
                self._repaired_trees.add(number)
        if line.replaced:
            self._with_bad_bytes.add(number)
            self._num_replaced += line.replaced
        if line.byte_order_mark:
            logs.info("Cut a byte order mark before the first line.")

    def report(self) -> None:
        """Log how many lines were translated, and warn about those in parts, cut or repaired."""

        def at(numbers: LineNumbers) -> str:
            return numbers.shown(self._unit)

        for numbers, log, message in (
            (self._in_parts, logs.warning, "too long for the model, translated in parts: {}."),
            (self._truncated, logs.warning, "too long for the model, end cut off: {}."),
            (self._lacking, logs.warning, LACKING),
            (self._by_default, logs.info, BY_DEFAULT),
            (self._empty, logs.warning, "the translation is empty: {}."),
            (
                self._of_unseen,
                logs.warning,
                "copied, because the model never saw such letters: {}.",
            ),
            (self._not_copied, logs.warning, "protected text not copied exactly once: {}."),
            (self._from_memory, logs.info, "Took translations from the memory in {}."),
            (self._with_invisible, logs.info, "Left out characters that nobody sees in {}."),
        ):
            if numbers.count:
                log(message.format(at(numbers)))
        if self._with_bad_bytes.count:
            sequences = counted(self._num_replaced, "byte sequence")
            logs.warning(f"Bad UTF-8: {sequences} became U+FFFD in {at(self._with_bad_bytes)}.")
        if self._num_trees:
            from nmt_cli.parsing.tree_output import Repairs  # only for models that parse

            repaired, repairs = self._repaired_trees, Repairs(**self._repairs)
            what = f" in {at(repaired)}: {repairs.described()}" if repaired.count else ""
            trees = counted(self._num_trees, "tree")
            logs.info(f"Repaired {repaired.count:,} of {trees}{what}.")
        seconds = time.monotonic() - self._started
        logs.info(f"Translated {counted(self.num_lines, self._unit)} in {seconds:.1f} s.")


class LineNumbers:
    """The count of some lines, and the line numbers of the first ones."""

    def __init__(self) -> None:
        self.count, self.first = 0, list[int]()

    def add(self, number: int) -> None:
        """Count the line of this number."""
        self.count += 1
        if len(self.first) < SHOWN_NUMBERS:
            self.first.append(number)

    def shown(self, unit: str) -> str:
        """Return the count and the numbers; ``unit`` is what they number."""
        shown = ", ".join(f"{number:,}" for number in self.first)
        if self.count == 1:
            return f"{unit} {shown}"
        more = " ..." if self.count > SHOWN_NUMBERS else ""
        return f"{self.count:,} {unit}s ({shown}{more})"
