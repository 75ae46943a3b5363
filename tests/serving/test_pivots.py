"""Pairs of languages of no model, which are translated through a pivot language."""

import os
import signal

import pytest
import requests
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import serve as command
from nmt_cli.messages import logs
from nmt_cli.serving.languages import Detected, Detector
from nmt_cli.serving.models import Models, models_of
from nmt_cli.serving.pivots import pivots_of
from nmt_cli.serving.requests import RefusedError
from nmt_cli.serving.served import Options, Served
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator
from tests.serving.conftest import LIMITS, REVERSING, Naming, running
from tests.serving.test_serve import Command
from tests.serving.test_served_pairs import with_pairs

NAMES = "sentencepiece", "sentencepiece-2"
FRENCH = "Je ne sais pas où se trouve le livre que ma sœur a acheté hier."
ENGLISH = "I do not know where the book is that my sister bought yesterday."
GERMAN = "Ich weiß nicht, wo das Buch ist, das meine Schwester gestern gekauft hat."


def models(*pairs):
    found = models_of([f"{REVERSING}={pair}" for pair in pairs])
    return Models(found, pivots_of(found))


def chains(*pairs):
    """Return the languages of each pivot of models with these pairs, and the steps by number."""
    found = models(*pairs)
    return [
        (f"{p.source} {p.through} {p.target}", *map(found.models.index, p.steps))
        for p in found.pivots
    ]


@pytest.fixture(scope="module")
def service():
    arguments = [f"{REVERSING}=fr:en", f"{REVERSING}=en:ja"]
    with running(arguments, here=lambda model: Naming(model.name), has_pivots=True) as found:
        yield found


def post(service, path, status=200, **record):
    answer = requests.post(f"{service.url}{path}", json=record, timeout=30)
    assert answer.status_code == status, answer.text
    return answer.json()


def get(service, path):
    return requests.get(f"{service.url}{path}", timeout=30).json()


def test_two_models_make_a_pivot():
    assert chains("fr:en", "en:ja") == [("fr en ja", 0, 1)]
    assert chains("en:ja", "fr:en") == [("fr en ja", 1, 0)]
    assert chains("fr:en", "de:ja") == []


def test_there_are_no_three_models_in_a_row():
    assert chains("fr:en", "en:de", "de:ja") == [("fr en de", 0, 1), ("en de ja", 1, 2)]


def test_a_direct_model_wins():
    assert chains("fr:en", "en:ja", "fr:ja") == []
    found = models("fr:en", "en:ja", "pt-BR:en", "fr:ja")
    assert found.find("fr-CA", "ja") == found.models[3]
    assert found.find("pt", "ja").name == "sentencepiece-3+sentencepiece-2"
    with pytest.raises(RefusedError):
        found.find("pt-PT", "ja")
    assert models("fr:en", "en:ja").find("fr", None).target == "en"
    regions = models("pt-BR:en", "en:fr", "pt-PT:fr")
    assert [each.source for each in regions.pivots] == ["pt-BR"]
    assert regions.find("pt", "fr") == regions.models[2]


def test_the_order_of_the_command_chooses_between_pivots():
    through_both = "fr:en", "fr:de", "de:ja", "en:ja"
    assert chains(*through_both) == [("fr en ja", 0, 3)]
    assert chains("fr:de", "fr:en", "en:ja", "de:ja") == [("fr de ja", 0, 3)]
    assert chains("fr:en", "en:ja", "en:ja") == [("fr en ja", 0, 1)]


def test_languages_that_differ_in_region_alone_are_no_pair():
    assert chains("en:fr", "fr:en") == chains("pt-BR:en", "en:pt-PT") == []
    assert chains("fr:pt-BR", "pt:ja") == [("fr pt-BR ja", 0, 1)]
    with pytest.raises(RefusedError, match=r"no model with source 'fr', target 'fr'; the models"):
        models("en:fr", "fr:en").find("fr", "fr")


def test_models_that_parse_are_no_steps():
    one, other = models_of([f"{REVERSING}=fr:en", f"{REVERSING}=en:ja"])
    for changed in ([one._replace(parses=True), other], [one, other._replace(parses=True)]):
        assert pivots_of(changed) == []


def test_a_text_goes_through_both_models(service):
    answer = post(service, "/v1/translate", text=["ant", "bee"], source="fr", target="ja")
    texts = [each["text"] for each in answer.pop("translations")]
    assert texts == [f"{word} by {NAMES[0]} by {NAMES[1]}" for word in ("ant", "bee")]
    name = f"{NAMES[0]}+{NAMES[1]}"
    assert answer == {"model": name, "source": "fr", "target": "ja", "through": "en"}
    assert post(service, "/v1/translate", text="ant", model=name)["through"] == "en"
    direct = post(service, "/v1/translate", text="ant", source="en")
    assert (direct["model"], "through" in direct) == (NAMES[1], False)
    error = post(service, "/v1/translate", 400, text="a", source="fr", model=NAMES[1])["error"]
    assert error.startswith(f"there is no model with model '{NAMES[1]}', source 'fr'; the models")


def test_every_interface_lists_it_and_translates_by_it(service):
    *_, last = get(service, "/v1/models")["models"]
    assert (last["source"], last["through"], last["target"]) == ("fr", "en", "ja")
    targets = {each["code"]: each["targets"] for each in get(service, "/languages")}
    assert targets == {"fr": ["en", "ja"], "en": ["ja"], "ja": []}
    assert {each["language"] for each in get(service, "/v2/languages")} == {"FR", "EN"}
    through_both = f"{FRENCH} by {NAMES[0]} by {NAMES[1]}"
    for source in ("fr", "auto"):
        found = post(service, "/translate", q=FRENCH, source=source, target="ja")
        assert found["translatedText"] == through_both
    for given in ({}, {"source_lang": "FR"}):
        (found,) = post(service, "/v2/translate", text=FRENCH, target_lang="JA", **given).values()
        assert found[0]["text"] == through_both
        assert found[0]["detected_source_language"] == "FR"


def test_texts_of_one_request_have_their_own_ways(service):
    found = post(service, "/translate", q=[ENGLISH, FRENCH, "OK"], source="auto", target="ja")
    assert found["translatedText"] == [
        f"{ENGLISH} by {NAMES[1]}",
        f"{FRENCH} by {NAMES[0]} by {NAMES[1]}",
        f"OK by {NAMES[1]}",
    ]


def test_what_is_not_certain_needs_no_second_model(service):
    found = post(service, "/translate", q=["OK", "12:30"], source="auto", target="ja")
    assert found["translatedText"] == [f"OK by {NAMES[1]}", f"12:30 by {NAMES[1]}"]


def test_what_is_not_certain_is_in_the_likeliest_language_of_a_model(monkeypatch):
    confidences = {"fr": 0.5, "de": 0.3, "en": 0.2, "ja": 0.0}
    ranked = [Detected(code, each, each) for code, each in confidences.items()]
    monkeypatch.setattr(Detector, "detect", lambda *_: ranked)
    served = Served(models("fr:en", "en:ja", "de:ja"), Options(LIMITS))
    (choice,) = served.choices(["OK"], "ja")
    assert choice == (ranked[1], served.models.find("de", "ja"))
    ranked[0] = ranked[0]._replace(confidence=0.9)
    (choice,) = served.choices(["OK"], "ja")
    assert choice == (ranked[0], *served.models.pivots)


def test_a_text_of_no_model_is_refused_as_before(service):
    error = post(service, "/translate", 400, q=GERMAN, source="auto", target="ja")["error"]
    assert error == "This looks like German; models: fr to en, en to ja"


def test_the_attention_of_two_models_is_refused(service):
    fields = {"text": "a", "translation": "b", "model": f"{NAMES[0]}+{NAMES[1]}"}
    error = post(service, "/v1/attention", 400, **fields)["error"]
    assert error == (
        f"{NAMES[0]}+{NAMES[1]} is two models; ask for the attention of {NAMES[0]} or {NAMES[1]}"
    )


def test_without_pivots_the_pair_is_refused():
    with running([f"{REVERSING}=fr:en", f"{REVERSING}=en:ja"], here=Naming("any")) as service:
        error = post(service, "/v1/translate", 400, text="a", source="fr", target="ja")["error"]
        assert error.startswith("there is no model with source 'fr', target 'ja'; the models are ")
        assert len(get(service, "/v1/models")["models"]) == 2


@pytest.mark.parametrize("option", [None, "--no-pivot"])
def test_the_command_has_pivots_unless_they_are_refused(monkeypatch, option):
    started: list[Models] = []
    logged: list[str] = []

    class NoStarter:
        def load(self, model):
            pass

        def close(self):
            pass

    async def no_service(_, models, *__):
        started.append(models)

    monkeypatch.setattr(command, "Starter", NoStarter)
    monkeypatch.setattr(command, "serve", no_service)
    monkeypatch.setattr(logs, "info", logged.append)
    arguments = [f"{REVERSING}={pair}" for pair in ("fr:en", "en:ja", "de:en")]
    options = ["--device=cpu", "--port=0", "--beam-size=1", *([option] if option else [])]
    CliRunner().invoke(cli.main, ["serve", *arguments, *options], catch_exceptions=False)
    (found,) = started
    assert [(each.source, each.target) for each in found.pivots] == (
        [] if option else [("fr", "ja"), ("de", "ja")]
    )
    assert {each.beam_size for each in found.every} == {1}
    said = (
        "2 pairs of languages, such as fr to ja through en, will be translated by two models; "
        "--no-pivot refuses them."
    )
    assert (said in logged) == (option is None)


def test_two_pairs_of_one_model_are_two_steps(tmp_path):
    """The process that translates puts the tag of each step in front of its line."""
    model = with_pairs(tmp_path, [("a", "de", "en"), ("b", "en", "fr"), ("c", "fr", "en")])
    text = GERMAN
    for tag in ("a", "b"):
        translator = Translator.load(model, device="cpu", precision="fp32", tag=tag)
        text = next(translator.translate([Request(text, split=True)])).text
    service = Command(model, "--workers=1", "--precision=fp32", "--device=cpu")
    try:
        service.url = service.wait_for(r"http://\S+").group()
        assert "1 pair of languages, such as de to fr through en, will be" in service.log
        record = {"text": GERMAN, "split": True, "source": "de", "target": "fr"}
        answer = post(service, "/v1/translate", **record)
        assert (answer["model"], answer["through"]) == ("several+several", "en")
        assert answer["translations"][0]["text"] == text
        assert post(service, "/v1/translate", model="several+several", **record) == answer
        long = "\n".join([GERMAN] * 100)  # read in another process
        found = post(service, "/translate", q=long, source="auto", target="fr")["translatedText"]
        assert found == "\n".join([text] * 100)
        for worker in service.workers().values():
            os.kill(worker, signal.SIGKILL)
        assert post(service, "/v1/translate", **record) == answer
    finally:
        service.close()
