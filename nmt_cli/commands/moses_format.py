"""The n-best lists of Moses: number, text, features and score of each translation."""

from nmt_cli.commands.alignment_format import pharaoh
from nmt_cli.corpus.lines import Line
from nmt_cli.decoding.translation import Alternative, Translation

SEPARATOR = "|||"
ESCAPED = "&#124;&#124;&#124;"  # how Moses writes it in a text
NOTHING = Alternative("", 0.0, ())  # the translation of a blank line
FAILED = Alternative("", float("-inf"), (), log_probability=float("-inf"))


def as_moses(number: int, line: Line, translation: Translation) -> str:
    """Return ``id ||| text ||| F0= log-probability ||| score`` of each of the n best.

    Lines count from 0. A blank line has the score 0, and a failed one -inf. Alignments that were
    asked for are a fifth column.
    """
    rows = []
    for found in translation.ranked or (NOTHING if translation.error is None else FAILED,):
        columns = [
            str(number - 1),
            found.text.replace(SEPARATOR, ESCAPED),
            f"F0= {found.log_probability:.6f}",
            f"{found.score:.6f}",
        ]
        columns += [pharaoh(found.alignment)] if found.alignment else []
        rows.append(f" {SEPARATOR} ".join(columns) + "\n")
    return "".join(rows)
