import pytest
import torch

from nmt_cli.hardware import torch_private
from nmt_cli.hardware.cpu import Cpu
from nmt_cli.hardware.device import bf16_is_fast

FUNCTIONS = {
    "_is_amx_tile_supported": "amx_tile",
    "_is_avx512_bf16_supported": "avx512_bf16",
}


@pytest.mark.parametrize("flag", [None, *FUNCTIONS.values()])
def test_a_torch_that_names_no_features_leaves_it_to_the_kernel(monkeypatch, flag):
    for function in FUNCTIONS:
        monkeypatch.delattr(torch.cpu, function)
    cpu = Cpu("GenuineIntel", 6, frozenset({"avx2", flag} - {None}))
    monkeypatch.setattr(torch_private, "read_cpu", lambda: cpu)
    assert torch_private.cpu_has_amx() == (flag == "amx_tile")
    assert torch_private.cpu_has_avx512_bf16() == (flag == "avx512_bf16")
    assert bf16_is_fast(torch.device("cpu")) == (flag is not None)
