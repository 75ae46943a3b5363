"""Formulas of costs, against models in which each two options of the architecture meet."""

import pytest
import torch

from nmt_cli.costs.flops import training_flops
from nmt_cli.costs.parameters import activation_bytes_per_token, count_parameters
from nmt_cli.model.packing import pack
from tests.architectures import OPTION_SETS, random_model
from tests.costs.test_flops_of_models import counted_by_torch
from tests.costs.test_memory_of_training import saved_bytes

SIZE = 37


@pytest.mark.parametrize("options", OPTION_SETS)
def test_the_formulas_give_what_the_model_takes(options):
    model = random_model(options, SIZE).train()
    config = model.config
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(config, SIZE).total == counted
    assert training_flops(config, SIZE, [7], [4]) == counted_by_torch(model, 7, 4)
    side = pack(torch.randint(SIZE, (24 * 8,)), [24] * 8)
    at_most = 24 * 8 * activation_bytes_per_token(config, 24)
    assert at_most / 4 < saved_bytes(model, side, side) <= at_most
