"""Office documents: paragraphs are translated, and everything else stays to the last byte."""

import re
import zipfile
from io import BytesIO

import pytest

from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.translation import Translation
from tests.documents.archives import A, C, P, W, docx, epub, odt, pptx, unzipped, zipped
from tests.documents.filling import copied, shouted, texts_of

FORMATS = {"b:": "<w:rPr><w:b/></w:rPr>", "en:": "<w:rPr><w:lang w:val='en-US'/></w:rPr>"}
MARKS = {
    "{": '<w:r><w:fldChar w:fldCharType="begin"/></w:r>',
    "|": '<w:r><w:fldChar w:fldCharType="separate"/></w:r>',
    "}": '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
    "#": '<w:r><w:footnoteReference w:id="2"/></w:r>',
    "\t": "<w:r><w:tab/></w:r>",
    "\n": "<w:r><w:br/></w:r>",
}


def word(text: str) -> str:
    """Return XML of Word: ``[text]`` is a run, ``[b:text]`` a bold one, ``{code|[text]}`` a field.

    ``#`` is a footnote, a tab and a line feed are elements.
    """

    def run(match: re.Match[str]) -> str:
        if match[0] in MARKS:
            return MARKS[match[0]]
        if match[3]:
            return f"{MARKS['{']}<w:r><w:instrText> {match[3]} </w:instrText></w:r>{MARKS['|']}"
        tag = '<w:t xml:space="preserve">'
        return f"<w:r>{FORMATS.get(match[1] or '', '')}{tag}{match[2]}</w:t></w:r>"

    return re.sub(r"\[(b:|en:)?([^\]]*)\]|\{([^|{}]*)\||[{}|#\t\n]", run, text)


def both(kind: str, text: str) -> str:
    return f'<w:{kind}Start w:id="1"/>{text}<w:{kind}End w:id="1"/>'


IN_A_BOX = "<w:r><w:drawing><w:txbx><w:p>{}</w:p></w:txbx></w:drawing></w:r>"
DELETED = '<w:del w:id="2"><w:r><w:delText>c</w:delText></w:r></w:del>'
CROSSING = (
    '<w:bookmarkStart w:id="1"/>[a]<w:bookmarkStart w:id="2"/>[ b ]<w:bookmarkEnd w:id="1"/>[c]'
    '<w:bookmarkEnd w:id="2"/>'
)
MENTIONED = both("commentRange", both("bookmark", "[one two]")) + "<w:commentReference/>"
RUBY = (
    "<w:r><w:rPr><w:i/></w:rPr><w:ruby><w:rubyPr/><w:rt><w:r><w:t>bike</w:t></w:r></w:rt>"
    "<w:rubyBase>{}</w:rubyBase></w:ruby></w:r>"
)
CONTENTS = "{TOC|<w:hyperlink w:anchor='_1'>[One]\t{PAGEREF|[1]}</w:hyperlink>"
PAGES = "[page ]{PAGE|[3]}[ of ]<w:fldSimple w:instr='NUMPAGES'>[9]</w:fldSimple>[ pages]"
# By what a paragraph holds: it, its segments, and the same with their translations.
PARAGRAPHS = {
    "a word in two runs": (
        "<w:pPr/>[Hel]<w:proofErr/>[lo you]",
        ["Hello you"],
        "<w:pPr/>[HELLO YOU]",
    ),
    "languages are no formats": ("[en:one ][two]", ["one two"], "[en:ONE TWO]"),
    "formats": (
        "[a ][b:big][ cat, &lt;x&gt;]",
        ['a <span id="1">big</span> cat, &lt;x&gt;'],
        "[A ][b:BIG][ CAT, &lt;X&gt;]",
    ),
    "all is bold": ("[b:all]", ["all"], "[b:ALL]"),
    "tabs and breaks": ("[one]\t[two]\n[three]", ["one", "two", "three"], None),
    "a footnote": ("[a word]#[, then]", ['a word<img id="1"/>, then'], "[A WORD]#[, THEN]"),
    "a comment and a bookmark": (MENTIONED, ["one two"], None),
    "ranges that cross": (CROSSING, ['a<span id="1"> b <wbr id="2"/>c</span>'], None),
    "a link": (
        "[see ]<w:hyperlink r:id='rId4'>[b:this page]</w:hyperlink>[.]",
        ['see <span id="1">this page</span>.'],
        None,
    ),
    "a link that is a field": (
        '[see ]{HYPERLINK "x"|[it]}[ now]',
        ['see <span id="1">it</span> now'],
        '[SEE ]{HYPERLINK "x"|[IT]}[ NOW]',
    ),
    **{
        f"a field of {code.split()[0]}, which has text": (
            f"[see ]{{{code}|[it]}}[ now]",
            ['see <span id="1">it</span> now'],
            f"[SEE ]{{{code}|[IT]}}[ NOW]",
        )
        for code in (
            *("FORMTEXT", "TOC \\o", "REF _Ref1 \\h", 'STYLEREF "Heading 1"', "QUOTE x", "INDEX"),
            'IF 1 = 1 "it"',
        )
    },
    **{
        f"a field of {code}, which has none": (
            f"[see ]{{{code}|[it]}}[ now]",
            ['see <img id="1"/> now'],
            f"[SEE ]{{{code}|[it]}}[ NOW]",
        )
        for code in (
            *("REF _Ref1 \\r \\h", "REF a \\p", "STYLEREF 1 \\n", "PAGEREF a", "DATE", "= 1 + 1"),
            *("SEQ Figure", "MERGEFIELD name", "DOCPROPERTY a", "REFERENCE", "INCLUDEPICTURE x"),
        )
    },
    "the text of a field in an element": (
        "<w:fldSimple w:instr=' REF a '>[one]</w:fldSimple>[ two]",
        ['<span id="1">one</span> two'],
        "<w:fldSimple w:instr=' REF a '>[ONE]</w:fldSimple>[ TWO]",
    ),
    "a word with its pronunciation": (
        f"[my ]{RUBY.format('[b:bike]')}[ here]",
        ['my <span id="1">bike</span> here'],
        f"[MY ]{RUBY.format('[b:BIKE]')}[ HERE]",
    ),
    "a pronunciation of nothing": (
        f"[my ]{RUBY.replace('rubyBase', 'base').format('[bike]')}[ here]",
        ['my <img id="1"/> here'],
        f"[MY ]{RUBY.replace('rubyBase', 'base').format('[bike]')}[ HERE]",
    ),
    "the number of a page": (
        PAGES,
        ['page <img id="1"/> of <img id="2"/> pages'],
        PAGES.replace("page ", "PAGE ").replace("of", "OF").replace(" pages", " PAGES"),
    ),
    "the begin of a table of contents": (CONTENTS, ["One"], CONTENTS.replace("One", "ONE")),
    "what was inserted and deleted": (
        f"[a ]<w:ins w:id='1'>[b]</w:ins>{DELETED}[ d]",
        ['a <span id="1">b</span><wbr id="2"/> d'],
        f"[A ]<w:ins w:id='1'>[B]</w:ins>{DELETED}[ D]",
    ),
    "a text box": (
        f"[out ]{IN_A_BOX.format('[in]')}[ side]",
        ['out <img id="1"/> side', "in"],
        f"[OUT ]{IN_A_BOX.format('[IN]')}[ SIDE]",
    ),
    "hyphens": (
        "<w:r><w:t>a</w:t><w:noBreakHyphen/><w:t>b c</w:t></w:r>",
        ["a&#8209;b c"],
        "[A]<w:r><w:noBreakHyphen/></w:r>[B C]",
    ),
    "no text": ("<w:r><w:t> </w:t></w:r><w:r/><w:bookmarkEnd w:id='9'/>", [], None),
}


@pytest.mark.parametrize("what", PARAGRAPHS)
def test_paragraphs(what):
    source, segments, loud = PARAGRAPHS[what]
    data = docx(f"<w:p>{word(source)}</w:p>")
    assert texts_of(read_document(data, "docx")) == segments
    assert copied(data, "docx") == data
    if loud is None:  # all in brackets is text
        loud = re.sub(
            r"(?<=\[)(b:)?[^\]]+", lambda m: (m[1] or "") + m[0][len(m[1] or "") :].upper(), source
        )
    found = unzipped(shouted(data, "docx"))["word/document.xml"].decode()
    assert found.partition("<w:body>")[2].partition("</w:body>")[0] == f"<w:p>{word(loud)}</w:p>"


def test_headers_notes_and_comments_are_translated_and_other_members_stay():
    part = f"<w:x {W}><w:p>{word('[text]')}</w:p></w:x>"
    names = ("header1", "footer2", "footnotes", "endnotes", "comments")
    others = {"styles": part.replace("w:p>", "w:x>"), "theme": part.replace(W, "xmlns:w='urn:x'")}
    data = docx(f"<w:p>{word('[text]')}</w:p>", **dict.fromkeys(names, part), **others)
    assert texts_of(read_document(data, "docx")) == ["text"] * 6
    before, after = unzipped(data), unzipped(shouted(data, "docx"))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {f"word/{name}.xml" for name in ("document", *names)}
    assert all(after[name] == before[name].replace(b"text<", b"TEXT<") for name in changed)


def test_the_archive_stays_as_it_was():
    data = docx(f"<w:p>{word('[text]')}</w:p>")
    archives = [zipfile.ZipFile(BytesIO(each)) for each in (data, shouted(data, "docx"))]
    kept = [
        [(m.filename, m.date_time, m.compress_type, m.external_attr) for m in each.infolist()]
        for each in archives
    ]
    assert kept[0] == kept[1]
    assert archives[1].comment == b"a comment"


@pytest.mark.parametrize("prefix", ["ns0", ""])
@pytest.mark.parametrize("what", PARAGRAPHS)
def test_other_prefixes_mean_the_same(what, prefix):
    """Of the whole document, or declared where they are used; attributes keep one."""
    mark, declared = (f"{prefix}:", f":{prefix}") if prefix else ("", "")
    namespace = W.partition("=")[2]

    def renamed(data: bytes) -> bytes:
        text = unzipped(data)["word/document.xml"].decode()
        text = re.sub(r"<(/?)w:", rf"<\1{mark}", text)
        text = text.replace(W, f"xmlns{declared}={namespace} xmlns:w={namespace}")
        return zipped({"word/document.xml": text})

    paragraph = f"<w:p>{word(PARAGRAPHS[what][0])}</w:p>"
    data = docx(paragraph)
    found = unzipped(shouted(renamed(data), "docx"))
    assert found == unzipped(renamed(shouted(data, "docx")))
    inner = re.sub(r"<(/?)w:p>", rf"<\1{mark}p>", paragraph)
    inner = inner.replace(f"<{mark}p>", f"<{mark}p xmlns{declared}={namespace}>", 1)
    foreign = f"<{mark}p xmlns{declared}='urn:other'><{mark}r/>no text</{mark}p>"
    assert texts_of(read_document(docx(foreign + inner), "docx")) == PARAGRAPHS[what][1]


def test_a_member_that_would_be_no_xml_is_not_written():
    document = read_document(docx(f"<w:p>{word('[a word]')}</w:p>"), "docx")
    with pytest.raises(DocumentError) as caught:
        document.filled([Translation("a\x01word")])
    assert str(caught.value).startswith(
        "its member word/document.xml is no XML with these translations (not well-formed"
    )


def test_slides():
    bold = '<a:rPr lang="en-US" b="1"/>'
    body = (
        '<a:p><a:pPr lvl="1"/><a:r><a:rPr lang="en-US" dirty="0"/><a:t>A sli</a:t></a:r>'
        '<a:r><a:rPr lang="en-GB"/><a:t>de with </a:t></a:r>'
        f"<a:r>{bold}<a:t>bold</a:t></a:r><a:r><a:t> words</a:t></a:r><a:br/>"
        '<a:r><a:t>Page </a:t></a:r><a:fld type="slidenum"><a:t>2</a:t></a:fld>'
        '<a:endParaRPr lang="en-US"/></a:p>'
    )
    data = pptx(body)
    assert texts_of(read_document(data, "pptx")) == [
        'A slide with <span id="1">bold</span> words',
        "Page ",
    ]
    assert copied(data, "pptx") == data
    loud = (
        '<a:p><a:pPr lvl="1"/><a:r><a:rPr lang="en-US" dirty="0"/><a:t>A SLIDE WITH </a:t></a:r>'
        f"<a:r>{bold}<a:t>BOLD</a:t></a:r>"
        '<a:r><a:rPr lang="en-US" dirty="0"/><a:t> WORDS</a:t></a:r>'
        '<a:br/><a:r><a:rPr lang="en-US" dirty="0"/><a:t>PAGE </a:t></a:r>'
        '<a:fld type="slidenum"><a:t>2</a:t></a:fld><a:endParaRPr lang="en-US"/></a:p>'
    )
    assert loud in unzipped(shouted(data, "pptx"))["ppt/slides/slide1.xml"].decode()


def test_texts_of_opendocument():
    body = (
        "<text:tracked-changes><text:p>lost</text:p></text:tracked-changes>"
        '<text:p><text:s/>four<text:s text:c="2"/>five <text:s/>six<text:s/>two</text:p>'
        '<text:h text:outline-level="1">A <text:span text:style-name="T1">big</text:span>\n heading'
        "</text:h><text:p>one<text:tab/>two<text:note><text:note-citation>1</text:note-citation>"
        "<text:note-body><text:p>a note</text:p></text:note-body></text:note> three</text:p>"
        '<text:p>x <office:annotation office:name="1"><text:p>why</text:p></office:annotation>y'
        '<office:annotation-end office:name="1"/> &amp; z</text:p>'
    )
    data = odt(body)
    assert texts_of(read_document(data, "odt")) == [
        'four <wbr id="1"/>five <wbr id="2"/>six two',
        'A <span id="1">big</span> heading',
        "one",
        'two<img id="1"/> three',
        "a note",
        'x <span id="1">y</span> &amp; z',
        "why",
    ]
    assert copied(data, "odt") == data
    loud = body.replace("\n ", " ")
    loud = loud.replace("four<text:s", "four <text:s").replace("six<text:s/>", "six ")
    for text in ("four", "five", "six", "big", "heading", "one", "two", "three", "a note", "why"):
        loud = loud.replace(text, text.upper())
    loud = loud.replace(">x <", ">X <").replace(">y<", ">Y<").replace("&amp; z", "&amp; Z")
    assert loud in unzipped(shouted(data, "odt"))["content.xml"].decode()


def test_books():
    chapter = (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" '
        '"http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">\n'
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>one</title></head>'
        '<body><p class="x">a&nbsp;<b>big</b> cat<br/>ran</p><pre>kept</pre></body></html>'
    )
    data = epub(chapter)
    texts = texts_of(read_document(data, "epub"))
    assert [*texts[:1], *texts[2:]] == ["one", "ran", "one"]
    assert copied(data, "epub") == data
    after = unzipped(shouted(data, "epub"))
    loud = chapter.replace(">one<", ">ONE<").replace(
        "a&nbsp;<b>big</b> cat", "A&nbsp;<b>BIG</b> CAT"
    )
    assert after["OPS/text/one chapter.xhtml"].decode() == loud.replace(">ran<", ">RAN<")
    assert b"<text>ONE</text>" in after["OPS/toc.ncx"]


XHTML = '<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'


@pytest.mark.parametrize("doctype", ["", "<!DOCTYPE html>", '<?xml version="1.0"?>'])
def test_chapters_may_have_the_references_of_html(doctype):
    chapter = doctype + XHTML.format("<p>one&nbsp;two &mdash; three</p>&nbsp;<p>caf&copy;</p>")
    data = epub(chapter)
    assert texts_of(read_document(data, "epub")) == [
        "one&#160;two &#8212; three",
        "caf&#169;",
        "one",
    ]
    assert copied(data, "epub") == data
    found = unzipped(shouted(data, "epub"))["OPS/text/one chapter.xhtml"].decode()
    loud = "<p>ONE&nbsp;TWO &mdash; THREE</p>&nbsp;<p>CAF&copy;</p>"
    assert found == doctype + XHTML.format(loud)


def test_chapters_of_other_endings_and_types_and_damaged_ones(caplog):
    """A chapter that is no XML stays as it is, and is named."""
    good, bad = XHTML.format("<p>good</p>"), XHTML.format("<p>bad")
    items = {"a.xhtm": good, "b.html": good, "c.xhtml": bad, "d.xhtml": "<p>&</p>", "e": good}
    kinds = {"b.html": "text/html"}
    package = "".join(
        f'<item href="{name}" media-type="{kinds.get(name, "application/xhtml+xml")}"/>'
        for name in items
    )
    container = '<container><rootfile full-path="book.opf"/></container>'
    members = {"META-INF/container.xml": container, "book.opf": f"<package>{package}</package>"}
    data = zipped({**members, **items})
    assert texts_of(read_document(data, "epub")) == ["good"] * 2
    assert "its member c.xhtml: it is not XML: mismatched tag" in caplog.text
    assert "its member d.xhtml: it is not XML: not well-formed" in caplog.text
    assert "its text e ends in none of .xml, " in caplog.text
    found = unzipped(shouted(data, "epub"))
    assert found == {
        name: each.replace(b"good", b"GOOD") if name in items and name != "e" else each
        for name, each in unzipped(data).items()
    }
    with pytest.raises(DocumentError, match=r"^its member c\.xhtml: it is not XML: mismatched"):
        read_document(zipped({**members, "c.xhtml": bad}), "epub")


def test_words_that_change_places_take_their_formats_along():
    data = docx(f"<w:p>{word('[a ][b:big][ cat]#[.]')}</w:p>")
    document = read_document(data, "docx")
    translation = '<span id="1">große</span> Katze&lt;<img id="2"/>, eine.'
    found = unzipped(document.filled([Translation(translation)]))["word/document.xml"].decode()
    assert f"<w:p>{word('[b:große][ Katze&lt;]#[, eine.]')}</w:p>" in found


def test_charts_and_diagrams_have_texts():
    chart = f"<c:chart {A} {C}><a:p><a:r><a:t>title</a:t></a:r></a:p></c:chart>"
    data = zipped({"word/document.xml": f"<w:document {W}/>", "word/charts/chart1.xml": chart})
    assert texts_of(read_document(data, "docx")) == ["title"]


@pytest.mark.parametrize("prefix", ["c", "x"])
def test_names_of_categories_and_series_are_texts(prefix):
    """Numbers, their formats and the places of cells are not."""
    cells = "<{c}:f>Sheet1!$B$1</{c}:f><{c}:strCache><{c}:ptCount val='1'/>{}</{c}:strCache>"
    name = "<{c}:pt idx='0'><{c}:v>{}</{c}:v></{c}:pt>"
    numbers = "<{c}:numCache><{c}:formatCode>General</{c}:formatCode>{}</{c}:numCache>"
    body = "".join(
        [
            f"<{{c}}:tx>{cells.replace('{}', name.replace('{}', 'a &amp; b'))}</{{c}}:tx>",
            f"<{{c}}:cat>{cells.replace('{}', name.replace('{}', 'one  day') * 2)}</{{c}}:cat>",
            f"<{{c}}:val>{numbers.replace('{}', name.replace('{}', '12'))}</{{c}}:val>",
        ]
    ).replace("{c}", prefix)
    chart = f"<{prefix}:chart {A} {C.replace(':c', f':{prefix}')}>"
    data = pptx("", **{"charts/chart1": f"{chart}{body}</{prefix}:chart>"})
    assert texts_of(read_document(data, "pptx")) == ["a &amp; b", "one day", "one day"]
    assert copied(data, "pptx") == data
    found = unzipped(shouted(data, "pptx"))["ppt/charts/chart1.xml"].decode()
    loud = body.replace("a &amp; b", "A &amp; B").replace("one  day", "ONE DAY")
    assert found == f"{chart}{loud}</{prefix}:chart>"


BEGIN, END = '<w:bookmarkStart w:id="1"/>', '<w:bookmarkEnd w:id="1"/>'


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        (f"[x]{BEGIN}{{[a]{END}|[b]}}[y]", 'x<wbr id="1"/><img id="2"/>y'),
        (f"[x]{{{BEGIN}[a]|[b]}}{END}[y]", 'x<img id="1"/><wbr id="2"/>y'),
        (f"[x]{{{BEGIN}[a]|[b]}}[z]{BEGIN}[c]{END}[y]", 'x<img id="1"/>z<span id="2">c</span>y'),
    ],
)
def test_ranges_that_cross_fields(text, segment):
    assert texts_of(read_document(docx(f"<w:p>{word(text)}</w:p>"), "docx")) == [segment]


def test_fields_that_are_nested_deeply_are_refused():
    nested = "{" * 20 + "[a]" + "}" * 20
    data = docx(f"<w:p>{word('[x]' + nested * 30 + '[y]')}</w:p>")
    assert copied(data, "docx") == data
    assert shouted(data, "docx") != data
    with pytest.raises(DocumentError, match="its fields are nested more than 20 deep"):
        read_document(docx(f"<w:p>{word('{' + nested + '}')}</w:p>"), "docx")


@pytest.mark.parametrize("encoding", ["gb2312", "shift_jis", "euc-kr", "windows-1252"])
def test_chapters_of_any_encoding_are_written(encoding):
    chapter = f'<?xml version="1.0" encoding="{encoding}"?>' + XHTML.format("<p>one dog</p>")
    data = epub(chapter)
    assert copied(data, "epub") == data
    found = unzipped(shouted(data, "epub"))["OPS/text/one chapter.xhtml"].decode(encoding)
    assert found == chapter.replace("one dog", "ONE DOG")


@pytest.mark.parametrize("is_strict", [False, True])
def test_parts_are_known_by_what_they_are(is_strict):
    """Their names and folders are in relationships, and may be any."""
    own = W.replace("schemas.openxmlformats.org/wordprocessingml/2006", "purl.oclc.org/ooxml/{}")
    own = own.format("wordprocessingml") if is_strict else W
    body = f"<w:body><w:p>{word('[text]')}</w:p></w:body>"
    members = {
        "_rels/.rels": "<Relationships/>",
        "doc/Main.XML": f"<!-- a comment --><w:document {own}>{body}</w:document>",
        "doc/above.xml": f"<w:hdr {own}><w:p>{word('[header]')}</w:p></w:hdr>",
        "doc/blocks.xml": f"<w:glossaryDocument {own}>{body}</w:glossaryDocument>",
        "word/document.xml": "<document><w:p>no text</w:p></document>",
        "word/damaged.xml": "<",
    }
    data = zipped(members)
    assert texts_of(read_document(data, "docx")) == ["text", "header"]
    found = unzipped(shouted(data, "docx"))
    assert {name for name in members if found[name].decode() != members[name]} == {
        "doc/Main.XML",
        "doc/above.xml",
    }


SHAPE = (
    "<p:sp><p:nvSpPr><p:nvPr>{}</p:nvPr></p:nvSpPr>"
    "<p:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></p:sp>"
)


@pytest.mark.parametrize("kind", ["sldMaster", "sldLayout", "notesMaster"])
def test_placeholders_of_masters_are_no_texts(kind):
    shapes = SHAPE.format("", "on all slides") + SHAPE.format("<p:ph type='title'/>", "Click here")
    master = f"<p:{kind} {P} {A}>{shapes}</p:{kind}>"
    data = pptx(shapes, **{"a/b": master})
    assert texts_of(read_document(data, "pptx")) == ["on all slides", "Click here", "on all slides"]
    assert copied(data, "pptx") == data
    found = unzipped(shouted(data, "pptx"))["ppt/a/b.xml"].decode()
    assert found == master.replace("on all slides", "ON ALL SLIDES")


def test_comments_and_other_charts_have_texts():
    name = "<c:trendline><c:name>growth</c:name></c:trendline>"
    pivot = "<c:pivotSource><c:name>[a.xlsx]b</c:name></c:pivotSource>"
    newer = 'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex"'
    levels = "".join(
        f"<cx:{kind}><cx:lvl><cx:pt>{text}</cx:pt></cx:lvl></cx:{kind}>"
        for kind, text in (("strDim", "north"), ("numDim", "12"))
    )
    data = pptx(
        "",
        comment=f"<p:cmLst {P}><p:cm><p:text>why?</p:text></p:cm></p:cmLst>",
        chart=f"<c:chartSpace {C}>{pivot}{name}</c:chartSpace>",
        chart2=f"<cx:chartSpace {newer}>{levels}</cx:chartSpace>",
    )
    assert texts_of(read_document(data, "pptx")) == ["why?", "growth", "north"]
    found = unzipped(shouted(data, "pptx"))
    assert b"<p:text>WHY?</p:text>" in found["ppt/comment.xml"]
    assert f"{pivot}{name.replace('growth', 'GROWTH')}" in found["ppt/chart.xml"].decode()
    assert levels.replace("north", "NORTH") in found["ppt/chart2.xml"].decode()


def test_fields_indexes_and_ruby_of_opendocument():
    ruby = "<text:ruby><text:ruby-base>{}</text:ruby-base><text:ruby-text>t</text:ruby-text>"
    ruby += "</text:ruby>"
    reference = '<text:bookmark-ref text:reference-format="{}">{}</text:bookmark-ref>'
    body = (
        f"<text:p>my {ruby.format('bike')} here</text:p>"
        f"<text:p>see {reference.format('text', 'one part')} on {reference.format('page', '5')} now"
        "</text:p><text:p>Figure <text:sequence>1</text:sequence>: a dog</text:p>"
        "<text:p>Name: <text:text-input>your name</text:text-input></text:p>"
        "<text:table-of-content><text:table-of-content-source><text:index-title-template>parts"
        "</text:index-title-template></text:table-of-content-source><text:index-body>"
        '<text:index-title><text:p>parts</text:p></text:index-title><text:p><text:a href="#a">one '
        "part</text:a><text:tab/>5</text:p></text:index-body></text:table-of-content>"
        "<text:tracked-changes><text:deletion><text:p>lost</text:p></text:deletion>"
        '</text:tracked-changes><text:p>a<text:change text:change-id="x"/> b</text:p>'
    )
    data = odt(body)
    assert texts_of(read_document(data, "odt")) == [
        'my <span id="1">bike</span> here',
        'see <span id="1">one part</span> on <img id="2"/> now',
        'Figure <img id="1"/>: a dog',
        'Name: <span id="1">your name</span>',
        "parts",
        "parts",
        "one part",
        "5",
        'a<wbr id="1"/> b',
    ]
    assert copied(data, "odt") == data
    loud = re.sub(
        r"(?<=>)[^<>]*",
        lambda m: m[0] if m[0] in {"t", "lost"} else m[0].upper(),
        body,
    )
    assert loud in unzipped(shouted(data, "odt"))["content.xml"].decode()


def test_charts_of_opendocument_have_texts():
    own = unzipped(odt("<text:p>text</text:p>"))
    chart = own["content.xml"].replace(b"text</text:p>", b"north</text:p>")
    data = zipped({**own, "Object 1/content.xml": chart, "settings.xml": "<settings/>"})
    assert texts_of(read_document(data, "odt")) == ["text", "north"]
    assert b"NORTH" in unzipped(shouted(data, "odt"))["Object 1/content.xml"]
