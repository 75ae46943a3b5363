"""The benchmark of Table 1 runs, and its formulas are those of what it times."""

from typing import Any

import matplotlib.image
import pytest
import torch

from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.layers import DecoderLayer
from nmt_cli.model.packing import pack
from nmt_cli.recipe.sections.model import ModelConfig
from tests.benchmarks import layer_types as module

TYPES = module.layer_types(window=3)
SHAPE: dict[str, Any] = {"d_model": 16, "num_heads": 2}


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_projections_are_the_matrices_of_the_sublayer(kind):
    layer = DecoderLayer(ModelConfig(num_layers=1, **SHAPE, **kind.options))
    matrices = [each.numel() for each in layer.first.parameters() if each.dim() == 2]
    assert sum(matrices) == kind.projections * 16**2


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_a_row_depends_on_as_many_rows_as_the_formula_counts(kind):
    """A recurrent unit compares none, but its state depends on all."""
    layer = DecoderLayer(ModelConfig(num_layers=1, **SHAPE, **kind.options)).eval()
    rows, sentence = torch.randn(9, 16, requires_grad=True), pack(torch.zeros(9).long(), [9])
    found = layer._see_past(rows, AttentionLayout(sentence, sentence))
    assert isinstance(found, torch.Tensor)
    (gradient,) = torch.autograd.grad(found[-1].square().sum(), rows)
    assert (gradient.abs().sum(1) > 0).sum() == (kind.reached(9) or 9)


def test_tables_and_picture_are_made(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "TOKENS", 64)
    monkeypatch.setattr(module, "SECONDS", 0.0)
    options = ["--longest", "32", "--d-model", "16", "--heads", "2", "--window", "4"]
    path = tmp_path / "table.png"
    module.main([*options, "--device", "cpu", "--picture", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")] == [
        *("| layer", "| self-attention", "| recurrent", "| restricted, r = 4"),
        *("| training, a row, µs", "| 16", "| 32"),
        *("| last doubling, measured", "| last doubling, by formula"),
        *("| decoding, a step of 4 hypotheses, µs", "| 16", "| 32"),
        *("| last doubling, measured", "| last doubling, by formula"),
    ]
    # 4 x 16 x (8 x 16 + 4 n) operations of a row with projections by 16 x 16
    attention = (8 * 16 + 4 * 32) / (8 * 16 + 4 * 16)
    assert lines[11] == f"| last doubling, by formula | x {attention:.2f} | x 1.00 | x 1.00 |"
    assert matplotlib.image.imread(path).shape[2] == 4
