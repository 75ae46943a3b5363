"""Files that grow during training; a full disk must not leave a part of a record in them."""

import os
from pathlib import Path


def append_whole(path: Path, data: bytes) -> None:
    """Write ``data`` at the end of the file; after an OSError the file is as it was before."""
    with path.open("ab", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        left = memoryview(data)
        try:
            while left:
                left = left[stream.write(left) :]
        except OSError:
            stream.truncate(size)
            raise
