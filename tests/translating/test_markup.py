"""HTML and XML: texts are translated, tags follow their words, and the rest stays as it is."""

import random
import re
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import lxml.etree
import lxml.html
import pytest

from nmt_cli.translating.interface.request import LineError, TagRules
from nmt_cli.translating.segmentation.markup.blocks import DEEPEST, Block, blocks_of
from nmt_cli.translating.segmentation.markup.placement import MarkupSegments
from nmt_cli.translating.segmentation.markup.tokens import TokenKind, html_tokens, xml_tokens
from nmt_cli.translating.segmentation.segments import Output, Span, sentences, whole
from tests.translating.markup_fragments import (
    SCRIPT_IN_COMMENT,
    WORD,
    Tags,
    broken,
    copied,
    crowded,
    fragment,
    normalized,
    scrambled,
)

PAGES = sorted((Path(__file__).parent / "pages").glob("*.html"))
NUM_FRAGMENTS = [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
BROKEN = [
    ("<b>one <i>two</b> three</i>", "<b>one <i>two</i></b> three"),
    ("one</b> two</p>", "one two"),
    ("<div><b>one", "<div><b>one</b></div>"),
    ("<p>one<p>two", "<p>one<p>two"),
    ("<ul><li>one<li>two</ul>", "<ul><li>one<li>two</ul>"),
    ("<ul><li><b>one<li>two</b></ul>", "<ul><li><b>one</b><li>two</ul>"),
    ("<ul><li>one<ul><li>two<li>three</ul><li>four</ul>",) * 2,
    ("<table><tr><td>one<th>two<tr><td>three</table>",) * 2,
    ("<p>one<div>two</div></p>",) * 2,
    ("<p>one <b>two</p><p>three</p>", "<p>one <b>two</b></p><p>three</p>"),
    ("<td>one<tr><td>two", "<td>one<tr><td>two"),
    ("<SPAN>one</span ><BR>two", "<SPAN>one</span ><BR>two"),
    ("one<br/>two</br>three", "one<br/>twothree"),
    ("<script>one < 2", "<script>one < 2</script>"),
    ("<textarea><b>one</textarea>two", "<textarea><b>one</textarea>two"),
    ("<pre><b>one</pre>", "<pre><b>one</b></pre>"),
    ("<a href='>'>one</a>", "<a href='>'>one</a>"),
    ("one < two & three &amp; four", "one &lt; two &amp; three &amp; four"),
    ("</><!><b></>one</b>", "<!><b>one</b>"),
    ("one <b translate=no>two</", "one <b translate=no>two&lt;/</b>"),
    ("one <b translate=no>< two<</>three</b>", "one <b translate=no>< two&lt;three</b>"),
    ("one <b translate=no>&lt</i>&am</i>p;</b>", "one <b translate=no>&lt;&amp;amp;</b>"),
    ("one <1 </ two", "one &lt;1 </ two"),
]
# What browsers show of it, and what has no end, with all behind it.
WITHOUT_END = [
    ("<p>one</p>", "<!-- secret: <b>two</b> <p>three</p>"),
    ("<div><b>one ", "<!-- </b>-- >"),
    ("<p>one", "<!--two"),
    ("one ", "<a title='two>three</a>"),
    ("one<p>", "<img alt=two "),
    ("one", "<!two"),
    ("one", "<?two"),
    ("one", "</ two"),
    ("one", "</b two"),
]


def layout(source, markup="html", cut=whole):
    return MarkupSegments(source, markup, cut)


def translated(source, markup="html", of=copied, cut=whole):
    segments = layout(source, markup, cut)
    return segments.filled(of(segments.texts))


def by_hand(texts, *, links):
    """Return the only text in upper case, with the words in the order of ``links``."""
    ((text, spans, *_),) = copied(texts, WORD)
    written, outputs = "", []
    for link in links:
        begin, end = spans[link][:2]
        at = len(written) + bool(written)
        written = f"{written} {text[begin:end].upper()}".strip()
        outputs.append(Span(at, len(written), begin, end))
    return [Output(written, outputs)]


@pytest.mark.parametrize(
    ("source", "links", "expected"),
    [
        ("one <b>two</b> three", [1, 0, 2], "<b>TWO</b> ONE THREE"),
        ("one <b>two three</b>", [1, 0, 2], "<b>TWO ONE THREE</b>"),
        ("one <b>two <i>three</i></b>", [2, 1, 0], "<b><i>THREE</i> TWO</b> ONE"),
        ("<a>one</a> <b>two</b>", [1, 0, 1], "<b>TWO</b> <a>ONE</a> TWO"),
        ("<a>one</a> <b>two</b>", [0, 0], "<a>ONE ONE</a><b></b>"),
        ("<b>one two</b>", [1, 0], "<b>TWO ONE</b>"),
        ("one <code>f()</code> two", [1, 0], "TWO ONE <code>f()</code>"),
        ("one <img> two", [0, 1], "ONE <img> TWO"),
        ("one<!-- c --> two", [1, 0], "TWO ONE<!-- c -->"),
        ("<img> one two<hr>", [1, 0], "<img> TWO ONE<hr>"),
        ("one <a><img></a> two", [0, 1], "ONE <a><img></a> TWO"),
        ("a &lt;<b>x</b>", [1, 2, 0], "&lt; <b>X</b> A"),
        ("&nbsp;one <b>two</b>\n", [0, 1], "&nbsp;ONE <b>TWO</b>\n"),
        ("one<i> </i>two<b>\n</b>three", [0, 1, 2], "ONE<i> </i>TWO<b>\n</b>THREE"),
        ("<a>one</a><i>&nbsp;</i><b>two</b>", [1, 0], "<b>TWO</b> <a>ONE</a><i>&nbsp;</i>"),
        ("<u>one<i> </i></u>two<i> </i>", [0, 1], "<u>ONE<i> </i></u>TWO<i> </i>"),
        ("<i> </i>one<u><i> </i></u> two", [1, 0], "<i> </i>TWO ONE<u><i> </i></u>"),
        ("one two<b></b><i> </i>", [1, 0], "TWO ONE<b></b><i> </i>"),
        ("one two<i> </i><b></b>", [1, 0], "TWO ONE<i> </i><b></b>"),
        ("one two<br><img><i> </i>", [1, 0], "TWO ONE<br><img><i> </i>"),
        ("one<u><b></b><i> </i>two</u>", [0, 1], "ONE<u><b></b><i> </i>TWO</u>"),
        ("one<u><i> </i><b></b>two</u>", [0, 1], "ONE<u><i> </i><b></b>TWO</u>"),
        ("one<!-- c --><i> </i><img>two", [0, 1], "ONE<!-- c --><i> </i><img>TWO"),
        ("one <img><img>two", [0, 1], "ONE <img><img>TWO"),
        ("one<img><img> two", [1, 0], "TWO ONE<img><img>"),
        (" <b></b>one<b></b> ", [0], " <b></b>ONE<b></b> "),
        ("one<code>f()</code>&nbsp;<b></b>", [0], "ONE<code>f()</code>&nbsp;<b></b>"),
    ],
)
def test_tags_follow_their_words(source, links, expected):
    assert translated(source, of=lambda texts: by_hand(texts, links=links)) == expected


def test_a_digit_behind_a_reference_without_semicolon_is_no_part_of_it():
    segments = layout("<b>&#160one</b>")
    assert segments.filled([Output("5", [Span(0, 1, 0, 3)])]) == "&#160;<b>5</b>"


def test_an_element_whose_words_no_word_attends_to_gets_the_one_that_they_attend_to():
    segments = layout("one <a>two</a>")
    attending = Output("EINS ZWEI", [Span(0, 4, 0, 3, (0,)), Span(5, 9, 0, 3, (4,))])
    assert segments.filled([attending]) == "EINS <a>ZWEI</a>"


@pytest.mark.parametrize(("source", "expected"), BROKEN)
def test_broken_html_is_repaired(source, expected):
    assert translated(source) == expected
    assert Tags(expected).faults == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_keeps_all_but_its_texts(page):
    source = page.read_text(encoding="utf-8")
    segments = layout(source)
    assert segments.filled(copied(segments.texts)) == source
    assert any(segments.need_spans)
    shouted = segments.filled(
        [each._replace(text=each.text.upper()) for each in copied(segments.texts)]
    )
    assert Tags(shouted).counts == Tags(source).counts
    for kept in ("pre", "code", "script", "style", "textarea", "svg", "math"):
        before, after = (lxml.html.fromstring(text).iter(kept) for text in (source, shouted))
        assert [each.text_content() for each in before] == [each.text_content() for each in after]
    rng = random.Random(1)
    for _ in range(5):
        found = segments.filled(scrambled(rng, segments.texts))
        assert (Tags(found).counts, Tags(found).faults) == (Tags(source).counts, [])


@pytest.mark.parametrize(("shown", "rest"), WITHOUT_END)
def test_what_has_no_end_stays_as_it_is_with_all_behind_it(shown, rest):
    """Browsers show nothing of it."""
    segments = layout(shown + rest)
    assert segments.texts == ["one"]
    found = segments.filled([Output("EINS")])
    assert found == translated(shown).replace("one", "EINS") + rest


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<!-->one<!--->two<!--a--!>three<!----><!--!>--> four", ["onetwothree four"]),
        ("<a b=c/>one</a d='>'>two", ["onetwo"]),
        ("<a ='>one</a>", ["one"]),
        ("<i a=\"1\"b='>'c>one</i>", ["one"]),
        ("<script><!-- <script> </script> --></script>one", ["one"]),
        ("<script><!-- </script>one", ["one"]),
        ("<STYLE></styles></Style\n>one", ["one"]),
        ("<p>one<plaintext>two</plaintext>", ["one"]),
        ("<b/one>two</b>", ["two"]),
        ("<é>one</é>", ["<é>one"]),
    ],
)
def test_html_is_read_as_browsers_do(source, texts):
    segments = layout(source)
    assert [" ".join(each.split()) for each in segments.texts] == texts


def test_blocks_are_the_texts_between_tags_that_separate():
    source = (
        "<title>A</title><p>one <b>two</b><br>three<select><option>x</select> <b><div>y</div>z</b>"
    )
    assert layout(source).texts == ["A", "one two", "three", "x", "y", "z"]
    xml = "<doc><p>one <b>two</b> <x>three</x></p>\n<q><r>four</r> <r>five</r></q></doc>"
    assert layout(xml, "xml").texts == ["one two three", "four", "five"]
    assert layout("<q><r>four</r> <r>five</r></q> six", "xml").texts == ["four five six"]
    kept = (
        "<pre>a</pre> <p translate=no>b <i>c</i></p><p class='x notranslate'>B</p>"
        "<p data-no-translation>B</p><script>d</script><!-- e --><p> </p><img alt=f>"
    )
    assert layout(kept).texts == []
    assert layout(kept).filled([]) == kept


def test_sentences_of_markup():
    source = "<p>One <b>two. Three</b> four.\n  Five.</p> &nbsp;<p>Six</p>"
    segments = layout(source, cut=lambda text: sentences(text, "en"))
    assert segments.texts == ["One two.", "Three four.", "Five.", "Six"]
    assert segments.filled(copied(segments.texts)) == source


@pytest.mark.parametrize(
    "part", ["</b>", "<", "<!--", "<a ", "<b/>x ", "<i>x</i> y", "<li>x", "<p>"]
)
def test_hostile_html_is_quick(part):
    found = translated(f"x {part * 2_000}")
    assert Tags(found).faults == []


@pytest.mark.parametrize(
    "part",
    [
        *(
            "<!--",
            "<!--a>",
            "<![CDATA[a>",
            "<![CDATA[",
            "<a ",
            "<a b='>",
            '<a b=">',
            "<a b=",
            "<a/",
        ),
        *("<script>a</", "<script><!--", "<textarea></", "<plaintext>", "<?", "<!", "</", "&", "<"),
    ],
)
def test_the_time_for_html_grows_with_its_length_alone(part):
    """A tenth of it took a second when Python's html.parser looked for each end."""
    source = part * (500_000 // len(part))
    before = time.process_time()
    tokens = html_tokens(source)
    assert time.process_time() - before < 5
    assert "".join(token.raw for token in tokens) == source


def test_elements_may_be_in_only_so_many_others():
    source = f"{'<b>' * DEEPEST}x{'</b>' * DEEPEST}"
    assert translated(source) == source
    for number in (DEEPEST + 1, 5_000):
        with pytest.raises(LineError, match=f"nested more than {DEEPEST} deep"):
            translated("<b>" * number + "x")


@pytest.mark.parametrize("name", ["script", "style", "textarea"])
def test_an_element_with_raw_text_is_not_ended_by_its_start_tag(name):
    source = f"<p>ONE</p><{name} a='1' /></{name}><p>TWO</p><{name}/>b {{}}</{name}>"
    assert layout(source).texts == ["ONE", "TWO"]
    assert translated(source) == source


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("<a>one", "mismatched tag at character 7"),
        ("one</a>", "mismatched tag at character 6"),
        ("<a>one</b>", "mismatched tag at character 9"),
        ("é & b", "not well-formed (invalid token) at character 4"),
        ("&nbsp;", "undefined entity at character 1"),
        ("a\x01", "not well-formed (invalid token) at character 2"),
        ("<a x='1' x='2'/>", "duplicate attribute at character 10"),
        ("</fragment><fragment>", "junk after document element at character 12"),
    ],
)
def test_broken_xml_is_refused(source, reason):
    with pytest.raises(LineError) as error:
        blocks_of(source, "xml")
    assert str(error.value) == f"it is not XML: {reason}"


def test_a_document_of_xml_keeps_its_declarations_and_entities():
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))
    source = (
        f'<?xml version="1.0" encoding="latin-1"?>\n<!DOCTYPE d [<!ENTITY l0 "ha">{laughs}]>\n'
        "<d>\r\n<p>One &l29; <b>two</b>&#x41;é.</p><![CDATA[<b>]]></d><!-- end -->\n"
    )
    segments = layout(source, "xml")
    assert segments.texts == ["One  twoAé."]
    assert segments.filled(copied(segments.texts)) == source
    found = segments.filled([Output("EINS\x00\x1f ZWEI")])
    assert "EINS\ufffd\ufffd ZWEI" in found


@pytest.mark.parametrize(
    "before",
    [
        '<!DOCTYPE d SYSTEM "d.dtd">',
        '<!DOCTYPE d [<!ENTITY foo "x">]>',
        "<!-- c --><!DOCTYPE d>",
        "\n<?pi x?> <!-- c -->\n<!DOCTYPE d>",
        "\ufeff<!DOCTYPE d>\n",
        '\ufeff<?xml version="1.0"?>',
        "<!-- c --><?pi x?>",
    ],
)
def test_what_comes_before_the_first_element_stays(before):
    source = f"{before}<d>one</d>"
    segments = layout(source, "xml")
    assert segments.texts == ["one"]
    assert segments.filled(copied(segments.texts)) == source


def counts_of_lxml(root):
    """Return how often each tag with its attributes is inside of which others."""
    return Counter(
        (
            str(each.tag),
            str(each.attrib),
            each.text if callable(each.tag) else "",  # of a comment
            *(str(above.tag) for above in each.iterancestors()),
        )
        for each in root.iter()
    )


def words_of(text):
    return "".join(text.split())


def text_of(segments, outputs):
    """Return the text that the markup should have, without what stays as it is."""
    return words_of("".join(each.text for each in outputs))


def texts_in(markup, source):
    blocks = [each for each in blocks_of(source, markup) if isinstance(each, Block)]
    return words_of("".join(block.text for block in blocks))


@pytest.mark.parametrize("number", NUM_FRAGMENTS)
def test_random_xml(number):
    rng = random.Random(number)
    for place in range(number):
        source = (crowded if place % 2 else fragment)(rng, "xml")
        segments = layout(source, "xml")
        found = segments.filled(copied(segments.texts))
        assert normalized(found) == normalized(source)
        outputs = scrambled(rng, segments.texts)
        found = segments.filled(outputs)
        before, after = (lxml.etree.fromstring(f"<r>{each}</r>") for each in (source, found))
        assert counts_of_lxml(after) == counts_of_lxml(before), (source, found)
        assert texts_in("xml", found) == text_of(segments, outputs), (source, found)


@pytest.mark.parametrize("number", NUM_FRAGMENTS)
def test_random_html(number):
    rng = random.Random(number)
    for place in range(number):
        source = (crowded if place % 2 else fragment)(rng, "html")
        segments = layout(source)
        found = segments.filled(copied(segments.texts))
        assert normalized(found) == normalized(source)
        outputs = scrambled(rng, segments.texts)
        found = segments.filled(outputs)
        tags = Tags(found)
        assert (tags.counts, tags.faults) == (Tags(source).counts, []), (source, found)
        assert texts_in("html", found) == text_of(segments, outputs), (source, found)


@pytest.mark.parametrize("number", NUM_FRAGMENTS)
def test_elements_without_words_between_the_same_words_stay_in_their_order(number):
    rng = random.Random(number)
    kinds = ["<b id={}></b>", "<i id={}> </i>", "<img id={}>", "<!-- id={} -->", "<wbr id={}>"]
    for _ in range(number):
        source, groups = "", list[list[str]]()
        for word in rng.choices(["one", "<u>two</u>", "three <s>four</s>"], k=rng.randrange(1, 4)):
            groups.append([f"{len(groups)}-{place}" for place in range(rng.randrange(4))])
            spaces = rng.choices(["", " "], k=len(groups[-1]))
            written = (rng.choice(kinds).format(each) for each in groups[-1])
            source += word + "".join(map("".join, zip(spaces, written, strict=True)))
        segments = layout(source)
        found = re.findall(r"id=(\d-\d)", segments.filled(scrambled(rng, segments.texts)))
        assert sorted(found) == [each for group in groups for each in group], source
        for group in groups:
            assert [each for each in found if each in group] == group, source


@pytest.mark.parametrize("number", NUM_FRAGMENTS)
def test_random_broken_html(number):
    rng = random.Random(number)
    for place in range(number):
        source = broken(rng, (crowded if place % 2 else fragment)(rng, "html"))
        if SCRIPT_IN_COMMENT.search(source):
            continue
        segments = layout(source)
        repaired = segments.filled(copied(segments.texts))
        assert normalized(translated(repaired)) == normalized(repaired), source
        last = html_tokens(source)[-1:]
        rest = last[0].raw if last and last[0].kind is TokenKind.REST else ""
        found = segments.filled(scrambled(rng, segments.texts))
        assert found.endswith(rest), source
        tags, expected = (Tags(each.removesuffix(rest)) for each in (found, repaired))
        assert (tags.counts, tags.faults) == (expected.counts, []), source
        with_xml = broken(rng, fragment(rng, "xml"))
        try:
            found = translated(with_xml, "xml")
        except LineError:
            continue
        assert normalized(found) == normalized(with_xml)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<div/>ant</div>bee", "<div/>ANT</div>BEE"),
        ("<p>ant <i/> bee</p>", "<p>ANT <i/> BEE</p>"),
        ("<p>ant <i/>bee</i></p>", "<p>ANT <i/>BEE</i></p>"),
        (
            "<p>ant <svg><foreignObject><p>x</p></foreignObject></svg> bee</p>",
            "<p>ANT <svg><foreignObject><p>x</p></foreignObject></svg> BEE</p>",
        ),
        ("<svg><g><g/></g></svg> ant", "<svg><g><g/></g></svg> ANT"),
    ],
)
def test_tags_that_end_at_once_and_foreign_elements_of_html(source, expected):
    segments = MarkupSegments(source, "html", whole)
    outputs = [each._replace(text=each.text.upper()) for each in copied(segments.texts, WORD)]
    assert segments.filled(outputs) == expected


XML = "<d><p>ant <k>bee</k> cat</p><q>dog</q></d>"


@pytest.mark.parametrize(
    ("source", "markup", "rules", "texts"),
    [
        (XML, "xml", {}, ["ant bee cat", "dog"]),
        (XML, "xml", {"kept": {"k", "q"}}, ["ant  cat"]),
        (XML, "xml", {"separating": {"k"}}, ["ant", "bee", "cat", "dog"]),
        (XML, "xml", {"inline": {"p", "q"}}, ["ant bee catdog"]),
        (XML, "xml", {"inline": {"p"}, "separating": {"k"}}, ["ant", "bee", "cat", "dog"]),
        (XML, "xml", {"detects": False}, ["ant bee catdog"]),
        (XML, "xml", {"detects": False, "separating": {"q"}}, ["ant bee cat", "dog"]),
        ("<div>a<K>b</K></div>c", "html", {"kept": {"k"}, "inline": {"div"}}, ["ac"]),
        ("<d><k>a<k>b</k></k><k/>c</d>", "xml", {"kept": {"k"}}, ["c"]),
    ],
)
def test_names_of_elements_may_have_rules_of_their_own(source, markup, rules, texts):
    rules = {key: value if key == "detects" else frozenset(value) for key, value in rules.items()}
    segments = MarkupSegments(source, markup, whole, TagRules(**rules))
    assert list(segments.texts) == texts
    assert segments.filled(copied(segments.texts)) == source


def test_hostile_xml_takes_little_memory():
    sources = ["<r>" + part * 2_000 + "</r>" for part in ("<a/>", "\n", "<a>b</a>", "<a b=''/>")]
    for source in sources:
        tracemalloc.start()
        blocks_of(source, "xml")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 130 * len(source)


def test_characters_in_a_row_are_a_token():
    tokens = xml_tokens("a\nb\n&lt;c\r\nd<x/><x/>")
    assert [each.raw for each in tokens] == ["a\nb\n", "&lt;", "c", "\r\n", "d", "<x/>", "<x/>"]
    assert tokens[-1] is tokens[-2]


@pytest.mark.parametrize("source", ["<p>a &#{}; b</p>", "<p title='&#{}'>a</p>", "a &#{}", "&#x{}"])
def test_references_of_too_many_digits_are_refused(source):
    assert blocks_of(source.format("9" * 999), "html")
    with pytest.raises(LineError, match="it has a reference of 1,000 digits at character"):
        blocks_of(source.replace("x", "").format("0" * 5000), "html")
