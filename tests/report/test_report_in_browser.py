"""The page of a report in a real browser: what the pointer shows, and both themes."""

import pytest

from nmt_cli.report.drawing import draw_charts
from nmt_cli.report.page import as_html
from nmt_cli.report.run_history import RunDetails, TranslatedSet, read_runs
from tests.browser import needs_chromium
from tests.fake_runs import step_record, validation_record, write_run

pytestmark = needs_chromium
HOSTILE = "</td></script><script>hacked=1</script><img src=x onerror=hacked=1>"
BOX = """(() => {
  const box = document.querySelectorAll('.chart svg')[%d].getBoundingClientRect();
  return [box.left + %f * box.width, box.top + box.height / 2];
})()"""
# Each row of the hint of a chart, with the colour of its mark.
TIP = """[...document.querySelectorAll('.tip:not([hidden]) div')].map((row) =>
  [row.textContent, getComputedStyle(row.firstChild).borderLeftColor])"""


# For each dot of the pointer, whether a mark that was drawn is there.
IS_MARKED = """[...document.querySelectorAll('.chart circle')].map((dot) =>
  [...dot.ownerSVGElement.querySelectorAll('use')].some((mark) =>
    Math.abs(mark.x.baseVal.value - dot.cx.baseVal.value) < 0.2
    && Math.abs(mark.y.baseVal.value - dot.cy.baseVal.value) < 0.2))"""


@pytest.fixture
def show(browser, tmp_path):
    """Open the report of runs with these records; at the end nothing was fetched or failed."""

    def open_page(*all_records, details=None, **settings):
        names = ["<img src=x onerror=hacked=1>", "two"]
        runs = read_runs(
            [
                write_run(tmp_path / name, records)
                for name, records in zip(names, all_records, strict=False)
            ]
        )
        path = tmp_path / "page.html"
        path.write_text(as_html(runs, draw_charts(runs), details), encoding="utf-8")
        browser.open(path, **settings)
        return browser

    yield open_page
    assert browser.problems == []
    assert browser.requests == [(tmp_path / "page.html").as_uri()]
    assert browser.evaluate("typeof hacked") == "undefined"


RECORDS = [
    *(step_record(step, loss=9.0 - step / 100) for step in range(1, 401)),
    *(validation_record(step, 6.0 - step / 100, 3.0) for step in (100, 200, 300, 400)),
]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_pointer_shows_the_nearest_values_of_each_curve(show, width):
    browser = show(RECORDS, details=RunDetails(), width=width, height=1200)
    assert browser.evaluate(TIP) == []
    browser.move_to(*browser.evaluate(BOX % (0, 0.999)))
    assert [text for text, _ in browser.evaluate(TIP)] == [
        "5.02 Training loss, step 400",  # the mean of the last five, 5.00 to 5.04
        "2 Validation loss, step 400",
    ]
    assert browser.evaluate(IS_MARKED) == [False, True]  # so many steps have no marks
    browser.move_to(*browser.evaluate(BOX % (0, 0.0)))
    assert browser.evaluate(TIP)[0][0].endswith(" Training loss, step 1")
    assert browser.evaluate(TIP)[1][0] == "5 Validation loss, step 100"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.move_to(1, 1)
    assert browser.evaluate(TIP) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_and_text_stand_out_in_both_themes(show, scheme):
    browser = show(RECORDS, details=RunDetails(), scheme=scheme)
    browser.move_to(*browser.evaluate(BOX % (0, 0.5)))
    style = "getComputedStyle(document.querySelector('{}')).{}"
    card = browser.evaluate(style.format("section", "backgroundColor"))
    shown = [browser.evaluate(style.format(".chart text", "fill"))]
    shown += [colour for _, colour in browser.evaluate(TIP)]
    assert len(set(shown)) == 3
    for colour in shown:
        assert contrast(colour, card) > 3, (colour, card)


def contrast(*colours):
    """Return the contrast of two colours, by WCAG 2.1."""
    light = []
    for colour in colours:
        levels = [int(part) / 255 for part in colour.strip("rgb()").split(",")]
        linear = [n / 12.92 if n <= 0.04045 else ((n + 0.055) / 1.055) ** 2.4 for n in levels]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_hostile_text_is_only_text_and_the_worst_lines_are_found(show):
    lines = [(HOSTILE, HOSTILE, HOSTILE, 29.0 - place) for place in range(30)]
    sets = [TranslatedSet(HOSTILE, ("en", "de"), lines, "")] * 2
    details = RunDetails(HOSTILE, HOSTILE, sets, [["", HOSTILE], [HOSTILE, "1"]])
    browser = show(RECORDS, RECORDS[:2], details=details)
    assert browser.evaluate("document.images.length") == 0
    assert browser.evaluate("document.querySelectorAll('.text div').length") == 2 * (10 + 10) * 3
    assert browser.evaluate("document.querySelector('.text div').textContent") == HOSTILE
    numbers = browser.evaluate(
        "[...document.querySelectorAll('td[data-heading=Line]')].map((cell) => cell.textContent)"
    )
    worst = [f"{number}" for number in range(30, 20, -1)]
    assert numbers == 2 * [*map(str, range(1, 31, 3)), *worst]
