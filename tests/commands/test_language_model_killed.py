"""A language model teaches, and the command is killed at any moment: each answer is paid once."""

import gzip
import json
import os
import random
import shutil
import signal
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.commands import distil as command
from nmt_cli.commands.distilling.distillation import TeacherServer
from nmt_cli.corpus.text.language_codes import language_identifier
from nmt_cli.messages import logs
from tests.chat_server import GERMAN, Reply, running_chat_server
from tests.commands.conftest import FP32
from tests.folders_in_memory import tmp_path as tmp_path

RECIPE = """\
description: a student of a language model
data:
  source_language: en
  target_language: de
  train: [{source: train.en, target: train.en}]
  validation: {source: test.en, target: test.en}
tokenizer: {vocabulary_size: 300}
distillation: {teacher: {model: toy, lines_per_request: 3}}
"""
SOURCES = list(GERMAN)
LINES = {text: line for line, text in GERMAN.items()}
PLACES = ["Garten", "Park", "Hof", "Haus"]
ANSWERS = Path("runs/student/distillation/answers")
TABLE = Path("runs/student/distillation/teacher/train.0.tsv.gz")


def begin(chat):
    """Start the command in a process of its own; return its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the server has threads
        process = os.fork()
    if process:
        return process
    try:
        logs.configure(quiet=True)
        server = TeacherServer(chat.url, 4, "NO_KEY", None, None)
        options: dict[str, Any] = {**FP32, "threads": 1}
        command.run(server, "./student.yaml", until="teach", **options)
    finally:
        os._exit(0)


def stored():
    """Return the translation of each line that is whole, by its key."""
    found: dict[str, str] = {}
    for path in sorted(ANSWERS.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                record = json.loads(line)
                assert record["key"] not in found
                found[record["key"]] = record["text"]
    return found


def line_of(text):
    """Return the line that has this translation, whatever its place."""
    for place in PLACES:
        text = text.replace(f"im {place}.", "im Garten.")
    return LINES[text]


def kill_often(folder, monkeypatch, num_kills):
    monkeypatch.chdir(folder)
    Path("train.en").write_text("".join(f"{line}\n" for line in SOURCES[:-9]))
    Path("test.en").write_text("".join(f"{line}\n" for line in SOURCES[-9:]))
    Path("student.yaml").write_text(RECIPE)
    language_identifier()  # before the forks, because it takes a second
    draw = random.Random(num_kills)

    def translated(line):
        """Return another translation each time, so that a second answer would be seen."""
        return GERMAN[line].replace("Garten", draw.choice(PLACES))

    def slowly(_):
        time.sleep(0.01)
        return Reply()

    with running_chat_server() as chat:
        chat.rule, chat.reply_to = translated, slowly
        for kill in range(num_kills + 1):
            before, num_before = stored(), len(chat.lines)
            process = begin(chat)
            if kill < num_kills:
                time.sleep(draw.uniform(0, 0.25))
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            assert before.items() <= stored().items()  # none is changed
            asked = Counter(chat.lines[num_before:])
            assert not asked.keys() & set(map(line_of, before.values()))
            assert set(asked.values()) <= {1}
            if TABLE.exists() and kill < num_kills:  # all over again
                assert len(stored()) == len(SOURCES)
                shutil.rmtree("runs")
        with gzip.open(TABLE, "rt") as stream:
            table = [row.rstrip("\n").split("\t")[3] for row in stream]
    assert list(map(line_of, table)) == SOURCES[:-9]
    assert set(table) <= set(stored().values())
    assert len(stored()) == len(SOURCES)


def test_killed_at_random_moments_each_answer_is_stored_once(tmp_path, monkeypatch):
    kill_often(tmp_path, monkeypatch, 20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_200_random_moments_each_answer_is_stored_once(tmp_path, monkeypatch):
    kill_often(tmp_path, monkeypatch, 200)
