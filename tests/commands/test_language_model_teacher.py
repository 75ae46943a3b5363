"""A language model as the teacher: what is asked, what is stored, what goes wrong."""

import json
import threading
from pathlib import Path

import pytest
import sacrebleu
from click.testing import CliRunner

from nmt_cli.cli import main
from nmt_cli.commands import distil as command
from nmt_cli.commands.distilling import measuring
from nmt_cli.commands.distilling.distillation import TeacherServer
from nmt_cli.commands.distilling.language_model import asking
from nmt_cli.commands.distilling.language_model.chat_client import BusyError
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.report.run_history import read_runs
from tests.chat_server import GERMAN, Reply, lines_of, message_of, running_chat_server
from tests.commands.conftest import FP32
from tests.folders_in_memory import tmp_path as tmp_path

RECIPE = """\
description: a student of a language model
data:
  source_language: en
  target_language: de
  train: [{source: train.en, target: train.de}]
  validation: {source: test.en, target: test.de}
  test: {source: test.en, target: test.de}
tokenizer: {vocabulary_size: 300}
distillation: {teacher: {model: toy, lines_per_request: 4}}
"""
SOURCES = list(GERMAN)[::7]
TRAIN, TEST = SOURCES[:30], SOURCES[30:37]
FOLDER = Path("runs/student/distillation")


@pytest.fixture
def chat(monkeypatch):
    monkeypatch.setattr(asking, "FIRST_PAUSE", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running_chat_server() as server:
        yield server


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with a recipe and its text; references are of no use."""
    monkeypatch.chdir(tmp_path)
    logs.configure(quiet=False)
    write("train.en", TRAIN)
    write("train.de", ["x"] * len(TRAIN))
    write("test.en", TEST)
    write("test.de", [GERMAN[line] for line in TEST])
    Path("student.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def caplog(caplog, monkeypatch):
    monkeypatch.setattr("nmt_cli.messages.logs._logger.propagate", True)
    caplog.set_level("INFO", logger="nmt_cli")
    return caplog


def write(name, lines):
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read(name):
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def do(
    chat, *overrides, until="choose", url=None, concurrency=4, prices=None, max_cost=None, **more
):
    server = TeacherServer(url or chat.url, concurrency, "OPENAI_API_KEY", prices, max_cost)
    options = {**FP32, "threads": 1, **more}
    command.run(server, "./student.yaml", until=until, overrides=overrides, **options)


def stored():
    """Return the records of all answers."""
    paths = sorted((FOLDER / "answers").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_each_line_is_translated_once(chat, folder):
    do(chat)
    assert read("chosen/train.0.source") == TRAIN
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]
    assert read("teacher/test.txt") == [GERMAN[line] for line in TEST]
    assert sorted(chat.lines) == sorted(TRAIN + TEST)


def test_requests_and_answers_have_the_types_of_openai(chat, folder):
    """What its package takes and returns; a strict model needs all its keys required."""
    from openai.types.chat import ChatCompletion
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
    from pydantic import ConfigDict, TypeAdapter, with_config

    do(chat)
    strict = with_config(ConfigDict(extra="forbid"))(CompletionCreateParamsNonStreaming)
    for request in chat.requests:
        TypeAdapter(strict).validate_python(request)
        assert (request["model"], request["temperature"]) == ("toy", 0)
        schema = request["response_format"]["json_schema"]["schema"]
        assert schema["required"] == list(schema["properties"]) == list(lines_of(request))
    for answer in chat.answers:
        ChatCompletion.model_validate_json(answer, strict=True)


def test_a_server_without_schemas_gets_none(chat, folder):
    """It is asked once; a request that it refuses later is no reason to ask without."""
    chat.replies = [Reply(400, body=b'{"error": {"message": "no response_format"}}')]
    do(chat)
    has_schema = ["response_format" in request for request in chat.requests]
    assert has_schema == [True] + [False] * (len(has_schema) - 1)


def shuffled(number):
    """A good answer in another order."""
    answers = {str(place): GERMAN[line] for place, line in enumerate(TRAIN[:4], 1)}
    return json.dumps(dict(sorted(answers.items(), reverse=number % 2 == 1)))


@pytest.mark.parametrize(
    "form",
    [
        "%s",
        '<think>{"1": "Nein"} Hm.</think>\n%s',
        "I think so.</think> ```json\n%s\n```\nI hope this helps!",
        f"The lines are {json.dumps(dict(enumerate(TRAIN[:4], 1)))}, so:\n\n%s",
        '{ and { " {"1" : \n%s',
    ],
)
def test_the_object_is_found_in_an_answer(chat, folder, form):
    chat.replies = [Reply(content=form % shuffled(1))]
    do(chat)
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]
    assert len(chat.lines) == len(TRAIN + TEST)


WHOLE = {"1": "Das Haus ist alt.", "2": "Der Hund ist jung.", "3": "a", "4": "b"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no JSON object"),
        ("I cannot do this.", "no JSON object"),
        ("<think>" + json.dumps(WHOLE), "no JSON object"),
        (json.dumps(list(WHOLE.values())), "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ('{"a":' * 100_000, "no JSON object"),
        (json.dumps({**WHOLE, "5": "c"}), "more than the lines"),
        (json.dumps({"translations": WHOLE}), "more than the lines"),
        (json.dumps(WHOLE)[:-1] + ', "2": "x"}', "a number twice"),
        (json.dumps({**WHOLE, "2": None, "1": ["x"], "3": " \u200b", "4": 5}), "no text under"),
        ("{}", "no JSON object"),
        (json.dumps(dict.fromkeys("1234", "\ud800 ist alt.")), "half of a surrogate pair"),
    ],
)
def test_wrong_answers_are_asked_again_alone(chat, folder, content, reason):
    if content.startswith("<think>"):
        content = "{ " + content[: len(content) // 2]  # it has not finished
    chat.replies = [Reply(content=content)]
    do(chat)
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]
    failed = [record for record in stored() if "failed" in record]
    assert [record["source"] for record in failed] == TRAIN[:4]
    assert all(reason in record["failed"] for record in failed)
    again = [lines_of(request) for request in chat.requests if lines_of(request)["1"] in TRAIN[:4]]
    assert sorted(map(len, again)) == [1, 1, 1, 1, 4]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>Log in</html>", "no chat completion: <html>Log in"),
        (b"\xff\xfe{", "no chat completion"),
        (b'{"choices": []}', "no chat completion"),
        (b'{"choices": [{"message": {"content": null, "refusal": "No."}}]}', "no chat completion"),
        (b'{"error": {"message": "upstream failed", "code": 502}}', "upstream failed"),
        (b" " * (8 << 20) + b"{}", "more than 8 MB"),
        (b"[" * 200_000, "no chat completion"),
    ],
)
def test_what_is_no_completion_is_asked_again(chat, folder, body, reason):
    chat.replies = [Reply(body=body)]
    do(chat)
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]
    assert reason in next(record["failed"] for record in stored() if "failed" in record)


def test_a_line_that_always_fails_is_left_out_and_counted(chat, folder, caplog):
    bad = TRAIN[5]
    chat.rule = lambda line: "Here is the translation: ja" if line == bad else GERMAN[line]
    do(chat)
    left = [line for line in TRAIN if line != bad]
    assert read("chosen/train.0.source") == left
    assert chat.lines.count(bad) == 3
    message = "Left out 1 line, whose translations failed: 1 a comment or a refusal."
    assert f"Warning: {message}" in caplog.messages
    manifest = json.loads((FOLDER / "teacher/manifest.json").read_text())
    assert manifest["left_out"] == {"a comment or a refusal": 1}
    do(chat, "distillation.teacher.retries=4")  # two more than before
    assert chat.lines.count(bad) == 5
    assert len(chat.lines) == len(TRAIN + TEST) + 4


def test_many_failures_end_it_with_examples(chat, folder):
    """Also when the command is started again: nothing is asked then."""
    wrong = "Das sind 7 Dinge."
    chat.rule = lambda line: wrong if line in TRAIN[::4] else GERMAN[line]
    with pytest.raises(UserError, match=r"8 of the first \d+ lines failed \(8 other num") as error:
        do(chat, "distillation.teacher.retries=0", "distillation.teacher.prompt=Translate!")
    assert str(error.value).count(f"became {wrong!r}") == 3
    num_requests = len(chat.requests)
    with pytest.raises(UserError, match="8 of the first"):
        do(chat, "distillation.teacher.retries=0", "distillation.teacher.prompt=Translate!")
    assert len(chat.requests) == num_requests
    assert len(stored()) == len(chat.lines)  # what was on its way is stored, too
    chat.rule = GERMAN.__getitem__
    do(chat)  # by another prompt
    assert read("chosen/train.0.source") == TRAIN


BUSY = [
    Reply(429, body=b"{}", headers={"Retry-After": "0"}),
    Reply(429, body=b"{}", headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    Reply(429, body=b"{}", headers={"Retry-After": "soon"}),
    Reply(503, body=b'{"error": {"message": "Loading model"}}'),
    Reply(502, body=b"<html>Bad gateway"),
    Reply(500, body=b""),
    Reply(resets=True),
    Reply(),
    Reply(408, body=b"\xff"),
]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_busy_server_is_asked_again(chat, folder, concurrency):
    """What it answered is not asked again, and what it did not is."""
    chat.replies = [Reply(), *BUSY]
    do(chat, concurrency=concurrency)
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]
    answered = [line for answer in chat.answers for line in json.loads(answer)["choices"]]
    assert len(answered) == len(chat.requests) - len(BUSY) + 1
    assert sorted(record["key"] for record in stored()) == sorted({r["key"] for r in stored()})
    assert len(stored()) == len(TRAIN + TEST)


def test_a_server_that_restarts_is_waited_for(chat, folder, monkeypatch):
    monkeypatch.setattr(asking, "LONGEST_PAUSE", 0.002)
    chat.replies = [Reply(), *[Reply(resets=True)] * 20]
    do(chat, concurrency=3)
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]


def test_a_line_that_breaks_the_server_is_left_out(chat, folder):
    bad = TRAIN[5]
    chat.reply_to = lambda lines: Reply(resets=bad in lines.values())
    do(chat, "distillation.teacher.retries=1")
    assert read("chosen/train.0.source") == [line for line in TRAIN if line != bad]


def test_a_line_that_the_server_refuses_is_left_out(chat, folder):
    """Such as one that is too long for the model."""
    bad, too_long = TRAIN[5], b'{"error": {"message": "This is too long"}}'
    refusal = Reply(400, body=too_long)
    chat.reply_to = lambda lines: refusal if bad in lines.values() else Reply()
    do(chat)
    assert read("chosen/train.0.source") == [line for line in TRAIN if line != bad]
    assert [record["failed"] for record in stored() if "failed" in record][-1] == (
        "refused: 400 This is too long"
    )


def test_a_server_that_is_gone_ends_it(chat, folder, monkeypatch):
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 0.05)
    chat.replies = [Reply()]
    chat.reply_to = lambda _: Reply(502, body=b"gone")
    with pytest.raises(UserError, match=r"teach failed: .* does not answer: it .* 502 gone\."):
        do(chat)
    assert len(stored()) == 4
    chat.reply_to = lambda _: Reply()
    do(chat)
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            Reply(401, body=b"{}"),
            r"answered 401 {}; the key in OPENAI_API_KEY is not set",
        ),
        (
            Reply(404, body=b'{"error": {"message": "no"}}'),
            r"404 no; most URLs end in /v1",
        ),
        (Reply(404, body=b""), "404 Not Found; most URLs"),
        (Reply(400, body=b'{"error": "bad"}'), "does not take the first request: refused: 400 bad"),
        (Reply(429, body=b'{"error": {"code": "insufficient_quota"}}'), "insufficient_quota"),
        (
            Reply(308, body=b"", headers={"Location": "http://b.test/v1"}),
            "redirects to http://b.tes",
        ),
        (Reply(resets=True), "does not answer: the connection failed: Connection reset by peer."),
    ],
)
def test_a_server_that_will_never_answer_ends_it_at_once(chat, folder, reply, message):
    chat.reply_to = lambda _: reply
    with pytest.raises(UserError, match=message):
        do(chat)
    assert len(chat.requests) <= asking.FIRST_CONTACTS
    assert not stored()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000/v1", "cannot be asked"),
        ("http://", "cannot be asked"),
        ("http://user:secret@h/v1", "must end with its path"),
        ("http://h/v1?key=secret", "must end with its path"),
    ],
)
def test_a_wrong_url_is_named(folder, url, message):
    with pytest.raises(UserError, match=message) as error:
        do(None, url=url)
    assert "secret" not in str(error.value)


def test_the_key_is_sent_to_the_server_only(chat, folder, monkeypatch, caplog):
    """Not to where it redirects, and not in messages or files; ~/.netrc does not replace it."""
    monkeypatch.setenv("OPENAI_API_KEY", " sk-hidden\n")
    monkeypatch.setenv("HOME", str(folder))
    Path(".netrc").write_text("machine 127.0.0.1 login a password b\n")
    Path(".netrc").chmod(0o600)
    do(chat)
    assert {headers["Authorization"] for headers in chat.headers} == {"Bearer sk-hidden"}
    with running_chat_server() as other:
        chat.reply_to = lambda _: Reply(307, body=b"", headers={"Location": other.url})
        with pytest.raises(UserError, match="redirects"):
            do(chat, force_from="teach")
        assert not other.requests
    chat.reply_to = lambda _: Reply(401, body=b'{"error": {"message": "wrong key sk-hidden"}}')
    with pytest.raises(UserError, match=r"wrong key \*\*\*; the key .* is not accepted") as error:
        do(chat, force_from="teach")
    texts = [caplog.text, str(error.value)]
    texts += [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
    assert not any("hidden" in text for text in texts)


@pytest.mark.parametrize("key", ["schlüssel", "a b", "a\nb"])
def test_a_key_that_no_header_takes_is_refused(chat, folder, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(UserError, match=r"the value of OPENAI_API_KEY is no key"):
        do(chat)


def test_no_recipe_can_name_a_server(chat, folder):
    with pytest.raises(UserError, match=r"distillation\.teacher\.url"):
        do(chat, "distillation.teacher.url=http://elsewhere")


def test_proxies_of_the_environment_are_used(chat, folder, monkeypatch):
    monkeypatch.setenv("http_proxy", chat.url.removesuffix("/v1"))
    do(chat, url="http://teacher.invalid/v1")
    assert {headers["Host"] for headers in chat.headers} == {"teacher.invalid"}


def test_an_ipv6_address_is_reached(folder, monkeypatch):
    with running_chat_server("::1") as server:
        do(server)
        assert len(server.lines) == len(TRAIN + TEST)


def test_requests_run_at_the_same_time(chat, folder):
    """Only the first one runs alone; it shows whether the server takes them."""
    barrier = threading.Barrier(4, timeout=20)
    chat.replies = [Reply()]

    def wait_for_others(lines):
        if next(iter(lines.values())) in TRAIN[4:20]:
            barrier.wait()
        return Reply()

    chat.reply_to = wait_for_others
    do(chat, concurrency=4)
    assert chat.most_running == 4


def test_the_pace_falls_and_recovers(monkeypatch):
    clock = iter(range(10_000)).__next__
    monkeypatch.setattr("time.monotonic", clock)
    pace = asking.Pace(8)
    assert pace.limit == 1
    pace.answered()
    assert pace.limit == 8
    pace.busy(BusyError("busy", 50.0, True))
    pace.busy(BusyError("busy", 50.0, True))  # in the same pause
    assert pace.limit == 4
    assert 40 < pace.seconds_left() < 60
    limits = []
    for _ in range(40):
        pace.answered()
        limits.append(pace.limit)
    assert limits == sorted(limits)
    assert limits[3] < 6 < limits[-1] == 8
    for _ in range(100):
        clock()
    pauses = []
    for _ in range(3):
        pace.busy(BusyError("gone"))
        pauses.append(pace.seconds_left())
        for _ in range(20):
            clock()
    assert pauses == [0, 1, 3]  # of 1, 2 and 4 seconds, a second later


def test_what_a_server_asks_for_is_waited(chat, folder, monkeypatch):
    waits = []
    monkeypatch.setattr(asking.Pace, "busy", lambda _, error: waits.append(error.wait))
    chat.replies = [Reply(), *BUSY[:3], Reply(503, body=b"", headers={"Retry-After": "1000000000"})]
    do(chat, concurrency=1)
    assert waits == [0, 0, None, 3600]


def test_a_changed_prompt_begins_anew_and_says_so(chat, folder, caplog):
    do(chat)
    caplog.clear()
    do(chat, "distillation.teacher.domain=gardens")
    text = "The 37 answers in runs/student/distillation/answers are of another model, prompt"
    assert any(message.startswith(text) for message in caplog.messages)
    assert len(chat.lines) == 2 * len(TRAIN + TEST)
    do(chat)  # its answers are still there
    assert len(chat.lines) == 2 * len(TRAIN + TEST)


def test_only_new_lines_are_asked(chat, folder):
    do(chat)
    write("train.en", [*SOURCES[40:43], *TRAIN, TEST[0]])
    write("train.de", ["x"] * (len(TRAIN) + 4))
    do(chat)
    assert sorted(chat.lines) == sorted([*SOURCES[40:43], *TRAIN, *TEST])
    assert len(read("chosen/train.0.source")) == len(TRAIN) + 4


def test_damaged_lines_of_the_store_are_dropped(chat, folder, caplog):
    """The last one of a killed command is torn, and no reason for a warning."""
    do(chat, until="teach")
    (shard,) = (FOLDER / "answers").glob("*.jsonl")
    lines = shard.read_bytes().splitlines(keepends=True)
    lines[3] = b"\0" * 50 + b"\n"
    lines[-1] = lines[-1][:-9]
    shard.write_bytes(b"".join(lines))
    chat.requests.clear()
    do(chat, "distillation.teacher.retries=1")
    assert len(chat.lines) == 2
    assert "Warning: runs/student/distillation/answers: left out 1 damaged line." in caplog.messages
    assert read("chosen/train.0.target") == [GERMAN[line] for line in TRAIN]


def test_costs_are_shown_and_never_passed(chat, folder, caplog):
    """A token is a character here."""
    prices = (1000.0, 2000.0)
    do(chat, prices=prices, max_cost=100.0, until="teach")
    tokens = [record["tokens"] for record in stored() if "tokens" in record]
    cost = sum(prompt * 1e-3 + answer * 2e-3 for prompt, answer in tokens)
    assert caplog.messages[-1].endswith(f"tokens in 10 requests, which cost {cost:,.4f}.")
    spent, num_before = 0.0, len(chat.lines)
    for most in (cost / 4, cost / 2):
        with pytest.raises(InterruptedTrainingError, match="could pass --max-cost"):
            do(chat, "distillation.teacher.temperature=1", prices=prices, max_cost=most)
        others = stored()[len(TRAIN + TEST) :]
        own = [record["tokens"] for record in others if "tokens" in record]
        before, spent = spent, sum(prompt * 1e-3 + answer * 2e-3 for prompt, answer in own)
        assert before < spent <= most
    do(chat, "distillation.teacher.temperature=1", prices=prices, max_cost=1.01 * cost + 5)
    assert len(chat.lines) == num_before + len(TRAIN + TEST)


def test_costs_need_the_tokens_of_the_server(chat, folder):
    chat.reply_to = lambda _: Reply(has_usage=False)
    with pytest.raises(UserError, match="reports no usage; leave it out"):
        do(chat, prices=(1.0, 1.0), max_cost=1.0)
    assert len(stored()) == 4
    do(chat)
    assert len(chat.lines) == len(TRAIN + TEST)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("distillation.n_best=4", r"distillation\.n_best is 4, but a language model gives one"),
        ("distillation.choose=score", r"distillation\.choose is score, but"),
        ("distillation.teacher=null", r"add distillation\.teacher\.model, or give --set"),
        ("data.target_language=und", "asked for in the prompt .* are en and und"),
        ("data.train.0.tag=<2de>", r"data\.train\.0\.tag names no language .* add languages"),
        (
            "distillation.teacher.prompt=In {target}",
            r"can have \{source_language\}, .*not \{target",
        ),
        ("distillation.teacher.model=", r"distillation\.teacher\.model"),
    ],
)
def test_what_a_language_model_cannot_do_is_refused(chat, folder, override, message):
    with pytest.raises(UserError, match=message):
        do(chat, override)
    assert not chat.requests


def test_one_best_translation_may_be_asked_for(chat, folder):
    do(chat, "distillation.n_best=1", "distillation.targets=1", until="texts")


def test_a_prompt_names_languages_domain_and_terms(chat, folder):
    Path("terms.tsv").write_text("garden\tGarten|||Gärtchen\nold man\tGreis\n")
    Path("terms-2.tsv").write_text("garden\tPark\n")
    do(
        chat,
        "distillation.teacher.domain=people who buy things",
        "data.target_language=de-CH",
        "data.train.0.augment.glossary=terms.tsv",
        until="teach",
    )
    message = message_of(chat.requests[0])
    assert message.startswith("Translate from English to German (de-CH). Keep placeholders")
    assert " The text is about people who buy things." in message
    assert "\nold man = Greis\ngarden = Garten or Gärtchen\n" in message
    without = next(m for m in map(message_of, chat.requests) if "old man" not in m)
    assert "\ngarden = Garten or Gärtchen\n" in without


def test_a_prompt_of_ones_own_has_the_languages_of_the_tag(chat, folder):
    """JSON in it stays as it is."""
    prompt = 'To {target_language} [{tag}] {domain}: {{"a"}}, {"1": "x"}.{terms}'
    corpora = "data.train=[{source: train.en, target: train.de, tag: <2fr>, languages: [en, fr]}]"
    Path("student.yaml").write_text(
        RECIPE.replace("{model: toy", f"{{model: toy, prompt: {json.dumps(prompt)}").replace(
            "test: {source: test.en", "test: {tag: <2fr>, source: test.en"
        )
    )
    chat.rule = lambda line: f"Voici une phrase que nous avons traduite pour vous {line[4:7]}."
    do(chat, corpora, until="teach")
    expected = 'To French [<2fr>] : {{"a"}}, {"1": "x"}.\n\nThe lines to'
    assert message_of(chat.requests[0]).startswith(expected)


def test_students_share_what_was_answered(chat, folder):
    do(chat, taught=Path("shared"))
    do(chat, "model.d_ff=20", taught=Path("shared"), run_dir=Path("runs/other"))
    assert len(chat.lines) == len(TRAIN + TEST)
    assert sorted(path.name for path in Path("shared").iterdir()) == ["answers", "teacher", "texts"]


def test_forced_it_asks_anew(chat, folder):
    do(chat)
    do(chat, force_from="teach")
    assert len(chat.lines) == 2 * len(TRAIN + TEST)


def of_command(*words):
    result = CliRunner().invoke(main, ["distil", *words])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["student.yaml"],
            "takes TEACHER and RECIPE, or --teacher-url URL and RECIPE, but was given 1 argument.",
        ),
        (["a", "b", "student.yaml"], "but was given 3 arguments."),
        ([], "Missing argument 'RECIPE'"),
        (["--teacher-url=http://h", "a", "student.yaml"], "takes the place of TEACHER and --ens"),
        (["--teacher-url=http://h", "--ensemble=a", "student.yaml"], "takes the place of TEACHER"),
        (["a", "student.yaml", "--max-cost=1"], "--max-cost needs --teacher-url URL"),
        (["a", "b.yaml", "--teacher-concurrency=9"], "--teacher-concurrency needs --teacher-url"),
        (["--teacher-url=http://h", "b.yaml", "--max-cost=1"], "add --price-per-million IN,OUT"),
        (["--teacher-url=http://h", "b.yaml", "--price-per-million=1"], "two prices such as 0.15"),
        (["--teacher-url=http://h", "b.yaml", "--max-cost=0"], "0.0 is not in the range x>0"),
        (["--teacher-url=http://h", "b.yaml", "--teacher-key-variable=NO_KEY"], "is not set"),
    ],
)
def test_wrong_words_are_refused(folder, words, message):
    status, error = of_command(*words)
    assert (status, message in error) == (2, True), error


def test_the_command_teaches_and_stops_at_the_cost(chat, folder, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-mine")
    words = [f"--teacher-url={chat.url}", "student.yaml", "--until=teach", "--device=cpu"]
    words += ["--teacher-key-variable=MY_KEY", "--price-per-million=1000,2000"]
    status, error = of_command(*words, "--max-cost=2")
    assert (status, "teach: the next request could pass --max-cost 2: the" in error) == (75, True)
    status, error = of_command(*words)
    assert (status, "10 requests, which cost" in error) == (0, True)
    assert {headers["Authorization"] for headers in chat.headers} == {"Bearer sk-mine"}
    assert read("teacher/test.txt") == [GERMAN[line] for line in TEST]


def test_a_student_is_measured_beside_its_teacher(chat, folder, monkeypatch, capfdbinary):
    """Of the teacher there are only translations."""
    monkeypatch.setattr(measuring, "ROUNDS", 1)
    monkeypatch.setattr(measuring, "MOST_CORES", 1)
    chat.rule = lambda line: GERMAN[line].replace("Garten", "Park")
    small = "model={num_layers: 1, d_model: 8, d_ff: 8, num_heads: 1}"
    steps = ["training.max_steps=2", "distillation.int8_steps=0", "validation.bleu=off"]
    do(chat, small, *steps, until="measure")
    table = capfdbinary.readouterr().out.decode().splitlines()
    wanted = sacrebleu.corpus_bleu(
        [GERMAN[line].replace("Garten", "Park") for line in TEST],
        [[GERMAN[line] for line in TEST]],
    )
    assert [row.split()[0] for row in table[1:6]] == ["teacher", *["student"] * 4]
    assert table[1].split()[:2] == ["teacher", f"{wanted.score:.2f}"]
    assert len(table[1].split()) == 3
    assert table[1].index(f"{wanted.score:.2f}") == table[0].index("BLEU test") + 4
    recipe = read_recipe("runs/student/distillation/student.yaml").recipe
    assert recipe.tokenizer.model is None  # its own
    assert (FOLDER / "table/teacher.txt").read_text() == (FOLDER / "teacher/test.txt").read_text()
    student_table = read_runs([Path("runs/student")])[0].student_table
    assert student_table is not None
    assert student_table[0][1][1:4] == ["", "", ""]
    num_requests = len(chat.requests)
    do(chat, small, *steps, until="measure")
    assert len(chat.requests) == num_requests
