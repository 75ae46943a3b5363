"""Tar archives made of bytes."""

import io
import tarfile
from collections.abc import Mapping


def tar_of(members: Mapping[str, bytes], mode: str = "w:gz") -> bytes:
    """Return an archive with the members in their order."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()
