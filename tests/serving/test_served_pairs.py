"""A model of several pairs of languages: every interface offers each, and its tag is set."""

import json
import shutil

import pytest
import requests
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import serve as command
from nmt_cli.files.atomic_files import read_manifest, write_manifest
from nmt_cli.messages.errors import UserError
from nmt_cli.serving.models import Model, memories_of, models_of
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator
from tests.serving.conftest import REVERSING
from tests.serving.test_serve import Command

# Letters stand for tags.
PAIRS = [("a", "de", "en"), ("b", "pt-BR", "en"), ("c", "de", "fr"), ("d", "de", "en")]
TEXTS = {
    "de": "Ich habe das Buch gestern auf dem Tisch in der Küche gesehen.",
    "pt-BR": "Eu não sei onde está o livro que a minha irmã comprou ontem.",
}
OFFERED = [("de", "en"), ("pt-BR", "en"), ("de", "fr")]


def with_pairs(folder, pairs):
    """Return a copy of a model which knows these pairs."""
    copy = folder / "several"
    shutil.copytree(REVERSING, copy)
    config = json.loads((copy / "config.json").read_text())
    config["pairs"] = [dict(zip(("tag", "source", "target"), each, strict=True)) for each in pairs]
    (copy / "config.json").write_text(json.dumps(config))
    write_manifest(copy, read_manifest(REVERSING))
    return copy


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return with_pairs(tmp_path_factory.mktemp("pairs"), PAIRS)


@pytest.fixture(scope="module")
def expected(model):
    """The translation of each text into each language, by the first tag of the pair."""
    found = {}
    for tag, source, target in PAIRS[:3]:
        translator = Translator.load(model, device="cpu", precision="fp32", tag=tag)
        found[source, target] = next(
            translator.translate([Request(TEXTS[source], split=True)])
        ).text
    assert len(set(found.values())) == len(found)
    return found


@pytest.fixture(scope="module")
def service(model):
    command = Command(model, "--workers=1", "--precision=fp32", "--device=cpu")
    try:
        command.url = command.wait_for(r"http://\S+").group()
        yield command
    finally:
        command.close()


@pytest.fixture
def ask(service):
    def ask(path, **fields):
        answer = requests.post(f"{service.url}{path}", json=fields, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def test_every_interface_lists_the_pairs(service):
    def get(path):
        return requests.get(f"{service.url}{path}", timeout=60).json()

    models = get("/v1/models")["models"]
    assert [(each["name"], each["source"], each["target"]) for each in models] == [
        ("several", *codes) for codes in OFFERED
    ]
    targets = {each["code"]: each["targets"] for each in get("/languages")}
    assert targets == {"de": ["en", "fr"], "pt-BR": ["en"], "en": [], "fr": []}
    assert {each["language"] for each in get("/v2/languages")} == {"DE", "PT-BR"}
    assert {"FR"} < {each["language"] for each in get("/v2/languages?type=target")}


@pytest.mark.parametrize(("source", "target"), OFFERED)
def test_every_interface_sets_the_tag(source, target, ask, service, expected):
    text, right = TEXTS[source], expected[source, target]
    own = ask("/v1/translate", text=text, source=source, target=target, model="several", split=True)
    assert own["translations"][0]["text"] == right
    for code in (source, source[:2], "auto"):
        found = ask("/translate", q=[text], source=code, target=target)
        assert found["translatedText"] == [right]
    for given in ({}, {"source_lang": source.upper()}):
        (found,) = ask("/v2/translate", text=[text], target_lang=target, **given)["translations"]
        assert (found["text"], found["detected_source_language"][:2]) == (right, source[:2].upper())
    file = {"file": ("a.txt", text.encode())}
    address = f"{service.url}/translate_file"
    languages = {"source": "auto", "target": target}
    sent = requests.post(address, data=languages, files=file, timeout=60).json()
    assert requests.get(sent["translatedFileUrl"], timeout=60).text == right


def test_texts_of_both_languages_in_one_request(ask, expected):
    found = ask("/translate", q=list(TEXTS.values()), source="auto", target="en")
    assert found["translatedText"] == [expected[code, "en"] for code in TEXTS]


def test_attention_is_that_of_a_text_with_its_tag(service):
    def page(**languages):
        fields = {"text": "eel fox", "translation": "fox", "model": "several", **languages}
        return requests.post(f"{service.url}/v1/attention", json=fields, timeout=60)

    answer = page(source="pt", target="en")
    assert answer.status_code == 200
    assert "Attention: b eel fox" in answer.text
    assert page(source="de", target="en").text != answer.text
    assert "several models have model 'several'" in page().json()["error"]


def test_an_argument_may_name_one_of_the_pairs(model):
    (found,) = models_of([f"{model}=pt:en"])
    assert found == Model("several", model, "pt-BR", "en", found.beam_size, False, "b")
    assert [each.name for each in models_of([str(model), f"{model}=de:fr"])] == [
        *["several"] * 3,
        "several-2",
    ]
    with pytest.raises(UserError, match=r"no pair of this model fits .* give a \(de to en\), "):
        models_of([f"{model}=nl:en"])


def test_a_memory_needs_one_pair(model, tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text('<tmx version="1.4"><header/><body/></tmx>')
    given = [f"{path}=de:en"]
    with pytest.raises(UserError, match=r"^--memory is for models of one pair .*several=de:en\.$"):
        memories_of(given, models_of([str(model)]), None)
    assert list(memories_of(given, models_of([f"{model}=de:en"]), None)) == ["several"]


@pytest.mark.parametrize(("pair", "tag"), [("", None), ("=pt:en", "b")])
def test_the_pairs_of_a_model_share_its_workers(model, monkeypatch, tmp_path, pair, tag):
    """With a memory, which has one pair, the workers know its tag."""
    loaded, memory = [], tmp_path / "a.tmx"
    memory.write_text('<tmx version="1.4"><header/><body/></tmx>')

    class NoStarter:
        def load(self, model):
            loaded.append(model.options["tag"])

        def close(self):
            pass

    async def no_service(_, models, starters, *__):
        assert {each.name for each in models.models} == starters.keys()

    monkeypatch.setattr(command, "Starter", NoStarter)
    monkeypatch.setattr(command, "serve", no_service)
    options = ["--device=cpu", "--port=0", *([f"--memory={memory}"] if pair else [])]
    CliRunner().invoke(cli.main, ["serve", f"{model}{pair}", *options], catch_exceptions=False)
    assert loaded == [tag]
