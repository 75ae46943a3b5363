import gc
from typing import Any, NamedTuple

import pytest
import torch

from nmt_cli.hardware import device
from nmt_cli.hardware.device import choose_device
from nmt_cli.launch.python_process import collecting_no_garbage
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError


class Parts(NamedTuple):
    tensors: Any
    other: Any
    last: Any


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choose_device("auto") == torch.device("cpu")
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="--device cuda:1 asked for, 0 GPUs are visible"):
        choose_device("cuda:1")
    for name in ("gpu", "meta", "cuda:x", ""):
        with pytest.raises(UserError, match="--device must be auto, cpu, cuda or cuda:N"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto").type == "cuda"
    assert choose_device("cuda:1") == torch.device("cuda", 1)


def test_auto_is_bf16_only_where_the_device_is_fast_at_it(monkeypatch):
    cpu = torch.device("cpu")
    for is_fast, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(device, "bf16_is_fast", lambda device, fast=is_fast: fast)
        assert device.choose_precision("auto", cpu) == expected
    assert device.choose_precision("fp32", cpu) == "fp32"
    assert device.choose_precision("bf16", cpu) == "bf16"


def test_a_cpu_is_fast_with_either_extension(monkeypatch):
    for avx, amx in ((True, False), (False, True), (False, False)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda avx=avx: avx)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx)
        assert device.bf16_is_fast(torch.device("cpu")) == (avx or amx)


@pytest.mark.parametrize(("capability", "fast"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_is_fast_from_ampere_on(monkeypatch, capability, fast):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert device.bf16_is_fast(torch.device("cuda")) == fast


def test_unknown_precision():
    with pytest.raises(UserError, match="--precision must be auto, fp32 or bf16, but is fp8"):
        device.choose_precision("fp8", torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "precision", "capability", "expected"),
    [
        ("cuda", "fp32", (8, 0), True),
        ("cuda", "fp32", (7, 5), False),
        ("cuda", "bf16", (9, 0), False),
        ("cpu", "fp32", (9, 0), False),
    ],
)
def test_tf32_is_used_for_a_training_in_fp32_on_gpus_that_have_it_and_logged(
    name, precision, capability, expected, monkeypatch, capsys
):
    logs.configure(quiet=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    setting: Any = torch.backends.cuda.matmul
    before = setting.fp32_precision
    with device.tf32_allowed(torch.device(name), precision):
        assert (setting.fp32_precision == "tf32") == expected
    assert setting.fp32_precision == before != "tf32"  # what follows in this process
    assert ("computed in TF32" in capsys.readouterr().err) == expected
    products = device.training_products(torch.device(name), precision)
    assert products == ("tf32" if expected else precision)


def test_tensors_sent_together_arrive_as_they_were(monkeypatch):
    """In one buffer, as for a GPU, which is the CPU here."""
    tensors = (torch.arange(5), torch.tensor([[1, 2, 3]], dtype=torch.int32), torch.zeros(0))
    parts = Parts(tensors, (3, 1), Parts((torch.tensor([True, False]),), None, tensors[0]))
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory, **kinds: empty(*size, **kinds))
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *_, **__: tensor)
    found = device.sent_together(torch.device("cuda"), parts)
    assert isinstance(found.last, Parts)
    assert found.last.last is found.tensors[0]  # it is sent once
    assert (found.other, found.last.other) == ((3, 1), None)
    for ours, theirs in zip(
        [*found.tensors, *found.last.tensors], [*tensors, *parts.last.tensors], strict=True
    ):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    of_one_copy = {each.untyped_storage().data_ptr() for each in found.tensors}
    assert of_one_copy.isdisjoint(each.untyped_storage().data_ptr() for each in tensors)
    assert len(of_one_copy) == 1
    assert device.sent_together(torch.device("cpu"), parts) is parts


@pytest.mark.parametrize(
    ("kind", "version", "found"),
    [
        (torch.OutOfMemoryError, "2.13.0+cu130", torch.OutOfMemoryError),
        (torch.OutOfMemoryError, "2.12.1+cu130", UserError),
        (RuntimeError, "2.13.0", UserError),
    ],
)
def test_the_first_error_of_a_recording_is_its_cause(kind, version, found, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    try:
        try:
            raise kind("the first\nmore")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    except RuntimeError as error:
        cause = device._why_not_recorded(error)
    assert type(cause) is found
    assert "the first" in str(cause)
    if found is UserError:
        assert str(cause).endswith(
            "give --no-cuda-graphs, and the kernels are launched one by one."
        )
        assert "more" not in str(cause)


def test_no_garbage_is_collected_in_a_recording():
    with collecting_no_garbage():
        assert not gc.isenabled()
    assert gc.isenabled()
