"""Translating starts soon: it imports little beside torch."""

import subprocess
import sys
from pathlib import Path

MODEL = Path(__file__).parents[1] / "formats/format_2/sentencepiece/run/average"
# torch's compiler and sympy take longer to import than torch itself.
NOT_NEEDED = {
    *("torch._dynamo", "torch._inductor", "sympy", "yaml", "sacrebleu", "sacremoses", "nltk"),
    *("matplotlib", "tensorboard", "pooch", "requests", "nmt_cli.training", "nmt_cli.runs"),
}


def test_a_line_is_translated_without_the_modules_of_other_commands():
    arguments = ["translate", str(MODEL), "--device", "cpu", "--threads", "1", "--quiet"]
    code = (
        "import sys\nfrom nmt_cli.cli import main\n"
        f"try:\n    main({arguments})\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"sys.exit(','.join(sorted(set(sys.modules) & {NOT_NEEDED})) or 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], input="one\n", capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
