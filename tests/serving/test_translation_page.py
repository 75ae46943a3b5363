"""The page of the service in a real browser, used by its keyboard alone."""

import json
from concurrent.futures import Future

import numpy as np
import pytest

from nmt_cli.serving.models import Models
from nmt_cli.serving.requests import RefusedError
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from tests.browser import needs_chromium
from tests.serving.conftest import REVERSING, running

pytestmark = [pytest.mark.slow, needs_chromium]
FIRST, SECOND = "ant bee cat dog.", "eel fox gnu."
TEXT = f"{FIRST}  {SECOND}"
LONG = "ant bee cat dog eel fox gnu hen ibis jay kite lark mole. " * 30
FOCUSED = "document.activeElement"
SENTENCES = "[...document.querySelectorAll('.sentence')].map((span) => span.textContent)"
STATUS = "document.getElementById('status').textContent"
WIDTH = "document.documentElement.scrollWidth"
IS_OPEN = "!document.getElementById('sentence').hidden"
CHOICES = "[...document.querySelectorAll('#alternatives label span:first-of-type')]"
MARKED = "[...document.querySelectorAll('#mirror .marked')].map((span) => span.textContent)"


@pytest.fixture
def page(browser, running_service):
    """The page with its languages; at the end nothing came from elsewhere, and nothing failed."""
    browser.open(f"{running_service.url}/")
    browser.wait_for("document.querySelectorAll('#target-language option').length")
    yield browser
    hosts = {url.split("/")[2] for url in browser.requests if url.startswith("http")}
    assert hosts == {running_service.url.split("/")[2]}
    assert browser.problems == []


@pytest.fixture
def telephone(page, running_service):
    """The same page in a small window."""
    page.open(f"{running_service.url}/", width=390, height=844)
    page.wait_for("document.querySelectorAll('#target-language option').length")
    return page


@pytest.fixture
def submitted(running_service, monkeypatch):
    """The texts that the service has given to the search, in order."""
    texts, submit = [], running_service.here.translator.submit

    def noting(request, **options):
        texts.append(request.text)
        return submit(request, **options)

    monkeypatch.setattr(running_service.here.translator, "submit", noting)
    return texts


@pytest.fixture
def translated(running_service):
    def translate(text, **options):
        (found,) = running_service.here.translator.translate([Request(text, **options)])
        return found

    return translate


def tab_to(page, condition):
    """Press the tab key until ``condition`` holds for the element that has the focus."""
    for _ in range(20):
        page.press("Tab")
        if page.evaluate(f"{FOCUSED}.matches('{condition}')"):
            return
    raise AssertionError(f"the tab key does not come to {condition}")


def type_text(page, text, count):
    """Type where the focus is, which must be the text, and wait for ``count`` sentences."""
    assert page.evaluate(f"{FOCUSED}.id") == "source"
    page.write(text)
    page.wait_for(f"{SENTENCES}.length === {count} && {STATUS} === 'Translated.'")


def test_sentences_are_translated_while_one_types(page, translated, submitted):
    type_text(page, TEXT, 2)
    expected = [translated(text).text for text in (FIRST, SECOND)]
    assert page.evaluate(SENTENCES) == expected
    assert page.evaluate("document.getElementById('target').textContent") == "  ".join(expected)
    page.press("End")
    type_text(page, "\n\nhen ibis.", 3)
    assert submitted == [FIRST, SECOND, "hen ibis."]


def test_the_keyboard_reaches_alternatives_and_words(page, translated):
    type_text(page, TEXT, 2)
    tab_to(page, ".sentence")
    assert page.evaluate(MARKED) == [FIRST]
    page.press("Tab")
    assert page.evaluate(MARKED) == [SECOND]
    page.press("Enter")
    page.wait_for(IS_OPEN)
    best = translated(SECOND, n_best=2, alignments=True)
    assert page.evaluate(f"{CHOICES}.map((span) => span.textContent)") == [
        alternative.text for alternative in best.ranked
    ]
    scores = "[...document.querySelectorAll('.score')].map((span) => span.textContent)"
    assert page.evaluate(scores) == [f"{each.score:.3f}" for each in best.ranked]
    page.press("ArrowDown")
    assert page.evaluate(SENTENCES)[1] == best.ranked[1].text
    tab_to(page, "#source-words span")
    page.press("End")
    words, others = SECOND.split(), best.ranked[1].text.split()
    linked = [others[other] for one, other in best.ranked[1].alignment if one == len(words) - 1]
    shown = " ".join(linked) or "no word"
    assert page.evaluate(STATUS) == f"“{words[-1]}” belongs to “{shown}”."
    page.press("Escape")
    assert not page.evaluate(IS_OPEN)
    assert page.evaluate(f"{FOCUSED}.textContent") == best.ranked[1].text


def test_attention_is_shown_in_the_page(page):
    type_text(page, FIRST, 1)
    tab_to(page, ".sentence")
    page.press("Enter")
    page.wait_for(IS_OPEN)
    tab_to(page, "#attention button")
    page.press("Enter")
    frame = "document.querySelector('iframe').contentDocument"
    page.wait_for(f"{frame}?.querySelectorAll('.figure line').length > 0")
    assert FIRST in page.evaluate(f"{frame}.querySelector('dl').textContent")


def test_languages_are_chosen_by_the_keyboard(page):
    page.evaluate("document.getElementById('source-language').focus()")
    page.press("ArrowDown")
    shown = "['source', 'target'].map((side) => document.getElementById(`${side}-language`).value)"
    assert page.evaluate(shown) == ["de", "fr"]
    tab_to(page, "#source")
    type_text(page, FIRST, 1)


def test_any_codes_of_languages_have_names(browser):
    codes = ("pt_BR:en", "ZH_hans:x1", "toki_pona:zh_TW")
    with running([f"{REVERSING}={each}" for each in codes]) as service:
        browser.open(f"{service.url}/")
        options = "[...document.querySelectorAll('#source-language option')]"
        browser.wait_for(f"{options}.length")
        assert browser.evaluate(f"{options}.map((option) => option.text)") == [
            *("Brazilian Portuguese", "Simplified Chinese", "toki-Pona", "Detect language"),
        ]
        browser.evaluate("document.getElementById('source').focus()")
        type_text(browser, FIRST, 1)
        assert browser.evaluate("document.getElementById('target').lang") == "en"
        for code in ("zh-Hans", "toki-Pona"):
            browser.evaluate(f"document.getElementById('source-language').value = '{code}'")
            browser.evaluate(
                "document.getElementById('source-language').dispatchEvent(new Event('change'))"
            )
            browser.wait_for(f"shown.model?.source === '{code}'")
        assert browser.evaluate("document.getElementById('target').lang") == "zh-TW"
        assert browser.problems == []


def test_a_text_of_no_certain_language_is_translated(page):
    page.evaluate("document.getElementById('source-language').focus()")
    page.press("End")  # Detect language
    page.evaluate("document.getElementById('target-language').focus()")
    page.press("End")
    shown = "['source', 'target'].map((side) => document.getElementById(`${side}-language`).value)"
    assert page.evaluate(shown) == ["auto", "fr"]
    tab_to(page, "#source")
    page.write("ok.")  # de and en are as likely, and only de has a model
    page.wait_for(f"{SENTENCES}.length === 1 && {STATUS} === 'Translated from German.'")


def test_terms_are_used_and_wrong_ones_named(page, translated):
    type_text(page, FIRST, 1)
    page.evaluate("document.querySelector('details').open = true")
    tab_to(page, "#terms")
    page.write("ant = kite")
    expected = translated(FIRST, glossary={"ant": ["kite"]}).text
    assert "kite" in expected
    page.wait_for(f"{SENTENCES}[0] === {expected!r}")
    page.write("\nbee")
    page.wait_for(f"{STATUS} === 'Line 2 of the terms is not “term = translation”.'")


def test_a_refused_request_is_explained(page, running_service, monkeypatch):
    limits = running_service.service.limits._replace(characters=10)
    monkeypatch.setattr(running_service.service, "limits", limits)
    page.write(TEXT)
    page.wait_for(f"{STATUS}.includes('characters are more than 10')")
    page.problems.clear()  # the browser notes the status of the answer


def test_sentences_that_fail_are_read_as_such(page, running_service, monkeypatch):
    failed: Future[Translation] = Future()
    failed.set_result(Translation(error="no reason"))
    submit = running_service.here.translator.submit

    def fails(request):
        return failed if request.text == SECOND else submit(request)

    monkeypatch.setattr(running_service.here.translator, "submit", fails)
    page.write(TEXT)
    page.wait_for(f"{STATUS} === 'A sentence was not translated: no reason.'")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    read = [
        (node["name"]["value"], node.get("description", {}).get("value", ""))
        for node in nodes
        if node.get("role", {}).get("value") == "button" and not node["ignored"]
    ]
    assert (f"[not translated] {SECOND}", "no reason") in read
    assert page.evaluate("document.getElementById('target').textContent").endswith(f"  {SECOND}")
    page.write(f"  {SECOND}")
    page.wait_for(f"{STATUS} === '2 sentences were not translated.'")
    monkeypatch.setattr(running_service.here.translator, "submit", submit)
    page.write(" ")
    page.wait_for(f"{STATUS} === 'Translated.'")  # what failed was not kept
    assert page.evaluate(f"{SENTENCES}.length") == 3


def test_text_is_never_taken_for_html(page):
    page.write("<img src=x onerror=hacked=1> <script>hacked=1</script>")
    page.wait_for(f"{SENTENCES}.length > 0")
    assert page.evaluate("typeof hacked") == "undefined"
    assert not page.evaluate("document.querySelector('main img, main script')")


def test_marks_lie_behind_their_words(telephone):
    """The copy of the text behind the text area breaks its lines where the text area does."""
    telephone.write(LONG)
    telephone.wait_for(f"{SENTENCES}.length === 30")
    heights = "['mirror', 'source'].map((id) => document.getElementById(id).scrollHeight)"
    mirror, source = telephone.evaluate(heights)
    assert abs(mirror - source) <= 1
    telephone.evaluate("document.getElementById('source').scrollTop = 200")
    telephone.wait_for("document.getElementById('mirror').scrollTop === 200")


def test_the_box_grows_with_its_text(page):
    hidden = "['mirror', 'source'].map((id) => document.getElementById(id))"
    hidden += ".map((box) => box.scrollHeight - box.clientHeight)"
    for end in ("", "\n"):
        page.write(f"{LONG}{end}")
        assert page.evaluate(hidden) == [0, 0]  # at once
    page.wait_for(f"{SENTENCES}.length === 60")
    assert page.evaluate(hidden) == [0, 0]
    assert page.evaluate("document.getElementById('source').clientHeight") > 400


def box(element):
    """Return the expression of where an element is."""
    return f"document.getElementById('{element}').getBoundingClientRect()"


def test_the_boxes_are_of_equal_height_beside_each_other(page):
    for text in ("", LONG):
        page.write(text)
        page.wait_for(f"{SENTENCES}.length === {30 if text else 0}")
        tops, heights = page.evaluate(
            f"['top', 'height'].map((of) => [{box('editor')}[of], {box('target')}[of]])"
        )
        assert tops[0] == tops[1]
        assert heights[0] == pytest.approx(heights[1], abs=1)
    assert page.evaluate(f"{box('choices')}.bottom <= {box('editor')}.top")


def test_the_translation_follows_its_text_on_a_telephone(telephone):
    telephone.write(TEXT)
    telephone.wait_for(f"{STATUS} === 'Translated.'")
    between = telephone.evaluate(f"{box('target')}.top - {box('source')}.bottom")
    assert 0 <= between < 60  # the count and a button
    assert telephone.evaluate(f"{box('target')}.bottom <= {box('drop')}.top")
    assert telephone.evaluate(in_sight("#status"))


def test_the_status_is_by_the_translation_and_read_aloud(page):
    type_text(page, TEXT, 2)
    place = "document.getElementById('status')"
    assert page.evaluate(f"{place}.getAttribute('aria-live')") == "polite"
    assert page.evaluate(f"{place}.closest('.side').contains(document.getElementById('target'))")
    assert 0 <= page.evaluate(f"{box('status')}.top - {box('target')}.bottom") < 20


def test_a_text_is_counted_and_cleared(page, running_service):
    count = "document.getElementById('count').textContent"
    most = running_service.service.limits.characters
    clear = "document.getElementById('clear')"
    assert page.evaluate(count) == f"0 of at most {most:,} characters"
    assert page.evaluate(f"{clear}.disabled")
    page.write("猫😀.")
    assert page.evaluate(count) == f"3 of at most {most:,} characters"
    page.wait_for(f"{SENTENCES}.length === 1")
    tab_to(page, "#clear")
    page.press("Enter")
    page.wait_for(f"{SENTENCES}.length === 0 && {STATUS} === ''")
    assert page.evaluate(f"{FOCUSED}.id + {FOCUSED}.value") == "source"
    assert page.evaluate(f"{clear}.disabled")


def test_disabled_buttons_are_seen_to_be(page):
    style = "getComputedStyle(document.getElementById('{}'))"
    disabled, enabled = (
        page.evaluate(f"(({{borderStyle, cursor}}) => [borderStyle, cursor])({style.format(each)})")
        for each in ("copy", "close")
    )
    assert (disabled, enabled) == (["dashed", "not-allowed"], ["solid", "pointer"])


def test_examples_are_in_the_language_of_the_text(page):
    examples = "[...document.querySelectorAll('#examples button')]"
    found = page.evaluate(f"{examples}.map((each) => each.lang + each.textContent)")
    assert found == ["enTwo children are playing in the garden.", "enWhere is the nearest station?"]
    choose(page, "source", "de")
    assert page.evaluate(f"{examples}.map((each) => each.lang)") == ["de", "de"]
    page.evaluate(f"{examples}[1].click()")
    page.wait_for(f"{SENTENCES}.length === 1")
    assert page.evaluate(f"{FOCUSED}.value") == "Wo ist der nächste Bahnhof?"


def choose(page, side, code):
    """Choose the language of a side as the pointer does."""
    select = f"document.getElementById('{side}-language')"
    page.evaluate(f"{select}.value = '{code}'; {select}.dispatchEvent(new Event('change'))")


def test_targets_are_those_of_the_source_and_swapping_needs_a_model(browser):
    targets = "[...document.querySelectorAll('#target-language option')].map((each) => each.value)"
    pairs = ("en:de", "de:en", "de:fr", "fr:ar")
    with running([f"{REVERSING}={each}" for each in pairs]) as service:
        browser.open(f"{service.url}/")
        browser.wait_for(f"{targets}.length")
        found = {}
        for source in ("en", "de", "fr"):
            choose(browser, "source", source)
            swap = browser.evaluate("document.getElementById('swap').disabled")
            found[source] = (browser.evaluate(targets), not swap)
        assert found == {"en": (["de"], True), "de": (["en", "fr"], True), "fr": (["ar"], False)}
        choose(browser, "source", "de")
        browser.evaluate("document.getElementById('source').focus()")
        type_text(browser, FIRST, 1)
        before = browser.evaluate(SENTENCES)
        browser.evaluate("document.getElementById('swap').click()")
        browser.wait_for("shown.model?.source === 'en' && shown.model?.target === 'de'")
        assert browser.evaluate("[source.value]") == before
        assert browser.problems == []


def test_pairs_that_no_model_has_alone_are_offered(page, running_service, submitted):
    """The service may list more pairs than models, and chooses the models of such a pair."""
    languages = "[{ code: 'en', targets: ['en', 'de', 'ja'] }]"
    page.evaluate(f"models = withOtherPairs(models, {languages}); showChoices()")
    targets = "[...document.querySelectorAll('#target-language option')].map((each) => each.value)"
    assert page.evaluate(targets) == ["de", "ja"]
    asked = "request(models.at(-1), {}, { text: 'a' })"
    assert page.evaluate(f"JSON.parse(JSON.stringify({asked}))") == {
        "source": "en", "target": "ja", "alignments": False, "token_scores": True, "text": "a",
    }  # fmt: skip


def test_after_an_error_the_old_translation_is_dimmed_and_useless(
    page, running_service, monkeypatch
):
    type_text(page, TEXT, 2)
    reason = "This looks like German; models: en to de, de to fr"
    find = Models.find

    def refuse(*_):
        raise RefusedError(400, reason)

    monkeypatch.setattr(Models, "find", refuse)
    page.write(" Zwei Kinder.")
    page.wait_for(f"{STATUS} === '{reason}'")
    faint = "getComputedStyle(document.getElementById('target')).opacity"
    assert float(page.evaluate(faint)) < 0.5
    assert page.evaluate("target.inert && document.getElementById('copy').disabled")
    assert page.evaluate("status.classList.contains('error')")
    monkeypatch.setattr(Models, "find", find)
    page.write(" Two cats.")
    page.wait_for(f"{STATUS} === 'Translated.'")
    assert page.evaluate(faint) == "1"
    assert not page.evaluate("target.inert || status.classList.contains('error')")
    page.problems.clear()  # the browser notes the status of the answer


def test_confidence_is_a_colour_a_line_and_words(page, running_service, monkeypatch):
    of_each = {"ant.": [-0.1, -0.3], "bee.": [-0.7, -0.7], "cat.": [-3.0, -0.1]}
    answers = {
        text: Translation(text, -1.0, token_scores=tuple(scores))
        for text, scores in of_each.items()
    }

    def submit(request):
        future: Future[Translation] = Future()
        future.set_result(answers[request.text])
        return future

    monkeypatch.setattr(running_service.here.translator, "submit", submit)
    type_text(page, " ".join(of_each), 3)
    shown = "[...document.querySelectorAll('.sentence')].map((span) => [span.title, "
    shown += "getComputedStyle(span).textDecorationLine, "
    shown += "getComputedStyle(span).textDecorationStyle])"
    assert page.evaluate(shown) == [
        ["Confidence high: 82 %", "none", "solid"],
        ["Confidence medium: 50 %", "underline", "dotted"],
        ["Confidence low: 21 %", "underline", "wavy"],
    ]
    legend = page.evaluate("document.getElementById('legend').innerText")
    assert all(word in legend for word in ("high", "medium (dotted line)", "low (wavy line)"))


def test_words_of_text_without_spaces_are_linked_by_their_pieces(page, running_service):
    text = "ant猫bee cat dog."
    type_text(page, text, 1)
    page.evaluate("document.querySelector('.sentence').click()")
    page.wait_for(IS_OPEN)
    words = "[...document.querySelectorAll('#{}-words span')]"
    page.wait_for(f"{words.format('target')}.length > 0")
    drawn = running_service.here.translator.attention(
        text, page.evaluate("target.textContent"), "name"
    )
    shown, of_words = [], []
    for side, name in (("source", "source"), ("target", "target_output")):
        pieces = [each for each in drawn.pieces[name] if each != "</s>"]
        numbers = np.cumsum([each.startswith("▁") for each in pieces])
        joined = ["".join(pieces).split("▁")[number] for number in range(numbers[-1] + 1)]
        shown.append([each for each in joined if each])
        of_words.append([np.flatnonzero(numbers == n) for n, each in enumerate(joined) if each])
        found = page.evaluate(f"{words.format(side)}.map((span) => span.textContent)")
        assert found == shown[-1]
    weights = drawn.weights["memory"][-1].sum(0)
    sums = [weights[np.ix_(of_words[1][0], each)].sum() for each in of_words[0]]
    page.evaluate(f"{words.format('target')}[0].focus()")
    most = shown[0][int(np.argmax(sums))]
    page.wait_for(f"{STATUS} === '“{shown[1][0]}” belongs to “{most}”.'")
    of_japanese = page.evaluate("wordsOf(['▁子', 'ども', 'は', '▁', '庭', '</s>'])")
    assert of_japanese == [
        {"text": "子", "places": [0]},
        {"text": "ども", "places": [1]},
        {"text": "は", "places": [2]},
        {"text": "庭", "places": [4]},
    ]


def test_translations_have_the_gaps_of_their_own_language(page):
    cut = {"sentences": ["猫。", "犬。"], "gaps": ["", "", ""]}
    for texts, gap in ((["A cat.", "A dog."], " "), (["猫。", "犬。"], "")):
        answer = {"translations": [{"text": text} for text in texts], **cut}
        answer["target_gaps"] = ["", gap, ""]
        page.evaluate(f"show({{ model: models[0], ...{json.dumps(answer)} }})")
        assert page.evaluate("target.textContent") == gap.join(texts)
        assert page.evaluate("document.getElementById('mirror').textContent") == "猫。犬。\n"


def test_a_dropped_document_is_translated(page):
    page.evaluate(
        """
        (() => {
          const transfer = new DataTransfer();
          transfer.items.add(new File(["ant bee."], "animals.txt", { type: "text/plain" }));
          const options = { dataTransfer: transfer, cancelable: true };
          document.dispatchEvent(new DragEvent("dragover", options));
          window.wasDragging = document.body.classList.contains("dragging");
          document.dispatchEvent(new DragEvent("drop", options));
        })()
        """
    )
    result = "document.getElementById('document-status')"
    page.wait_for(f"{result}.textContent === 'Translated: animals.txt'")
    assert page.evaluate(f"{result}.querySelector('a').download") == "animals.txt"
    assert page.evaluate("wasDragging && !document.body.classList.contains('dragging')")
    accepted = page.evaluate("document.getElementById('file').accept").split(",")
    assert {".docx", ".html", ".srt"} <= set(accepted)
    tab_to(page, "#file")
    outline = "getComputedStyle(document.getElementById('drop')).outlineStyle"
    assert page.evaluate(outline) == "solid"


def in_sight(element):
    """Return the expression of whether all of an element is within the window."""
    box = f"document.querySelector('{element}').getBoundingClientRect()"
    return f"Math.round({box}.top) >= 0 && Math.round({box}.bottom) <= innerHeight"


def test_a_sentence_and_its_attention_are_shown_in_sight(telephone):
    telephone.write(f"{FIRST} {LONG}")
    telephone.wait_for(f"{SENTENCES}.length === 31")
    telephone.evaluate("document.querySelector('.sentence').click()")
    telephone.wait_for(IS_OPEN)
    assert telephone.evaluate(in_sight("#sentence"))
    telephone.evaluate("document.querySelector('#attention button').click()")
    frame = "document.querySelector('iframe').contentDocument"
    rows = f"{frame}?.querySelectorAll('#figures section:first-child .keys li')"
    telephone.wait_for(f"{rows}?.length > 0 && {in_sight('iframe')}")
    telephone.evaluate(f"[...{rows}].at(-1).scrollIntoView()")
    box = f"[...{rows}].at(-1).getBoundingClientRect()"
    left, right, bottom = telephone.evaluate(f"[{box}.left, {box}.right, {box}.bottom]")
    width, height = telephone.evaluate(
        f"['Width', 'Height'].map((n) => {frame}.documentElement['client' + n])"
    )
    assert 0 <= left < right <= width
    assert bottom <= height


def test_an_error_is_in_sight_whatever_part_of_a_long_text_is(
    telephone, running_service, monkeypatch
):
    telephone.write(LONG)
    telephone.wait_for(f"{SENTENCES}.length === 30")
    assert not telephone.evaluate(in_sight("#status"))
    limits = running_service.service.limits._replace(characters=10)
    monkeypatch.setattr(running_service.service, "limits", limits)
    telephone.write("Much more text.")
    telephone.wait_for(f"{STATUS}.includes('characters are more than 10')")
    assert telephone.evaluate(in_sight("#status"))
    telephone.evaluate("scrollTo(0, 300)")
    assert telephone.evaluate(in_sight("#status"))
    telephone.problems.clear()  # the browser notes the status of the answer


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_telephone(browser, running_service, scheme):
    browser.open(f"{running_service.url}/", width=360, scheme=scheme)
    browser.wait_for("document.querySelectorAll('#target-language option').length")
    assert browser.evaluate(WIDTH) <= 360
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.problems == []


def test_every_control_has_a_name(page):
    type_text(page, FIRST, 1)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = {"button", "combobox", "textbox", "status"}
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in controls
    ]
    assert {role for role, _ in named} == controls
    assert [role for role, name in named if not name and role != "status"] == []
