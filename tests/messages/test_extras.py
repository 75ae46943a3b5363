"""Commands in an installation that only translates: without torch and what goes with it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import LEFT_OUT, install_command, naming_missing_package

PARSER = Path(__file__).parents[1] / "formats/format_3/treebank/run/average"
# The package that each command names, and those that it says how to install.
NEEDED = {
    "train base": ("torch", LEFT_OUT),
    "average-checkpoints none": ("torch", LEFT_OUT),
    "export none --format huggingface --output out": ("torch", LEFT_OUT),
    "import none --output out": ("torch", LEFT_OUT),
    "run base": ("sacrebleu", LEFT_OUT),
    "compare base": ("sacrebleu", LEFT_OUT),
    "score none none": ("sacrebleu", ("sacrebleu",)),
    "data get newstest2014": ("sacrebleu", ("sacrebleu", "requests")),
    f"translate {PARSER} --tokenize penn": ("nltk", ("nltk",)),
}
PROGRAM = """
import json, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split()))  # importing one of them fails
from click.testing import CliRunner
from nmt_cli.cli import main
results = [CliRunner().invoke(main, words.split(), input="") for words in sys.argv[2:]]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in results]))
"""


@pytest.fixture(scope="module")
def results():
    """The status, stdout and stderr of each command, all in one process without the packages."""
    commands = [*NEEDED, "doctor", "recipes list"]
    words = [sys.executable, "-c", PROGRAM, " ".join(LEFT_OUT), *commands]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return dict(zip(commands, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("command", NEEDED)
def test_a_command_that_needs_a_missing_package_names_it_in_one_line(results, command):
    package, installed = NEEDED[command]
    status, _, stderr = results[command]
    assert status == 1
    assert f"needs {package}, which is not installed, as this installation only " in stderr
    assert stderr.count("\n") == 1
    assert stderr.endswith(f"run: {install_command(*installed)}\n")


def test_with_torch_a_missing_package_has_no_such_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(UserError) as caught, naming_missing_package("nmt-cli data get"):
        import requests  # noqa: F401
    assert str(caught.value) == (
        "nmt-cli data get needs requests, which is not installed; "
        f"run: {install_command('requests')}"
    )


def test_the_others_work(results):
    status, stdout, _ = results["doctor"]
    assert status == 0
    assert "torch.version: none" in stdout
    assert "advice: torch is not installed, so this installation only translates" in stdout
    assert "translating.level: " in stdout
    assert results["recipes list"][0] == 0
