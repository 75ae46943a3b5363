"""The programs' own libraries write the documents, and read what was translated."""

import io

import docx
import ebooklib
import odf.opendocument
import odf.table
import odf.text
import pptx
from ebooklib import epub
from odf import teletype

from tests.documents.filling import copied, shouted


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
    found = epub.read_epub(io.BytesIO(shouted(data, "epub")))
    (text,) = [
        each.get_content().decode()
        for each in found.get_items_of_type(ebooklib.ITEM_DOCUMENT)
        if each.file_name == "one.xhtml"
    ]
    assert "<p>SOME <b>BOLD</b> WORDS &amp; MORE</p>" in text
    assert [each.title for each in found.toc] == ["ONE"]


def _saved(document):
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()
