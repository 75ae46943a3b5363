"""A training whose model ends up worse than guessing: named, never the best, and drawn."""

import json
import math
import re
import warnings

import pytest
import torch
from click.testing import CliRunner
from torch.nn import functional as F

from nmt_cli import cli
from nmt_cli.saved.checkpoints import best_checkpoint, list_checkpoints
from nmt_cli.training.training import advice_after_divergence, worse_than_guessing

SIZE = 37


@pytest.fixture
def training(toy):
    return toy.recipe.training.model_copy(update={"warmup_steps": 10})


def nll_of(logits):
    return F.cross_entropy(logits.double(), torch.tensor([5])).item()


def test_guessing_is_the_limit_after_warm_up(training):
    guessing = nll_of(torch.zeros(1, SIZE))
    better, worse = torch.zeros(1, SIZE), torch.zeros(1, SIZE)
    better[0, 5], worse[0, 5] = 0.01, -0.01
    assert worse_than_guessing(guessing - 1e-9, 10, training, SIZE) is None
    assert worse_than_guessing(nll_of(better), 10, training, SIZE) is None
    assert worse_than_guessing(nll_of(worse), 9, training, SIZE) is None
    assert worse_than_guessing(nll_of(worse), 10, training, SIZE) is not None


@pytest.mark.parametrize(
    ("nll", "found"),
    [
        (17_918.134, "17,918.13 is above"),
        (2e40, "2e+40 is above"),
        (math.inf, "inf is not below"),
        (math.nan, "nan is not below"),
    ],
)
def test_the_finding_holds_the_loss_and_its_limit(training, nll, found):
    text = worse_than_guessing(nll, 10, training, SIZE)
    assert text == f"the validation nll {found} ln(37) = 3.61, the nll of guessing"


@pytest.mark.parametrize(
    ("peak", "key"),
    [(50.0, "peak_learning_rate (50 now)"), (None, "learning_rate_factor (1 now)")],
)
def test_the_advice_names_the_key_that_this_recipe_sets(training, peak, key):
    advice = advice_after_divergence(training.model_copy(update={"peak_learning_rate": peak}))
    assert f"with a lower training.{key} or more training.warmup_steps (10 now)." in advice


def no_constant(name):
    raise AssertionError(f"{name} is no JSON")


def test_a_diverged_training_is_not_a_success_and_its_report_is_drawn(toy, tmp_path):
    run_dir = tmp_path / "run"
    arguments = ["train", str(toy.recipe_path), f"--prepared={toy.prepared}", "--device=cpu"]
    arguments += [f"--run-dir={run_dir}", "--precision=fp32", "--set=validation.every_steps=3"]
    arguments += ["--set=training.peak_learning_rate=50", "--set=training.max_steps=9"]
    ended = CliRunner().invoke(cli.main, arguments)
    assert ended.exit_code == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert lines[-1].startswith("Warning: Training diverged: the validation nll ")
    assert "is above ln(16) = 2.77, the nll of guessing. It ended at step 9 after " in lines[-1]
    assert "Start again in another --run-dir with a lower training.peak_learning_rate" in lines[-1]
    assert sum(line.startswith("Warning: step ") for line in lines) == 2  # 6 and 9
    assert not [line for line in lines if "(best)" in line and "step 3:" not in line]
    assert not re.search(r"\d{20}", ended.stderr)
    status = json.loads((run_dir / "status.json").read_text())
    assert (status["state"], status["exit_status"]) == ("finished", 0)
    assert f"Warning: {status['message']}" == lines[-1]
    records = [
        json.loads(line, parse_constant=no_constant)
        for line in (run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    assert [r["validation"]["quality"] for r in records if "validation" in r][1:] == [None, None]
    best = best_checkpoint(list_checkpoints(run_dir))
    assert best is None or best.step == 3

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = CliRunner().invoke(cli.main, ["report", str(run_dir), "--quiet"])
    assert drawn.exit_code == 0, drawn.exception
    assert drawn.stderr == ""
