"""Terms and phrases of a request come to each worker once, and are prepared there once."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.serving.conftest import REVERSING
from tests.serving.test_limits import until
from tests.serving.test_serve import TEXTS, Command

NUM_WORKERS = 2
TERMS = {f"term {number}": [f"one {number}", f"two {number}"] for number in range(2_000)}
BANNED = [f"phrase {'a' * (number + 1)}" for number in range(50)]
# Each process notes what it prepares.
NOTING = """
import os
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.translating.encoding.target_phrases import TargetPhrases

def noting(kind, function, is_large):
    def noted(*arguments):
        made = function(*arguments)
        if is_large(*arguments):
            with open(os.environ["NOTES"], "a") as notes:
                notes.write(f"{kind}\\n")
        return made
    return noted

Glossary.__init__ = noting("glossary", Glossary.__init__, lambda self, _: len(self.terms) > 100)
TargetPhrases.encode = noting("phrase", TargetPhrases.encode, lambda _, text: "phrase" in text)
"""


class NotingCommand(Command):
    notes: Path


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noting")
    (folder / "sitecustomize.py").write_text(NOTING)
    notes = folder / "notes"
    options = (f"--workers={NUM_WORKERS}", "--precision=fp32", "--device=cpu")
    found = NotingCommand(str(REVERSING), *options, PYTHONPATH=str(folder), NOTES=str(notes))
    found.url, found.notes = found.wait_for(r"http://\S+").group(), notes
    until(lambda: len(found.workers()) == NUM_WORKERS)
    yield found
    found.close()


def bytes_read(command):
    """Return how many bytes the workers have read."""
    every = [Path(f"/proc/{worker}/io").read_text() for worker in command.workers().values()]
    return sum(int(text.split("rchar:")[1].split()[0]) for text in every)


def translated(command, **phrases):
    record = {"text": TEXTS * 8, "source": "en", **phrases}
    answer = requests.post(f"{command.url}/v1/translate", json=record, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"]


def prepared(command):
    """Return how often each kind of phrases was prepared since the last call."""
    found = Counter(command.notes.read_text().split()) if command.notes.exists() else Counter()
    command.notes.write_text("")
    return found


def test_they_are_sent_and_prepared_once_for_each_worker(command):
    phrases = {"glossary": {**TERMS, "ant": "kite"}, "banned": BANNED}
    before, _ = bytes_read(command), prepared(command)
    found = translated(command, **phrases)
    assert bytes_read(command) - before < 2 * NUM_WORKERS * len(json.dumps(phrases))
    counts = prepared(command)
    assert 0 < counts["glossary"] <= NUM_WORKERS
    assert 0 < counts["phrase"] <= NUM_WORKERS * len(BANNED)
    for asked, each in zip(TEXTS * 8, found, strict=True):
        assert ("kite" in each["text"]) == ("ant" in asked)


def test_requests_whose_lines_take_turns_have_each_their_own(command):
    prepared(command)
    targets = ["kite", "lark", "jay"]
    with ThreadPoolExecutor(len(targets)) as pool:
        futures = [
            pool.submit(translated, command, glossary={**TERMS, "ant": target})
            for target in targets
        ]
        for target, future in zip(targets, futures, strict=True):
            for asked, each in zip(TEXTS * 8, future.result(), strict=True):
                assert (target in each["text"]) == ("ant" in asked)
    assert prepared(command)["glossary"] <= len(targets) * NUM_WORKERS


def test_what_is_wrong_with_them_is_the_error_of_each_text(command):
    found = translated(command, glossary={"ant": [" "]})
    assert {each["error"] for each in found} == {"a target form of 'ant' is blank"}
