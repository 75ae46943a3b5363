"""Documents that are zip files: some members are translated, the others stay as they are."""

from __future__ import annotations

import copy
import io
import lzma
import shutil
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar
from xml.parsers import expat

from nmt_cli.documents.document import Document, DocumentError
from nmt_cli.translating.interface.request import LineError, Request
from nmt_cli.translating.interface.translation import Translation, in_groups

OLD_FORMAT = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # of Microsoft Office, also if it is encrypted
MOST_MEMBERS = 20_000
MOST_UNPACKED = 1 << 30  # bytes of all members
# Archives that unpack to more than the first number, and to so many times their size, are made to
# fill memory.
HARMLESS, MOST_TIMES = 1 << 26, 100
MOST_MARKUP = 1 << 25  # bytes of the members that are translated; reading them takes 100 times that
SEARCHED = 1 << 14  # bytes of a member in which its root begins
OF_TEXTS = (".xml", ".xhtml", ".xhtm", ".html", ".htm", ".ncx", ".opf")
DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, ValueError, OverflowError, IndexError, NotImplementedError, RuntimeError),
)


def markup_bytes(data: bytes) -> int:
    """Return the size of a text, or of the members of an archive that may hold texts."""
    if not data.startswith(b"PK"):
        return len(data)
    try:
        members = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except DAMAGES:
        return 0  # it cannot be read
    return sum(each.file_size for each in members if each.filename.lower().endswith(OF_TEXTS))


Read = TypeVar("Read")


class TooLargeError(DocumentError):
    """The texts of an archive are too large."""


class Archive:
    """The members of a zip file, none of which is ever written to a disk."""

    def __init__(self, data: bytes) -> None:
        """Raise DocumentError if it is damaged, encrypted, or made to harm who unpacks it."""
        if data.startswith(OLD_FORMAT):
            raise DocumentError(
                "it is encrypted, or of an old version of Office; save it without a password, in "
                "the format of its ending"
            )
        self._data, self._read = data, 0
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            members = self._zip.infolist()
            if (reason := _harm(members, len(data))) is not None:
                raise DocumentError(reason)
            if (damaged := self._zip.testzip()) is not None:
                raise DocumentError(f"its member {damaged} is damaged")
        except DAMAGES as error:
            raise DocumentError(f"it is no zip file, or is damaged: {error}") from None
        self.names = dict.fromkeys(member.filename for member in members)

    def read(self, name: str) -> bytes:
        """Return a member that is translated. Raises DocumentError if they are too large."""
        if name not in self.names:
            raise DocumentError(f"it has no {name}")
        if not name.lower().endswith(OF_TEXTS):  # ``markup_bytes`` has not counted it
            raise DocumentError(f"its text {name} ends in none of {', '.join(OF_TEXTS)}")
        self._read += self._zip.getinfo(name).file_size
        if self._read > MOST_MARKUP:
            raise TooLargeError(f"its texts have more than {MOST_MARKUP >> 20} MB of markup")
        return self._zip.read(name)

    def root_of(self, name: str) -> str:
        """Return the namespace and the name of a member's root; "" if it has none."""
        found = [""]
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = lambda root, _: found.append(root)
        with self._zip.open(name) as stream, suppress(expat.ExpatError, ValueError, LookupError):
            parser.Parse(stream.read(SEARCHED), False)
        return "".join(found[1:2])

    def opened(self, name: str, read: Callable[[bytes], Read]) -> Read:
        """Return what ``read`` makes of a member. Raises DocumentError, which names the member."""
        data = self.read(name)
        try:
            return read(data)
        except (DocumentError, LineError) as error:
            raise DocumentError(f"its member {name}: {error}") from None

    def with_changed(self, changed: Mapping[str, bytes]) -> bytes:
        """Return the archive with other contents of these members, in the same order."""
        if not changed:
            return self._data
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as target:
            target.comment = self._zip.comment
            for member in self._zip.infolist():
                same = copy.copy(member)  # its name, date, compression and attributes
                content = changed.get(member.filename, b"" if member.is_dir() else None)
                if content is not None:
                    target.writestr(same, content)
                    continue
                with self._zip.open(member) as source, target.open(same, "w") as stream:
                    shutil.copyfileobj(source, stream)  # it may be far larger than the archive
        return written.getvalue()


def _harm(members: Sequence[zipfile.ZipInfo], size: int) -> str | None:
    """Return why an archive of this size in bytes is refused; None if nothing is wrong."""
    names = Counter(member.filename for member in members)
    total = sum(member.file_size for member in members)
    if len(members) > MOST_MEMBERS:
        return f"it has {len(members):,} members, more than {MOST_MEMBERS:,}"
    if total > MOST_UNPACKED or total > max(HARMLESS, MOST_TIMES * size):
        return f"it has {size:,} bytes and would unpack to {total:,}"
    if len(names) < len(members):
        return f"it has the member {names.most_common(1)[0][0]} twice"
    for member in members:
        parts = member.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or parts[0].endswith(":"):
            return f"its member {member.filename} is a path outside of it"
        if member.flag_bits & 1:
            return f"its member {member.filename} is encrypted; save it without a password"
    return None


class ArchiveDocument:
    """A document whose texts are in some members of an archive."""

    def __init__(self, archive: Archive, members: Mapping[str, Document]) -> None:
        self._archive, self._members = archive, members
        self.segments: Sequence[Request] = [
            segment for member in members.values() for segment in member.segments
        ]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the archive with the translation of each segment in its place."""
        changed = dict[str, bytes]()
        if any(t.text != s.text for t, s in zip(translations, self.segments, strict=True)):
            sizes = (len(member.segments) for member in self._members.values())
            of_each = in_groups(translations, sizes)
            for (name, member), own in zip(self._members.items(), of_each, strict=True):
                changed[name] = member.filled(own)
                self._refuse_damaged(name, changed[name])
        return self._archive.with_changed(changed)

    def _refuse_damaged(self, name: str, written: bytes) -> None:
        """Raise DocumentError if a member is no XML any more, which would be a bug."""
        problem = _problem_of_xml(written)
        if problem is not None and _problem_of_xml(self._archive.read(name)) is None:
            raise DocumentError(
                f"its member {name} is no XML with these translations ({problem}), because of a "
                "bug in nmt-cli; please report it"
            )


def _problem_of_xml(data: bytes) -> str | None:
    parser = expat.ParserCreate(namespace_separator=" ")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        return str(error)
    except (ValueError, LookupError):  # an encoding that expat does not read
        return None
    return None
