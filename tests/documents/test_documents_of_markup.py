"""Documents of HTML and XML: their texts are translated, all else stays to the last byte."""

import lxml.html
import pytest

from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import format_of, read_document
from nmt_cli.translating.interface.translation import Translation
from tests.documents.filling import copied, shouted, texts_of

PAGE = b"""<!DOCTYPE html>\r
<html lang=en><head><meta charset="utf-8"><title>A page</title>
<style>p { color: red }</style></head>
<body class='x' >
<h1>Cats &amp; dogs</h1>
<p>A <b>big</b> cat<br>sleeps.<!-- note -->
<ul><li>one<li>two</ul><pre>  kept  </pre>
<p translate="no">kept</p>
</body></html>
"""
LOUD = b"""<!DOCTYPE html>\r
<html lang=en><head><meta charset="utf-8"><title>A PAGE</title>
<style>p { color: red }</style></head>
<body class='x' >
<h1>CATS &amp; DOGS</h1>
<p>A <b>BIG</b> CAT<br>SLEEPS.<!-- note -->
<ul><li>ONE<li>TWO</ul><pre>  kept  </pre>
<p translate="no">kept</p>
</body></html>
"""


def test_only_the_texts_of_a_page_change():
    assert copied(PAGE, "html") == PAGE
    assert shouted(PAGE, "html") == LOUD


def test_each_block_is_a_segment_without_white_space_around_it():
    document = read_document(b"<p>\n one <i>two</i> </p>\n<p>three</p>", "html")
    assert texts_of(document) == ["one <i>two</i>", "three"]


@pytest.mark.parametrize(
    ("encoding", "head"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("utf-16", ""),
        ("iso-8859-1", '<meta charset="iso-8859-1">'),
        ("shift_jis", '<META http-equiv=Content-Type content="text/html; charset=Shift_JIS">'),
    ],
)
def test_the_encoding_stays(encoding, head):
    text = "日本" if encoding == "shift_jis" else "é"
    data = f"{head}<p>a {text}</p>".encode(encoding)
    assert copied(data, "html") == data
    assert shouted(data, "html") == f"{head}<p>A {text.upper()}</p>".encode(encoding)


@pytest.mark.parametrize(
    ("named", "bytes_of_it", "text"),
    [  # from the tables at https://encoding.spec.whatwg.org
        ("ISO-8859-1", b"\x80 \x93\xe9\x94", "€ “é”"),
        ("latin1", b"\x81", "\x81"),
        ("iso-8859-9", b"\x80 \xfd", "€ ı"),
        ("tis-620", b"\x85\xa1", "…ก"),
        ("Shift_JIS", b"\x87\x40", "①"),
        ("euc-kr", b"\x8cc", "똠"),
        ("gb2312", b"\xe9F", "镕"),
    ],
)
def test_html_means_larger_encodings_by_some_names(named, bytes_of_it, text):
    data = b"<meta charset=%s><p>x %s</p>" % (named.encode(), bytes_of_it)
    document = read_document(data, "html")
    assert texts_of(document) == [f"x {text}"]
    assert document.filled([Translation(f"x {text}")]) == data
    assert document.filled([Translation(f"y {text}")]) == data.replace(b"x ", b"y ")


@pytest.mark.parametrize("named", ["iso-8859-1", "windows-1252", "koi8-r", "utf8mb4", "utf-16"])
@pytest.mark.parametrize("text", ["Äpfel, “süß”", "日本語の本"])
def test_a_page_of_utf8_that_names_another_encoding_names_utf8(named, text, caplog):
    page = f"<html><head><meta charset='{named}'></head><body><p>one {text}</p></body></html>"
    assert texts_of(read_document(page.encode(), "html")) == [f"one {text}"]
    assert caplog.messages == [
        f"Warning: The page names the encoding {named} but is UTF-8; its translation names UTF-8."
    ]
    found = shouted(page.encode(), "html")
    assert found.decode().lower() == page.replace(named, "utf-8").lower()
    assert lxml.html.fromstring(found).text_content().lower() == f"one {text}".lower()


@pytest.mark.parametrize(
    "page",
    [
        "<meta charset=UTF8><p>ä".encode(),
        "<meta charset=latin1><p>ä".encode("latin-1"),
        b"<meta charset=latin1><p>&auml;",
        "<p>ä".encode(),
    ],
)
def test_a_page_of_the_encoding_that_it_names_stays(page, caplog):
    assert copied(page, "html") == page
    assert not caplog.messages


def test_characters_that_the_encoding_lacks_become_references():
    data = b'<?xml version="1.0" encoding="us-ascii"?><p>stra&#223;e</p>'
    assert copied(data, "xml") == data
    document = read_document(data, "xml")
    filled = document.filled([Translation("Straße €")])
    assert filled == b'<?xml version="1.0" encoding="us-ascii"?><p>Stra&#223;e &#8364;</p>'


XML = b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE doc [<!ENTITY firm "A &amp; B"><!ENTITY other SYSTEM "file:///etc/passwd">]>
<doc><title lang='en'>A title</title>
<para>Made by &firm; in a <emph>small</emph> town.</para><![CDATA[<kept>]]><empty/>
</doc>
"""


def test_entities_of_xml_stay_as_they_are():
    loud = XML.replace(b"A title", b"A TITLE").replace(b"Made by", b"MADE BY")
    loud = loud.replace(b"in a <emph>small</emph> town", b"IN A <emph>SMALL</emph> TOWN")
    assert copied(XML, "xml") == XML
    assert shouted(XML, "xml") == loud


@pytest.mark.parametrize(
    ("data", "form", "reason"),
    [
        (b"<a><b></a>", "xml", "it is not XML: mismatched tag at character 9"),
        (b"<?xml version='1.0'?>", "xml", "it is not XML: no element found at character 22"),
        (b"<p>\xff</p>", "html", "it is not in the encoding utf-8; convert it to UTF-8"),
        (b"<meta charset=klingon>", "html", "it is not in the encoding klingon; convert it"),
        (b"<meta charset=unicode_escape><p>\\ud800", "html", "not in the encoding unicode_escape"),
        (
            b"<meta charset=punycode>" + b"-a" * 100_000,
            "html",
            "it is not in the encoding punycode",
        ),
        (
            "<p>Zwei Hunde</p>".encode("utf-16-le"),
            "html",
            "it is UTF-16LE without a byte order mark",
        ),
        (b"<meta charset=base64>", "html", "it is not in the encoding base64; convert it to UTF-8"),
        (b"<x>" * 300, "html", "its elements are nested more than 256 deep"),
    ],
)
def test_a_damaged_document_has_a_reason(data, form, reason):
    with pytest.raises(DocumentError, match=f"^.*{reason}"):
        read_document(data, form)


def test_entities_are_never_expanded():
    levels = [b'<!ENTITY a0 "ha">']
    levels += [f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">'.encode() for n in range(1, 12)]
    data = b"<!DOCTYPE x [" + b"".join(levels) + b"]><x>one &a11; two</x>"
    assert copied(data, "xml") == data
    in_attribute = data.replace(b"<x>one", b'<x y="&a11;">one')
    with pytest.raises(DocumentError, match="it is not XML: limit on input amplification factor"):
        read_document(in_attribute, "xml")


def test_the_ending_decides():
    assert [format_of(name) for name in ("a.HTML", "b.xhtml", "c.md", "d.txt", "html")] == [
        *("html", "xml", "markdown"),
        *(None, None),
    ]


def test_references_to_characters_that_html_lacks_stay():
    page = b"<p>&#1;one&#x1F; <b>two&#11;</b>&#127;</p><p>&#1;three</p>"
    assert copied(page, "html") == page
    loud = page.replace(b"one", b"ONE").replace(b"two", b"TWO").replace(b"three", b"THREE")
    assert shouted(page, "html") == loud
