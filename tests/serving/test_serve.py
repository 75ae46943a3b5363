"""The command: workers, their deaths, and the end after a signal."""

import asyncio
import itertools
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers.dispatcher import Dispatcher
from nmt_cli.translating.workers.starter import Starter
from tests.serving.conftest import REVERSING

IMPORTED = REVERSING.parents[3] / "format_4/imported_separate/run/average"
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
TEXTS = [f"{one} {other} {one}" for one in WORDS for other in WORDS]


class Command:
    """``nmt-cli serve`` in a process."""

    def __init__(
        self, *arguments: str, files: tuple[int, int] | None = None, **variables: str
    ) -> None:
        """``files`` are the soft and the hard limit of open files."""

        def limit_files() -> None:
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, files)

        command = [sys.executable, "-m", "nmt_cli", "serve", *arguments, "--port=0"]
        env = {**os.environ, **variables}
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=limit_files
        )
        self.log, self.url = "", ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line

    @property
    def place(self) -> tuple[str, int]:
        """The host and the port, once there is a ``url``."""
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + 60
        while (found := re.search(pattern, self.log)) is None:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)
        return found

    def workers(self) -> dict[int, int]:
        """Return the process of each worker."""
        starters = children(self.process.pid)
        found = [child for starter in starters for child in children(starter)]
        return dict(enumerate(found))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


def children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


@pytest.fixture(scope="module")
def command():
    run = str(REVERSING.parent)
    found = Command(run, "--workers=2", "--precision=fp32", "--device=cpu")
    found.url = found.wait_for(r"http://\S+").group()
    yield found
    found.close()


def translated(command, texts, source="en"):
    record = {"text": texts, "source": source}
    answer = requests.post(f"{command.url}/v1/translate", json=record, timeout=60)
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in answer.json()["translations"]]


def metric(command, name):
    text = requests.get(f"{command.url}/metrics", timeout=30).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def test_the_model_of_a_run_is_named_once(command):
    assert re.findall("Using (.*?),", command.log) == [str(REVERSING)]


def test_lines_with_characters_that_nobody_sees_are_counted(command):
    name = "nmt_cli_lines_with_invisible_total"
    before = metric(command, name)
    hidden, plain = "an\u00adt bee\u200b", "ant bee"
    assert translated(command, [hidden, plain, plain]) == translated(command, [plain] * 3)
    assert metric(command, name) == before + 1


def test_no_answer_is_lost_or_swapped_when_a_worker_dies(command):
    translator = Translator.load(REVERSING, device="cpu", precision="fp32")
    expected = [each.text for each in translator.translate(TEXTS)]
    assert len(set(expected)) > 30
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(translated, command, [text] * 3) for text in TEXTS]
        futures[5].result()
        victim = command.workers()[0]
        os.kill(victim, signal.SIGKILL)
        found = [future.result() for future in futures]
    assert found == [[text] * 3 for text in expected]
    command.wait_for("a worker process has died \\(signal SIGKILL\\); its lines are translated")
    assert metric(command, "nmt_cli_worker_deaths_total") == 1
    assert metric(command, "nmt_cli_lines_total") >= 3 * len(TEXTS)
    assert metric(command, "nmt_cli_worker_busy_seconds_total") > 0
    assert metric(command, "nmt_cli_resident_bytes") > 1e8
    assert victim not in command.workers().values()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_answers_are_the_lines_of_translate(precision):
    chance = random.Random(1)
    lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 30))) for _ in range(600)]
    options = str(REVERSING), "--workers=2", f"--precision={precision}", "--device=cpu"
    whole = subprocess.run(
        [sys.executable, "-m", "nmt_cli", "translate", *options],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    service = Command(*options)
    service.url = service.wait_for(r"http://\S+").group()
    ends = sorted(chance.sample(range(len(lines)), 60))  # requests of one to many lines
    parts = [lines[i:j] for i, j in itertools.pairwise([0, *ends, len(lines)]) if i < j]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda part: translated(service, part), parts))
    service.close()
    assert [each for part in answers for each in part] == whole.stdout.splitlines()
    assert len(set(whole.stdout.splitlines())) > 300


def test_placeholders_marks_and_numbers_stay(command):
    without_rules = Translator.load(REVERSING, device="cpu", precision="fp32")
    protected = ["ant {name} bee", "cat %(n)d dog eel", "%1$s fox gnu"]
    spans = ["{name}", "%(n)d", "%1$s"]
    plain = [each.text for each in without_rules.translate([*protected, "ant bee cat"])]
    assert all(span not in text for span, text in zip(spans, plain, strict=False))
    texts = [*protected, "1. ant bee cat", "12:30", "—"]
    *found, marked, number, dash = translated(command, texts)
    assert [text.count(span) for span, text in zip(spans, found, strict=True)] == [1, 1, 1]
    assert (marked, number, dash) == (f"1. {plain[-1]}", "12:30", "—")


def test_the_http_process_imports_no_torch(command):
    assert "libtorch" not in Path(f"/proc/{command.process.pid}/maps").read_text()


def test_an_interrupt_of_workers_changes_nothing(command):
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(translated, command, [" ".join(WORDS)] * 500)
        while not metric(command, "nmt_cli_worker_lines"):
            time.sleep(0.01)
        before = command.workers()
        for process in [*children(command.process.pid), *before.values()]:
            os.kill(process, signal.SIGINT)
        assert len(set(future.result())) == 1
    assert command.workers() == before


def test_what_was_accepted_is_finished_after_a_signal(command):
    text = " ".join(WORDS)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(translated, command, [text] * 2_000)
        while not metric(command, "nmt_cli_worker_lines"):
            time.sleep(0.01)
        command.process.send_signal(signal.SIGTERM)
        health = requests.get(f"{command.url}/health", timeout=30)
        assert (health.status_code, health.json()) == (503, {"status": "draining"})
        assert len(future.result()) == 2_000
    assert command.process.wait(30) == 0
    # Whole words: the id of a request may have "bee" in it.
    assert not set(re.findall(r"\w+", command.log)) & set(WORDS)


@pytest.mark.parametrize(("seconds", "num_signals"), [(0, 1), (600, 2)])
def test_what_is_not_finished_when_the_service_ends_is_refused(seconds, num_signals):
    options = ("--workers=1", "--precision=fp32", "--device=cpu", f"--drain-seconds={seconds}")
    command = Command(str(REVERSING), *options)
    try:
        command.url = command.wait_for(r"http://\S+").group()
        for process in command.workers().values():
            os.kill(process, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            record = {"text": "ant", "source": "en"}
            url = f"{command.url}/v1/translate"
            future = pool.submit(requests.post, url, json=record, timeout=60)
            while not metric(command, "nmt_cli_worker_lines"):
                time.sleep(0.01)
            command.process.send_signal(signal.SIGTERM)
            if num_signals > 1:
                assert requests.get(f"{command.url}/health", timeout=30).status_code == 503
                command.process.send_signal(signal.SIGINT)
            assert command.process.wait(30) == 0
            answer = future.result()
        assert (answer.status_code, answer.json()) == (503, {"error": "the service is draining"})
        assert "Traceback" not in command.log
    finally:
        command.close()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--host=0.0.0.0"], 2, "--host 0.0.0.0 can be reached from other machines; give --api"),
        (["--host=here"], 2, "--host here can be reached from other machines; give --api-keys"),
        (["--host=192.0.2.1", "--open"], 1, "cannot listen on 192.0.2.1, port 5000: "),
        (["--glossary=none.tsv"], 1, "none.tsv"),
        (["--glossary=terms.tsv=en:it"], 2, "no model translates from en to it, as terms.tsv"),
        (["--memory=none.tmx"], 1, "none.tmx not found; the path is relative to"),
        (["--memory=terms.tsv=en:it"], 2, "no model translates from en to it, as terms.tsv does."),
        (["--memory=terms.tsv"], 1, "terms.tsv:1: 'a\\tb' is no line of a PO file."),
        (["--memory-similarity=80"], 2, "--memory-similarity has an effect only with --memory;"),
        (["--protect=(a"], 2, "--protect: '(a' is no regular expression: missing ), unterminated"),
        (["--protect=(?P<a>b)", "--protect=(?P<a>c)"], 2, "two patterns have the name a; rename"),
        (["--protect=(?P<common>b)"], 2, "two patterns have the name common; rename a group."),
        (["--api-keys=empty"], 1, "empty holds no key; write one on each line."),
    ],
)
def test_wrong_options_are_refused(tmp_path, monkeypatch, arguments, status, message):
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("# none\n")
    Path("terms.tsv").write_text("a\tb\n")
    result = CliRunner().invoke(cli.main, ["serve", str(REVERSING), *arguments])
    assert (result.exit_code, result.stderr.count("\n")) == (status, 1)
    assert message in result.stderr


def test_a_model_must_name_its_languages():
    result = CliRunner().invoke(cli.main, ["serve", str(IMPORTED)])
    assert result.exit_code == 2
    assert f"such as {IMPORTED}=en:de." in result.stderr


def test_a_worker_that_refuses_to_start_is_not_replaced(monkeypatch):
    warnings, started = list[str](), list[int]()
    monkeypatch.setattr(logs, "warning", warnings.append)

    class Refusing(Starter):
        def __init__(self):
            pass

        def start(self, number):
            ours, theirs = Pipe()
            with theirs:
                theirs.send(UserError("the GPU is too small"))
            started.append(number)
            return ours, 0

        def status_of(self, process):
            return 0

        def close(self):
            pass

    async def open_workers():
        workers = Dispatcher(Refusing(), 2)
        with pytest.raises(UserError, match="the GPU is too small"):
            await workers.opened()
        await asyncio.sleep(0.05)  # enough to start another one
        workers.close()

    asyncio.run(open_workers())
    assert (sorted(started), warnings) == ([0, 1], [])


# "usw." is an abbreviation in German.
PARTS = {
    "en": ["Eel ant usw.", "Gnu hen dog.", "Cat."],
    "de": ["Eel ant usw. Gnu hen dog.", "Cat."],
}


MEMORY = """<tmx><body><tu><tuv xml:lang="en"><seg>Ant.</seg></tuv>
<tuv xml:lang="de"><seg>of the memory</seg></tuv></tu></body></tmx>"""


def test_a_model_has_the_languages_that_it_is_served_under(tmp_path):
    """All interfaces cut by their rules; the first model names no languages, the second others."""
    models = f"{IMPORTED}=en:de", f"{REVERSING}=de:fr"
    (tmp_path / "a.tmx").write_text(MEMORY)
    options = f"--memory={tmp_path / 'a.tmx'}", "--memory-similarity=50"
    found = Command(*models, *options, "--workers=1", "--precision=fp32", "--device=cpu")
    try:
        found.url = found.wait_for(r"http://\S+").group()

        def post(path, **fields):
            answer = requests.post(f"{found.url}{path}", json=fields, timeout=60)
            assert answer.status_code == 200, answer.text
            return answer.json()

        for source, target in ("en", "de"), ("de", "fr"):
            text = " ".join(PARTS[source])
            assert post("/v1/sentences", text=text, source=source)["sentences"] == PARTS[source]
            whole, joined = (
                " ".join(translated(found, PARTS[code], source)) for code in (source, "en")
            )
            libre = post("/translate", q=text, source=source, target=target)["translatedText"]
            own = post("/v1/translate", text=text, source=source, split=True)["translations"]
            deepl = post("/v2/translate", text=text, source_lang=source, target_lang=target)
            others = [own[0]["text"], deepl["translations"][0]["text"]]
            assert [libre, *others] == [whole] * 3
        assert joined != whole  # the rules of English would give something else
        assert translated(found, ["Ant."]) == ["of the memory"] != translated(found, ["Ant."], "de")
        (near,) = post("/v1/translate", text="Art.", source="en")["translations"]
        assert near["memory"] == [
            {"source": "Ant.", "target": "of the memory", "similarity": 75},
        ]
        attention = {"text": "ant", "translation": "bee", "model": "imported_separate"}
        page = requests.post(f"{found.url}/v1/attention", data=attention, timeout=60).text
        assert all(f'lang="{code}"' in page for code in ("en", "de"))
    finally:
        found.close()
