"""The format version of each kind of folder; every version ever written can still be read.

average, checkpoints  1: settings in recipe.yaml, one input matrix for each attention
                      2: settings in config.json, a matrix for each projection of attention
                      3: as 2, and config.json has the notation of trees; only models that parse
                      4: as 3, and config.json has options beyond the paper or says that text is
                         folded, or matrices are 8-bit integers; only such models
prepared, report, translation, scores, dataset, export  1
"""

from collections.abc import Mapping
from typing import Any

from nmt_cli.messages.errors import DamagedError, UserError

NEWEST = {"average": 4, "regular": 4, "final": 4, "safety": 4}  # all others have version 1
# Models are written so that older programs can read them.
PLAIN, WITH_TREES = 2, 3
INT8 = 4  # the version of models whose matrices are 8-bit integers


class NewerFormatError(UserError):
    """A folder was written by a newer version of this program."""


def newest_version(kind: object) -> int:
    """Return the newest version of a folder of ``kind`` that this program reads."""
    return NEWEST.get(str(kind), 1)


def written_version(kind: object, *, parses: bool = False, has_options: bool = False) -> int:
    """Return the version in which this program writes a folder of ``kind``.

    ``parses`` is true for a model whose outputs are trees, ``has_options`` for one whose
    architecture has options beyond the paper, or whose text is folded.
    """
    newest = newest_version(kind)
    if has_options:
        return newest
    return min(newest, WITH_TREES if parses else PLAIN)


def check_version(manifest: Mapping[str, Any], path: object) -> None:
    """Raise an error if this program cannot read the folder of ``manifest``, which is at ``path``.

    Raises DamagedError if there is no valid version, NewerFormatError if it is a newer one.
    """
    kind, version = manifest.get("kind"), manifest.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise DamagedError(f"{path} is damaged: its format version is {version!r}.")
    if version > newest_version(kind):
        raise NewerFormatError(
            f"{path} has format version {version} of its kind ({kind}), this nmt-cli reads up to "
            f"{newest_version(kind)}; install a newer nmt-cli."
        )
