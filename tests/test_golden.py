"""The first losses of a toy training, kept: a change not meant to alter numbers leaves them.

Where numbers are meant to change, write the new ones with
    python -m tests.test_golden
and say in the commit why. They are fp32's; kinds of CPU differ by less than the tolerance.
"""

import json
import tempfile
from pathlib import Path

import pytest
import torch

from nmt_cli.commands import preprocess, train
from tests.conftest import RECIPE, write_pairs

GOLDEN = Path(__file__).parent / "golden" / "losses.json"
VARIATIONS = {
    "post-norm": ["model.dropout=0.1"],
    "pre-norm": ["model.norm=pre", "model.positions=learned", "model.tied_embeddings=none"],
}


def losses(folder: Path, *overrides: str) -> list[float]:
    """Return the losses of 20 steps of the toy recipe."""
    write_pairs(folder, "train", 60, seed=1)
    write_pairs(folder, "validation", 2, seed=2)
    (folder / "toy.yaml").write_text(RECIPE.format(folder=folder))
    recipe, prepared = str(folder / "toy.yaml"), folder / "prepared"
    preprocess.run(recipe=recipe, output=prepared, workers=1)
    train.run(
        recipe,
        overrides=["training.max_steps=20", "validation.bleu=off", *overrides],
        prepared=prepared,
        run_dir=folder / "run",
        device="cpu",
        precision="fp32",
        fp32_products="mkl",  # oneDNN has spare rows, with which dropout draws other numbers
    )
    records = map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if "loss" in record]


@pytest.mark.parametrize("name", VARIATIONS)
def test_the_first_losses_are_the_golden_ones(name, tmp_path):
    golden = json.loads(GOLDEN.read_text())[name]
    assert len(golden) == 20
    assert losses(tmp_path, *VARIATIONS[name]) == pytest.approx(golden, rel=1e-4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {}
    for name, overrides in VARIATIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = losses(Path(folder), *overrides)
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
