"""XLIFF: targets beside their sources, and all else as it was."""

import random
from dataclasses import replace
from html import escape

import pytest
from lxml import etree

from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import read_document
from nmt_cli.documents.translators import with_attributes
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.translation import Alternative, Translation
from tests.documents.filling import copied, left_out, shouted, texts_of, translated

HEAD_1 = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- Åsa -->
<xliff version='1.2' xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original="a&amp;b" source-language="en" target-language='nb' datatype="plaintext"><body>
"""
TAIL_1 = " </body></file>\n</xliff>\n"
HEAD_2 = """\
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="zh">
 <file id="f">
"""
TAIL_2 = " </file>\r\n</xliff>"
STATE = 'state="needs-review-translation" state-qualifier="leveraged-mt"'
MIDDLE = " xml:lang='nb' "  # what is between two attributes that were there and are new
# A unit, and how it is written after a copying translation.
UNITS_1 = [
    (
        '  <trans-unit id="1">\n    <source>A dog</source>\n  </trans-unit>\n',
        '  <trans-unit id="1">\n    <source>A dog</source>\n    '
        f"<target {STATE}>A dog</target>\n  </trans-unit>\n",
    ),
    (
        '<trans-unit id="2"><source>A <g id="1">我们 <x id="2"/></g> &amp; %s</source>'
        "<seg-source>A</seg-source><target/><note>n</note></trans-unit>",
        '<trans-unit id="2"><source>A <g id="1">我们 <x id="2"/></g> &amp; %s</source>'
        f'<seg-source>A</seg-source><target {STATE}>A <g id="1">我们 <x id="2"/></g> &amp; %s'
        "</target><note>n</note></trans-unit>",
    ),
    (
        "<group><trans-unit id='3'><source><ph id='1'>{b}</ph>x <mrk mtype='protected'>Y</mrk> z"
        "<!-- c --></source><target state='new' xml:lang='nb'>old</target></trans-unit></group>",
        "<group><trans-unit id='3'><source><ph id='1'>{b}</ph>x <mrk mtype='protected'>Y</mrk> z"
        f"<!-- c --></source><target {STATE.replace(' ', MIDDLE)}><ph id='1'>{{b}}</ph>x "
        "<mrk mtype='protected'>Y</mrk> z<!-- c --></target></trans-unit></group>",
    ),
]
KEPT_1 = """\
<trans-unit id="4"><source>done</source><target>ferdig</target></trans-unit>
<trans-unit id="5" translate="no"><source>no</source></trans-unit>
<group translate="no"><trans-unit id="6"><source>no</source></trans-unit></group>
<trans-unit id="7"><source> <x id="1"/> </source></trans-unit>
<trans-unit id="8"><source>alt</source><target>a</target><alt-trans><source>no</source></alt-trans>
</trans-unit>
"""
UNITS_2 = [
    (
        '<unit id="1"><notes><note>x</note></notes><segment><source>A <pc id="1">dog</pc></source>'
        "</segment><ignorable><source> </source></ignorable><segment id='s' state='initial'>"
        "<source>two<cp hex='41'/></source><target>old</target></segment></unit>",
        '<unit id="1"><notes><note>x</note></notes><segment state="translated"><source>A '
        '<pc id="1">dog</pc></source><target>A <pc id="1">dog</pc></target></segment><ignorable>'
        "<source> </source></ignorable><segment id='s' state=\"translated\"><source>two"
        "<cp hex='41'/></source><target>two<cp hex='41'/></target></segment></unit>",
    ),
]
KEPT_2 = (
    '<unit id="2"><segment><source>done</source><target>ok</target></segment></unit>'
    '<unit id="3" translate="no"><segment><source>no</source></segment></unit>'
)


def document_1(units):
    return (HEAD_1 + "".join(units) + KEPT_1 + TAIL_1).encode()


def document_2(units):
    return (HEAD_2 + "".join(units) + KEPT_2 + TAIL_2).encode()


@pytest.mark.parametrize(("document", "units"), [(document_1, UNITS_1), (document_2, UNITS_2)])
def test_a_copy_differs_in_the_targets_alone(document, units):
    source, expected = (document(each) for each in zip(*units, strict=True))
    assert copied(source, "xliff").decode() == expected.decode()
    assert copied(expected, "xliff") == expected
    utf16 = source.decode().encode("utf-16")
    utf16 = utf16.replace("UTF-8".encode("utf-16-le"), "UTF-16".encode("utf-16-le"))
    found = copied(utf16, "xliff").decode("utf-16").replace("UTF-16", "UTF-8")
    assert found == expected.decode()


def test_a_document_may_be_filled_twice():
    read = read_document(document_1([UNITS_1[1][0]]), "xliff")
    for text in ("Hund", "Katze"):
        filled = read.filled([Translation(text)])
        assert f"<target {STATE}>{text}</target>".encode() in filled


def test_what_has_a_target_is_translated_again_if_asked():
    data = document_1([UNITS_1[0][1]])
    assert texts_of(read_document(data, "xliff")) == []
    found = read_document(data, "xliff", again=True)
    assert texts_of(found) == ["A dog", "done", "alt"]
    filled = found.filled([Translation(text.upper()) for text in texts_of(found)])
    assert filled.count(f"<target {STATE}>".encode()) == 3
    assert b"<target " + STATE.encode() + b">DONE</target>" in filled


def test_codes_go_with_their_words_and_placeholders_are_protected():
    unit = (
        "<trans-unit><source>one <g id='1'>two %s</g> &lt;b&gt;{x}<x id='2'/></source></trans-unit>"
    )
    data = document_1([unit])
    (segment,) = read_document(data, "xliff").segments
    found = Protection(segment.protect).found_in("one two %s <b>{x}")
    assert [match[:2] for match in found] == [(8, 10), (11, 14), (14, 17)]
    target = f"<target {STATE}>ONE <g id='1'>TWO %S</g> &lt;B&gt;{{X}}<x id='2'/></target>"
    assert target in shouted(data, "xliff").decode()


def test_alternatives_stand_beside_the_target(tmp_path):
    def filled(data):
        document = read_document(data, "xliff")
        others = (Alternative("B & c", -1.0, ()), Alternative("C", -2.0, ()))
        return document.filled(
            [
                Translation(
                    each.text,
                    -0.5,
                    alternatives=tuple(
                        replace(other, text=other.text.replace("&", "&amp;")) for other in others
                    ),
                )
                for each in document.segments
            ]
        )

    found = etree.fromstring(filled(document_1([UNITS_1[0][0]])))
    unit = found.find(".//{*}trans-unit")
    assert [each.tag.rpartition("}")[2] for each in unit] == ["source", "target"] + [
        "alt-trans"
    ] * 2
    assert [each.findtext("{*}target") for each in unit.findall("{*}alt-trans")] == ["B & c", "C"]
    found = etree.fromstring(filled(document_2([UNITS_2[0][0]])))
    matches = found.find("{*}file").find("{*}unit")[0]
    assert matches.tag == "{urn:oasis:names:tc:xliff:matches:2.0}matches"
    assert [each.get("ref") for each in matches] == ["#nmt-cli-1"] * 2 + ["#s"] * 2
    assert [each.findtext("{*}target") for each in matches] == ["B & c", "C"] * 2
    assert [each.get("id") for each in found.iterfind(".//{*}segment")][:2] == ["nmt-cli-1", "s"]


def test_a_unit_that_failed_has_no_target():
    data = document_1([UNITS_1[0][0], UNITS_1[1][0]])
    document = read_document(data, "xliff")
    found = [Translation(text, error="it is bad") for text in texts_of(document)]
    assert document.filled(found) == data


def random_source(generator, levels=2):
    texts = ["a ", "我们", "&amp;", "x &lt; y", "\n", " ", "é%s"]
    parts = [generator.choice(texts)]
    for number in range(generator.randrange(4)):
        kind = generator.choice(["x", "ph", "g"])
        if kind == "x":
            parts.append(f'<x id="{number}"/>')
        elif kind == "ph" or not levels:
            parts.append(f'<ph id="{number}">&lt;c/></ph>')
        else:
            parts.append(f'<g id="{number}">{random_source(generator, levels - 1)}</g>')
        parts.append(generator.choice(texts))
    return "".join(parts)


def test_lxml_reads_the_copy_of_any_source(tmp_path):
    generator = random.Random(3)
    sources = [random_source(generator) for _ in range(80)]
    units = [f"<trans-unit><source>{source}</source></trans-unit>" for source in sources]
    found = etree.fromstring(copied(document_1(units), "xliff"))
    translated = 0
    for unit in found.findall(".//{*}trans-unit")[:80]:
        source, target = unit.find("{*}source"), unit.find("{*}target")
        if target is not None:
            translated += 1
            for node in (source, target):
                node.tag, node.tail = "same", None
                node.attrib.clear()
            assert etree.tostring(source) == etree.tostring(target)
    assert translated > 40


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("<xliff><a></xliff>", "it is not XML: mismatched tag at character 13"),
        ("<html/>", "its root is html, not xliff"),
        ("", "its root is missing, not xliff"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><xliff/>', "it declares entities; write their texts in"),
        ("<xliff>" * 300 + "</xliff>" * 300, "its elements are nested more than 256 deep"),
        (b"<xliff>\xff</xliff>", "it is not in the encoding utf-8; convert it to UTF-8"),
    ],
)
def test_a_damaged_file_is_refused(content, problem):
    with pytest.raises(DocumentError) as caught:
        read_document(content if isinstance(content, bytes) else content.encode(), "xliff")
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_is_refused_or_harmless(seed):
    generator = random.Random(seed)
    data = (
        document_1([unit for unit, _ in UNITS_1])
        if seed % 2
        else document_2([unit for unit, _ in UNITS_2])
    )
    begin = generator.randrange(len(data))
    damaged = (
        data[:begin] + generator.choice([b"", b"<", b"\0", b"\xc3"]) + data[begin + seed // 4 :]
    )
    try:
        found = copied(damaged, "xliff")
    except DocumentError as error:
        found = str(error).encode()
        assert b"\n" not in found
    assert found


def cut(sentences: str, target: str = "") -> bytes:
    """Return a file of a unit that is cut into sentences."""
    unit = f"<source>one. two.</source><seg-source>{sentences}</seg-source>{target}"
    body = f'<file><body><trans-unit id="1">{unit}</trans-unit></body></file>'
    return f'<xliff version="1.2">{body}</xliff>'.encode()


def mrk(number: int, text: str) -> str:
    return (
        f'<mrk mtype="seg" mid="{number}">{text}</mrk>'
        if text
        else f'<mrk mtype="seg" mid="{number}"/>'
    )


SECOND = "two <x id='9'/>."
SENTENCES = f'<g id="a">{mrk(1, "one.")} {mrk(2, SECOND)}</g>{mrk(3, " ")}'
DONE = SENTENCES.replace("one", "ONE").replace("two", "TWO")


@pytest.mark.parametrize(
    ("target", "written"),
    [
        ("", f"<target {STATE}>{DONE}</target>"),
        ("<target/>", f"<target {STATE}>{DONE}</target>"),
        (f"<target>{mrk(1, '')}</target>", f"<target {STATE}>{DONE}</target>"),
        (
            f"<target>{mrk(1, '')} {mrk(2, 'zwei')}{mrk(3, '')}</target>",
            f"<target>{mrk(1, 'ONE.')} {mrk(2, 'zwei')}{mrk(3, '')}</target>",
        ),
        (f"<target>{mrk(2, 'zwei')}</target>",) * 2,
        ("<target>eins. zwei.</target>",) * 2,
    ],
)
def test_sentences_are_translated_in_their_places(target, written):
    data = cut(SENTENCES, target)
    assert shouted(data, "xliff") == cut(SENTENCES, written)


@pytest.mark.parametrize("target", ["eins. zwei.", mrk(2, "zwei"), f"{mrk(1, '')}{mrk(2, 'zwei')}"])
def test_all_sentences_are_translated_again(target):
    data = cut(SENTENCES, f"<target>{target}</target>")
    for found, again in ((data, True), (data.replace(b"<target", b"<target state='new'"), False)):
        document = read_document(found, "xliff", again=again)
        assert texts_of(document) == [
            "one.",
            'two <img id="1"/>.',
        ]
        written = document.filled([Translation("A"), Translation("B")]).decode()
        assert (">A<" in written, ">B<" in written, "zwei" in written) == (True, True, False)


def test_a_sentence_that_fails_is_empty_and_alternatives_name_theirs():
    document = read_document(cut(SENTENCES), "xliff")
    assert texts_of(document) == ["one.", 'two <img id="1"/>.']
    other = Translation("B", alternatives=(Alternative("C", 0.0, ()),))
    found = document.filled([Translation("one.", error="it is bad"), other])
    written = SENTENCES.replace("one.", "").replace(SECOND, "B")
    alternative = '<alt-trans mid="2" origin="nmt-cli"><target>C</target></alt-trans>'
    assert found == cut(SENTENCES, f"<target {STATE}>{written}</target>{alternative}")


@pytest.mark.parametrize("name", ["a&b", "<x>", '"it\'s"', "我 é", "&amp;"])
def test_references_of_alternatives_are_the_names_of_their_sentences(name):
    quoted = escape(name)
    segment = f'<segment id="{quoted}"><source>A <ph id="{quoted}"/></source></segment>'
    sentence = f'<mrk mtype="seg" mid="{quoted}">A</mrk>'
    other = Translation("B", alternatives=(Alternative("C", 0.0, ()), Alternative("D", 0.0, ())))
    for data, kind, attribute, reference in (
        (document_2([f"<unit>{segment}</unit>"]), "{*}match", "ref", f"#{name}"),
        (cut(sentence), "{*}alt-trans", "mid", name),
    ):
        document = read_document(data, "xliff")
        found = etree.fromstring(document.filled([other] * len(document.segments)))
        references = [each.get(attribute) for each in found.iterfind(f".//{kind}")]
        assert references[:2] == [reference] * 2


def test_attributes_are_no_texts_of_others():
    tag = """<target a='state="x"' xstate="y">"""
    assert with_attributes(tag, {"state": "z"}) == tag[:-1] + ' state="z">'
    assert with_attributes("<target\tstate = 'x'/>", {"state": "z"}) == '<target\tstate="z"/>'
    for value in ("a&b", "'\"<"):
        assert etree.fromstring(with_attributes("<a b='c'/>", {"b": value})).get("b") == value


def unit(source, target="", attributes=""):
    return f"<trans-unit {attributes}><source>{source}</source>{target}</trans-unit>"


@pytest.mark.parametrize(
    ("source", "segments", "written"),
    [
        ("<![CDATA[A dog]]>", ["A dog"], "<![CDATA[A DOG]]>"),
        (" \n<![CDATA[ A & B ]]>", [" A &amp; B "], "<![CDATA[ A & B ]]>"),
        ("<![CDATA[a <email> b]]>", ["a &lt;email&gt; b"], "<![CDATA[A <email> B]]>"),
        (
            "<![CDATA[<!-- wp --><p>A <b>dog</b> {x}</p>\n<ul><li>b &amp; c</ul>]]>",
            ["<!-- wp --><p>A <b>dog</b> {x}</p>\n<ul><li>b &amp; c</ul>"],
            "<![CDATA[<!-- wp --><p>A <b>DOG</b> {x}</p>\n<ul><li>B &amp; C</ul>]]>",
        ),
        ("<![CDATA[a]]> b <g id='1'>c</g>", ['a b <span id="1">c</span>'], "A B <g id='1'>C</g>"),
        ("<![CDATA[a ]]]]><![CDATA[> b]]>", ["a ]]&gt; b"], "A ]]&gt; B"),
        ("<![CDATA[]]>", [], None),
    ],
)
def test_text_in_cdata_gets_a_target_in_cdata(source, segments, written):
    for target in ("", "<target><![CDATA[]]></target>", f"<target state='new'>{source}</target>"):
        data = document_1([unit(source, target)])
        document = read_document(data, "xliff")
        assert texts_of(document) == segments
        found = etree.fromstring(translated(data, "xliff")).find(".//{*}target")
        if written is None:
            assert translated(data, "xliff") == data
            continue
        parser = etree.XMLParser(strip_cdata=False)
        expected = etree.fromstring(f"<a>{written}</a>", parser)
        whole = etree.fromstring(translated(data, "xliff"), parser)
        raw = etree.tostring(whole.find(".//{*}target"))
        assert found.xpath("string()") == expected.xpath("string()")
        assert (b"<![CDATA[" in raw) == ("<![CDATA[" in written)


def test_a_section_end_in_a_translation_stays_text():
    document = read_document(document_1([unit("<![CDATA[a dog]]>")]), "xliff")
    found = etree.fromstring(document.filled([Translation("a]]&gt;b")]))
    assert found.findtext(".//{*}target") == "a]]>b"


@pytest.mark.parametrize(
    ("target", "attributes", "is_translated"),
    [
        ("<target>[NAB: NOT TRANSLATED]</target>", "", True),
        ("<target>[NAB: REVIEW]Hund</target>", "", False),
        ("<target state='needs-translation'>A dog</target>", "", True),
        ("<target>A dog</target>", "", True),
        ("<target>__A dog</target>", "", True),
        ("<target>A  cat</target>", "", False),
        ("<target>A dog</target>", "approved='yes'", False),
        ("<target>A dog</target>", "approved='no'", True),
        ("<target state='translated'>A dog</target>", "", False),
        ("<target state='final'>A dog</target>", "", False),
        ("<target state='needs-review-translation'>A dog</target>", "", False),
        ("<target/>", "approved='yes'", True),
    ],
)
def test_marks_of_programs_for_targets_that_are_missing(target, attributes, is_translated):
    data = document_1([unit("A dog", target, attributes)])
    assert texts_of(read_document(data, "xliff")) == ["A dog"] * is_translated
    if is_translated:
        found = etree.fromstring(translated(data, "xliff")).find(".//{*}trans-unit")
        assert found.findtext("{*}target") == "A DOG"
        assert found.get("approved") in {None, "no"}
        assert found.find("{*}target").get("state") == "needs-review-translation"


def test_a_copy_without_letters_is_a_translation():
    data = document_1([unit("12:30", "<target>12:30</target>")])
    assert texts_of(read_document(data, "xliff")) == []


def test_machine_output_is_not_approved():
    data = document_1([unit("A dog", "<target state='final'>x</target>", "approved='yes'")])
    document = read_document(data, "xliff", again=True)
    filled = document.filled([Translation(each) for each in texts_of(document)]).decode()
    assert "approved='yes'" not in filled
    assert f'approved="no"><source>A dog</source><target {STATE}>A dog</target>' in filled
    segment = "<unit><segment state='final'><source>a</source><target>b</target></segment></unit>"
    document = read_document(document_2([segment]), "xliff", again=True)
    assert b"final" not in document.filled([Translation(each) for each in texts_of(document)])
    # What is left out keeps its approval.
    document = read_document(data, "xliff", again=True)
    assert document.filled([Translation(error="it is bad")] * len(texts_of(document))) == data


@pytest.mark.parametrize("target", ["de", "pt_br"])
def test_the_language_of_targets_is_named_where_it_is_missing(target):
    def filled(data, languages=("en", target)):
        document = read_document(data, "xliff", languages=languages)
        return document.filled([Translation(each) for each in texts_of(document)]).decode()

    code = {"pt_br": "pt-BR"}.get(target, target)
    first = f"<file a='b'>{unit('a')}</file><file target-language='fr'/>"
    first = f"<xliff version='1.2'>{first}</xliff>"
    second = "<unit><segment><source>a</source></segment></unit>"
    second = f"<xliff version='2.0'><file>{second}</file></xliff>"
    assert f"<file a='b' target-language=\"{code}\"><trans-unit" in filled(first.encode())
    assert "<file target-language='fr'/>" in filled(first.encode())
    assert filled(second.encode()).startswith(f"<xliff version='2.0' trgLang=\"{code}\"><file>")
    named = second.replace("'2.0'", "'2.0' trgLang='fr'")
    assert filled(named.encode()).startswith("<xliff version='2.0' trgLang='fr'><file>")
    for languages in (None, ("en", "und")):
        assert "trgLang" not in filled(second.encode(), languages)
    done = first.replace("</source>", "</source><target>b</target>")
    assert filled(done.encode()) == done


def test_locked_units_are_counted_and_stay():
    units = [
        unit("a", "", "translate='no'"),
        unit("b", "", "m:locked='true'"),
        unit("c", "", "mq:locked='locked'"),
        unit("d", "<target>done</target>", "translate='no'"),
        unit("e", "", "m:locked='false'"),
        "<group translate='no'><trans-unit><source>f</source></trans-unit>"
        "<trans-unit translate='yes'><source>g</source></trans-unit></group>",
    ]
    head = HEAD_1.replace("xmlns=", "xmlns:m='m' xmlns:mq='mq' xmlns=")
    document = read_document((head + "".join(units) + TAIL_1).encode(), "xliff")
    assert texts_of(document) == ["e", "g"]
    document.filled([Translation("E"), Translation("G")])
    assert [each[:2] for each in left_out(document)] == [(0, "a"), (0, "b"), (0, "c"), (0, "f")]
