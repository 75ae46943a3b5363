"""The first losses of toy trainings, kept: a change not meant to alter numbers leaves them.

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
LINKED = "source: {folder}/train.en, target: {folder}/train.de, alignments: {folder}/train.links"
OTHER = "name: other, source: {folder}/other.en, target: {folder}/other.de"
VARIATIONS = {
    "post-norm": ["model.dropout=0.1"],
    "pre-norm": ["model.norm=pre", "model.positions=learned", "model.tied_embeddings=none"],
    "moving average": ["training.ema_decay=0.9"],
    "Muon": ["training.optimizer=muon", "training.weight_decay=0.1"],
    "guided alignment": [
        f"data.train=[{{{LINKED}}}]",
        "training.guided_alignment={weight: 0.5, head: 2, decay_steps: 15}",
    ],
    "stages": [
        f"data.train=[{{name: linked, {LINKED}}}, {{{OTHER}}}]",
        "data.stages=[{weights: {other: 1}, until: {steps: 7}}, {shares: {linked: 70, other: 30}}]",
    ],
}


def figures(folder: Path, *overrides: str) -> dict[str, list[float]]:
    """Return the losses of 20 steps of the toy recipe, of its guided head, and of validations."""
    for seed, (name, count) in enumerate({"train": 60, "validation": 2, "other": 30}.items(), 1):
        write_pairs(folder, name, count, seed)
    with (folder / "train.links").open("w") as links:  # of each word with its copy
        for line in (folder / "train.en").read_text().splitlines():
            last = len(line.split()) - 1
            print(*(f"{word}-{last - word}" for word in range(last + 1)), file=links)
    (folder / "toy.yaml").write_text(RECIPE.format(folder=folder))
    recipe, prepared = str(folder / "toy.yaml"), folder / "prepared"
    overrides = tuple(each.replace("{folder}", str(folder)) for each in overrides)
    preprocess.run(recipe=recipe, overrides=overrides, output=prepared, workers=1)
    train.run(
        recipe,
        overrides=["training.max_steps=20", "validation.bleu=off", *overrides],
        prepared=prepared,
        run_dir=folder / "run",
        device="cpu",
        precision="fp32",
    )
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    records = list(map(json.loads, lines))
    steps = [record for record in records if "validation" not in record]
    return {
        "steps": [record["loss"] for record in steps],
        "guided head": [record["alignment_loss"] for record in steps if "alignment_loss" in record],
        "validations": [each["validation"]["loss"] for each in records if "validation" in each],
    }


@pytest.mark.parametrize("name", VARIATIONS)
def test_the_first_losses_are_the_golden_ones(name, tmp_path):
    golden = json.loads(GOLDEN.read_text())[name]
    assert len(golden["steps"]) == 20
    found = figures(tmp_path, *VARIATIONS[name])
    assert found == {kind: pytest.approx(losses, rel=1e-4) for kind, losses in golden.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {}
    for name, overrides in VARIATIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = figures(Path(folder), *overrides)
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
