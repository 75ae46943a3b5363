"""``nmt-cli rescore``: the log-probability of given translations, a number for each line."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from nmt_cli.commands.lines.line_windows import windows
from nmt_cli.commands.lines.opened_texts import opened_stream, opened_text, refuse_to_replace
from nmt_cli.commands.lines.standard_streams import name_of_input
from nmt_cli.commands.lines.translation_formats import shown_pieces
from nmt_cli.corpus.text.shard_text import ShardText
from nmt_cli.files.lines import Line, one_line
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.hardware.machine_options import AUTO, device_name
from nmt_cli.messages import logs
from nmt_cli.messages.errors import STATUS_SOME_LINES_FAILED, UserError
from nmt_cli.messages.figures import counted, perplexity_of, short_number
from nmt_cli.translating.rescorer import Rescored, Rescorer


def run(  # noqa: PLR0913 - the options of a command are its parameters
    model: Path,
    source: Path,
    target: Path,
    *,
    ensemble: Sequence[Path] = (),
    output_path: Path | None = None,
    force: bool = False,
    output_format: str = "text",
    device: str = AUTO,
    threads: int | None = None,
    **options: Any,
) -> int:
    """Write the score of each line of ``target`` as a translation; return the exit status.

    One of the texts may be stdin. The ``options`` are those of ``Rescorer``. Raises
    UserError if the model, a text or an option is wrong or, after the lines that both have, if one
    text has more lines; OutputError if the output cannot be written, and LinesFailedError for a
    bug.
    """
    refuse_to_replace((source, target), output_path)
    chosen_device = device_name(device)
    set_num_threads(threads)
    format_line, tally = FORMATS[output_format], _Tally()
    with ExitStack() as stack:
        texts = (stack.enter_context(opened_text(source)), stack.enter_context(opened_text(target)))
        output = stack.enter_context(opened_stream(output_path, force=force))
        rescorer = Rescorer.load(model, device=chosen_device, ensemble=ensemble, **options)
        hidden, in_lines = output.reader == "terminal", output.reader == "pipe"
        counter = stack.enter_context(
            logs.progress("Scoring", "lines", hidden=hidden, in_lines=in_lines)
        )
        for pairs in pair_windows(texts, (source, target), counter.expect):
            scored = rescorer.rescore_window(
                [(one.text, other.text) for one, other in pairs], tally.num_lines
            )
            first = tally.num_lines + 1
            scores = map(format_line, range(first, first + len(pairs)), scored)
            output.write("".join(scores).encode())
            tally.count(pairs, scored)
            counter.advance(len(pairs))
    tally.report()
    return STATUS_SOME_LINES_FAILED if tally.num_failed else 0


class _Tally:
    """Counts the lines and adds up their log-probabilities."""

    def __init__(self) -> None:
        self.num_lines = self.num_failed = 0
        self._num_blank = self._num_replaced = self._num_pieces = 0
        self._log_probability = 0.0
        self._started = time.monotonic()

    def count(self, pairs: Sequence[tuple[Line, Line]], scored: Sequence[Rescored]) -> None:
        """Count the next lines; warn at once of each that failed."""
        for (source, target), rescored in zip(pairs, scored, strict=True):
            self.num_lines += 1
            self._num_replaced += source.replaced + target.replaced
            self._num_pieces += len(rescored.token_scores)
            self._log_probability += sum(rescored.token_scores)
            if rescored.error is not None:
                self.num_failed += 1
                logs.warning(f"line {self.num_lines:,} could not be scored: {rescored.error}.")
            elif rescored.score is None:
                self._num_blank += 1

    def report(self) -> None:
        """Log the perplexity, and what was left out."""
        if self._num_replaced:
            sequences = counted(self._num_replaced, "byte sequence")
            logs.warning(f"Bad UTF-8: {sequences} became U+FFFD.")
        if self._num_blank:
            lines = counted(self._num_blank, "line has", "lines have")
            logs.warning(f"{lines} a blank source, and so no score.")
        seconds = time.monotonic() - self._started
        logs.info(f"Scored {counted(self.num_lines, 'line')} in {seconds:.1f} s.")
        if self._num_pieces:
            perplexity = perplexity_of(-self._log_probability / self._num_pieces)
            logs.info(
                f"Perplexity {short_number(perplexity, 3)} of a piece "
                f"({counted(self._num_pieces, 'piece')}, with </s> of each line)."
            )


Formatter = Callable[[int, Rescored], str]


def as_score(number: int, rescored: Rescored) -> str:
    """Return the score as a line, which is empty if there is none."""
    return f"{_shown(rescored.score)}\n"


def as_tsv(number: int, rescored: Rescored) -> str:
    """Return line number, score, pieces, and the log-probability of each piece and of </s>."""
    scores = " ".join(map(_shown, rescored.token_scores))
    columns = (str(number), _shown(rescored.score), shown_pieces(rescored.tokens), scores)
    return "\t".join(columns) + "\n"


def as_jsonl(number: int, rescored: Rescored) -> str:
    """Return one JSON object with everything that is known about the line."""
    record = json.dumps({"line": number, **rescored._asdict()}, ensure_ascii=False)
    return one_line(record) + "\n"


def _shown(score: float | None) -> str:
    return "" if score is None else f"{score:.6f}"


FORMATS: dict[str, Formatter] = {"text": as_score, "tsv": as_tsv, "jsonl": as_jsonl}


def pair_windows(
    texts: tuple[BinaryIO | ShardText, BinaryIO | ShardText],
    paths: tuple[Path, Path],
    expect: Callable[[int, bool], None],
) -> Iterator[list[tuple[Line, Line]]]:
    """Yield the pairs in order; at most one window of each text is in memory, and one read ahead.

    A window ends when one of the texts stalls. ``expect`` is as with ``windows``. Raises UserError,
    after the pairs, if one of the texts has more lines, or if it cannot be read.
    """
    readers = [windows(text, expect=expect) for text in texts]
    lines: list[list[Line]] = [[], []]
    num_pairs = 0
    while True:
        lines = [left or next(reader, []) for left, reader in zip(lines, readers, strict=True)]
        count = min(map(len, lines))
        if count == 0:
            break
        yield list(zip(lines[0][:count], lines[1][:count], strict=True))
        lines = [left[count:] for left in lines]
        num_pairs += count
    if any(lines):
        longer, shorter = map(name_of_input, paths if lines[0] else paths[::-1])
        raise UserError(
            f"{shorter} ends after {counted(num_pairs, 'line')}, but {longer} has more; "
            "line n of one must be a translation of line n of the other."
        )
