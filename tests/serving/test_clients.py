"""The service answers the clients of LibreTranslate and DeepL, unchanged from their registries.

It runs as users run it: processes translate.
"""

import json
import shutil
import subprocess
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import deepl
import pytest
import requests
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from nmt_cli.files.atomic_files import read_manifest, write_manifest
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator
from tests.serving.conftest import REVERSING
from tests.serving.test_serve import Command

TEXTS = ["ant bee cat", "dog eel fox gnu", "hen ibis"]
NPM_CLIENT = Path(__file__).parents[2] / "build/npm/node_modules/libretranslate"
SENTENCE = "The cat sees a dog."


@contextmanager
def serving(model, *options):
    languages = f"{model}=en:de", f"{model}=de:fr"
    command = Command(*languages, "--workers=1", "--precision=fp32", "--device=cpu", *options)
    try:
        command.url = command.wait_for(r"http://\S+").group()
        yield command
    finally:
        command.close()


@pytest.fixture(scope="module", params=["en", UNKNOWN_LANGUAGE])
def model(request, tmp_path_factory):
    """A model that names its languages, or one that names none, as imported ones."""
    if request.param == "en":
        return REVERSING
    copy = tmp_path_factory.mktemp("models") / REVERSING.parents[1].name
    shutil.copytree(REVERSING, copy)
    config = json.loads((copy / "config.json").read_text())
    config["text"].update(source_language=UNKNOWN_LANGUAGE, target_language=UNKNOWN_LANGUAGE)
    (copy / "config.json").write_text(json.dumps(config))
    write_manifest(copy, read_manifest(REVERSING))
    return copy


@pytest.fixture(scope="module")
def service(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("glossaries") / "animals.tsv"
    path.write_text("ant\tlark\nbee\tfox ||| hen\n")
    with serving(model, f"--glossary={path}") as found:
        yield found


@pytest.fixture(scope="module")
def expected(model):
    """The translations of the texts by the translator itself, and by how many ways each."""
    translator = Translator.load(model, device="cpu", precision="fp32")
    found = translator.translate([Request(text, n_best=2) for text in TEXTS])
    return [[each.text for each in translation.ranked] for translation in found]


def test_libretranslatepy(service, expected):
    client = LibreTranslateAPI(service.url)
    assert [client.translate(text, "en", "de") for text in TEXTS] == [e[0] for e in expected]
    assert client.translate("\n".join([*TEXTS, ""]), "en", "de") == "\n".join(
        [*(each[0] for each in expected), ""]
    )
    assert client.detect("Das ist ein deutscher Satz.")[0] == {
        "confidence": 100.0,
        "language": "de",
    }
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "de", "name": "German", "targets": ["fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]


def test_deep_translator(service, expected):
    url = f"{service.url}/"
    client = LibreTranslator("en", "de", api_key="any", custom_url=url)
    assert client.translate_batch(TEXTS) == [each[0] for each in expected]


@pytest.mark.slow
@pytest.mark.skipif(
    not NPM_CLIENT.is_dir(), reason="libretranslate of npm is not in build/npm (make test-all)"
)
def test_libretranslate_of_npm(service, expected):
    program = """
        const { translate } = require(process.argv[1]);
        const [apiurl, ...texts] = process.argv.slice(2);
        const all = texts.map((query) => translate({query, source: "en", target: "de", apiurl}));
        Promise.all(all).then((found) => console.log(JSON.stringify(found)));
    """
    words = ["node", "-e", program, str(NPM_CLIENT), service.url, *TEXTS]
    found = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    assert json.loads(found) == [each[0] for each in expected]


def libre(service, **fields):
    return requests.post(f"{service.url}/translate", json=fields, timeout=30)


def test_libretranslate_in_json(service, expected):
    both = {"source": "en", "target": "de"}
    answer = libre(service, q=TEXTS, **both, alternatives=1).json()
    assert answer["translatedText"] == [each[0] for each in expected]
    assert answer["alternatives"] == [each[1:] for each in expected]
    answer = libre(service, q=SENTENCE, source="auto", target="de").json()
    assert set(answer) == {"translatedText", "detectedLanguage"}
    assert answer["detectedLanguage"]["language"] == "en"
    answer = libre(service, q="<p>ant <b>bee</b></p>", **both, format="html").json()
    assert answer["translatedText"].startswith("<p>")
    assert requests.get(f"{service.url}/frontend/settings", timeout=30).json()["language"][
        "target"
    ] == {"code": "de", "name": "German"}


def test_libretranslate_in_forms(service, expected):
    url, both = f"{service.url}/translate", {"source": "en", "target": "de-DE"}
    for form in (
        {"data": {"q": TEXTS[0], **both}},
        {"files": {key: (None, value) for key, value in {"q": TEXTS[0], **both}.items()}},
        {"params": {"q": TEXTS[0], **both}},
    ):
        answer = requests.post(url, timeout=30, **form)
        assert answer.json() == {"translatedText": expected[0][0]}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"source": "en", "target": "de"}, "q must be a text or a list of texts that is not empty"),
        ({"q": ["a", 1]}, "q must be a text or a list of texts that is not empty"),
        ({"q": []}, "q must be a text or a list of texts that is not empty"),
        ({"q": "a", "source": "xx", "target": "de"}, "there is no model with source 'xx', target"),
        ({"q": "a", "sorce": "en", "target": "de"}, "the request names no source language; the"),
        ({"q": "a"}, "the request names no source and target language; the models are"),
        ({"q": "a", "source": None, "target": None}, "the request names no source and target lang"),
        ({"q": "a", "source": "fr", "target": "en"}, "there is no model with source 'fr', target"),
        ({"q": "a", "source": "en", "target": "de", "format": "md"}, "format must be text or html"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": -1}, "alternatives must be"),
        ({"q": "\ud800", "source": "en", "target": "de"}, "the body has half of a surrogate pair"),
    ],
)
def test_libretranslate_says_what_is_wrong(service, fields, error):
    answer = libre(service, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(error)


@pytest.fixture
def client(service):
    found = deepl.DeepLClient("any", server_url=service.url)
    yield found
    found.close()


def test_deepl(service, expected, client):
    found = client.translate_text(TEXTS, source_lang="EN", target_lang="DE")
    assert [each.text for each in found] == [each[0] for each in expected]
    assert {each.detected_source_lang for each in found} == {"EN"}
    before = client.get_usage().character.count
    one = client.translate_text("Das ist ein deutscher Satz.", target_lang="FR")
    assert (one.detected_source_lang, one.billed_characters) == ("DE", 27)
    assert client.get_usage().character.count == before + 27
    for handling in ("html", "xml"):
        one = client.translate_text(
            "<p>ant <b>bee</b></p>", source_lang="EN", target_lang="DE", tag_handling=handling
        )
        assert one.text.startswith("<p>")
    assert [(each.code, each.name) for each in client.get_source_languages()] == [
        ("EN", "English"),
        ("DE", "German"),
    ]
    assert [each.code for each in client.get_target_languages()] == ["DE", "FR"]


def test_deepl_takes_lists_of_tags(service, client):
    both = {"source_lang": "EN", "target_lang": "DE", "tag_handling": "xml"}
    found = client.translate_text(
        "<d><p>ant <x>bee cat</x></p><q>dog</q></d>",
        **both,
        ignore_tags=["x", "y"],
        splitting_tags=["q"],
        non_splitting_tags=["p"],
        outline_detection=False,
    )
    assert "<x>bee cat</x>" in found.text
    assert found.text.endswith("<q>dog</q></d>")
    url = f"{service.url}/v2/translate"
    text = 'ant bee <x id="4"></x> cat &quot;dog&quot;'
    record = {**both, "text": [text], "ignore_tags": ["x"], "formality": "default"}  # as Weblate
    in_forms = ({**record, "ignore_tags": "y, x"}, {**record, "ignore_tags": ["y", "x"]})
    bodies: Any = [{"json": record}, *({"data": each} for each in in_forms)]
    for body in bodies:
        answer = requests.post(url, timeout=30, **body)
        assert '<x id="4"></x>' in answer.json()["translations"][0]["text"]
    for wrong in ({"x": 1}, [["x"]], 1):
        answer = requests.post(url, json={**record, "ignore_tags": wrong}, timeout=30)
        error = "ignore_tags must be a list of names, or names between commas"
        assert (answer.status_code, answer.json()) == (400, {"message": error})


def test_deepl_uses_the_glossaries_of_the_service(service, client):
    (glossary,) = client.list_glossaries()
    assert (glossary.name, glossary.source_lang, glossary.target_lang) == ("animals", "EN", "DE")
    assert client.get_glossary(glossary.glossary_id).entry_count == 2
    assert client.get_glossary_entries(glossary) == {"ant": "lark", "bee": "fox ||| hen"}
    (pair,) = client.get_glossary_languages()
    assert (pair.source_lang, pair.target_lang) == ("en", "de")
    found = client.translate_text("cat ant", source_lang="EN", target_lang="DE", glossary="animals")
    assert "lark" in found.text
    record = {"text": "cat ant", "source": "en", "glossary": "animals"}
    answer = requests.post(f"{service.url}/v1/translate", json=record, timeout=30).json()
    assert answer["translations"][0]["text"] == found.text
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary("none")


def test_deepl_says_what_is_wrong(service, client):
    wrong = {"text": "a", "source_lang": "EN", "target_lang": "DE"}
    answer = requests.get(f"{service.url}/v2/languages?type=all", timeout=30)
    assert (answer.status_code, answer.json()) == (
        400,
        {"message": "type must be source or target"},
    )
    for fields, error in (
        ({"target_lang": "IT"}, "Bad request, message: there is no model with source 'EN'"),
        ({"formality": "more"}, "no model here has a choice of formality"),
        ({"tag_handling": "md"}, "tag_handling must be html or xml"),
        ({"ignore_tags": "a"}, "ignore_tags needs tag_handling, which is html or xml"),
        ({"ignore_tags": ["a" * 4_001], "tag_handling": "xml"}, "ignore_tags has 4,001 characters"),
        ({"glossary": "none"}, "Not found, message: there is no glossary 'none'"),
    ):
        with pytest.raises(deepl.DeepLException, match=error):
            client.translate_text(**{**wrong, **fields})


@pytest.mark.parametrize("given", [{}, {"target_lang": None}, {"target_lang": ""}])
def test_deepl_says_that_the_target_is_missing(service, given):
    answer = requests.post(f"{service.url}/v2/translate", json={"text": "a", **given}, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("the request names no target language; the models")


def test_clients_give_their_keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text("right\nother\n")
    with serving(REVERSING, f"--api-keys={path}") as service:
        assert LibreTranslateAPI(service.url, "right").translate("ant", "en", "de")
        for key in ("other", "wrong"):
            client = deepl.DeepLClient(key, server_url=service.url)
            with nullcontext() if key == "other" else pytest.raises(deepl.AuthorizationException):
                client.get_usage()
            client.close()
        url, record = f"{service.url}/v1/translate", {"text": "ant", "source": "en"}
        for header, status in ({}, 403), ({"Authorization": "Bearer right"}, 200):
            assert requests.post(url, json=record, headers=header, timeout=30).status_code == status
        assert libre(service, q="ant", source="en", target="de", api_key="wrong").json() == {
            "error": "this is no key of this service"
        }
        settings = requests.get(f"{service.url}/frontend/settings", timeout=30).json()
        assert settings["keyRequired"] is True
