"""Models that Marian itself made compute here what Marian computed."""

import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli.corpus.tokenizers import sentencepiece_tokenizer
from tests.interchange.import_command import assert_scores, run_import
from tests.interop.marian_models import MODELS, VERSION, make_models, read_scores

FIXTURES = Path(__file__).parent / "marian"


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    """Leave out the process that tries a SentencePiece model, which takes most of the time."""
    monkeypatch.setattr(sentencepiece_tokenizer, "python_command", lambda *_: ["true"])


def scores_agree(theirs, ours):
    result = run_import(theirs, "--output", ours)
    assert result.exit_code == 0, result.output
    assert_scores(ours, *read_scores(theirs))


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_marian(tmp_path, name):
    scores_agree(FIXTURES / name, tmp_path / "ours")


@pytest.fixture(scope="module")
def python_with_marian(tmp_path_factory):
    """The interpreter of a new environment with pymarian."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", f"pymarian=={VERSION}"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pymarian {VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
    return python


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_scores_are_those_of_a_marian_that_is_installed_now(tmp_path, python_with_marian):
    make_models(python_with_marian, tmp_path / "theirs")
    for name in MODELS:
        scores_agree(tmp_path / "theirs" / name, tmp_path / f"ours-{name}")
        assert {path.name for path in (tmp_path / "theirs" / name).iterdir()} == {
            path.name for path in (FIXTURES / name).iterdir()
        }
