"""The frame of pages: text stays text, long text is cut, and narrow screens show everything."""

import pytest

from nmt_cli.report import frame
from tests.browser import needs_chromium

HOSTILE = "</div><script>hacked=1</script><img src=x onerror=hacked=1>\"'&amp;"
ARABIC = "قرأ الولد الكتاب، ثم نام."
HEADINGS, LANGUAGES = ["Line", "Source", HOSTILE], [None, "", 'a"b']


def a_page(*rows):
    return frame.page(
        HOSTILE,
        [
            frame.tiles([("BLEU", HOSTILE, HOSTILE), ("chrF2", "", "unknown")]),
            frame.columns([frame.section(HOSTILE, frame.note(HOSTILE), frame.code(HOSTILE))] * 2),
            frame.table(["", HOSTILE], [["a figure", "x" * 300], [HOSTILE, "2"]]),
            frame.section("Examples", frame.examples(HEADINGS, LANGUAGES, rows)),
            frame.folded("more", frame.note("folded")),
        ],
        "of today",
    )


def test_a_long_text_is_cut_with_a_mark():
    row = frame.examples(HEADINGS, LANGUAGES, [["1", "é" * 500, "ab" * 50_000]])
    assert "é" * 500 + "</div></td>" in row
    assert "ab" * 250 + "</div><i>… 99,500 more characters</i></td>" in row
    assert len(row) < 2000


def test_a_tile_without_a_value_is_left_out():
    shown = frame.tiles([("BLEU", "1.0", ""), ("chrF2", "", "unknown")])
    assert shown.count("<dt>") == 1
    assert "unknown" not in shown


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_text_is_only_text_and_fits(browser, tmp_path, width):
    path = tmp_path / "page.html"
    rows = [["1", HOSTILE, ARABIC], ["2", ARABIC, "w" * 100_000]]
    path.write_text(a_page(*rows), encoding="utf-8")
    browser.open(path, width=width)
    assert browser.problems == []
    assert browser.requests == [path.as_uri()]
    assert browser.evaluate("typeof hacked") == "undefined"
    assert browser.evaluate("document.images.length") == 0
    assert browser.evaluate("document.title") == HOSTILE
    texts = browser.evaluate(
        "[...document.querySelectorAll('.text div')].map((text) =>"
        " [text.textContent, getComputedStyle(text).direction])"
    )
    assert texts == [[HOSTILE, "ltr"], [ARABIC, "rtl"], [ARABIC, "rtl"], ["w" * 500, "ltr"]]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = "(cell) => cell.getBoundingClientRect().right > innerWidth"
    assert browser.evaluate(f"[...document.querySelectorAll('td.text')].filter({outside})") == []
