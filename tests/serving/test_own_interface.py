"""The interface under /v1: what a line of jsonl can ask for, by HTTP."""

import re

import pytest
import requests

from nmt_cli.pictures.attention import as_html
from nmt_cli.translating import shown_attention
from nmt_cli.translating.interface.record_keys import record_of
from nmt_cli.translating.interface.request import Request
from tests.serving.conftest import REVERSING

WORDS = "ant bee cat"


def post(running, path, record, status=200):
    answer = requests.post(f"{running.url}{path}", json=record, timeout=30)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_texts_are_translated_as_by_the_translator(running_service):
    lines = ["ant bee cat", "", "dog eel fox gnu", "hen"]
    answer = post(
        running_service,
        "/v1/translate",
        {"text": lines, "source": "en", "n_best": 2, "alignments": True, "token_scores": True},
    )
    wanted = [Request(line, n_best=2, alignments=True) for line in lines]
    expected = list(running_service.here.translator.translate(wanted))
    assert {key: answer[key] for key in ("model", "source", "target")} == {
        "model": "sentencepiece",
        "source": "en",
        "target": "de",
    }
    found = answer["translations"]
    assert [each["text"] for each in found] == [each.text for each in expected]
    for one, other in zip(found, expected, strict=True):
        record = record_of(other)
        assert set(one) == set(record)
        assert len(one["alternatives"]) == len(other.alternatives)
        assert one.get("alignment", []) == list(map(list, other.alignment))


def test_a_text_alone_is_a_list_of_one(running_service):
    answer = post(running_service, "/v1/translate", {"text": WORDS, "model": "sentencepiece-2"})
    (found,) = answer["translations"]
    assert (answer["source"], answer["target"]) == ("de", "fr")
    assert found["text"]
    assert "token_scores" not in found


def test_a_request_has_its_own_rule_about_repeated_pieces(running_service):
    def pieces(**options):
        record = {"text": "ant bee usw. Cat dog", "source": "en", **options}
        return post(running_service, "/v1/translate", record)["translations"][0]["tokens"]

    free, ruled = pieces(), pieces(no_repeat_ngram=1)
    assert len(set(free)) < len(free)
    assert len(set(ruled)) == len(ruled) > 0
    assert pieces() == free


def test_what_a_line_cannot_have_is_an_error_of_this_line(running_service):
    answer = post(running_service, "/v1/translate", {"text": WORDS, "source": "en", "n_best": 99})
    (found,) = answer["translations"]
    assert found["error"].startswith("n_best must be from 1 to 2")


def test_wrong_requests_have_a_reason(running_service):
    def error(record, status):
        return post(running_service, "/v1/translate", record, status)["error"]

    assert "name the source and the target of one" in error({"text": WORDS}, 400)
    assert error({"text": WORDS, "source": "xx"}, 400).startswith(
        "there is no model with source 'xx'; the models are sentencepiece (en to de), "
    )
    assert error({"source": "en"}, 400) == 'the key "text" is missing'
    for text in ([], [1], None):
        reason = "text must be a string, or a list of strings that is not empty"
        assert error({"source": "en", "text": text}, 400) == reason
    assert "the nearest is n_best" in error({"text": WORDS, "source": "en", "nbest": 2}, 400)
    assert error({"text": "a", "source": 1}, 400) == "source must be a string"
    assert error([], 400) == "the body is not a JSON object"
    url = f"{running_service.url}/v1/translate"
    for body in (b"", b"{", b"\xff{}", b"[" * 100_000):
        answer = requests.post(url, data=body, timeout=30)
        assert (answer.status_code, answer.json()["error"][:11]) == (400, "the body is")
    assert requests.get(url, timeout=30).json() == {"error": "Method Not Allowed"}
    assert requests.get(f"{running_service.url}/none", timeout=30).status_code == 404


def test_terms_and_phrases_are_limited(running_service):
    def error(**options):
        record = {"text": WORDS, "source": "en", **options}
        return post(running_service, "/v1/translate", record, 413)["error"]

    terms = {str(number): "a" for number in range(5_001)}
    found = error(banned=["ant"] * 5_000, glossary=terms)
    assert found == "10,001 terms and phrases are more than 10,000"
    found = error(prefix="a" * 200_000, glossary={"ab": ["c" * 150_000, "d" * 150_000]})
    assert found == "terms and phrases of 500,002 characters are more than 500,000"
    found = error(text="ant " * 5_000, glossary={"Ant " * n + "eel": "a" for n in range(1, 101)})
    assert found == (
        "20,000 characters of text times 20,500 of the terms that begin with 'ant' (one of each "
        "length) are more than 100,000,000; send less text, or fewer such terms"
    )


def test_terms_of_many_lengths_with_different_first_words_are_allowed(running_service):
    terms = {f"{'a' * n} bee": "b" for n in range(1, 400)}
    record = {"text": ["ant " * 25] * 20, "source": "en", "glossary": terms}
    assert len(post(running_service, "/v1/translate", record)["translations"]) == 20


def test_sentences_and_gaps_are_the_text(running_service):
    text = " One is here. Another one? \n\nLast"
    answer = post(running_service, "/v1/sentences", {"text": text, "source": "en"})
    assert answer["sentences"] == ["One is here.", "Another one?", "Last"]
    joined = answer["gaps"][0]
    for sentence, gap in zip(answer["sentences"], answer["gaps"][1:], strict=True):
        joined += sentence + gap
    assert joined == text


@pytest.mark.parametrize(("target", "gap"), [("de", " "), ("ja", ""), ("zh-Hant", "")])
def test_target_gaps_have_the_blanks_of_the_target_language(running_service, target, gap):
    record = {"text": "One. Two.\nThree. ", "source": "en", "target": target}
    answer = post(running_service, "/v1/sentences", record)
    assert answer["gaps"] == ["", " ", "\n", " "]
    assert answer["target_gaps"] == ["", gap, "\n", " "]


def test_a_document_of_many_paragraphs(running_service):
    text = "ant bee.\n\n" * 1_100
    assert len(text) > 10_240  # where sentencex loses line ends
    answer = post(running_service, "/v1/sentences", {"text": text, "source": "en"})
    assert answer == {"sentences": ["ant bee."] * 1_100, "gaps": ["", *["\n\n"] * 1_100]}
    record = {"text": ["ant bee.", text], "source": "en", "split": True}
    one, document = post(running_service, "/v1/translate", record)["translations"]
    assert one["text"]
    assert document["text"] == f"{one['text']}\n\n" * 1_100


def test_models_and_health(running_service):
    answer = requests.get(f"{running_service.url}/v1/models", timeout=30).json()
    assert [(m["name"], m["source"], m["target"]) for m in answer["models"]] == [
        ("sentencepiece", "en", "de"),
        ("sentencepiece-2", "de", "fr"),
    ]
    assert str(REVERSING) not in str(answer)
    assert requests.get(f"{running_service.url}/health", timeout=30).json() == {"status": "ready"}


def test_attention_is_a_page_of_its_own(running_service):
    url, here = f"{running_service.url}/v1/attention", running_service.here
    fields = {"text": WORDS, "translation": "cat bee ant", "model": "sentencepiece"}
    answer = requests.post(url, data=fields, timeout=30)
    attention = here.translator.attention(WORDS, "cat bee ant", "sentencepiece")
    assert answer.text == as_html(attention)
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    for key, wrong, reason in (
        ("model", "none", "there is no model with model 'none'"),
        ("translation", " ", "text and translation must not be blank"),
        ("text", "ant " * 400, "the source has"),
    ):
        answer = requests.post(url, data={**fields, key: wrong}, timeout=30)
        assert (answer.status_code, answer.json()["error"][: len(reason)]) == (400, reason)


def test_reasons_advise_what_a_client_can_do(running_service, monkeypatch):
    monkeypatch.setattr(shown_attention, "MOST_WEIGHTS", 10)
    fields = {"text": WORDS, "translation": WORDS, "model": "sentencepiece"}
    answer = requests.post(f"{running_service.url}/v1/attention", data=fields, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(
        "weights are more than a page can show (10); give a shorter sentence."
    )


def test_the_page_loads_nothing_from_elsewhere(running_service):
    answer = requests.get(f"{running_service.url}/", timeout=30)
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none';")
    links = re.findall(r'(?:src|href|action)="([^"]*)"', answer.text)
    (icon,) = [link for link in links if link.startswith("data:image/svg+xml,")]
    assert set(links) == {icon, "openapi.json", "page.css", "page.js", "v1/attention"}
    for name in ("page.css", "page.js"):
        found = requests.get(f"{running_service.url}/{name}", timeout=30)
        assert (found.status_code, "://" in found.text) == (200, False)
    assert requests.get(f"{running_service.url}/openapi.json", timeout=30).json()["paths"]
