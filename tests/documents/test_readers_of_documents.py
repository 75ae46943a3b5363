"""The programs' own libraries write the documents, and read what was translated."""

import io
import shutil
import subprocess
from xml.etree import ElementTree

import docx
import ebooklib
import odf.opendocument
import odf.table
import odf.text
import pptx
import pytest
from ebooklib import epub
from odf import teletype
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE

from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.translation import Translation
from tests.documents.archives import unzipped, zipped
from tests.documents.filling import capitals, copied, shouted


def test_python_docx():
    written = docx.Document()
    written.add_heading("A heading", 0)
    paragraph = written.add_paragraph("Some ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" words,\ta tab")
    written.add_table(1, 2).cell(0, 1).text = "cell"
    written.sections[0].header.paragraphs[0].text = "header"
    written.add_comment(paragraph.runs, "comment")
    data = _saved(written)
    assert copied(data, "docx") == data
    found = docx.Document(io.BytesIO(shouted(data, "docx")))
    texts = [each.text for each in found.paragraphs]
    assert texts == ["A HEADING", "SOME BOLD WORDS,\tA TAB"]
    runs = [run.text for run in found.paragraphs[1].runs if run.bold]
    assert runs == ["BOLD"]
    assert found.tables[0].cell(0, 1).text == "CELL"
    assert found.sections[0].header.paragraphs[0].text == "HEADER"
    assert [comment.text for comment in found.comments] == ["COMMENT"]


def test_python_pptx():
    written = pptx.Presentation()
    slide = written.slides.add_slide(written.slide_layouts[1])
    slide.shapes.title.text = "A title"
    slide.placeholders[1].text_frame.text = "First line\nsecond line"
    slide.notes_slide.notes_text_frame.text = "notes"
    data = _saved(written)
    assert copied(data, "pptx") == data
    found = pptx.Presentation(io.BytesIO(shouted(data, "pptx"))).slides[0]
    assert found.shapes.title.text == "A TITLE"
    assert found.placeholders[1].text_frame.text == "FIRST LINE\nSECOND LINE"
    assert found.notes_slide.notes_text_frame.text == "NOTES"


def test_python_docx_opens_parts_of_other_names():
    written = docx.Document()
    written.add_paragraph("Some words")
    members = {
        name.replace("word/document.xml", "word/main.xml"): content.replace(
            b"word/document.xml", b"word/main.xml"
        )
        for name, content in unzipped(_saved(written)).items()
        if name != "word/_rels/document.xml.rels"
    }
    members["word/_rels/main.xml.rels"] = unzipped(_saved(written))["word/_rels/document.xml.rels"]
    found = docx.Document(io.BytesIO(_in_german(zipped(members), "docx")))
    assert [each.text for each in found.paragraphs] == ["SOME WORDS"]
    (language,) = found.styles.element.xpath("w:docDefaults//w:lang")
    assert language.attrib.values()[0] == "de"


def test_python_pptx_opens_masters_and_charts():
    written = pptx.Presentation()
    layout = written.slide_layouts[5]
    slide = written.slides.add_slide(layout)
    box = slide.shapes.add_textbox(0, 0, 9, 9)
    box.text_frame.text = "on all slides"
    layout.shapes._spTree.append(box._element)  # moved to the layout
    names = CategoryChartData()
    names.categories = ["north", "south"]
    names.add_series("sales", [1, 2])
    slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 9, 9, names)
    data = _saved(written)
    found = pptx.Presentation(io.BytesIO(_in_german(data, "pptx")))
    before, after = (
        each._element.xpath(".//a:t/text()") for each in (layout, found.slide_layouts[5])
    )
    assert len(before) > 3
    assert after == [*before[:-1], "ON ALL SLIDES"]
    (plot,) = next(each.chart for each in found.slides[0].shapes if each.has_chart).plots
    assert list(plot.categories) == ["NORTH", "SOUTH"]
    assert [(each.name, list(each.values)) for each in plot.series] == [("SALES", [1, 2])]


def test_odfpy():
    written = odf.opendocument.OpenDocumentText()
    written.text.addElement(odf.text.H(outlinelevel=1, text="A heading"))
    paragraph = odf.text.P(text="Some ")
    paragraph.addElement(odf.text.Span(text="bold"))
    paragraph.addText(" words & more")
    written.text.addElement(paragraph)
    data = _saved(written)
    assert copied(data, "odt") == data
    found = odf.opendocument.load(io.BytesIO(shouted(data, "odt")))
    paragraphs = [*found.getElementsByType(odf.text.H), *found.getElementsByType(odf.text.P)]
    texts = [teletype.extractText(each) for each in paragraphs]
    assert texts == ["A HEADING", "SOME BOLD WORDS & MORE"]
    assert [str(each) for each in found.getElementsByType(odf.text.Span)] == ["BOLD"]


def test_ebooklib():
    book = epub.EpubBook()
    book.set_identifier("a")
    book.set_title("A book")
    book.set_language("en")
    chapter = epub.EpubHtml(title="One", file_name="one.xhtml")
    chapter.content = "<h1>One</h1><p>Some <b>bold</b> words &amp; more</p>"
    book.add_item(chapter)
    book.toc, book.spine = [chapter], ["nav", chapter]
    book.add_item(epub.EpubNcx())
    book.add_item(epub.EpubNav())
    stream = io.BytesIO()
    epub.write_epub(stream, book)
    data = stream.getvalue()
    assert copied(data, "epub") == data
    found = epub.read_epub(io.BytesIO(_in_german(data, "epub")))
    assert found.get_metadata("DC", "language") == [("de", {})]
    (text,) = [
        each.get_content().decode()
        for each in found.get_items_of_type(ebooklib.ITEM_DOCUMENT)
        if each.file_name == "one.xhtml"
    ]
    assert "<p>SOME <b>BOLD</b> WORDS &amp; MORE</p>" in text
    assert [each.title for each in found.toc] == ["ONE"]


PAGE = """<meta charset="utf-8"><h1>A <i>big</i> heading</h1>
<p>Some <b>bold</b> words and <a href="http://example.org/">a link</a>.<p>One line<br>another, 5 €
<ul><li>one thing<li>another</ul><table><tr><td>a cell<td>a <u>second</u> one</table>
<p dir="rtl">قطة <b>كبيرة</b> تنام<p>这只<b>大</b>猫在睡觉。<p>แมว<b>ตัวใหญ่</b>กำลังนอน
<p>aşağı <b>büyük</b>"""


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """Return a function by which LibreOffice converts a file."""
    program = shutil.which("soffice") or pytest.skip("LibreOffice is not installed")
    folder = tmp_path_factory.mktemp("office")

    def converted(data: bytes, ending: str, to: str, *options: str) -> bytes:
        (folder / f"a.{ending}").write_bytes(data)
        command = [program, f"-env:UserInstallation=file://{folder}", "--headless", *options]
        command += ["--convert-to", to, "--outdir", f"{folder}/out", f"{folder}/a.{ending}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        written = folder / "out" / f"a.{to.partition(':')[0]}"
        assert written.exists(), done.stderr
        return written.read_bytes()

    return converted


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", ["odt", "docx", "pptx"])
def test_libreoffice(office, form):
    if form == "pptx":
        slides = pptx.Presentation()
        for text in ("قطة كبيرة\nOne line\vanother, 5 €", "这只大猫在睡觉。"):
            slide = slides.slides.add_slide(slides.slide_layouts[1])
            slide.shapes.title.text = "A title"
            slide.placeholders[1].text_frame.text = text
            slide.notes_slide.notes_text_frame.text = "some notes"
        data = office(office(_saved(slides), "pptx", "odp"), "odp", "pptx")
    else:
        data = office(PAGE.encode(), "html", "odt:writer8", "--infilter=HTML (StarWriter)")
        data = office(data, "odt", "docx") if form == "docx" else data
    assert copied(data, form) == data
    flat = "fodp" if form == "pptx" else "fodt"
    before, after = (
        _texts(ElementTree.fromstring(office(each, form, flat)))
        for each in (data, shouted(data, form))
    )
    assert len(before) > 80
    assert after == before.upper()


def _texts(document):
    """Return the text of a flat file of OpenDocument, without the numbers of pages."""
    return "".join(document.find("{*}body").itertext()).replace("<number>", "")


def _in_german(data, form):
    document = read_document(data, form, languages=("en", "de"))
    return document.filled([Translation(capitals(each)) for each in document.segments])


def _saved(document):
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()
