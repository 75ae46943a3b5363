"""Files that grow while training, and that a full disk must not tear."""

import os
from pathlib import Path


def append_whole(path: Path, data: bytes) -> None:
    """Write ``data`` at the end of the file; where that raises OSError the file stays as it was."""
    with path.open("ab", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        left = memoryview(data)
        try:
            while left:
                left = left[stream.write(left) :]
        except OSError:
            stream.truncate(size)
            raise
