"""Which model a request gets: codes of languages, their aliases, and detected languages."""

import itertools
from contextlib import contextmanager

import pytest
import requests

from nmt_cli.corpus.text.language_codes import (
    NAMES,
    label_of,
    language_identifier,
    spelled,
    standard_code,
)
from nmt_cli.serving.models import glossaries_of, models_of
from tests.serving.conftest import REVERSING, Naming, running

ENGLISH = "A dog is running over the grass."
GERMAN = "Ein Hund läuft schnell über das Gras."
FRENCH = "Un chien court très vite dans la forêt."
NORWEGIAN = "En hund løper fort over gresset."


@contextmanager
def serving(*pairs, **options):
    """Serve a model for each of ``pairs``; it adds its pair to what it gets."""
    arguments = [f"{REVERSING}={pair}" for pair in pairs]
    named = lambda model: Naming(f"{model.source}:{model.target}")  # noqa: E731
    with running(arguments, here=named, **options) as service:
        yield service


def post(service, path, status=200, **fields):
    answer = requests.post(f"{service.url}{path}", json=fields, timeout=30)
    assert answer.status_code == status, answer.text
    return answer.json()


def translated(service, texts, source, target):
    """Return the answers of LibreTranslate's interface, after DeepL's has given the same."""
    answer = post(service, "/translate", q=texts, source=source, target=target)
    fields = {} if source == "auto" else {"source_lang": source.upper()}
    other = post(service, "/v2/translate", text=texts, target_lang=target.upper(), **fields)
    assert [each["text"] for each in other["translations"]] == answer["translatedText"]
    if source == "auto":
        shown = [each["detected_source_language"].lower() for each in other["translations"]]
        assert shown == [each["language"].partition("-")[0] for each in answer["detectedLanguage"]]
    return answer["translatedText"]


@pytest.mark.parametrize(
    ("pairs", "asked", "taken"),
    [
        (["en:pt", "en:pt-BR"], "en:pt-BR", "en:pt-BR"),
        (["en:pt-BR", "en:pt"], "en:pt", "en:pt"),
        (["en:pt", "en:pt-BR"], "en:pb", "en:pt-BR"),
        (["en:pt-BR", "en:pt"], "en:pt-PT", "en:pt"),
        (["en:pt", "en-US:pt-BR"], "en-US:pt", "en:pt"),
        (["en:pt_BR", "de:pt"], "en:pt", "en:pt-BR"),
        (["en:zh-Hant", "en:zh-Hans"], "en:zh", "en:zh-Hans"),
        (["en:zh", "en:zt"], "en:zh-TW", "en:zt"),
        (["en:zh", "en:zh_TW"], "en:zt", "en:zh-TW"),
        (["en:zh-Hans", "en:zh-TW", "en:zh-HK"], "en:zh-HK", "en:zh-HK"),
        (["nn:en", "nb:en"], "no:en", "nb:en"),
        (["no:en", "nn:en"], "nb-NO:en", "no:en"),
        (["iw:en"], "he:en", "iw:en"),
        (["sr-Latn:en", "sr:en"], "sr-Latn-RS:en", "sr-Latn:en"),
    ],
)
def test_the_nearest_code_is_taken(pairs, asked, taken):
    source, target = asked.split(":")
    with serving(*pairs) as service:
        assert translated(service, ["ant"], source, target) == [f"ant by {taken}"]
        record = post(service, "/v1/translate", text="ant", source=source, target=target)
        assert f"{record['source']}:{record['target']}" == taken
        record = post(service, "/v1/sentences", text="Ant. Bee.", source=source)
        assert record["sentences"] == ["Ant.", "Bee."]
        for path in "/v1/translate", "/v1/sentences":
            error = post(service, path, 400, text="ant", source="xx")["error"]
            assert all(pair.split(":")[0] in error for pair in pairs)


def test_languages_that_leave_a_choice_are_named():
    with serving("en:pt-BR", "en:pt-PT", "fr:pt-BR") as service:
        assert translated(service, [FRENCH], "auto", "pt") == [f"{FRENCH} by fr:pt-BR"]
        error = post(service, "/translate", 400, q="ant", source="en", target="pt")["error"]
        assert error == (
            "several models have source 'en', target 'pt': sentencepiece (en to pt-BR), "
            "sentencepiece-2 (en to pt-PT); name the source and the target of one of them"
        )


def test_a_text_of_no_certain_language_follows_the_others():
    def by(pair, text):
        return "\n".join(f"{line} by {pair}" for line in text.split("\n"))

    with serving("en:de", "de:en", "fr:de") as service:
        for uncertain in ("", " \n", "OK", "12:30", "!", "😀"):
            for texts in itertools.permutations([FRENCH, uncertain, GERMAN]):
                expected = {each: by("fr:de", each) for each in texts}
                expected[GERMAN] = GERMAN  # it is German already
                found = translated(service, texts, "auto", "de")
                assert found == [expected[each] for each in texts]
            assert translated(service, [uncertain], "auto", "de") == [uncertain]
            assert translated(service, [uncertain], "auto", "en") == [by("de:en", uncertain)]
            answer = post(service, "/translate", q=uncertain, source="auto", target="de")
            assert answer["detectedLanguage"]["confidence"] == 0


def test_a_text_in_the_target_language_stays_also_where_no_model_reads_it():
    with serving("en:de") as service:
        assert translated(service, [GERMAN, ENGLISH], "auto", "de") == [
            GERMAN,
            f"{ENGLISH} by en:de",
        ]
        assert translated(service, [GERMAN, "OK"], "auto", "de") == [GERMAN, "OK"]
        assert translated(service, ["OK", ENGLISH], "auto", "de")[0] == "OK by en:de"
        assert translated(service, ["OK"], "auto", "de") == ["OK by en:de"]


def test_a_short_text_alone_has_its_most_probable_language():
    with serving("en:de", "de:en", "fr:de") as service:
        assert translated(service, ["The dog", "merci"], "auto", "de")[0] == "The dog by en:de"
        assert translated(service, ["Bonjour"], "auto", "de") == ["Bonjour by fr:de"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (FRENCH, "French"),
        (f"<p class='message of the day'>{FRENCH}</p>", "French"),
        ("Bugün hava çok güzel, parkta yürüyüşe çıktık.", "Turkish"),
        ("สวัสดีครับ ผมชื่อสมชายและผมชอบกินข้าว", "Thai"),
        ("我今天去公园散步，天气很好，我和朋友们都很高兴。", "Chinese"),
    ],
)
def test_a_language_that_no_model_reads_is_refused(text, language):
    error = f"This looks like {language}; models: en to ja, de to en"
    file = {"file": ("a.txt", text.encode())}
    with serving("en:ja", "de:en") as service:
        for texts in (text, [ENGLISH, text]):
            fields = {"q": texts, "source": "auto", "target": "ja"}
            assert post(service, "/translate", 400, **fields) == {"error": error}
            fields = {"text": texts, "target_lang": "JA"}
            assert post(service, "/v2/translate", 400, **fields) == {"message": error}
        for path, data, key in (
            ("/translate_file", {"target": "ja"}, "error"),
            ("/v2/document", {"target_lang": "JA"}, "message"),
        ):
            answer = requests.post(service.url + path, data=data, files=file, timeout=30)
            assert (answer.status_code, answer.json()) == (400, {key: error})
        first, *others = post(service, "/detect", q=text)
        if not text.startswith("<"):
            assert NAMES[first["language"]] == language
            assert first["confidence"] >= 90
        assert all(each["confidence"] < 10 for each in others)
        assert translated(service, [text], "en", "ja") == [f"{text} by en:ja"]  # it was named


@pytest.mark.parametrize(
    "text",
    [
        "Bonjour, ça va ?",  # short
        "https://example.com/fr/index.html",
        "Lenovo ThinkPad X1 Carbon Gen 9",
        "12:30 12:30 12:30 12:30 12:30",
        "😀" * 30,
    ],
)
def test_what_is_short_or_uncertain_is_not_refused(text):
    with serving("en:ja") as service:
        (found,) = translated(service, [text], "auto", "ja")
        assert found in {text, f"{text} by en:ja"}
        answer = post(service, "/translate", q=text, source="auto", target="ja")
        assert answer["detectedLanguage"]["confidence"] < 50


def test_nothing_is_refused_where_the_language_of_a_model_cannot_be_detected():
    with serving("en:de", "yi:de") as service:
        fields = {"q": FRENCH, "source": "auto", "target": "de"}
        assert "translatedText" in post(service, "/translate", **fields)


def test_a_service_of_one_language_refuses_others():
    with serving("en:en-GB") as service:
        fields = {"q": FRENCH, "source": "auto", "target": "en"}
        error = post(service, "/translate", 400, **fields)["error"]
        assert error == "This looks like French; models: en to en-GB"


def test_a_certain_language_without_a_model_is_refused():
    with serving("en:de", "de:en", "fr:en") as service:
        for path, key, fields in (
            ("/translate", "error", {"q": [ENGLISH, FRENCH], "source": "auto", "target": "de"}),
            ("/v2/translate", "message", {"text": [ENGLISH, FRENCH], "target_lang": "DE"}),
        ):
            reason = post(service, path, 400, **fields)[key]
            assert reason.lower().startswith("there is no model with source 'fr', target 'de'")
        reason = post(service, "/translate", 400, q="", source="auto", target="it")["error"]
        assert reason.startswith("there is no model with target 'it'")


def test_what_is_certain_of_chinese_is_not_its_script():
    with serving("zh-Hans:en", "zh-Hant:de", "fr:de") as service:
        assert translated(service, ["狗在草地上跑。"], "auto", "de") == [
            "狗在草地上跑。 by zh-Hant:de"
        ]


def test_languages_are_detected_under_other_codes():
    with serving("en:de", "nb:de") as service:
        answer = post(service, "/translate", q=[ENGLISH, NORWEGIAN], source="auto", target="de")
        assert answer["translatedText"] == [f"{ENGLISH} by en:de", f"{NORWEGIAN} by nb:de"]
        assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "nb"]


def test_an_unknown_language_is_not_taken_for_a_known_one():
    with serving("en:de", "de:en", "yi:de") as service:
        assert post(service, "/detect", q=ENGLISH)[0]["language"] == "en"
        found = post(service, "/detect", q="דער הונט לויפט איבער דעם גראָז")
        assert {each["language"]: each["confidence"] for each in found} == {
            "en": 0,
            "de": 0,
            "yi": 0,
        }


def test_every_language_of_py3langid_has_a_name():
    labels = language_identifier().labels
    assert {label for label in labels if len(label) == 2} <= {label_of(code) for code in NAMES}


@pytest.mark.parametrize("texts", [[ENGLISH, FRENCH], [FRENCH, ENGLISH]])
def test_a_glossary_needs_the_language_of_the_texts(tmp_path, texts):
    path, pairs = tmp_path / "terms.tsv", ["en:de", "fr:de"]
    path.write_text("dog\tHund\n")
    glossaries = glossaries_of([str(path)], models_of([f"{REVERSING}={pair}" for pair in pairs]))
    with serving(*pairs, glossaries=glossaries) as service:
        wanted = {"text": texts, "target_lang": "DE", "glossary_id": "terms"}
        answer = post(service, "/v2/translate", 400, **wanted)
        assert answer["message"] == "glossary_id needs source_lang, the language of the glossary"
        post(service, "/v2/translate", 404, **wanted, source_lang="FR")
        post(service, "/v2/translate", **wanted, source_lang="EN")


def test_the_same_code_is_written_in_one_way():
    for code, written in {"EN": "en", "pt_br": "pt-BR", "zh-HANT_tw": "zh-Hant-TW"}.items():
        assert (spelled(code), standard_code(code)) == (written, written)
    assert (spelled("ZT"), standard_code("zt")) == ("zt", "zh-Hant")


def test_languages_have_names_under_all_their_codes():
    with serving("nb:no", "iw:pb") as service:
        listed = requests.get(f"{service.url}/languages", timeout=30).json()
        assert {each["code"]: each["name"] for each in listed} == {
            "nb": "Norwegian Bokmål",
            "no": "Norwegian",
            "iw": "Hebrew",
            "pb": "Portuguese",
        }
