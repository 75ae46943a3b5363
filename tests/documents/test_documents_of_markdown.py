"""Documents of Markdown: the texts of blocks are translated, and their marks stay."""

import re

import pytest
from markdown_it import MarkdownIt

from nmt_cli.documents import markdown, markdown_forms
from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import read_document
from nmt_cli.documents.markdown_forms import INLINE, LINES, OPENING
from nmt_cli.translating.interface.translation import Translation
from tests.documents.filling import copied, shouted, texts_of

BEFORE = """\
---
title: kept
---
# A *big* cat #

It runs with `code`, [a link](http://x.example "kept") and ![an image](i.png)
over two lines  
and after a break.

> - in a quotation, **bold and _nested_ words**
>   over two lines

A setext heading
----------------

    kept code

| one | two |
|:----|----:|
| a \\| b | ~~four~~ |

[label]: http://x.example "kept"
See [label], [this text][label], <http://x.example> or http://y.example/kept.

<div>some *html*</div>

1. first
   - [ ] a task with <b>html</b> and a note[^1]

```python
kept = 1
```

[^1]: the note &copy; \\*2026\\*
"""  # noqa: W291 - two spaces are a break
AFTER = """\
---
title: kept
---
# A *BIG* CAT #

IT RUNS WITH `code`, [A LINK](http://x.example "kept") AND ![an image](i.png) OVER TWO LINES  
AND AFTER A BREAK.

> - IN A QUOTATION, **BOLD AND _NESTED_ WORDS** OVER TWO LINES

A SETEXT HEADING
----------------

    kept code

| ONE | TWO |
|:----|----:|
| A \\| B | ~~FOUR~~ |

[label]: http://x.example "kept"
SEE [LABEL][label], [THIS TEXT][label], <http://x.example> OR http://y.example/kept.

<div>SOME *HTML*</div>

1. FIRST
   - [ ] A TASK WITH <b>HTML</b> AND A NOTE[^1]

```python
kept = 1
```

[^1]: THE NOTE &copy; \\*2026\\*
"""  # noqa: W291


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_texts_change(line_end):
    data = BEFORE.replace("\n", line_end).encode()
    assert copied(data, "markdown") == data
    assert shouted(data, "markdown") == AFTER.replace("\n", line_end).encode()


@pytest.mark.parametrize(
    ("source", "segments"),
    [
        ("**all bold**", ["all bold"]),
        ("# 1. One #", ["1. One"]),
        ("1. 1", ["1"]),
        ("a **b** c", ['a <span id="1">b</span> c']),
        ("5 * 3 < 4 & 1", ["5 * 3 &lt; 4 &amp; 1"]),
        ("***both*** ends", ['<span id="1"><span id="2">both</span></span> ends']),
        ("a `b` c\x07d", ['a <img id="1"/> c<img id="2"/>d']),
        ("<b>un *b</b> c*", ['un <span id="1">b<wbr id="2"/> c</span>']),
        ("中文 **粗体** 。", ['中文 <span id="1">粗体</span> 。']),
        ("中$x_1$中", ['中<img id="1"/>中']),
        ("", []),
        ("```\nopen code", []),
    ],
)
def test_segments(source, segments):
    assert texts_of(read_document(source.encode(), "markdown")) == segments
    assert copied(source.encode(), "markdown") == source.encode()


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("Cat", "1. Katze_n", "1\\. Katze\\_n"),
        ("# 1. Cat", "1. Katze", "# 1. Katze"),
        ("Cat", "# Katze", "\\# Katze"),
        ("> a_b `c` d", 'A_B *u* <img id="1"/>', "> A_B \\*u\\* `c`"),
        ("a `b`, `c` d", '<img id="1"/><img id="2"/>', "`b` `c`"),
        ("a $b$, `c`, $d$ e", '<img id="3"/><img id="1"/><img id="2"/>', "$d$ $b$`c`"),
        ("- *a* b", 'B <span id="1">A</span>', "- B *A*"),
    ],
)
def test_translations_get_no_marks_by_chance(source, translation, written):
    document = read_document(source.encode(), "markdown")
    assert document.filled([Translation(translation)]) == written.encode()


@pytest.mark.parametrize(
    ("source", "loud"),
    [
        ('one\n!!! note "two"\n    three\n\n    - four\n\nfive', None),
        ('- one\n\n    ??? tip\n        two\n\n=== "three"\n    four', None),
        ("::: warning\none\n:::\ntwo", "::: warning\nONE\n:::\nTWO"),
        ("one $x_1 + \\a$ and $$b$$, $5 or $6", "ONE $x_1 + \\a$ AND $$b$$, $5 OR $6"),
        ("> $$\n> \\a\n> + b\n> $$\n> one", "> $$\n> \\a\n> + b\n> $$\n> ONE"),
        ("$$ a $$\n\none $$", "$$ a $$\n\nONE $$"),
        ("|one<br>two|*three<BR/> four*|\n|-|-|", "|ONE<br>TWO|*THREE<BR/> FOUR*|\n|-|-|"),
        ("one\n: two\n: three\n{: .kept}", "ONE\n: TWO\n: THREE\n{: .kept}"),
        ("one :kept: at 12:30:45 a:b:c", "ONE :kept: AT 12:30:45 A:B:C"),
        ("{.kept}\none\ntwo\n\n> three\n{id=kept}", "{.kept}\nONE TWO\n\n> THREE\n{id=kept}"),
        (":param kept: one\n:kept: two\n  three", ":param kept: ONE\n:kept: TWO THREE"),
        ("one ${kept}_${kept}, two ${n}$ three", "ONE ${kept}_${kept}, TWO ${n}$ THREE"),
        ("one wsl$/two three wsl$, $x_1$", "ONE WSL$/TWO THREE WSL$, $x_1$"),
        (
            "\\[*one* 20 <sup>th</sup>\\] \\[a < b\\] \\[a^2\\]",
            "\\[*ONE* 20 <sup>TH</sup>\\] \\[a < b\\] \\[a^2\\]",
        ),
    ],
)
def test_marks_of_other_programs_stay(source, loud):
    if loud is None:
        loud = re.sub("one|two|three|four|five", lambda found: found[0].upper(), source)
    for line_end in ("\n", "\r\n"):
        data, expected = (each.replace("\n", line_end).encode() for each in (source, loud))
        assert copied(data, "markdown") == data
        assert shouted(data, "markdown") == expected


# Words in small letters are text, and change; those with a capital are marks, and stay.
FORMS = """\
[TOC]

[[_TOC_]]

> [!NOTE]
> a cat runs
> and sleeps.

> [!tip]- two cats
> they *run*.

- [!WARNING]
  it sleeps

see [[Page|the cat]], [[Page]], ![[Picture.PNG|300]] and [[1]](#Note). %%Hidden%% ^Name

%%
Hidden Words

Over Lines
%%

# a heading {#Name .Class}

[a link](A.MD){ .Class } and `Code`{.Class} and [words]{.Class}

press ++Ctrl+Alt+"Del"++ and
see {Ref}`Label`, {Doc}`the page <A>` and :Ref:`Label` of H~2~O and H{Sub}`2`O

--8<-- "File.MD"

*[HTML]: a language
*[CSS]: another one

some {==marked==} words {++more++} {--less--} ==bright== words

the value \\(A^2 + B^2\\) and \\(A\\), (but not this)

\\[
A = B
\\]

see [@Key, P. 3] and @Key and #Tag/Nested and \\Cite{A}{B} there[^1], or here^[a note].

\\begin{Align}
A
\\end{Align}

[^1]: a note over
    two lines

    and another text

term

:   a meaning over
    two lines

    - a list

one line
| of a poem
| in lines

(Label)=

+++ Break

% Comment

import A from "B"
import {
  C
} from "D"

export const E = {
  F: "G"
}

<Tabs Group="A">
<Tab Label="A" On={() => A}>

a text with <Link To="A">a link</Link> and {A.B} and {/* A */}

</Tab>
</Tabs>

:::note[a title]{Id=A}

in a box

:::

::: {.Callout Title="A"}
in a box
:::

```{note} a title
:Class: A

in a box
```

```{Code-Block} A
Code
```

<<< @/File

{{< Callout >}}
some [words]({{< Ref "A B" >}}) here
{{< /Callout >}}

{% Include A.HTML %}
text {% if A %} more {% endif %} and {{ A.B }}

{% highlight C %}
Code
{% endhighlight %}

<details>
<summary>a summary</summary>
some <b>bold</b> text

</details>
"""
STAY = (
    r"\\(?:begin|end)|\[!tip|import|from|export const|:::note|\{note\}|(?:end)?highlight"
    r"|\{% (?:end)?if|<[^<>]*>"
)


def test_forms_of_other_programs_stay_and_their_texts_change():
    data = FORMS.encode()
    assert copied(data, "markdown") == data
    expected = re.sub(rf"{STAY}|(\b[a-z]+\b)", lambda m: m[0].upper() if m[1] else m[0], FORMS)
    # A paragraph of two lines becomes one, in which a quotation has no second mark.
    found = shouted(data, "markdown").decode()
    assert found.replace("> ", "").split() == expected.replace("> ", "").split()
    lines = [line for line in FORMS.splitlines() if not re.search(rf"(?!{STAY})\b[a-z]", line)]
    assert set(lines) <= set(found.splitlines())


@pytest.mark.parametrize(
    ("source", "loud"),
    [
        ("[one\ntwo] three\n\n[one two]: a", "[ONE TWO][one two] THREE\n\n[one two]: a"),
        ("[one][] [1] `a`\n\n[one]: a\n[1]: b", "[ONE][one] [1] `a`\n\n[one]: a\n[1]: b"),
        ("> one *two\n> three* `a\n> b`", "> ONE *TWO THREE* `a b`"),
        ("one[^1]\n\n[^1]: two\nthree", "ONE[^1]\n\n[^1]: TWO THREE"),
        ("% one\n% two\n\nthree", "% one\n% two\n\nTHREE"),
        ("<b>\none\n</b>\n", "<b>\nONE </b>\n"),
        ("<!-- a --> one", "<!-- a --> ONE"),
        ("<p>one <code>a</code></p>\n<p>\ntwo", "<p>ONE <code>a</code></p>\n<p>\nTWO"),
        ("<Tabs>\n\tone\n\t<Tab/>\n\ttwo\n</Tabs>", "<Tabs>\n\tONE\n\t<Tab/>\n\tTWO\n</Tabs>"),
        ("|a|b|\n|-|\none", "|A|B|\n|-|\nONE"),
    ],
)
def test_what_is_written_on_one_line(source, loud):
    assert copied(source.encode(), "markdown") == source.encode()
    assert shouted(source.encode(), "markdown").decode() == loud


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("**a** *b* c", '<span id="1">A</span> <span id="2"></span>C', "**A** C"),
        ("*a **b*** c", '<span id="1"><span id="2"></span></span>C', "C"),
        ("**a** b", 'B<span id="1"> A</span>', "B **A**"),
        ("[a](x) b", '<span id="1">A </span>B', "[A](x) B"),
        ("a *b* c", 'A<span id="1">B</span>C', "A*B*C"),
        ("a **b** c", '中<span id="1">“文”</span>字', "中<strong>“文”</strong>字"),
        ("**a** *b* c", '<span id="1">A</span><span id="2">B</span> C', "**A***B* C"),
        ("a b", "{A} ]", "\\{A} \\]"),
        ("[a](x){ .b } c", 'C <span id="1">A</span>', "C [A](x){ .b }"),
    ],
)
def test_emphasis_is_none_of_nothing_and_shows_no_marks(source, translation, written):
    document = read_document(source.encode(), "markdown")
    found = document.filled([Translation(translation)]).decode()
    assert found == written
    assert "*" not in re.sub("<[^>]*>", "", MarkdownIt().render(found))  # the reader's witness


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("+---+---+\n| a | b |\n+===+===+\n| c | d |\n+---+---+", "a table of Pandoc in line 3"),
        ("  Left  Right\n------ ------\n  a     b", "a table of Pandoc in line 3"),
        (
            "-------------\n Left  Right\n------ ------\n a\n\n b\n-------------",
            "a table of Pandoc in line 3",
        ),
        ("[" * 2001, "a text with more than 2,000 [ in line 3"),
        ("<div>\na }) b\n</div>", "HTML with expressions in line 3"),
    ],
)
def test_what_is_not_translated_is_named(source, what, caplog):
    data = f"one\n\n{source}\n\ntwo".encode()
    with caplog.at_level("WARNING", "nmt_cli"):
        loud = shouted(data, "markdown").decode()
    assert loud == f"ONE\n\n{source}\n\nTWO"
    assert what in caplog.text


def test_long_and_nested_text_takes_no_long_time():
    for part in (
        "[",
        "*a ",
        "`",
        "<b>",
        "> ",
        "![",
        "\\",
        "_a*b",
        "[a](",
        "| a ",
        "$",
        "$a ",
        "$\\$",
    ):
        data = (part * 2_000).encode()
        assert copied(data, "markdown") == data
    boxes = "".join(f"{'    ' * depth}!!! a\n" for depth in range(500)).encode()
    assert copied(boxes, "markdown") == boxes


@pytest.mark.timeout(30)  # a quadratic time is far longer
@pytest.mark.parametrize(
    "part",
    r"""[[ [[a| { {{ {% {# {a= $a %% >[! ==a, ++a- ^[ @a, [@a \( \a{ <A" <a{ <code {a}` :a[ [a](b{{
    ~a a^ [a]{ https://* $$""".split(),  # noqa: SIM905
)
def test_begins_without_ends_take_linear_time(part):
    text = part * (200_000 // len(part))
    assert sum(len(found[0]) for found in INLINE.finditer(text)) <= len(text)
    assert copied(text[:5000].encode(), "markdown") == text[:5000].encode()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "line",
    r"""$$ %% \begin{a} \[ --8<-- {%highlight%} {{<highlight>}} <Tabs <Tabs_a={ ```{note} :::a
    [!NOTE] [^a]:b :\ta |a *[a]:b <!-- <div>""".replace(r"\t", "\t").split(),
)
def test_lines_that_begin_a_block_take_linear_time(line):
    text = f"{line}\n" * 5000
    for pattern in (LINES, OPENING):
        assert all(pattern.match(text, place) or 1 for place in range(0, len(text), len(line) + 1))
    assert copied(text[:5000].encode(), "markdown") == text[:5000].encode()


def test_places_of_lines_are_found_by_bisection():
    block = markdown._Block("a\nbc\n\nd", [(0, 3), (2, 9), (5, 12), (6, 20)], 0)
    assert [block.place(each) for each in range(7)] == [3, 4, 9, 10, 11, 12, 20]


def test_cells_that_are_not_written_are_limited(monkeypatch):
    monkeypatch.setattr(markdown_forms, "MOST_TOKENS", 1000)
    table = "|a" * 20 + "|\n" + "|-" * 20 + "|\n" + "|b\n" * 20
    with pytest.raises(DocumentError, match="its tables have too many cells; divide it"):
        read_document(table.encode(), "markdown")
