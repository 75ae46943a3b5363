"""The page offers languages that two models translate, in a real browser."""

import pytest

from nmt_cli.translating.interface.request import Request
from tests.browser import needs_chromium
from tests.serving.conftest import ARGUMENTS, running
from tests.serving.test_translation_page import IS_OPEN, SENTENCES, STATUS

pytestmark = [pytest.mark.slow, needs_chromium]
TEXT = "ant bee cat dog."
VALUES = "['source', 'target'].map((side) => document.getElementById(`${side}-language`).value)"


@pytest.fixture(scope="module")
def service():
    with running(ARGUMENTS, has_pivots=True) as found:
        yield found


def choose(page, side, value):
    page.evaluate(f"document.getElementById('{side}-language').value = '{value}'")
    page.evaluate(f"document.getElementById('{side}-language').dispatchEvent(new Event('change'))")


def test_a_sentence_goes_through_two_models(browser, service):
    browser.open(f"{service.url}/")
    browser.wait_for("document.querySelectorAll('#target-language option').length === 2")
    choose(browser, "target", "fr")
    assert browser.evaluate(VALUES) == ["en", "fr"]
    browser.evaluate("document.getElementById('source').focus()")
    browser.write(TEXT)
    browser.wait_for(f"{STATUS} === 'Translated through German.'")
    translate = service.here.translator.translate
    (between,) = translate([Request(TEXT)])
    (expected,) = translate([Request(between.text, n_best=2, alignments=True)])
    assert browser.evaluate(SENTENCES) == [expected.text]
    title = browser.evaluate("document.querySelector('.sentence').title")
    assert title.startswith("Confidence ")
    assert title.endswith(" %, translating from German")
    browser.evaluate("document.querySelector('.sentence').click()")
    browser.wait_for(IS_OPEN)
    choices = "[...document.querySelectorAll('#alternatives label span:first-of-type')]"
    assert browser.evaluate(f"{choices}.map((span) => span.textContent)") == [
        each.text for each in expected.ranked
    ]
    assert not browser.evaluate("document.getElementById('words').hidden")
    assert browser.evaluate("document.getElementById('attention').hidden")
    assert browser.problems == []


def test_a_detected_language_may_need_two_models(browser, service):
    browser.open(f"{service.url}/")
    browser.wait_for("document.querySelectorAll('#target-language option').length === 2")
    choose(browser, "source", "auto")
    choose(browser, "target", "fr")
    for text, said in (
        ("The book is on the table in the kitchen.", "Translated from English through German."),
        ("ok.", "Translated from German."),  # en and de are as likely, and de has a model
    ):
        browser.evaluate(f"setText({text!r})")
        browser.wait_for(f"{STATUS} === {said!r}")
    assert browser.problems == []
