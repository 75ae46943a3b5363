"""Documents that are zip files, of members that the tests write."""

import io
import zipfile
from collections.abc import Mapping

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
C = 'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
ODF = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in (
        *(("office", "office"), ("text", "text"), ("draw", "drawing"), ("style", "style")),
        ("fo", "xsl-fo-compatible"),
    )
)


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    """Return an archive, whose first member is not compressed."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.comment = b"a comment"
        for number, (name, content) in enumerate(members.items()):
            member = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 2 * number))
            member.compress_type = zipfile.ZIP_DEFLATED if number else zipfile.ZIP_STORED
            member.external_attr = 0o640 << 16
            archive.writestr(member, content)
    return written.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def docx(body: str, **others: str) -> bytes:
    document = f'<?xml version="1.0"?>\r\n<w:document {W}><w:body>{body}</w:body></w:document>'
    parts = {f"word/{name}.xml": text for name, text in others.items()}
    return zipped(
        {"[Content_Types].xml": "<Types/>", "word/document.xml": document, **parts}
        | {"word/media/image1.png": bytes(range(256))}
    )


def pptx(paragraphs: str, **others: str) -> bytes:
    slide = f"<p:sld {P} {A}><p:txBody>{paragraphs}</p:txBody></p:sld>"
    members = {"presentation": f"<p:presentation {P}/>", "slides/slide1": slide, **others}
    return zipped({f"ppt/{name}.xml": text for name, text in members.items()})


def odt(body: str) -> bytes:
    content = f"<office:document-content {ODF}>{body}</office:document-content>"
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


def epub(chapter: str) -> bytes:
    container = '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
    package = """<package xmlns="http://www.idpf.org/2007/opf"><manifest>
    <item id="a" href="text/one%20chapter.xhtml" media-type="application/xhtml+xml"/>
    <item id="b" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
    <item id="c" href="../cover.png" media-type="image/png"/>
    </manifest></package>"""
    toc = "<ncx><navMap><navPoint><navLabel><text>one</text></navLabel></navPoint></navMap></ncx>"
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "OPS/book.opf": package,
            "OPS/text/one chapter.xhtml": chapter,
            "OPS/toc.ncx": toc,
            "cover.png": b"\x89PNG",
        }
    )
