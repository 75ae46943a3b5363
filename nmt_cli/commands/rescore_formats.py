"""The output formats of scores of given translations: text, tsv and jsonl."""

import json
from collections.abc import Callable

from nmt_cli.commands.shown_pieces import shown_pieces
from nmt_cli.corpus.lines import one_line
from nmt_cli.decoding.rescorer import Rescored

Formatter = Callable[[int, Rescored], str]


def as_text(number: int, rescored: Rescored) -> str:
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


FORMATS: dict[str, Formatter] = {"text": as_text, "tsv": as_tsv, "jsonl": as_jsonl}
