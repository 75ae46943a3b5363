"""What a request may ask for, where two models translate it one after the other."""

import socket
import time
from contextlib import contextmanager

import pytest
import requests

from nmt_cli.messages import logs
from nmt_cli.serving.models import glossaries_of, models_of
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Alternative, Translation
from tests.serving.conftest import LIMITS, REVERSING, Silent, running
from tests.serving.test_limits import until
from tests.serving.test_pivots import NAMES, get, post

PAIRS = [f"{REVERSING}=fr:en", f"{REVERSING}=en:ja"]
FRENCH_JAPANESE = {"source": "fr", "target": "ja"}
BY_DEEPL = {"source_lang": "FR", "target_lang": "JA"}


class Noting(Silent):
    """Answers at once what ``answer`` makes of a text, and notes what was asked of each."""

    def __init__(self, answer):
        super().__init__()
        self.answered, self.seen = answer, []

    def submit(self, batch):
        super().submit(batch)
        for place, line in enumerate(batch.requests):
            self.seen.append(line)
            found = Translation(error=line.error) if line.error else self.answered(line)
            batch.answer(place, found)


def to_english(line):
    return Translation(line.text.replace("chat", "cat"), -1.0)


def to_japanese(line):
    return Translation(line.text.replace("cat", "猫"), -2.0)


def steps(first=to_english, second=to_japanese):
    """Return what translates with each of the two models, by its name."""
    return dict(zip(NAMES, (Noting(first), Noting(second)), strict=True))


def serving(of_models, **options):
    return running(PAIRS, here=lambda model: of_models[model.name], has_pivots=True, **options)


@pytest.fixture(scope="module")
def real():
    with running(PAIRS, has_pivots=True) as found:
        yield found


def translated(real, text, **options):
    (found,) = real.here.translator.translate([Request(text, **options)])
    return found


# ---- what goes through both


def test_markup_goes_through_both(real):
    text = "<p>ant <b>bee</b> cat</p><p translate='no'>dog eel</p>"
    between = translated(real, text, markup="html", split=True).text
    expected = translated(real, between, markup="html", split=True).text
    assert expected not in {between, text}
    found = post(real, "/translate", q=text, format="html", **FRENCH_JAPANESE)
    assert found["translatedText"] == expected
    (found,) = post(real, "/v2/translate", text=text, tag_handling="html", **BY_DEEPL).values()
    assert found[0]["text"] == expected
    assert "<p translate='no'>dog eel</p>" in expected


def test_copied_text_goes_through_both(real):
    text = "ant {name} bee https://example.org/cat cat"
    options = {"protect": [r"https?://\S+", r"\{name\}"]}
    expected = translated(real, translated(real, text, **options).text, **options).text
    (found,) = post(real, "/v1/translate", text=text, protect=["common"], **FRENCH_JAPANESE)[
        "translations"
    ]
    assert found["text"] == expected
    assert {"{name}", "https://example.org/cat"} < set(expected.split())


def test_text_that_the_first_model_loses_is_not_copied():
    of_models = steps(lambda line: Translation("a", -1.0, not_copied=("{x}",)))
    with serving(of_models) as service:
        answer = post(service, "/v1/translate", text="a {x}", **FRENCH_JAPANESE)
        assert answer["translations"][0]["not_copied"] == ["{x}"]


def test_sentences_are_cut_for_each_model(real):
    text = "ant bee. Cat dog eel."
    expected = translated(real, translated(real, text, split=True).text, split=True).text
    options = {"text": text, **FRENCH_JAPANESE}
    (found,) = post(real, "/v1/translate", split=True, **options)["translations"]
    assert found["text"] == expected
    with serving(steps()) as service:
        post(service, "/v1/translate", split=True, **options)
        seen = [line for each in service.service._translating.values() for line in each.seen]
        assert [line.source_language for line in seen] == ["fr", "en"]
        assert [line.split for line in seen] == [True, True]


def test_words_are_aligned_through_those_between(real):
    """The model reverses: in two steps each word comes back to its place."""
    text = "ant bee. Eel fox."
    options = {"text": text, "split": True, "alignments": True}
    (found,) = post(real, "/v1/translate", **options, **FRENCH_JAPANESE)["translations"]
    one = translated(real, text, split=True, alignments=True)
    other = translated(real, one.text, split=True, alignments=True)
    expected = {(s, t) for s, m in one.alignment for n, t in other.alignment if n == m}
    assert found["alignment"] == sorted(map(list, expected))
    assert {(0, 0), (1, 1)} <= expected


def test_a_word_may_have_several_links_or_none():
    of_models = steps(
        lambda _: Translation("m n o", -1.0, alignment=((0, 2), (1, 0), (2, 1))),
        lambda _: Translation(
            "x y z",
            -1.0,
            alignment=((0, 0), (0, 2), (2, 1)),
            alternatives=(Alternative("x", -2.0, alignment=((1, 0),)),),
        ),
    )
    with serving(of_models) as service:
        (found,) = post(service, "/v1/translate", text="a b c", **FRENCH_JAPANESE)["translations"]
    assert found["alignment"] == [[0, 1], [1, 0], [1, 2]]
    assert found["alternatives"][0]["alignment"] == [[2, 0]]


def test_documents_go_through_both():
    with serving(steps()) as service:
        file = {"file": ("a.html", "<html lang='fr'><p>un <i>chat</i></p><p>chat</p></html>")}
        url = f"{service.url}/translate_file"
        for source in ("fr", "auto"):
            languages = {**FRENCH_JAPANESE, "source": source}
            if source == "auto":
                text = "Je ne sais pas où se trouve le chat que ma sœur a acheté hier."
                file = {"file": ("a.html", f"<p>{text}</p><p>chat</p>")}
            answer = requests.post(url, data=languages, files=file, timeout=30).json()
            found = requests.get(answer["translatedFileUrl"], timeout=30).content.decode()
            assert found.count("猫") == 2
            assert "chat" not in found
            assert answer["failedSegments"] == []
        assert {line.markup for line in service.service._translating[NAMES[1]].seen} == {"html"}


# ---- what is asked of the second model


def test_alternatives_are_those_of_the_second_model(real):
    text = "ant bee cat dog"
    between = translated(real, text)
    ranked = [each.text for each in translated(real, between.text, n_best=2).ranked]
    found = post(real, "/translate", q=text, alternatives=1, **FRENCH_JAPANESE)
    assert [found["translatedText"], *found["alternatives"]] == ranked
    assert len(set(ranked)) == 2


def test_what_is_asked_of_the_translation_is_asked_of_the_second_model():
    asked = {
        "n_best": 2,
        "prefix": "猫",
        "required": ["a"],
        "banned": ["b"],
        "beam_size": 2,
        "length_penalty": 0.5,
        "no_repeat_ngram": 3,
        "choose": "mbr",
    }
    of_both = {"markup": "html", "protect_strict": True, "alignments": True, "split": True}
    of_models = steps()
    with serving(of_models) as service:
        post(service, "/v1/translate", text="chat", **asked, **of_both, **FRENCH_JAPANESE)
    (first,), (second,) = (each.seen for each in of_models.values())
    assert (first.text, second.text) == ("chat", "cat")
    plain = Request("chat", n_best=1)
    assert [getattr(first, name) for name in asked] == [getattr(plain, name) for name in asked]
    assert {name: getattr(second, name) for name in asked} == asked
    for line in (first, second):
        assert {name: getattr(line, name) for name in of_both} == of_both


# ---- glossaries


@pytest.fixture
def with_glossaries(tmp_path):
    for name, term in (("of-first", "chat\tcat"), ("of-second", "cat\t猫\nchat\t話")):
        (tmp_path / f"{name}.tsv").write_text(f"{term}\nother\tword\n", encoding="utf-8")
    arguments = [f"{tmp_path}/of-first.tsv=fr:en", f"{tmp_path}/of-second.tsv=en:ja"]
    of_models = steps()
    with serving(of_models, glossaries=glossaries_of(arguments, models_of(PAIRS))) as found:
        yield found, of_models


def terms_of(line):
    return line.glossary and [term.source for term in line.glossary.terms.values()]


@pytest.mark.parametrize(
    ("name", "expected"), [("of-first", [["chat"], None]), ("of-second", [None, ["cat"]])]
)
def test_a_glossary_is_used_in_the_step_that_it_is_for(with_glossaries, name, expected):
    service, of_models = with_glossaries
    post(service, "/v1/translate", text="chat", glossary=name, **FRENCH_JAPANESE)
    post(service, "/v2/translate", text="chat", glossary_id=name, **BY_DEEPL)
    files = {"file": ("a.txt", "chat")}
    fields = {**BY_DEEPL, "glossary_id": name}
    answer = requests.post(f"{service.url}/v2/document", data=fields, files=files, timeout=30)
    assert answer.status_code == 200, answer.text
    until(lambda: len(of_models[NAMES[1]].seen) == 3)
    for each, terms in zip(of_models.values(), expected, strict=True):
        assert [terms_of(line) for line in each.seen] == [terms] * 3


def test_a_glossary_of_the_second_step_is_searched_in_what_the_first_one_wrote(with_glossaries):
    service, of_models = with_glossaries
    text = "<p>c<b>h</b>at</p>"
    post(service, "/v1/translate", text=text, markup="html", glossary="of-second", source="en")
    assert terms_of(of_models[NAMES[1]].seen[-1]) == ["chat"]
    options = {"text": "chat", "glossary": "of-second", "markup": "html", **FRENCH_JAPANESE}
    post(service, "/v1/translate", **options)
    assert terms_of(of_models[NAMES[1]].seen[-1]) == ["cat"]


def test_pairs_of_two_models_list_the_glossaries_of_both(with_glossaries):
    service, _ = with_glossaries
    found = [each["glossaries"] for each in get(service, "/v1/models")["models"]]
    assert found == [["of-first"], ["of-second"], ["of-first", "of-second"]]


def test_terms_of_the_request_are_refused(with_glossaries):
    service, of_models = with_glossaries
    record = {"text": "chat", **FRENCH_JAPANESE}
    error = post(service, "/v1/translate", 400, glossary={"chat": "猫"}, **record)["error"]
    assert error == (
        "glossary: two models translate fr to ja through en; they take only a glossary of the "
        "service that is for one of them"
    )
    error = post(service, "/v1/translate", 404, glossary="none", **record)["error"]
    assert error == "there is no glossary 'none' for these languages"
    assert not of_models[NAMES[0]].batches
    post(service, "/v1/translate", glossary={}, **record)


# ---- limits


def test_limits_count_a_text_once_for_each_model():
    limits = LIMITS._replace(characters=10, lines=4)
    with serving(steps(), limits=limits) as service:
        for text, much in ((["a" * 6], "12 characters are more than 10"), (["a"] * 3, "6 lines")):
            for path, fields in (
                ("/v1/translate", {"text": text, **FRENCH_JAPANESE}),
                ("/translate", {"q": text, **FRENCH_JAPANESE}),
                ("/v2/translate", {"text": text, **BY_DEEPL}),
            ):
                (error,) = post(service, path, 413, **fields).values()
                assert error.startswith(much)
                assert error.endswith("; what two models translate counts twice")
            files = {"file": ("a.txt", "\n".join(text))}
            for path, pair in (("translate_file", FRENCH_JAPANESE), ("v2/document", BY_DEEPL)):
                answer = requests.post(f"{service.url}/{path}", pair, files=files, timeout=30)
                assert answer.status_code == (413 if len(text) == 1 else 200)  # equal lines are one
        before = get(service, "/v2/usage")["character_count"]
        post(service, "/v1/translate", text=["a" * 4, "b"], **FRENCH_JAPANESE)
        assert get(service, "/v2/usage")["character_count"] == before + 5
        post(service, "/v1/translate", text=["a" * 10], source="en")


def test_a_long_text_between_is_not_refused():
    with serving(steps(lambda _: Translation("b" * 1_000, -1.0)), limits=SMALL) as service:
        answer = post(service, "/v1/translate", text="a", **FRENCH_JAPANESE)
        assert answer["translations"][0]["text"] == "b" * 1_000


SMALL = LIMITS._replace(characters=10, lines=2, waiting_lines=2)


@contextmanager
def asking(service):
    """A connection that asks for the translation of a text from fr to ja."""
    with socket.create_connection(service.address, timeout=30) as client:
        query = b"/translate?q=a&source=fr&target=ja"
        client.sendall(b"POST " + query + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        yield client


def answer_to(client):
    return b"".join(iter(lambda: client.recv(4_096), b"")).decode()


def answer_all(silent, translation):
    """Answer the only batch, in the loop of the service, once it is there."""
    until(lambda: silent.batches)
    (batch,) = silent.batches
    for place in range(len(batch.requests)):
        loop = batch.done.get_loop()
        loop.call_soon_threadsafe(batch.answer, place, translation)


def test_the_time_is_that_of_both_together():
    of_models = {name: Silent() for name in NAMES}
    limits = LIMITS._replace(seconds=2.0)
    with serving(of_models, limits=limits) as service, asking(service) as client:
        until(lambda: of_models[NAMES[0]].batches)
        time.sleep(1.5)
        answer_all(of_models[NAMES[0]], Translation("b", -1.0))
        started = time.monotonic()
        assert "it was not translated within 2 seconds" in answer_to(client)
        assert time.monotonic() - started < 2.0
        assert of_models[NAMES[1]].withdrawn == of_models[NAMES[1]].batches != []
        assert of_models[NAMES[0]].withdrawn == []
        assert service.service.num_inside == 0


# ---- what goes wrong


@pytest.mark.parametrize("step", [0, 1])
def test_a_client_that_goes_away_is_noticed_in_each_step(step):
    of_models = {name: Silent() for name in NAMES}
    with serving(of_models) as service:
        with asking(service):
            until(lambda: of_models[NAMES[0]].batches)
            if step:
                answer_all(of_models[NAMES[0]], Translation("b", -1.0))
                until(lambda: of_models[NAMES[1]].batches)
        until(lambda: of_models[NAMES[step]].withdrawn)
        until(lambda: service.service.num_inside == 0)
        assert not of_models[NAMES[1 - step]].withdrawn


def test_what_was_accepted_is_finished_while_the_service_ends():
    of_models = {name: Silent() for name in NAMES}
    with serving(of_models) as service, asking(service) as client:
        until(lambda: of_models[NAMES[0]].batches)
        service.service.state = "draining"
        answer_all(of_models[NAMES[0]], Translation("b", -1.0))
        until(lambda: of_models[NAMES[1]].batches)
        assert service.service.num_inside == 1
        answer_all(of_models[NAMES[1]], Translation("猫", -1.0))
        assert '{"translatedText":"猫"}' in answer_to(client)


def test_a_text_that_fails_in_one_step_says_which():
    def fails(word, of_line):
        return lambda line: Translation(error="no reason") if word in line.text else of_line(line)

    of_models = steps(fails("un", to_english), fails("two", to_japanese))
    with serving(of_models) as service:
        texts = ["un chat", "two chat", "chat"]
        found = post(service, "/v1/translate", text=texts, **FRENCH_JAPANESE)["translations"]
        assert [(each["text"], each["error"]) for each in found] == [
            ("", "fr to en: no reason"),
            ("", "en to ja: no reason"),
            ("猫", None),
        ]
        error = post(service, "/translate", 400, q="un", **FRENCH_JAPANESE)["error"]
        assert error == "the text could not be translated: fr to en: no reason"
        files = {"file": ("a.txt", "un\nchat")}
        url = f"{service.url}/translate_file"
        answer = requests.post(url, data=FRENCH_JAPANESE, files=files, timeout=30).json()
        (failed,) = answer["failedSegments"]
        assert failed == {"segment": 1, "text": "un", "error": "fr to en: no reason"}
        found = requests.get(answer["translatedFileUrl"], timeout=30).content.decode()
        assert found == "un\n猫"


def test_a_text_that_fails_in_the_first_step_does_not_reach_the_search_of_the_second(real):
    record = {"text": "<b>ant</b>", "markup": "html", "alignments": True, **FRENCH_JAPANESE}
    (found,) = post(real, "/v1/translate", **record)["translations"]
    assert found["error"] == "fr to en: alignments count the words of a text without tags"


@pytest.mark.parametrize("text", ["", "  ", "12:30"])
def test_texts_without_words(real, text):
    direct = post(real, "/v1/translate", text=text, source="fr", target="en")["translations"]
    assert post(real, "/v1/translate", text=text, **FRENCH_JAPANESE)["translations"] == direct


def test_a_first_step_without_words(real):
    """An empty translation is that of nothing; it is no error."""
    with serving({NAMES[0]: Noting(lambda _: Translation("", -1.0)), NAMES[1]: real.here}) as found:
        (shown,) = post(found, "/v1/translate", text="a", **FRENCH_JAPANESE)["translations"]
        assert (shown["text"], shown["score"], shown["error"]) == ("", None, None)


def test_parts_and_cuts_of_both_are_known():
    of_models = steps(lambda _: Translation("b", -1.0, num_parts=3, truncated=True))
    with serving(of_models) as service:
        (found,) = post(service, "/v1/translate", text="a", **FRENCH_JAPANESE)["translations"]
        assert (found["num_parts"], found["truncated"]) == (3, True)


def test_the_log_names_the_language_between(monkeypatch):
    logged: list[str] = []
    monkeypatch.setattr(logs, "info", logged.append)
    with serving(steps(), logs_text=True) as service:
        post(service, "/v1/translate", text=["chat", "a"], **FRENCH_JAPANESE)
        until(lambda: len(logged) == 3)
    assert logged[0].endswith(": 'chat' -> '猫'")
    assert logged[2].endswith(" ms, 5 characters, fr to en to ja")
