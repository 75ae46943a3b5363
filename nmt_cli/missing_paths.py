"""Hints for paths that do not exist: what to write, or the command that makes the file."""

import glob
from itertools import islice
from pathlib import Path

from nmt_cli.dataset_names import data_get_hint

MATCHES_SHOWN = 3
MATCHES_LOOKED_AT = 1000  # a pattern may match a whole disk


def missing_hint(path: Path) -> str:
    """Return "; ..." with advice on the missing ``path``, or "" if there is none.

    There is advice on ``~`` and ``*``, which only a shell expands, and on files of ``data get``.
    Messages insert the text before their full stop.
    """
    text = str(path)
    home = next((i for i, part in enumerate(path.parts) if part.startswith("~")), None)
    if home is not None:
        try:
            return f"; ~ is not expanded, write {Path(*path.parts[home:]).expanduser()}"
        except RuntimeError:  # ~user of a user who does not exist
            return "; ~ is not expanded, write the whole path"
    if "*" not in text:
        return data_get_hint(path)
    matches = sorted(islice(glob.iglob(text), MATCHES_LOOKED_AT))  # noqa: PTH207 - also absolute
    if not matches:
        return "; * is not expanded and nothing matches, write the name of each file"
    named = ", ".join(matches[:MATCHES_SHOWN])
    more = f" and {len(matches) - MATCHES_SHOWN:,} more" if len(matches) > MATCHES_SHOWN else ""
    return f"; * is not expanded, write the name of each file: {named}{more}"
