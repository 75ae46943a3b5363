"""Runs the command ``import``, and checks what its model computes."""

import json

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.translating.rescorer import Rescorer


def run_import(*arguments, program="auto"):
    return CliRunner().invoke(cli.main, ["import", *map(str, arguments), "--from", program])


def assert_scores(model, pairs, expected):
    """Assert that an imported model gives the tokens of ``pairs`` these log-probabilities."""
    found = Rescorer.load(model, device="cpu", precision="fp32").rescore(pairs)
    for one, scores in zip(found, expected, strict=True):
        assert one.token_scores == pytest.approx(scores, abs=1e-4)


def assert_same_scores(theirs, scores, output):
    """Assert that the model imported from ``theirs`` gives the log-probabilities in a file."""
    result = run_import(theirs, "--output", output)
    assert result.exit_code == 0, result.output
    expected = json.loads(scores.read_text())
    pairs = [(each["source"], each["target"]) for each in expected]
    assert_scores(output, pairs, [each["scores"] for each in expected])
