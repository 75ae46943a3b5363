"""The page as text; tests/pictures/test_page_in_browser.py opens it."""

import base64
import hashlib
import json
import re

import numpy as np

from nmt_cli.pictures.attention import KINDS, as_html
from tests.fake_attention import attention_of, words

HOSTILE = "</script><script>alert('\"&\u2028')</script><!--"


def data_of(page):
    (text,) = re.findall('<script type="application/json" id="data">(.*)</script>', page)
    return json.loads(text)


def test_the_page_holds_the_weights_in_thousandths():
    attention = attention_of(words(4, 1), words(3, 2))
    data = data_of(as_html(attention))
    assert len(data["kinds"]) == len(KINDS)
    for of_kind, (name, kind) in zip(data["kinds"], KINDS.items(), strict=True):
        assert of_kind["title"] == kind.title
        assert np.allclose(
            np.array(of_kind["weights"]) / 1000, attention.weights[name], atol=0.00051
        )
    assert data["pieces"] == {side: list(text) for side, text in attention.pieces.items()}


def test_text_cannot_leave_its_place():
    attention = attention_of([HOSTILE], [HOSTILE])
    page = as_html(attention._replace(model=HOSTILE, source=HOSTILE, target=HOSTILE))
    assert page.count("<script") == page.count("</script>") == 2  # the data and our own
    assert "<!--" not in page
    assert data_of(page)["pieces"]["source"] == [HOSTILE, "</s>"]


def test_only_our_own_script_may_run_and_nothing_is_fetched():
    page = as_html(attention_of(words(4, 1), words(3, 2)))
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "url(" not in page
    assert "$" not in page.partition("<style>")[0]  # nothing of the template is left


def test_a_translation_is_told_from_a_given_target():
    attention = attention_of(words(4, 1), words(3, 2))
    assert "<dt>Translation</dt>" in as_html(attention)
    assert "<dt>Target</dt>" in as_html(attention._replace(is_given=True))


def test_a_long_sentence_has_a_short_title():
    page = as_html(attention_of(words(60, 1), words(3, 2)))
    (title,) = re.findall("<title>(.*)</title>", page)
    assert len(title) < 80
    assert title.endswith("…")
