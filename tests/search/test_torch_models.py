import pytest
import torch

from nmt_cli.hardware.machine_options import DecodingPrecision
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.search.torch_models import at_precision, torch_precision

CPU = torch.device("cpu")


def test_a_model_of_another_precision_is_copied():
    name: DecodingPrecision
    model = Transformer(ModelConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2), 50).double()
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        copied = at_precision(model, name)
        assert {each.dtype for each in copied.parameters()} == {dtype}
        assert at_precision(copied, name) is copied
    assert model.output_weight.dtype == torch.float64


def test_torch_translates_in_fp32_on_a_cpu(caplog):
    assert torch_precision("auto", CPU) == torch_precision("fp32", CPU) == "fp32"
    for name in ("bf16", "int8"):
        with pytest.raises(UserError, match=f"--precision {name} on a CPU needs nmt-cli's library"):
            torch_precision(name, CPU)
    assert not caplog.records  # the library is missing, whatever instructions the CPU has


def test_int8_is_named_where_it_could_have_been_given():
    with pytest.raises(UserError, match="must be auto, fp32, bf16 or int8, but is int4"):
        torch_precision("int4", CPU)
