"""The main job, from raw text to a score."""

import json

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from tests.conftest import RECIPE, write_pairs


@pytest.fixture
def nmt_cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, text=None):
        result = CliRunner().invoke(cli.main, arguments, input=text, catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return run


def test_a_model_memorizes_its_text_and_translates_it(nmt_cli, tmp_path):
    write_pairs(tmp_path, "train", 25, seed=1)
    write_pairs(tmp_path, "validation", 5, seed=2)
    (tmp_path / "toy.yaml").write_text(RECIPE.format(folder="."))
    settings = {
        "model.dropout": 0,
        "model.d_model": 60,
        "model.d_ff": 120,
        "training.max_steps": 260,
        "training.label_smoothing": 0,
        "validation.every_steps": 130,
        "checkpoints.every_steps": 20,
    }
    overrides = [f"--set={key}={value}" for key, value in settings.items()]
    nmt_cli("preprocess", "toy.yaml", *overrides)
    nmt_cli("train", "toy.yaml", *overrides, "--device=cpu", "--threads=1")
    nmt_cli("average-checkpoints", "runs/toy", "--last=2")
    source, target = (tmp_path / f"train.{side}" for side in ("en", "de"))
    translations = nmt_cli("translate", "runs/toy", "--device=cpu", text=source.read_text())
    (tmp_path / "out.de").write_text(translations)
    scores = json.loads(nmt_cli("score", "out.de", str(target), "--format=json"))
    assert scores["lines"] == 25
    assert scores["bleu"]["score"] > 95
    right = sum(
        ours == theirs
        for ours, theirs in zip(
            translations.splitlines(), target.read_text().splitlines(), strict=True
        )
    )
    assert right >= 24
    last = (tmp_path / "runs/toy/metrics.jsonl").read_text().splitlines()[-2]
    assert json.loads(last)["nll"] < 0.05
