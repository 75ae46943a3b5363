"""The page of attention in a real browser: where things are, what keys do, what it fetches."""

from itertools import combinations

import numpy as np
import pytest

from nmt_cli.pictures.attention import DARK, DARK_PAGE, KINDS, LIGHT, LIGHT_PAGE, as_html
from tests.browser import needs_chromium
from tests.fake_attention import attention_of, words

pytestmark = needs_chromium
HOSTILE = (
    "<script>hacked=1</script>",
    "</script><img src=x onerror=hacked=1>",
    '"quoted"\'&amp;<!--',
    "שלום",
    "▁",
    "\u200b",
    "averyveryverylongpiecethatnocolumnholdsasawhole" * 3,
    "\u2028",
)
# The lines of each picture as [left word, right word, colour and dashes, opacity], with the words
# found by where the ends of the line are on the screen.
LINES = """
[...document.querySelectorAll(".figure")].map((figure) => {
  const svg = figure.querySelector("svg");
  const box = svg.getBoundingClientRect();
  const boxesOf = (list) => [...figure.querySelectorAll(`ul.${list} li`)].map(
    (word) => word.getBoundingClientRect());
  const [queries, keys] = [boxesOf("queries"), boxesOf("keys")];
  const isBeside = queries.every((word) => Math.abs(word.right - box.left) < 1)
    && keys.every((word) => Math.abs(word.left - box.right) < 1);
  if (!isBeside) return null;
  const wordAt = (words, y) => words.findIndex(({top, bottom}) => top < y && y < bottom);
  const toScreen = svg.getScreenCTM();
  return [...svg.querySelectorAll("line")].map((line) => {
    const [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map((name) => line[name].baseVal.value);
    const start = new DOMPoint(x1, y1).matrixTransform(toScreen);
    const end = new DOMPoint(x2, y2).matrixTransform(toScreen);
    if (Math.abs(start.x - box.left) > 1 || Math.abs(end.x - box.right) > 1) return null;
    return [wordAt(queries, start.y), wordAt(keys, end.y), line.getAttribute("class"),
            Number(line.getAttribute("stroke-opacity"))];
  });
})
"""
# Everything that takes room, as [left, top, right, bottom]; parts of one word are one box.
BOXES = """
[...document.querySelectorAll(
  "h1, dl, fieldset, #explanation, h2, h3, li, .figure svg, summary"
)].map((element) => {
  const {left, top, right, bottom} = element.getBoundingClientRect();
  return [left, top, right, bottom];
})
"""
FOCUS = "document.activeElement.dataset.side + ' ' + document.activeElement.dataset.place"
CHOSEN = "[...document.querySelectorAll('[aria-selected=true]')].map((word) => word.textContent)"


@pytest.fixture
def show(browser, tmp_path):
    """Open the page of an attention; at the end nothing was fetched and nothing failed."""

    def open_page(attention, **settings):
        path = tmp_path / "page.html"
        path.write_text(as_html(attention), encoding="utf-8")
        browser.open(path, **settings)
        return browser

    yield open_page
    assert browser.problems == []
    assert browser.requests == [(tmp_path / "page.html").as_uri()]


def toggle(browser, group, number):
    """Click the checkbox or radio button of this number, counted from 0."""
    browser.evaluate(f"document.querySelectorAll('#{group} input')[{number}].click()")


def expected_lines(attention, kind, layer, *, query=None, key=None):
    weights = np.rint(attention.weights[kind][layer] * 1000) / 1000
    return sorted(
        [q, k, f"colour-{head} dashes-0", pytest.approx(float(weights[head, q, k]))]
        for head, q, k in zip(*(weights >= 0.01).nonzero(), strict=True)
        if query in (None, q) and key in (None, k)
    )


def lines(browser):
    return [sorted(of_figure) for of_figure in browser.evaluate(LINES)]


@pytest.mark.parametrize("count", [5, 60])
def test_every_line_joins_its_words(show, count):
    attention = attention_of(words(count, 1), words(count - 2, 2))
    browser = show(attention)
    for place, kind in enumerate(KINDS):
        toggle(browser, "kinds", place)
        assert lines(browser) == [expected_lines(attention, kind, layer=1)]
    toggle(browser, "layers", 0)
    assert lines(browser) == [expected_lines(attention, "memory", layer) for layer in (0, 1)]


def test_it_begins_with_the_attention_to_the_source(show):
    attention = attention_of(words(5, 1), words(4, 2))
    assert lines(show(attention)) == [expected_lines(attention, "memory", layer=1)]
    alone = attention._replace(weights={"encoder": attention.weights["encoder"]})
    assert lines(show(alone)) == [expected_lines(alone, "encoder", layer=1)]


@pytest.mark.parametrize("count", [5, 60])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_overlaps(show, count, width):
    long = ("averyveryverylongpiecethatnocolumnholdsasawhole",)
    browser = show(attention_of(words(count - 1, 1) + long, words(count, 2)), width=width)
    toggle(browser, "layers", 0)  # two pictures, side by side or below each other
    boxes = browser.evaluate(BOXES)
    assert len(boxes) > 4 * count
    for one, other in combinations(boxes, 2):
        is_apart = (
            one[2] <= other[0] + 0.5
            or other[2] <= one[0] + 0.5
            or one[3] <= other[1] + 0.5
            or other[3] <= one[1] + 0.5
        )
        assert is_apart, (one, other)
    assert all(left >= 0 and right <= width for left, _, right, _ in boxes)
    height = browser.evaluate("document.documentElement.scrollHeight")
    assert all(top < bottom < height for _, top, _, bottom in boxes)


def test_the_keyboard_chooses_a_word(show):
    attention = attention_of(words(7, 3), words(6, 4))
    browser = show(attention, height=300)
    toggle(browser, "kinds", 0)
    everything = [expected_lines(attention, "encoder", 1)]
    assert browser.evaluate("document.querySelectorAll('.figure [tabindex=\"0\"]').length") == 2
    for _ in range(20):
        if browser.evaluate("document.activeElement.role") == "option":
            break
        browser.press("Tab")
    assert browser.evaluate(FOCUS) == "queries 0"
    assert lines(browser) == [expected_lines(attention, "encoder", 1, query=0)]
    browser.press("ArrowDown", "ArrowDown")
    place = browser.evaluate("scrollY")
    browser.press(" ", " ", "Enter")
    assert browser.evaluate("scrollY") == place  # the space bar chooses, and does not scroll
    of_third = [expected_lines(attention, "encoder", 1, query=2)]
    assert lines(browser) == of_third
    assert browser.evaluate(CHOSEN) == [attention.pieces["source"][2]]
    browser.press("Tab")  # one stop for a whole list
    assert browser.evaluate(FOCUS) == "keys 0"
    browser.press("End")
    assert browser.evaluate(FOCUS) == "keys 7"
    assert lines(browser) == [expected_lines(attention, "encoder", 1, key=7)]
    browser.press("Tab")
    assert lines(browser) == of_third  # the choice stays
    browser.press("Escape")
    assert lines(browser) == everything
    assert browser.evaluate(CHOSEN) == []


def test_the_pointer_shows_the_lines_of_a_word(show):
    attention = attention_of(words(7, 3), words(6, 4))
    browser = show(attention)
    toggle(browser, "kinds", 2)
    box = "document.querySelectorAll('.keys li')[3].getBoundingClientRect()"
    x, y = (browser.evaluate(f"{box}.{side}") + 9 for side in ("left", "top"))
    browser.move_to(x, y)
    of_word = [expected_lines(attention, "memory", 1, key=3)]
    assert lines(browser) == of_word
    browser.move_to(1, 1)
    assert lines(browser) == [expected_lines(attention, "memory", 1)]
    browser.click(x, y)
    browser.move_to(1, 1)
    assert lines(browser) == of_word
    browser.click(x, y)
    browser.move_to(1, 1)
    assert lines(browser) == [expected_lines(attention, "memory", 1)]


def test_heads_are_chosen_one_by_one_and_together(show):
    attention = attention_of(words(5, 3), words(6, 4), heads=tuple(range(1, 17)))
    browser = show(attention)
    toggle(browser, "kinds", 0)
    everything = browser.evaluate(LINES)[0]
    assert len({style for *_, style, _ in everything}) == 16
    browser.evaluate("document.querySelector('[aria-label=\"none heads\"]').click()")
    assert lines(browser) == [[]]
    toggle(browser, "heads", 9)
    (of_one,) = lines(browser)
    assert {style for *_, style, _ in of_one} == {"colour-1 dashes-1"}
    assert len(of_one) == (attention.weights["encoder"][1, 9] >= 0.0095).sum()
    browser.evaluate("document.querySelector('[aria-label=\"all heads\"]').click()")
    assert lines(browser) == [sorted(everything)]


def table(browser):
    cells = "(row) => [...row.cells].map((cell) => cell.innerText)"
    return browser.evaluate(f"[...document.querySelectorAll('tr')].map({cells})")


def test_the_table_has_the_weights_of_a_word(show):
    attention = attention_of(words(5, 3), words(6, 4))
    weights, source = attention.weights["encoder"][1], attention.pieces["source"]
    browser = show(attention)
    toggle(browser, "kinds", 0)
    browser.evaluate("document.querySelector('summary').click()")
    heading, *rows = table(browser)
    assert heading == ["Source", "head 1", "head 2", "head 3"]
    for place, (piece, *strongest) in enumerate(rows):
        most = weights[:, place].argmax(1)
        assert piece == source[place]
        for head, cell in enumerate(strongest):
            key = most[head]
            assert cell.startswith(f"“{source[key]}” ")
            assert float(cell.split()[1]) == pytest.approx(weights[head, place, key], abs=0.0056)
    browser.evaluate("document.querySelectorAll('.queries li')[4].focus()")
    _, *rows = table(browser)
    assert [piece for piece, *_ in rows] == list(source)
    found = [[float(cell) for cell in cells] for _, *cells in rows]
    assert np.allclose(found, weights[:, 4].T, atol=0.0056)


def test_text_is_only_text(show):
    attention = attention_of(HOSTILE, HOSTILE[::-1])
    browser = show(attention._replace(model="<b>&amp;", source=HOSTILE[1], target=HOSTILE[0]))
    toggle(browser, "kinds", 0)
    assert browser.evaluate("typeof hacked") == "undefined"
    assert browser.evaluate("document.images.length") == 0
    shown = "[...document.querySelectorAll('.queries li')].map((word) => word.textContent)"
    assert tuple(browser.evaluate(shown)) == attention.pieces["source"]
    definitions = "[...document.querySelectorAll('dd')].map((text) => text.textContent)"
    assert browser.evaluate(definitions) == ["<b>&amp;", HOSTILE[1], HOSTILE[0]]
    direction = "(word) => getComputedStyle(word).direction"
    directions = browser.evaluate(f"[...document.querySelectorAll('.queries li')].map({direction})")
    assert [place for place, found in enumerate(directions) if found == "rtl"] == [3]
    assert lines(browser) == [expected_lines(attention, "encoder", 1)]


@pytest.mark.parametrize(
    ("scheme", "page", "palette"),
    [("light", LIGHT_PAGE, LIGHT), ("dark", DARK_PAGE, DARK)],
)
def test_light_and_dark(show, scheme, page, palette):
    browser = show(attention_of(words(5, 1), words(5, 2)), scheme=scheme)
    style = "getComputedStyle(document.querySelector('{}')).{}"
    background = browser.evaluate(style.format("body", "backgroundColor"))
    stroke = browser.evaluate(style.format(".figure line.colour-1", "stroke"))
    for found, colour in ((background, page), (stroke, palette[1])):
        assert found == f"rgb({', '.join(str(byte) for byte in bytes.fromhex(colour[1:]))})"


def test_a_screen_reader_gets_names_for_everything(show):
    attention = attention_of(words(5, 1), words(4, 2))
    browser = show(attention)
    toggle(browser, "kinds", 0)
    nodes = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in browser.call("Accessibility.getFullAXTree")["nodes"]
        if not node["ignored"]
    ]
    named = {role: [name for found, name in nodes if found == role] for role, _ in nodes}
    assert named["listbox"] == ["Layer 2 Source"] * 2
    assert named["option"] == 2 * list(attention.pieces["source"])
    assert named["radio"] == [kind.title for kind in KINDS.values()]
    assert named["checkbox"] == ["1", "2", "1", "2", "3"]
    assert named["button"] == ["all heads", "none heads"]
    assert named["heading"][-2:] == ["Source", "Source"]


def test_the_status_names_the_strongest_weights_of_a_word(show):
    attention = attention_of(words(7, 3), words(6, 4))
    browser = show(attention)
    toggle(browser, "kinds", 0)
    browser.evaluate("document.querySelectorAll('.keys li')[2].focus()")
    text = browser.evaluate("document.getElementById('status').innerText")
    source, weights = attention.pieces["source"], attention.weights["encoder"][1, :, :, 2]
    head, query = np.unravel_index(weights.argmax(), weights.shape)
    start = f"“{source[2]}” is attended to by “{source[query]}” "
    assert text.startswith(start)
    number, name = text.removeprefix(start).split(" ", 1)
    assert float(number) == pytest.approx(weights.max(), abs=0.0056)
    assert name.startswith(f"(head {head + 1})")


def test_errors_and_requests_of_a_page_are_noticed(browser, tmp_path):
    """Without this, a browser that reports nothing would pass the other tests."""
    path = tmp_path / "bad.html"
    path.write_text("<script>nowhere()</script><img src='missing.png'>")
    browser.open(path)
    assert any("nowhere" in str(problem) for problem in browser.problems)
    assert (tmp_path / "missing.png").as_uri() in browser.requests
