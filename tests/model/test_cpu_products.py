import copy
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from nmt_cli.model.cpu_products import Int8Linear, PackedLinear, rounded_rows
from nmt_cli.model.packing import pack
from nmt_cli.model.precision import at_precision, change_precision
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_config import ModelConfig

CPU = torch.device("cpu")


def by_hand(rows, weight, bias):
    """The product with integers of numpy and floating-point numbers of double precision."""
    sides = []
    for matrix in (rows.numpy(), weight.numpy()):
        scales = np.abs(matrix).max(axis=1, keepdims=True) / np.float32(127)
        sides.append((scales.astype(np.float64), np.round(matrix / scales).astype(np.int64)))
    (row_scales, of_rows), (weight_scales, of_weight) = sides
    return (of_rows @ of_weight.T) * row_scales * weight_scales.T + bias.numpy()


@pytest.mark.parametrize(("num_rows", "inputs", "outputs"), [(1, 16, 8), (33, 48, 70), (4, 7, 5)])
def test_products_are_those_of_rounded_numbers(num_rows, inputs, outputs):
    generator = torch.Generator().manual_seed(num_rows)
    rows = torch.randn(num_rows, inputs, generator=generator)
    linear = nn.Linear(inputs, outputs)
    found = Int8Linear(linear.weight, linear.bias)(rows)
    expected = by_hand(rows, linear.weight.detach(), linear.bias.detach())
    assert found.dtype == torch.float32
    assert np.allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert np.abs(found.numpy() - linear(rows).detach().numpy()).max() < 0.05


@pytest.mark.parametrize("inputs", [48, 2048])
def test_products_without_torchs_operators_for_onednn_are_the_same(monkeypatch, inputs):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(33, inputs, generator=generator)
    weight, bias = torch.randn(70, inputs, generator=generator), torch.randn(70)
    found = Int8Linear(weight, bias)(rows)
    monkeypatch.setattr(torch.ops, "onednn", object())
    assert torch.allclose(Int8Linear(weight, bias)(rows), found, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("has_amx", "dtype"), [(True, torch.int8), (False, torch.uint8)])
def test_only_amx_gets_signed_rows_and_the_product_is_the_same(monkeypatch, has_amx, dtype):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(5, 40, generator=generator)
    weight = torch.randn(9, 40, generator=generator)
    operators, seen = torch.ops.onednn, []

    def recorded(rows, *others):
        seen.append(rows.dtype)
        return operators.qlinear_pointwise(rows, *others)

    found = Int8Linear(weight)(rows)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_amx)
    stand_in = SimpleNamespace(
        qlinear_prepack=operators.qlinear_prepack, qlinear_pointwise=recorded
    )
    monkeypatch.setattr(torch.ops, "onednn", stand_in)
    assert torch.equal(Int8Linear(weight)(rows), found)
    assert seen == [dtype]


def test_a_row_does_not_depend_on_its_neighbours():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(37, 64, generator=generator) * torch.logspace(-3, 3, 37)[:, None]
    product = Int8Linear(torch.randn(50, 64, generator=generator))
    together = product(rows)
    for number, row in enumerate(rows):
        assert torch.equal(product(row[None])[0], together[number])


def test_rows_of_zeros_and_of_no_numbers():
    product = Int8Linear(torch.tensor([[1.0, -2.0], [0.0, 0.0]]), torch.tensor([0.5, 0.25]))
    rows = torch.tensor([[0.0, 0.0], [torch.nan, 1.0], [torch.inf, 1.0], [127.0, 0.0]])
    found = product(rows)
    assert found[0].tolist() == [0.5, 0.25]
    assert found[1].isnan().all()
    assert found[2].isnan().all()
    assert found[3].tolist() == pytest.approx([2 * 64 + 0.5, 0.25])


@pytest.mark.parametrize("tied", ["all", "none"])
def test_a_model_in_int8_is_near_the_one_in_fp32_and_leaves_it_alone(tied):
    torch.manual_seed(1)
    config = ModelConfig(num_layers=2, d_model=32, d_ff=64, num_heads=4, tied_embeddings=tied)
    model = Transformer(config, 50).eval()
    before = copy.deepcopy(model.state_dict())
    rounded = at_precision(model, "int8")
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert sum(isinstance(m, Int8Linear) for m in rounded.modules()) == len(linears) + 1
    assert not any(isinstance(m, nn.Linear) for m in rounded.modules())
    sides = [pack(torch.randint(3, 50, (9,)), [4, 5], CPU) for _ in range(2)]
    with torch.no_grad():
        exact = model.project(model(*sides))
        found = rounded.project(rounded(*sides))
    assert (found - exact).abs().max() < 0.05 * exact.abs().max()
    assert not torch.equal(found, exact)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_a_model_that_is_changed_computes_as_its_copy(name):
    torch.manual_seed(1)
    model = Transformer(ModelConfig(num_layers=2, d_model=32, d_ff=64, num_heads=4), 50).eval()
    copied = at_precision(model, name)
    sides = [pack(torch.randint(3, 50, (9,)), [4, 5], CPU) for _ in range(2)]
    change_precision(model, name)
    with torch.no_grad():
        assert torch.equal(model.project(model(*sides)), copied.project(copied(*sides)))
    assert at_precision(model, name) is model


def test_each_weight_is_given_up_when_it_is_rounded(monkeypatch):
    model = Transformer(ModelConfig(num_layers=2, d_model=8, d_ff=8, num_heads=2), 50)
    linears = weakref.WeakSet(m for m in model.modules() if isinstance(m, nn.Linear))
    alive = []

    def counted(rows):
        alive.append(len(linears))
        return rounded_rows(rows)

    monkeypatch.setattr("nmt_cli.model.cpu_products.rounded_rows", counted)
    change_precision(model, "int8")
    assert alive == [*range(len(alive) - 1, 0, -1), 0]


def test_layers_in_bf16_compute_as_without_torchs_operators_for_onednn(monkeypatch):
    torch.manual_seed(1)
    model = Transformer(ModelConfig(num_layers=2, d_model=32, d_ff=64, num_heads=4), 50).eval()
    packed = at_precision(model, "bf16")
    monkeypatch.setattr(PackedLinear, "is_possible", lambda weight: False)
    plain = at_precision(model, "bf16")
    assert any(isinstance(module, nn.Linear) for module in plain.modules())
    sides = [pack(torch.randint(3, 50, (9,)), [4, 5], CPU) for _ in range(2)]
    with torch.no_grad():
        found, expected = (each.project(each(*sides)).float() for each in (packed, plain))
    assert (found - expected).abs().max() <= 0.02 * expected.abs().max()


@pytest.mark.parametrize("missing", ["_reorder_linear_weight", "_linear_pointwise"])
def test_layers_are_packed_only_with_torchs_operators(monkeypatch, missing):
    weight = torch.ones(2, 2, dtype=torch.bfloat16)
    is_bf16_supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert PackedLinear.is_possible(weight) == is_bf16_supported
    assert not PackedLinear.is_possible(weight.double())
    names = {"_reorder_linear_weight", "_linear_pointwise"} - {missing}
    operators = SimpleNamespace(
        _is_mkldnn_bf16_supported=lambda: True, **dict.fromkeys(names, print)
    )
    monkeypatch.setattr(torch.ops, "mkldnn", operators)
    assert not PackedLinear.is_possible(weight)


def test_a_model_in_double_precision_is_rounded_too():
    model = Transformer(ModelConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2), 50).double()
    assert at_precision(model, "fp32").output_weight.dtype == torch.float32
    assert at_precision(model, "bf16").output_weight.dtype == torch.bfloat16


def test_int8_cannot_be_taken_back():
    model = Transformer(ModelConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2), 50)
    rounded = at_precision(model, "int8")
    with pytest.raises(ValueError, match="rounded to int8, fp32 is impossible"):
        at_precision(rounded, "fp32")
