"""Rounding in training, against models stored in int8 and the library that computes in int8."""

import copy
from itertools import chain

import numpy as np
import pytest
import torch

from nmt_cli.model.compiled.layers import CompiledLayers, Sentences
from nmt_cli.model.packing import pack
from nmt_cli.model.stored_weights import quantized_rows
from nmt_cli.model.transformer import round_to_int8, rounded_to_int8
from tests.architectures import OPTION_SETS, random_model
from tests.fake_models import packed_model

SIZE = 37
SOURCES, TARGETS = [[4, 5, 6, 7, 8], [9, 10, 3]], [[1, 12, 13, 14], [1, 30, 31, 3, 20, 21]]


def test_rows_become_what_a_file_in_int8_holds():
    torch.manual_seed(1)
    rows = torch.randn(7, 33) * torch.tensor([1e-40, 1e-20, 1e-3, 1, 7, 1e5, 1e30])[:, None]
    rows = torch.cat([rows, torch.zeros(1, 33)])
    scales, integers = quantized_rows(rows.numpy())
    assert np.array_equal(rounded_to_int8(rows).numpy(), integers * scales)
    assert torch.equal(rounded_to_int8(rounded_to_int8(rows[2:6])), rounded_to_int8(rows[2:6]))
    rows[3, 2], rows[5, 4] = torch.nan, torch.inf
    assert rounded_to_int8(rows).isnan().all(dim=1).tolist() == [
        each in (3, 5) for each in range(8)
    ]


def test_the_gradient_passes_the_rounding():
    rows = torch.randn(3, 5, requires_grad=True)
    factors = torch.randn(3, 5)
    found = rounded_to_int8(rows)
    (found * factors).sum().backward()
    assert rows.grad is not None
    assert torch.equal(rows.grad, factors)
    (wide,) = rounded_to_int8(rows[None].bfloat16())
    assert wide.dtype is torch.bfloat16
    assert torch.allclose(wide.float(), found, atol=0.02)


@pytest.mark.parametrize("options", OPTION_SETS)
def test_a_model_that_rounds_scores_as_the_library_in_int8(library, options):
    model = random_model(options, SIZE).eval()
    stored = copy.deepcopy(model)  # as it is read from a file in int8
    for parameter in stored.parameters():
        if parameter.dim() == 2:
            scales, integers = quantized_rows(parameter.detach().numpy())
            parameter.data = torch.from_numpy(integers * scales)
    expected, exact = scores_of_library(stored, library), torch_scores(model)
    round_to_int8(model)
    of_rounding = np.abs(exact - expected).mean()
    # It is 1e-7, unless the order of a sum decides between two integers.
    assert np.abs(torch_scores(model) - expected).mean() < of_rounding / 4


def test_a_copy_rounds_its_own_weights():
    model = random_model({}, SIZE).eval()
    round_to_int8(model)
    expected, copied = torch_scores(model), copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert np.array_equal(torch_scores(copied), expected)


def scores_of_library(model, library):
    layers = CompiledLayers(packed_model(model, library, "int8"))
    rows = layers.decode(Sentences.of(TARGETS), layers.encode(Sentences.of(SOURCES)))
    tokens = np.array([token for target in TARGETS for token in (*target[1:], 2)])
    return layers.token_scores(rows, tokens)


@torch.no_grad()
def torch_scores(model):
    source, target = (
        pack(torch.tensor([*chain(*side)]), [*map(len, side)]) for side in (SOURCES, TARGETS)
    )
    logits = model.project(model(source, target))
    tokens = torch.tensor([token for target in TARGETS for token in (*target[1:], 2)])
    return logits.log_softmax(1).gather(1, tokens[:, None])[:, 0].numpy()
