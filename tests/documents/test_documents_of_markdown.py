"""Documents of Markdown: the texts of blocks are translated, and their marks stay."""

import re

import pytest

from nmt_cli.documents import markdown
from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import read_document
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

<div>kept *html*</div>

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
SEE [label], [THIS TEXT][label], <http://x.example> OR http://y.example/kept.

<div>kept *html*</div>

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
    ],
)
def test_marks_of_other_programs_stay(source, loud):
    if loud is None:
        loud = re.sub("one|two|three|four|five", lambda found: found[0].upper(), source)
    for line_end in ("\n", "\r\n"):
        data, expected = (each.replace("\n", line_end).encode() for each in (source, loud))
        assert copied(data, "markdown") == data
        assert shouted(data, "markdown") == expected


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
@pytest.mark.parametrize("part", ["{{", "{%", "{#"])
def test_begins_of_templates_take_linear_time(part):
    assert len(list(markdown._kept(part * 200_000, 0))) == 1


def test_places_of_lines_are_found_by_bisection():
    block = markdown._Block("a\nbc\n\nd", [(0, 3), (2, 9), (5, 12), (6, 20)])
    assert [block.place(each) for each in range(7)] == [3, 4, 9, 10, 11, 12, 20]


def test_cells_that_are_not_written_are_limited(monkeypatch):
    monkeypatch.setattr(markdown, "MOST_TOKENS", 1000)
    table = "|a" * 20 + "|\n" + "|-" * 20 + "|\n" + "|b\n" * 20
    with pytest.raises(DocumentError, match="its tables have too many cells; divide it"):
        read_document(table.encode(), "markdown")
