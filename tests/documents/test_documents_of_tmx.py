"""TMX: texts in the target language beside those of the source, and all else as it was."""

import pytest
from lxml import etree

from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.translation import Translation

NEW = '<tuv xml:lang="de" creationtool="nmt-cli"><seg>{}</seg></tuv>'
HEAD = """\
<?xml version='1.0' encoding='UTF-8'?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang='en-GB' adminlang="en"/>
 <body>
"""
TAIL = " </body>\r\n</tmx>\n"
# A unit, and how it is written after a copying translation.
UNITS = [
    (
        '  <tu>\n    <tuv xml:lang="en-GB"><seg>A dog</seg></tuv>\n  </tu>\n',
        '  <tu>\n    <tuv xml:lang="en-GB"><seg>A dog</seg></tuv>\n    '
        + NEW.format("A dog")
        + "\n  </tu>\n",
    ),
    (
        "<tu><note>n</note><tuv lang='fr'><seg>chien</seg></tuv><tuv xml:lang='EN'><prop>p</prop>"
        "<seg>a <bpt i='1'>&lt;b></bpt>我们<ept i='1'/> <hi>%s &amp;</hi></seg></tuv></tu>",
        "<tu><note>n</note><tuv lang='fr'><seg>chien</seg></tuv><tuv xml:lang='EN'><prop>p</prop>"
        "<seg>a <bpt i='1'>&lt;b></bpt>我们<ept i='1'/> <hi>%s &amp;</hi></seg></tuv>"
        + NEW.format("a <bpt i='1'>&lt;b></bpt>我们<ept i='1'/> <hi>%s &amp;</hi>")
        + "</tu>",
    ),
    (
        '<tu><tuv xml:lang="de-AT"><seg/></tuv><tuv xml:lang="en"><seg>empty</seg></tuv></tu>',
        '<tu><tuv xml:lang="de-AT"><seg>empty</seg></tuv><tuv xml:lang="en"><seg>empty</seg></tuv>'
        "</tu>",
    ),
]
KEPT = """\
<tu><tuv xml:lang="en"><seg>done</seg></tuv><tuv xml:lang="de-CH"><seg>fertig</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>chat</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg> <ph/> </seg></tuv></tu>
<tu><tuv xml:lang="en"/></tu>
"""


def read(data, again=False, languages=("en", "de")):
    return read_document(data, "tmx", again=again, languages=languages)


def copy(data, **options):
    document = read(data, **options)
    return document.filled([Translation(segment.text) for segment in document.segments])


def test_a_copy_differs_in_the_new_variants_alone():
    source, expected = (
        f"{HEAD}{''.join(units)}{KEPT}{TAIL}".encode() for units in zip(*UNITS, strict=True)
    )
    assert copy(source).decode() == expected.decode()
    assert copy(expected) == expected
    assert len(etree.fromstring(copy(source)).findall(".//tuv[@creationtool='nmt-cli']")) == 2
    again = read(source, again=True)
    assert [segment.text for segment in again.segments][-1] == "done"
    assert b'<seg>done</seg></tuv><tuv xml:lang="de-CH"><seg>done</seg>' in copy(source, again=True)


@pytest.mark.parametrize(
    ("code", "written"), [("pt_BR", "pt-BR"), ("zh_hant_tw", "zh-Hant-TW"), ("<a&b>", "<a&b>")]
)
def test_the_code_of_a_new_variant_is_written_as_bcp_47_has_it(code, written):
    data = b"<tmx><body><tu><tuv xml:lang='en'><seg>A</seg></tuv></tu></body></tmx>"
    document = read_document(data, "tmx", languages=("en", code))
    variants = etree.fromstring(document.filled([Translation("B")])).findall(".//tuv")
    name = "{http://www.w3.org/XML/1998/namespace}lang"
    assert [each.get(name) for each in variants] == ["en", written]


def test_a_unit_that_failed_has_no_new_variant():
    data = f"{HEAD}{UNITS[0][0]}{TAIL}".encode()
    document = read(data)
    assert document.filled([Translation("A dog", error="it is bad")]) == data


@pytest.mark.parametrize(
    ("content", "languages", "problem"),
    [
        ("<tmx><a></tmx>", ("en", "de"), "it is not XML: mismatched tag"),
        ("<html/>", ("en", "de"), "its root is html, not tmx"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><tmx/>', ("en", "de"), "it declares entities"),
        ("<tmx/>", None, "the model does not name its languages"),
        ("<tmx/>", ("en", "und"), "the model does not name its languages"),
    ],
)
def test_a_damaged_file_is_refused(content, languages, problem):
    with pytest.raises(DocumentError) as caught:
        read(content.encode(), languages=languages)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("codes", "around"),
    [
        (("<bpt i='1'>x</bpt>", "<ept i='1'/>"), True),
        (("<bx id='1' rid='7'/>", "<ex id='2' rid='7'/>"), True),
        (("<sc id='1'/>", "<ec startRef='1'/>"), True),
        (("<bpt i='1'/>", "<ept i='2'/>"), False),
        (("<ept i='1'/>", "<bpt i='1'/>"), False),
        (("<bpt i='1'/><hi>", "<ept i='1'/></hi>"), False),
    ],
)
def test_codes_that_belong_together_are_around_their_text(codes, around):
    source = f"a {codes[0]}big{codes[1]} dog"
    unit = f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv></tu>'
    data = f"{HEAD}{unit}{TAIL}".encode()
    (segment,) = read(data).segments
    assert (segment.text == 'a <span id="1">big</span> dog') == around
    assert NEW.format(source).encode() in copy(data)
