"""Pairs of TMX, XLIFF and PO files, also of wrong ones."""

import gzip
import random
import tracemalloc
from itertools import product

import polib
import pytest
from lxml import etree

from nmt_cli.corpus.text.language_codes import ENTRIES, NAMES, base_of
from nmt_cli.corpus.text.memories import Variant, open_pairs, pairs_in, pairs_of
from nmt_cli.corpus.text.recipe_text import write_sides
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.corpora import ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig

LANGUAGES = ("en", "de")
TEXTS = [
    "A dog.",
    "我们有一只狗。",
    "لدينا كلب",
    "สุนัข",
    "İstanbul'da ığdır",
    "",
    "blåbær " * 900,
    "?!",
]
TMX = '<tmx version="1.4"><header srclang="en"/><body>{}</body></tmx>'
TU = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
XLIFF_1 = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body>{}</body></file>'
    "</xliff>"
)
UNIT_1 = '<trans-unit id="1"><source>{}</source><target{}>{}</target></trans-unit>'
XLIFF_2 = '<xliff version="2.0" srcLang="en-GB" trgLang="de"><file id="f">{}</file></xliff>'
UNIT_2 = '<unit id="1"><segment{}><source>{}</source><target>{}</target></segment></unit>'
PO = 'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset={}\\n"\n\n'


@pytest.fixture
def read(tmp_path):
    def pairs(content, languages=LANGUAGES, inline_tag=None, name="memory"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with open_pairs(path, languages, inline_tag) as stream:
            lines = stream.read(1 << 30).decode().removesuffix("\n").split("\n")
        return [tuple(line.split("\t")) for line in lines]

    return pairs


def refusal(read, content, **options):
    with pytest.raises(UserError) as caught:
        read(content, **options)
    return str(caught.value)


def element(name, *children, text=None, tail=None, **attributes):
    made = etree.Element(name, attributes)
    made.text, made.tail = text, tail
    made.extend(children)
    return made


def random_segment(generator, name):
    """Return a segment with codes in its text, and its text without them."""
    segment, words = element(name), []

    def fill(parent, levels):
        words.append(generator.choice(TEXTS))
        parent.text = words[-1]
        for _ in range(generator.randrange(3)):
            kind = generator.choice(["bpt", "ept", "ph", "it", "hi", "ut"])
            child = element(kind, i="1")
            if kind == "hi" and levels:
                fill(child, levels - 1)
            elif kind != "hi":
                child.append(element("sub", text="a note"))
                child.text = "<code & more>"
            child.tail = generator.choice(TEXTS)
            words.append(child.tail)
            parent.append(child)

    fill(segment, 2)
    return segment, "".join(words).strip()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_memory_as_lxml_writes_it(read, encoding, suffix):
    generator, expected, body = random.Random(encoding + suffix), [], element("body")
    for _ in range(50):
        sides = [random_segment(generator, "seg") for _ in range(3)]
        variants = [
            element("tuv", element("note", text="seg"), segment, **{"lang": language})
            for (segment, _), language in zip(sides, ("de-AT", "EN", "fr"), strict=True)
        ]
        body.append(element("tu", element("prop", text="x"), *variants))
        expected.append((sides[1][1], sides[0][1]))
    content = etree.tostring(element("tmx", body), encoding=encoding)
    packed = gzip.compress(content) if suffix else content
    assert read(packed, name=f"memory.tmx{suffix}") == expected


def test_every_target_of_a_unit_gives_a_pair(read):
    variants = {"fr": "un", "en-GB": "one", "en": "an", "de": "ein", "de-AT": "eins", "DE-ch": "1"}
    unit = [f'<tuv xml:lang="{key}"><seg>{text}</seg></tuv>' for key, text in variants.items()]
    memory = TMX.format(f"<tu>{''.join(unit)}</tu>")
    assert read(memory) == [("an", "ein"), ("an", "eins"), ("an", "1")]
    assert read(memory, ("en-US", "de-AT")) == [("an", "ein"), ("an", "eins")]
    assert read(memory, ("de-CH", "en-gb")) == [("1", "one"), ("1", "an")]
    assert refusal(read, memory, languages=("en", "it")).endswith(
        "memory has no pair of en and it: its languages are fr, en-GB, en, de, de-AT and DE-ch; "
        "correct the languages, or give another file."
    )


@pytest.mark.parametrize(
    ("wanted", "found", "matches"),
    [
        ("nb", "no-NO", True),
        ("zh-Hans", "zh-CN", True),
        ("zh-Hant", "zh-CN", False),
        ("pt_BR", "pt", True),
        ("pt-BR", "pt-PT", False),
        ("sr", "sr-Latn-RS", True),
        ("en", None, True),
        ("e", "en", False),
    ],
)
def test_which_languages_match(wanted, found, matches):
    unit = [Variant("xx", "a"), Variant(found, "b")]
    assert list(pairs_of(unit, ("xx", wanted))) == ([("a", "b")] if matches else [])


def test_xliff(read):
    texts = [("A <g id='1'>big<x id='2'/></g> dog &amp; a cat", "Ein <ph id='3'>code</ph>Hund")]
    units = [UNIT_1.format(texts[0][0], "", texts[0][1])]
    units += [UNIT_1.format("open", f' state="{state}"', "x") for state in ("new", "translated")]
    alternative = "<alt-trans><source>no</source><target>nein</target></alt-trans>"
    units.append(f"<trans-unit><source>none</source>{alternative}</trans-unit>")
    expected = [
        ("A big dog & a cat", "Ein Hund"), ("open", ""), ("open", "x"), ("none", ""),
    ]  # fmt: skip
    assert read(XLIFF_1.format("".join(units))) == expected
    reversed_ = [(target, source) for source, target in expected]
    assert read(XLIFF_1.format("".join(units)), ("de", "en")) == reversed_
    first = read(XLIFF_1.format(units[0]), inline_tag="<ph>")
    assert first == [("A <ph>big<ph><ph> dog & a cat", "Ein <ph>Hund")]


def test_xliff_2(read):
    units = [
        UNIT_2.format("", 'A <pc id="1">dog</pc><ph id="2"/><cp hex="21"/>', "<sc/>Hund<ec/>"),
        UNIT_2.format(' state="initial"', "open", "x"),
        "<unit><ignorable><source> </source></ignorable><mtc:matches><mtc:match><source>no"
        "</source><target>nein</target></mtc:match></mtc:matches></unit>",
    ]
    document = XLIFF_2.format("".join(units))
    assert read(document) == [("A dog!", "Hund"), ("open", "")]
    assert read(document, inline_tag="⟨ph⟩")[0] == ("A ⟨ph⟩dog⟨ph⟩⟨ph⟩!", "⟨ph⟩Hund⟨ph⟩")
    assert "its languages are en-GB and de" in refusal(read, document, languages=("en", "fr"))
    wrong = UNIT_2.format("", "a<cp hex='x'/><cp hex='-1'/><cp hex='110000'/><cp/>", "b")
    assert read(XLIFF_2.format(wrong)) == [("a" + 4 * "\ufffd", "b")]


@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-15", "CP1251"])
def test_po(read, encoding):
    extra = {"UTF-8": "我们 ☃", "ISO-8859-15": "Übergrößé", "CP1251": "Собака"}[encoding]
    entries = [
        f'# {extra}\n#: a.c:1\nmsgctxt "menu"\nmsgid ""\n"Open "\n"\\"%s\\"\\n"\nmsgstr "{extra}"',
        '#, c-format, fuzzy\n#| msgid "old"\nmsgid "fuzzy"\nmsgstr "unsicher"',
        'msgid "file"\nmsgid_plural "files"\nmsgstr[0] "Datei"\nmsgstr[1] "Dateien"',
        'msgid "one"\nmsgid_plural "ones"\nmsgstr[0] "\\t\\\\\\x41\\101"\n\n\n',
        '#~ msgid "gone"\n#~ msgstr "weg"\nmsgid "last"\nmsgstr ""',
    ]
    content = (PO.format(encoding) + "\n\n".join(entries)).encode(encoding)
    expected = [
        ('Open "%s"', extra), ("fuzzy", ""), ("file", "Datei"), ("files", "Dateien"),
        ("ones", "\\AA"), ("last", ""),
    ]  # fmt: skip
    assert read(content) == expected
    assert read(content.replace(b"\n", b"\r\n")) == expected
    assert read(content, ("de", "en"))[0] == (extra, 'Open "%s"')


def test_po_as_polib_reads_it(read, tmp_path):
    generator = random.Random(7)
    parts = ["a", '"', "\\", "\n", "\t", "我们", "%s", " ", "é", "word " * 30]
    made = polib.POFile(wrapwidth=40)
    made.metadata = {"Language": "de", "Content-Type": "text/plain; charset=UTF-8"}
    for number in range(60):
        source, target = ("".join(generator.choices(parts, k=6)) for _ in range(2))
        made.append(polib.POEntry(msgid=f"{number} {source}", msgstr=target))
    made.save(str(tmp_path / "made.po"))
    expected = [
        tuple(" ".join(text.split("\n")).replace("\t", " ").strip() for text in (e.msgid, e.msgstr))
        for e in polib.pofile(str(tmp_path / "made.po"))
    ]
    assert read((tmp_path / "made.po").read_bytes()) == expected


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>' + TMX.format(TU.format("&b;", ""))
UNDECLARED = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">' + TMX.format("\n" + TU.format("a&nbsp;b", ""))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (BOMB, ":1: the entity a is none of XML's own; replace it by its text."),
        (UNDECLARED, ":2: the entity nbsp is none of XML's own"),
        (TMX.format("\n<tu></b>"), ":2: not XML: mismatched tag."),
        (TMX.format(TU.format("a", "b"))[:-3], ":1: not XML: unclosed token."),
        ("<html><body/></html>", ":1: the root is html; it must be tmx or xliff."),
        (TMX.format("<a>" * 255), ":1: more than 256 elements are in each other."),
        ("<?xml version='1.0' encoding='klingon'?><tmx/>", ":1: its encoding is not supported: "),
        ("<?xml version='1.0' encoding='gb18030'?><tmx/>", ":1: its encoding is not supported: "),
        (b"<tmx>\n\xff</tmx>", ":2: not XML: not well-formed (invalid token)."),
        (TMX.format(""), " has no pair of en and de: it has no segments; correct the languages"),
        ("", " has no pair of en and de: it has no segments"),
        (b"\0" * 9, ":1: '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00' is no line of a PO file."),
        ("Plain text.\n", ":1: 'Plain text.' is no line of a PO file."),
        ('msgid "a"\nmsgstr "b\n', ":2: 'msgstr \"b' is no line of a PO file."),
        ('msgid "a"\n\nmsgid "b"\n', ":3: msgid is given twice in an entry."),
        ('msgid "a"\n', ":1: an entry ends here that has no msgid and msgstr."),
        ('msgstr "a"\n', ":1: an entry ends here that has no msgid and msgstr."),
        (
            PO.format("Klingon"),
            ":2: the charset Klingon is not supported; convert the file to UTF-8.",
        ),
        (PO.format("UTF-16").encode("utf-16"), ":1: it is UTF-16; convert the file to UTF-8."),
        (PO.format("UTF-8").encode() + b"# \xe9", ":4: the line is not utf-8."),
    ],
)
def test_a_wrong_file_is_one_error_with_its_line(read, tmp_path, content, problem):
    assert refusal(read, content).startswith(f"{tmp_path}/memory{problem}")


@pytest.mark.parametrize("cut", range(1, 60, 5))
def test_a_damaged_file_is_one_error_or_read(read, cut):
    generator = random.Random(cut)
    units = "".join(TU.format(f"a {n} <hi>b</hi>", "c") for n in range(9))
    wholes = [TMX.format(units), XLIFF_1.format(UNIT_1.format("a", "", "b") * 9)]
    wholes += [PO.format("UTF-8") + 'msgid "a"\nmsgstr "b"\n' * 9]
    for whole, way in product(wholes, range(3)):
        place = generator.randrange(len(whole))
        damaged = [
            whole[:place],
            whole[:place] + whole[place + cut :],
            whole[:place] + '\0<&"' + whole[place:],
        ][way]
        try:
            found = read(damaged)
        except UserError as error:
            found = [("", str(error))]
        assert all(len(pair) == 2 and "\n" not in pair[1] for pair in found)


def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for number in (300, 5000):
        path = tmp_path / f"{number}.tmx"
        path.write_text(TMX.format(TU.format("one text " * 6, "ein Text " * 6) * number))
        tracemalloc.start()
        with open_pairs(path, LANGUAGES) as stream:
            total = 0
            while block := stream.read(1 << 16):
                total += len(block)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert total == number * len("one text " * 6 + "ein Text " * 6)
    assert peaks[1] < 1.5 * peaks[0] + 2_000_000


@pytest.mark.parametrize("depth", [1, 2])
def test_a_tag_or_unit_without_end_is_refused_early(tmp_path, monkeypatch, depth):
    monkeypatch.setattr("nmt_cli.corpus.text.memories.LONGEST_LINE", 100_000)
    attribute = f' a="{"x" * 900_000}"' if depth == 1 else ""
    path = tmp_path / "long.tmx"
    path.write_text(TMX.format(f"<tu{attribute}>" + '<tuv xml:lang="en"><seg/></tuv>' * 2000))
    with pytest.raises(UserError, match=r"a tag is longer than|a unit has more than"):
        read_all(path)


def read_all(path):
    with open_pairs(path, LANGUAGES) as stream:
        return stream.read(1 << 30)


def test_its_sides_are_written_in_the_languages_of_a_recipe(tmp_path):
    """Also where nothing else names them."""
    memory, source, target = (tmp_path / name for name in ("a.tmx", "source", "target"))
    unit = (
        '<tu><tuv xml:lang="de"><seg>eins</seg></tuv><tuv xml:lang="en"><seg>one</seg></tuv></tu>'
    )
    memory.write_text(f"<tmx><body>{unit}</body></tmx>")
    data = DataConfig.model_construct(source_language="en", target_language="de", treebank=None)
    write_sides(ParallelFiles(memory=memory), data, source, target)
    assert (source.read_text(), target.read_text()) == ("one\n", "eins\n")


def test_a_byte_order_mark_is_that_of_any_format(read):
    for content in (
        TMX.format(TU.format("a", "b")),
        PO.format("UTF-8") + 'msgid "a"\nmsgstr "b"\n',
    ):
        assert read(f"\ufeff{content}") == [("a", "b")]
        assert read(f"\ufeff \n{content}") == [("a", "b")]


@pytest.mark.parametrize(
    ("source", "target"),
    [("eng", "deu"), ("en_US", "ger"), ("EN-us", "DE_de"), ("eng-GB", "deu_AT")],
)
def test_languages_are_found_by_all_their_codes(source, target, tmp_path):
    variants = "".join(
        f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>'
        for code, text in ((source, "a cat"), ("fra", "un chat"), (target, "eine Katze"))
    )
    (tmp_path / "a.tmx").write_text(f"<tmx><body><tu>{variants}</tu></body></tmx>")
    with (tmp_path / "a.tmx").open("rb") as stream:
        found = list(pairs_in(tmp_path / "a.tmx", stream, ("en", "de")))
    assert found == [("a cat", "eine Katze")]


def test_codes_of_three_letters_are_those_of_two():
    """By the names that Debian's iso-codes and everybody have for them."""
    named = {"deu": "de", "ger": "de", "fre": "fr", "zho": "zh", "nor": "nb", "nob": "nb"}
    assert {longer: base_of(longer) for longer in named} == named
    assert base_of("ckb") == "ckb"
    longer = [code for _, code, _ in ENTRIES]
    assert all(len(code) == 3 and code.isalpha() for code in longer)
    assert len({*longer}) == len(longer) == len(NAMES)
