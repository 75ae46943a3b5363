"""EPUB: the chapters of a book, and its tables of contents."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

from nmt_cli.documents.archive import Archive, ArchiveDocument
from nmt_cli.documents.document import Document, DocumentError, decoded
from nmt_cli.documents.markup import IN_XML, read_xml
from nmt_cli.translating.markup.tokens import Token, xml_tokens
from nmt_cli.translating.request import LineError

CONTAINER = "META-INF/container.xml"
TRANSLATED = {"application/xhtml+xml", "application/x-dtbncx+xml"}


def read_epub(data: bytes) -> ArchiveDocument:
    """Return a book. Raises DocumentError if it cannot be read, for example if it is encrypted."""
    archive = Archive(data)
    members = dict[str, Document]()
    for root in _tags(archive, CONTAINER, "rootfile"):
        package = root.attributes.get("full-path") or ""
        for item in _tags(archive, package, "item"):
            path = unquote(item.attributes.get("href") or "")
            name = posixpath.normpath(posixpath.join(posixpath.dirname(package), path))
            if item.attributes.get("media-type") in TRANSLATED and name in archive.names:
                members[name] = archive.opened(name, read_xml)
    if not members:
        raise DocumentError("it has no chapters")
    return ArchiveDocument(archive, members)


def _tags(archive: Archive, member: str, name: str) -> Iterator[Token]:
    """Yield the start tags of this name, with any prefix, in a member of XML."""
    try:
        tokens = xml_tokens(decoded(archive.read(member), IN_XML).text)
    except LineError as error:
        raise DocumentError(f"its member {member}: {error}") from None
    for token in tokens:
        if token.attributes and token.name.rpartition(":")[2] == name:
            yield token
