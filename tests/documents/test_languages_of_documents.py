"""The languages that documents name become that of their translations."""

import re
from collections.abc import Mapping
from xml.etree import ElementTree

import pytest

from nmt_cli.documents.document import Document
from nmt_cli.documents.formats import read_document
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.interface.translation import Translation
from tests.documents.archives import docx, epub, odt, pptx, unzipped, zipped
from tests.documents.filling import capitals, copied, texts_of


def shouted_in(language: str, data: bytes, form: str) -> bytes:
    document = read_document(data, form, languages=("en", language))
    return loud(document)


def loud(document: Document) -> bytes:
    return document.filled([Translation(capitals(each)) for each in document.segments])


LANG = '<w:rPr><w:lang w:val="en-US" w:eastAsia="en-US" w:bidi="ar-SA"/></w:rPr>'
FO = 'fo:language="en" fo:country="US" style:language-asian="zh" style:country-asian="CN"'
FO += ' style:language-complex="hi" style:country-complex="IN"'
W_STYLES = '<w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'


def of_word(language: str) -> str:
    data = docx("<w:p><w:r><w:t>one</w:t></w:r></w:p>", styles=f"{W_STYLES}{LANG}</w:styles>")
    assert copied(data, "docx") == data
    found = unzipped(shouted_in(language, data, "docx"))["word/styles.xml"].decode()
    return found.removeprefix(W_STYLES).removesuffix("</w:styles>")


def of_opendocument(language: str) -> str:
    style = f"<style:style><style:text-properties {FO}/></style:style>"
    data = odt(f"{style}<text:p>one</text:p>")
    found = unzipped(shouted_in(language, data, "odt"))["content.xml"].decode()
    (properties,) = re.findall("<style:text-properties ([^>]*)/>", found)
    return str(properties)


@pytest.mark.parametrize(
    ("language", "changed"),
    [
        ("de", {'val="en-US"': 'val="de"'}),
        ("pt_br", {'val="en-US"': 'val="pt-BR"'}),
        ("ja", {'eastAsia="en-US"': 'eastAsia="ja"'}),
        ("fa", {'bidi="ar-SA"': 'bidi="fa"'}),
        ("en", {}),
        ("ar", {}),
        (UNKNOWN_LANGUAGE, {}),
    ],
)
def test_word_names_a_language_for_each_kind_of_script(language: str, changed: Mapping[str, str]):
    expected = LANG
    for old, new in changed.items():
        expected = expected.replace(old, new)
    assert of_word(language) == expected


@pytest.mark.parametrize(
    ("language", "old", "new"),
    [
        ("de", 'language="en" fo:country="US"', 'language="de" fo:country="none"'),
        ("pt-BR", 'language="en" fo:country="US"', 'language="pt" fo:country="BR"'),
        ("sr-Latn", 'language="en" fo:country="US"', 'language="sr" fo:country="none"'),
        ("en", "", ""),
        ("zh-tw", 'asian="zh" style:country-asian="CN"', 'asian="zh" style:country-asian="TW"'),
        ("zh-Hant", 'asian="zh" style:country-asian="CN"', 'asian="zh" style:country-asian="TW"'),
        (
            "ar",
            'complex="hi" style:country-complex="IN"',
            'complex="ar" style:country-complex="none"',
        ),
    ],
)
def test_opendocument_names_countries_apart(language, old, new):
    assert of_opendocument(language) == FO.replace(old, new)


def test_slides():
    paragraph = '<a:p><a:r><a:rPr lang="en-GB" altLang="ja-JP"/><a:t>{}</a:t></a:r></a:p>'
    found = unzipped(shouted_in("fr", pptx(paragraph.format("one")), "pptx"))
    expected = paragraph.format("ONE").replace('"en-GB"', '"fr"')
    assert expected in found["ppt/slides/slide1.xml"].decode()


DC = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'
CORE = "http://schemas.openxmlformats.org/package/2006/metadata/core-properties"


def test_properties_of_files():
    text = "<w:p><w:r><w:t>one</w:t></w:r></w:p>"
    core = f'<x:core xmlns:x="{CORE}" {DC}><dc:language>en-GB</dc:language></x:core>'
    data = zipped({**unzipped(docx(text)), "docProps/core.xml": core})
    found = unzipped(shouted_in("de", data, "docx"))["docProps/core.xml"].decode()
    assert found == core.replace("en-GB", "de")
    meta = (
        '<o:document-meta xmlns:o="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
        f"{DC}><o:meta><dc:language>en-GB</dc:language></o:meta></o:document-meta>"
    )
    data = zipped({**unzipped(odt("<text:p>one</text:p>")), "meta.xml": meta})
    found = unzipped(shouted_in("de", data, "odt"))["meta.xml"].decode()
    assert found == meta.replace("en-GB", "de")


def test_books():
    chapter = (
        '<?xml version="1.0"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml" '
        """lang="en" xml:lang='en'><body><p>one</p></body></html>"""
    )
    members = unzipped(epub(chapter))
    package = members["OPS/book.opf"].decode()
    metadata = f"<metadata {DC}><dc:language>en</dc:language><dc:language/></metadata><manifest>"
    package = package.replace("<package ", '<!DOCTYPE package><package xml:lang="en" ')
    package = package.replace("<manifest>", metadata)
    picture = chapter.replace("one", "")
    data = zipped({**members, "OPS/book.opf": package})
    assert copied(data, "epub") == data
    found = unzipped(shouted_in("de", data, "epub"))
    new = package.replace('"en"', '"de"').replace(">en<", ">de<")
    assert found["OPS/book.opf"].decode() == new
    new = chapter.replace('"en"', '"de"').replace("'en'", '"de"').replace("one", "ONE")
    assert found["OPS/text/one chapter.xhtml"].decode() == new
    data = zipped({**unzipped(data), "OPS/text/one chapter.xhtml": picture})
    found = unzipped(shouted_in("de", data, "epub"))  # its table of contents has a text
    new = picture.replace('"en"', '"de"').replace("'en'", '"de"')
    assert found["OPS/text/one chapter.xhtml"].decode() == new


@pytest.mark.parametrize(
    ("tag", "new"),
    [
        ('<html lang="en">', '<html lang="de">'),
        ("<HTML class=a LANG=en-US >", '<HTML class=a LANG="de" >'),
        ("<html data-lang='en'>", "<html data-lang='en'>"),
        ('<html lang="">', '<html lang="">'),
        ('<html lang="de-AT">', '<html lang="de-AT">'),
        ("<html>", "<html>"),
    ],
)
def test_pages(tag, new):
    page = '<!DOCTYPE html><!--[if IE]><html lang="en"><![endif]-->{}<p lang="en">{}</p></html>'
    data = page.format(tag, "one").encode()
    assert shouted_in("de", data, "html").decode() == page.format(new, "ONE")


def test_values_of_other_attributes_stay():
    page = b"""<html title=" lang=fr" lang='en' data-x='a lang="en"'><p>one</p></html>"""
    found = shouted_in("de", page, "html")
    assert found == page.replace(b"'en'", b'"de"').replace(b"one", b"ONE")


def test_a_page_without_a_root_names_no_language():
    assert shouted_in("de", b"<p lang=en>one</p>", "html") == b"<p lang=en>ONE</p>"


def test_only_the_root_of_xml_names_the_language():
    data = b'<!-- a --><doc xml:lang="en" lang="en"><p xml:lang="en">one</p></doc>'
    found = shouted_in("pt-BR", data, "xml").decode()
    assert found == '<!-- a --><doc xml:lang="pt-BR" lang="pt-BR"><p xml:lang="en">ONE</p></doc>'


def test_any_code_is_written_as_text():
    data = b"<doc xml:lang='en'>one</doc>"
    found = shouted_in(r"""a"<\1'""", data, "xml").decode()
    assert ElementTree.fromstring(found).attrib.popitem()[1] == r"""a"<\1'"""


def test_a_document_with_the_same_texts_stays():
    data = docx("<w:p><w:r><w:t>12</w:t></w:r></w:p>", styles=f"{W_STYLES}{LANG}</w:styles>")
    document = read_document(data, "docx", languages=("en", "de"))
    assert document.filled([Translation(each) for each in texts_of(document)]) == data
