"""Damaged and hostile documents have a reason in one line, or are read; nothing else happens."""

import io
import random
import struct
import time
import tracemalloc
import zipfile

import pytest

from nmt_cli.documents import archive, formats
from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import read_document
from tests.documents.archives import A, P, W, docx, epub, odt, pptx, unzipped, zipped
from tests.documents.filling import copied, shouted

TEXT = "<w:p><w:r><w:t>One word</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>two</w:t></w:r></w:p>"
WHOLE = {
    "docx": docx(TEXT * 3),
    "pptx": pptx("<a:p><a:r><a:t>One word</a:t></a:r><a:r><a:t>two</a:t></a:r></a:p>" * 3),
    "odt": odt("<text:p>One <text:span>word</text:span> two</text:p>" * 3),
    "epub": epub("<html><body><p>One <b>word</b></p><p>two</p></body></html>"),
    "html": b"<!DOCTYPE html><p>One <b>word</b> <a href='x'>two</a><!-- x --></p><ul><li>x</ul>"
    * 3,
    "xml": b"<?xml version='1.0'?><a><b>One</b><c>word <d>two</d></c></a>",
    "markdown": "# One\n\n* word **two** [x](y)\n\n| a | b |\n|---|---|\n| `c` | ü |\n".encode(),
}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` cut, with some bits turned, or with a part left out, repeated or moved."""
    kind = rng.randrange(4)
    begin, end = sorted(rng.sample(range(len(data) + 1), 2))
    if kind == 0:
        return data[:end]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 9)):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 2:
        return data[:begin] + data[end:]
    return data[:end] + data[begin:]


def reason_of(data: bytes, form: str) -> str | None:
    """Return why a document is refused; None if it is read, and can be filled."""
    try:
        copied(data, form)
        shouted(data, form)
    except DocumentError as error:
        return str(error)
    return None


@pytest.mark.parametrize("form", WHOLE)
def test_damaged_files(form):
    rng = random.Random(form)
    reasons = [reason_of(damaged(WHOLE[form], rng), form) for _ in range(40)]
    assert all("\n" not in each for each in reasons if each is not None)
    # Text is rarely so damaged that it is none.
    assert (reasons.count(None) < 20) == (form not in {"html", "markdown"})


@pytest.mark.parametrize("form", ["docx", "pptx", "odt", "epub"])
def test_damaged_members(form):
    rng, reasons = random.Random(form), list[str | None]()
    for _ in range(25):
        members = unzipped(WHOLE[form])
        name = rng.choice(list(members))
        members[name] = damaged(members[name], rng)
        reasons.append(reason_of(zipped(members), form))
    assert all("\n" not in each for each in reasons if each is not None)
    assert 0 < reasons.count(None) < len(reasons)


def member(name: str, content: bytes = b"x") -> bytes:
    written = io.BytesIO(WHOLE["docx"])
    with zipfile.ZipFile(written, "a", zipfile.ZIP_DEFLATED) as target:
        target.writestr(name, content)
    return written.getvalue()


def encrypted() -> bytes:
    data = WHOLE["docx"]
    place = data.rindex(b"PK\x01\x02")
    flags = struct.pack("<H", 1)
    return data[: place + 8] + flags + data[place + 10 :]


def twice() -> bytes:
    return member("word/d_cument.xml").replace(b"d_cument.xml", b"document.xml")


LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
HOSTILE = {
    "a path outside": (member("../../etc/passwd"), "its member ../../etc/passwd is a path outside"),
    "an absolute path": (member("/etc/passwd"), "its member /etc/passwd is a path outside of it"),
    "a drive": (member("C:\\x"), "is a path outside of it"),
    "a member twice": (twice(), "it has the member word/document.xml twice"),
    "an encrypted member": (encrypted(), "is encrypted; save it without a password"),
    "an encrypted document": (archive.OLD_FORMAT + b"x", "it is encrypted, or of an old version"),
    "no zip file": (b"text", "it is no zip file, or is damaged: File is not a zip file"),
    "another document": (WHOLE["odt"], "it has no member of XML with the root w:document"),
    "entities": (
        docx("&b;").replace(b"x", b"x"),
        "its member word/document.xml: it is not XML: un",
    ),
    "nesting": (
        docx("<w:sdt>" * 300 + "</w:sdt>" * 300),
        "its elements are nested more than 256 deep",
    ),
    "a DOCTYPE": (
        zipped({"word/document.xml": f"{LAUGHS}<w:document {W}>&b;</w:document>"}),
        "it has a DOCTYPE, which",
    ),
    "no text at all": (b"", "it is no zip file"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archives(what):
    data, reason = HOSTILE[what]
    with pytest.raises(DocumentError, match=f"^.*{reason}"):
        read_document(data, "docx")


def test_a_bomb_is_refused():
    with pytest.raises(DocumentError, match=r"it has [\d,]+ bytes and would unpack to 70,"):
        read_document(member("x", bytes(70_000_000)), "docx")


def test_a_bomb_of_markup_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(archive, "MOST_MARKUP", 10_000)
    with pytest.raises(DocumentError, match="its texts have more than 0 MB of markup"):
        read_document(docx("<w:p/>" * 2_000), "docx")
    large = f"<ncx>{'<text/>' * 2_000}</ncx>"
    with pytest.raises(DocumentError, match="its texts have more than 0 MB of markup"):
        read_document(zipped({**unzipped(WHOLE["epub"]), "OPS/toc.ncx": large}), "epub")


def test_a_text_of_another_ending_is_refused_by_name():
    text = unzipped(WHOLE["docx"])["word/document.xml"]
    with pytest.raises(DocumentError, match=r"^its text word/a\.bin ends in none of \.xml, "):
        read_document(zipped({"word/a.bin": text}), "docx")


def test_an_encrypted_text_of_opendocument():
    manifest = "<manifest:manifest><manifest:encryption-data/></manifest:manifest>"
    data = zipped({"content.xml": b"\x01\x02", "META-INF/manifest.xml": manifest})
    with pytest.raises(DocumentError, match="it is encrypted; save it without a password"):
        read_document(data, "odt")


class Name(str):
    """A name of a member that counts how often it is compared."""

    num_compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.num_compared += 1
        return str.__eq__(self, other)


def test_many_members_are_looked_up_by_their_hashes(monkeypatch):
    members = [zipfile.ZipInfo(f"m{number}") for number in range(500)]
    members.append(zipfile.ZipInfo("m7"))
    for each in members:
        each.filename = Name(each.filename)
    monkeypatch.setattr(Name, "num_compared", 0)
    assert archive._harm(members, 1 << 20) == "it has the member m7 twice"
    found = archive.Archive(zipped({f"m{number}": b"" for number in range(500)}))
    with pytest.raises(DocumentError, match="it has no other"):
        found.read(Name("other"))
    assert Name.num_compared < len(members)


@pytest.mark.parametrize("form", ["xml", "markdown", "docx"])
def test_a_document_that_is_too_large(form, monkeypatch):
    monkeypatch.setattr(formats, "MOST_BYTES", 9)
    monkeypatch.setattr(formats, "MOST_BYTES_OF", {"markdown": 9, "docx": 9})
    with pytest.raises(DocumentError, match="it has more than 0 MB; divide it"):
        read_document(WHOLE[form], form)


def test_a_large_member_that_stays_is_not_held_in_memory():
    data = member("word/media/large.bmp", bytes(40_000_000))
    tracemalloc.start()
    written = shouted(data, "docx")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
    assert unzipped(written)["word/media/large.bmp"] == bytes(40_000_000)


def test_much_of_anything_takes_linear_time():
    """Fields, ruby, names of languages, and shapes of masters within shapes."""
    ruby = "<w:r><w:ruby><w:rubyBase><w:r><w:t>a</w:t></w:r></w:rubyBase></w:ruby></w:r>"
    run = '<w:r><w:rPr><w:lang w:val="en"/></w:rPr>{}</w:r>'
    marks = [run.format(f'<w:fldChar w:fldCharType="{each}"/>') for each in ("begin", "end")]
    code = run.format("<w:instrText>REF a</w:instrText>")
    shape = "<p:sp><p:nvSpPr><p:nvPr/></p:nvSpPr><a:p><a:r><a:t>a</a:t></a:r></a:p></p:sp>"

    def seconds(number: int) -> float:
        inner = "<p:sp>" * 200 + shape * number + "</p:sp>" * 200
        documents = {
            "docx": docx(f"<w:p>{(marks[0] + code + marks[1] + ruby) * number}</w:p>"),
            "pptx": pptx("", master=f"<p:sldMaster {P} {A}>{inner}</p:sldMaster>"),
        }
        begin = time.process_time()
        for form, data in documents.items():
            read_document(data, form, languages=("en", "de"))
        return time.process_time() - begin

    seconds(100)
    assert seconds(2_000) < 30 * max(0.05, seconds(200))


def test_texts_of_a_book_end_in_what_is_counted(caplog):
    """Others stay, and are named."""
    members = unzipped(WHOLE["epub"])
    package = members["OPS/book.opf"].replace(b"one%20chapter.xhtml", b"one.bin")
    chapter = members.pop("OPS/text/one chapter.xhtml")
    data = zipped({**members, "OPS/book.opf": package, "OPS/text/one.bin": chapter})
    found = read_document(data, "epub")
    assert "its text OPS/text/one.bin ends in none of .xml, " in caplog.text
    assert len(found.segments) < len(read_document(WHOLE["epub"], "epub").segments)
    assert archive.markup_bytes(WHOLE["epub"]) > archive.markup_bytes(data)
