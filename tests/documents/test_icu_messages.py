"""Messages of ICU in translators' files: their branches are translated, and their frames stay."""

import random
import re
from html import escape, unescape

import polib
import pytest
from lxml import etree

from nmt_cli.documents.document import CHANGED
from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.translation import Alternative, Translation
from tests.documents.filling import copied, left_out, texts_of, translated

PLURAL = "{count, plural, offset:1 =0 {no apples} one {# apple} other {# apples in {place}}}"
SELECT = "{ g , select, male{He eats} female{She eats} other{They eat {0, number, integer}}}"
NESTED = "{n, selectordinal, one {#st {k, select, a {big} other {small}} dog} other {#th dog}}"
MESSAGES = {
    PLURAL: ["no apples", "# apple", "# apples in {place}"],
    f"Today {SELECT} nothing": [
        "Today", "He eats", "She eats", "They eat {0, number, integer}", "nothing"
    ],
    NESTED: ["#st", "big", "small", "dog", "#th dog"],
    f"{PLURAL} {SELECT}": [
        "no apples", "# apple", "# apples in {place}",
        "He eats", "She eats", "They eat {0, number, integer}",
    ],
    "{n, plural, other {it''s '{'n'}' and <b>bold</b>}}": [
        "it''s '{'n'}' and &lt;b&gt;bold&lt;/b&gt;"
    ],
    "{n, plural, other {the dogs' {{x}}}}": ["the dogs' {{x}}"],
    "{n, plural, =1 {dogs'} other {cats}}": ["dogs'", "cats"],  # Angular has no quotation
    "Hello {name}": ["Hello {name}"],
}  # fmt: skip


def po(*texts):
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "\n".join(f'msgid "{text}"\nmsgstr ""\n' for text in quoted).encode()


def xliff(*sources):
    units = "".join(f"<trans-unit><source>{source}</source></trans-unit>" for source in sources)
    return f"<xliff version='1.2'><file><body>{units}</body></file></xliff>".encode()


def tmx(*texts):
    units = "".join(f"<tu><tuv xml:lang='en'><seg>{text}</seg></tuv></tu>" for text in texts)
    return f"<tmx><body>{units}</body></tmx>".encode()


def parsed(message, place=0, is_branch=False):
    """Read a message character by character; return its parts, and where it ends."""
    parts = []
    while place < len(message) and not (is_branch and message[place] == "}"):
        if message[place] == "{":
            part, place = parsed_argument(message, place + 1)
        else:
            end = place + 1
            if message[place] == "'" and message[end : end + 1] in {"{", "}"}:
                end = message.index("'", end) + 1
            part, place = message[place:end], end
        parts.append(part)
    return parts, place


def parsed_argument(message, place):
    begin = place
    while message[place] not in "{}":
        place += 1
    head, branches = [part.strip() for part in message[begin:place].split(",")], {}
    if message[place] == "}":
        return tuple(head), place + 1
    *head, key = head
    assert head[1] in {"plural", "select", "selectordinal"}
    while message[place] == "{":
        branches[key], place = parsed(message, place + 1, is_branch=True)
        begin = place = place + 1
        while message[place] not in "{}":
            place += 1
        key = message[begin:place].strip()
    assert not key
    return (*head, branches), place + 1


def in_capitals(parts):
    """Return the same message in capitals, except for arguments and keys."""
    return [
        part.upper() if isinstance(part, str) and not part.startswith("'{") else
        (*part[:-1], {key: in_capitals(value) for key, value in part[-1].items()})
        if isinstance(part[-1], dict) else part
        for part in parts
    ]  # fmt: skip


def random_message(generator, level=3):
    """Return a message without tags and quotations."""
    words = ["dogs ", "我们 ", "Åsa's ", "# ", "{name}", "{d, date, short}", "a & b "]
    parts = generator.choices(words, k=generator.randint(1, 3))
    if level and generator.random() < 0.8:
        kind, *keys = generator.choice(
            [("plural", "=0", "one", "other"), ("select", "a_b", "other"), ("selectordinal", "few")]
        )
        branches = (f"{key} {{{random_message(generator, level - 1)}}}" for key in keys)
        parts.insert(generator.randrange(3), f"{{n{level}, {kind}, {' '.join(branches)}}}")
    return "".join(parts)


@pytest.mark.parametrize("message", MESSAGES)
def test_branches_are_segments(message):
    for data, form in ((xliff(escape(message)), "xliff"), (tmx(escape(message)), "tmx")):
        document = read_document(data, form, languages=("en", "de"))
        assert [unescape(each) for each in texts_of(document)] == [
            unescape(each) for each in MESSAGES[message]
        ]
    assert target_of(copied(xliff(escape(message)), "xliff")) == message
    assert read_document(xliff(escape(message)), "xliff").segments[0].protect_strict


def target_of(data):
    return etree.fromstring(data).findtext(".//{*}target")


@pytest.mark.parametrize("seed", range(60))
def test_all_but_the_texts_of_branches_stays(seed):
    message = random_message(random.Random(seed))
    source = xliff(escape(message, quote=False))
    assert target_of(copied(source, "xliff")) == message
    in_po = polib.pofile(translated(po(message), "po").decode())[0].msgstr
    for found in (target_of(translated(source, "xliff")), in_po):
        assert parsed(found)[0] == in_capitals(parsed(message)[0])


def test_codes_stay_in_their_branches():
    message = "{{n, plural, one {{{}dog{}}} other {{{} dogs}}}}"
    source = message.format("<g id='1'>", "</g>", "<x id='2'/>")
    document = read_document(xliff(source), "xliff")
    assert texts_of(document) == ["dog", "dogs"]
    expected = source.replace("dogs", "DOGS").replace("dog", "DOG")
    assert f">{expected}</target>".encode() in translated(xliff(source), "xliff")
    section = f"<![CDATA[{NESTED} & <b>]]>"
    assert f">{section}</target>".encode() in copied(xliff(section), "xliff")
    assert b"one {#ST {k, select, a {BIG} other" in translated(xliff(section), "xliff")


@pytest.mark.parametrize(
    "source",
    [
        "{n, plural, one {# dog} other {# dogs}",
        "{n, plural, one # dog}",
        "{n, select, }",
        "{n, plural, one {# dog} many}",
    ],
)
def test_what_is_no_message_stays_without_a_target(source):
    data = xliff(source, "a dog")
    document = read_document(data, "xliff")
    filled = document.filled([Translation(each) for each in texts_of(document)])
    assert [each.findtext("{*}target") for each in etree.fromstring(filled).iter("trans-unit")] == [
        None, "a dog"
    ]  # fmt: skip
    assert [(each.segment, each.reason) for each in left_out(document)] == [(1, CHANGED)]


@pytest.mark.parametrize(
    ("translations", "written"),
    [
        (["Obst", "viel"], "{n, plural, one {Obst} other {viel}}"),
        (["it's", "don't"], "{n, plural, one {it's} other {don't}}"),
        (["a {", "b"], None),
        (["a }", "b {"], None),
        (["{z, select, a {b}}", "b"], None),
    ],
)
def test_a_translation_cannot_change_the_branches(translations, written):
    message = "{n, plural, one {fruit} other {much fruit}}"
    for data, form in ((po(message), "po"), (xliff(message), "xliff")):
        document = read_document(data, form)
        filled = document.filled(list(map(Translation, translations)))
        found = polib.pofile(filled.decode())[0].msgstr if form == "po" else target_of(filled)
        if written is None:
            assert (found or None) is None
            assert [each.text for each in left_out(document)] == [message]
        else:
            assert found == written


def test_an_apostrophe_of_a_translation_quotes_no_brace():
    message = "{n, plural, one {of {x}} other {'{'of {x}}}"
    plain = message.replace("'{'", "")
    # Of a message with quotations, such a translation is left out.
    for source, written in ((plain, plain.replace("of ", "d\u2019")), (message, "")):
        document = read_document(po(source), "po")
        texts = [each.replace("of ", "d'") for each in texts_of(document)]
        found = polib.pofile(document.filled(list(map(Translation, texts))).decode())[0].msgstr
        assert found == written


def test_numbers_and_quoted_braces_are_copied():
    document = read_document(po("{n, plural, other {# of '{n}' in {n, number}}}", "# {n}"), "po")
    found = [
        [each.text[match.begin : match.end] for match in Protection(each.protect).found_in(text)]
        for each in document.segments
        for text in [each.text]
    ]
    assert found == [["#", "'{n}'", "{n, number}"], ["{n}"]]


def test_alternatives_are_whole_messages_and_a_failed_branch_leaves_the_unit():
    message = "{n, plural, one {dog} other {dogs}}"
    document = read_document(xliff(message), "xliff")
    others = (Alternative("b"), Alternative("{"))
    filled = document.filled([Translation("a", alternatives=others), Translation("c")])
    assert re.findall(rb"<target[^>]*>([^<]*)</target>", filled) == [
        b"{n, plural, one {a} other {c}}",
        b"{n, plural, one {b} other {c}}",
    ]
    document = read_document(xliff(message), "xliff")
    assert document.filled([Translation("a"), Translation(error="it is bad")]) == xliff(message)
    assert left_out(document) == []


@pytest.mark.parametrize(
    "source",
    [
        "<g id='1'>{n, plural, one {a</g> dog}}",
        "{n, plural, one {a <g id='1'>dog} other {dogs</g>}}",
    ],
)
def test_codes_across_branches_leave_the_unit(source):
    assert copied(xliff(source), "xliff") == xliff(source)
    assert translated(xliff(source), "xliff") == xliff(source)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "{n, plural, ",
        "{n, plural, a {",
        "{n, plural, a {b} ",
        "{a,number{",
        "'{",
        "{n, select, a {'",
    ],
)
def test_hostile_messages_take_linear_time(text):
    data = xliff(escape(text * 20_000))
    document = read_document(data, "xliff")
    document.filled([Translation(each) for each in texts_of(document)])
