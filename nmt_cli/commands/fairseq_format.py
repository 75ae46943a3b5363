"""The lines that fairseq-generate and fairseq-interactive print for each sentence."""

import math

from nmt_cli.commands.alignment_format import pharaoh
from nmt_cli.commands.moses_format import FAILED, NOTHING
from nmt_cli.commands.shown_pieces import shown_pieces
from nmt_cli.corpus.lines import Line, one_line
from nmt_cli.decoding.translation import Translation

LN_2 = math.log(2)  # fairseq prints scores to the base 2


def as_fairseq(number: int, line: Line, translation: Translation) -> str:
    """Return the line of the source (S), and pieces (H), text (D) and scores (P) of the n best.

    Lines count from 0. A blank line has the score 0, and a failed one -inf. Alignments that were
    asked for are a further line (A).
    """
    place = number - 1
    rows = [f"S-{place}\t{_column(line.text)}"]
    for found in translation.ranked or (NOTHING if translation.error is None else FAILED,):
        score = f"{found.score / LN_2:.6f}"
        of_tokens = " ".join(f"{each / LN_2:.4f}" for each in found.token_scores)
        rows += [
            f"H-{place}\t{score}\t{shown_pieces(found.tokens)}",
            f"D-{place}\t{score}\t{_column(found.text)}",
            f"P-{place}\t{of_tokens}",
        ]
        rows += [f"A-{place}\t{pharaoh(found.alignment)}"] if found.alignment else []
    return "".join(f"{row}\n" for row in rows)


def _column(text: str) -> str:
    return one_line(text).replace("\t", " ")
