"""The script of the how-to that translates with Ray: a killed actor changes nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt_cli.translating.translator import Translator

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs/how-to/translate_with_ray.py"
MODEL = ROOT / "tests/formats/format_2/sentencepiece/run/average"
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay"]
NUM_LINES = 12_345
SECONDS = 100


def actors():
    """Return the ids of the processes of the script's actors."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if command.startswith(b"ray::") and b"Translate" in command:
            found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_a_killed_actor_changes_nothing(tmp_path):
    pytest.importorskip("ray", reason='ray is not installed (pip install "ray[data]")')
    lines = [" ".join(WORDS[n // 10**k % 10] for k in range(n % 5)) for n in range(NUM_LINES)]
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    partial, log = tmp_path / "target.txt.partial", tmp_path / "log"
    arguments = [sys.executable, SCRIPT, MODEL, source, target, "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    deadline = time.monotonic() + SECONDS
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            arguments, env=environment, stdout=stderr, stderr=stderr, start_new_session=True
        )
    try:
        while not (partial.exists() and partial.stat().st_size and actors()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(actors()[0], signal.SIGKILL)
        assert process.wait(deadline - time.monotonic()) == 0, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert not partial.exists()
    translator = Translator.load(MODEL, device="cpu")
    expected = [each.text for each in translator.translate(lines)]
    assert target.read_text(encoding="utf-8").split("\n") == [*expected, ""]
    translator.close()
