"""Commands in an installation that only translates: without torch, sacrebleu and sacremoses."""

import json
import subprocess
import sys

import pytest

from nmt_cli.messages.extras import FOR_TRAINING, install_command

NEEDED = {
    "train base": "torch",
    "average-checkpoints none": "torch",
    "export none --format huggingface --output out": "torch",
    "import none --output out": "torch",
    "run base": "sacrebleu",
    "compare base": "sacrebleu",
    "score none none": "sacrebleu",
    "data get newstest2014": "sacrebleu",
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
    words = [sys.executable, "-c", PROGRAM, " ".join(FOR_TRAINING), *commands]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return dict(zip(commands, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("command", NEEDED)
def test_a_command_that_needs_a_missing_package_names_it_in_one_line(results, command):
    package, is_all = NEEDED[command], command in {"run base", "compare base"}
    status, _, stderr = results[command]
    assert status == 1
    install = install_command(*(FOR_TRAINING if is_all or package == "torch" else [package]))
    assert f"needs {package}, which is not installed" in stderr
    assert stderr.count("\n") == 1
    assert stderr.endswith(f"run: {install}\n")


def test_the_others_work(results):
    status, stdout, _ = results["doctor"]
    assert status == 0
    assert "torch.version: none" in stdout
    assert "advice: torch is not installed, so this installation only translates" in stdout
    assert "translating.level: " in stdout
    assert results["recipes list"][0] == 0
