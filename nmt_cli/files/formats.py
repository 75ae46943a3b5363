"""The format version of each kind of folder; what release 0.2.0 and later wrote can be read.

average, checkpoints  2: settings in config.json, a matrix for each projection of attention
                      3: as 2, and config.json has the notation of trees; only models that parse
                      4: as 3, and config.json has options beyond the paper or says that text is
                         folded, or matrices are 8-bit integers; only such models
                      5: as 4, and the decoder has recurrent units or self-attention has a window;
                         only such models
prepared, report, translation, scores, dataset, export  1
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.proposals import command, unused_name

OF_MODELS = frozenset({"average", "regular", "final", "safety"})  # all others have version 1
# Models are written so that older programs can read them.
PLAIN, WITH_TREES, WITH_OPTIONS, INT8, WITH_OTHER_PASTS = 2, 3, 4, 4, 5


class OtherFormatError(UserError):
    """A folder has a format that this program does not read."""


def read_versions(kind: object) -> range:
    """Return the versions of a folder of ``kind`` that this program reads."""
    return range(PLAIN, WITH_OTHER_PASTS + 1) if kind in OF_MODELS else range(1, 2)


def written_version(kind: object) -> int:
    """Return the version of a folder of ``kind`` that needs no newer one."""
    return read_versions(kind)[0]


def check_version(manifest: Mapping[str, Any], path: Path) -> None:
    """Raise an error if this program cannot read the folder of ``manifest``, which is at ``path``.

    Raises DamagedError if there is no valid version, OtherFormatError if it is another one.
    """
    kind, version = manifest.get("kind"), manifest.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise DamagedError(f"{path} is damaged: its format version is {version!r}.")
    read = read_versions(kind)
    if version > read[-1]:
        raise OtherFormatError(
            f"{path} has format version {version} of its kind ({kind}), this nmt-cli reads up to "
            f"{read[-1]}; install a newer nmt-cli."
        )
    if version < read[0]:
        average, converted = ("nmt-cli", "average-checkpoints"), unused_name(Path("converted"))
        raise OtherFormatError(
            f"{path} has format version {version} of its kind ({kind}), which no release wrote; "
            f"this nmt-cli reads {read[0]} to {read[-1]}. nmt-cli 0.2.0 converts it: "
            + command(*average, path.parent, "--checkpoints", path.parent, "--output", converted)
        )
