"""The format version of each kind of folder; every version ever written can still be read.

average, checkpoints  1: settings in recipe.yaml, one input matrix for each attention
                      2: settings in config.json, a matrix for each projection of attention
                      3: as 2, and config.json has the notation of trees; only models that parse
                      4: as 3, and config.json has options beyond the paper or says that text is
                         folded, or matrices are 8-bit integers; only such models
                      5: as 4, and the decoder has recurrent units or self-attention has a window;
                         only such models
prepared, report, translation, scores, dataset, export  1
"""

from collections.abc import Mapping
from typing import Any

from nmt_cli.messages.errors import DamagedError, UserError

NEWEST = {"average": 5, "regular": 5, "final": 5, "safety": 5}  # all others have version 1
# Models are written so that older programs can read them.
PLAIN, WITH_TREES, WITH_OPTIONS, INT8, WITH_OTHER_PASTS = 2, 3, 4, 4, 5


class NewerFormatError(UserError):
    """A folder was written by a newer version of this program."""


def newest_version(kind: object) -> int:
    """Return the newest version of a folder of ``kind`` that this program reads."""
    return NEWEST.get(str(kind), 1)


def written_version(kind: object) -> int:
    """Return the version of a folder of ``kind`` that needs no newer one."""
    return min(newest_version(kind), PLAIN)


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
