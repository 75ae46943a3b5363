import os

import pytest
import torch

from nmt_cli import logs
from nmt_cli.errors import UserError
from nmt_cli.hardware.machine import (
    Machine,
    MachineOptions,
    choose_machine,
    count_devices,
    cut_as_before,
)
from nmt_cli.hardware.ranks import Ranks


def facts(max_tokens=100, multiple_of=1, **others):
    return {"max_tokens_per_device": max_tokens, "micro_batches_multiple_of": multiple_of, **others}


def machine(ranks=1, max_tokens=100):
    return Machine(torch.device("cpu"), "fp32", max_tokens, Ranks(0, ranks), ranks)


@pytest.mark.parametrize(
    ("before", "ranks", "expected"),
    [
        (facts(), 1, (100, 1)),
        (facts(max_tokens=60), 1, (60, 1)),
        (facts(max_tokens=200), 1, (100, 1)),  # this machine holds less
        (facts(multiple_of=4), 2, (100, 4)),  # the same pieces, two for each rank
        (facts(multiple_of=4), 1, (100, 4)),
        (facts(multiple_of=4), 3, (100, 3)),
        (facts(multiple_of=2), 4, (100, 4)),
    ],
)
def test_batches_are_cut_as_before_where_that_is_possible(before, ranks, expected):
    found = cut_as_before(machine(ranks), before, is_chosen=False)
    assert (found.max_tokens, found.multiple_of) == expected


def test_a_flag_decides_the_cut_and_changes_are_told(capsys):
    logs.configure(quiet=False)
    found = cut_as_before(machine(max_tokens=30), facts(precision="bf16"), is_chosen=True)
    assert found.max_tokens == 30
    said = capsys.readouterr().err
    assert "precision (was bf16, is fp32), max_tokens_per_device (was 100, is 30)" in said


def test_nothing_is_told_where_nothing_changed(capsys):
    logs.configure(quiet=False)
    before = facts(precision="fp32", ranks=1, threads=torch.get_num_threads())
    cut_as_before(machine(), before, is_chosen=False)
    assert capsys.readouterr().err == ""


def test_devices_are_all_gpus_or_what_was_asked_for(monkeypatch):
    assert count_devices(None, "cpu") == 1
    assert count_devices(3, "cpu") == 3
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert count_devices(None, "auto") == 2
    assert count_devices(None, "cuda:1") == 1
    assert count_devices(1, "cuda") == 1
    with pytest.raises(UserError, match=r"--devices 8 asked for, 2 are visible\."):
        count_devices(8, "auto")


def test_compiling_needs_a_compiler_and_headers(toy, monkeypatch):
    def choose():
        choose_machine(toy.recipe, 100, torch.device("cpu"), None, {"compile": True})

    monkeypatch.setenv("CXX", "my-compiler")
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    with pytest.raises(UserError, match=r"Python's headers, but /nowhere/Python\.h is missing"):
        choose()
    monkeypatch.delenv("CXX")
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UserError, match=r"needs a compiler, and neither g\+\+ nor clang\+\+ nor"):
        choose()


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_gpu_is_deterministic_where_that_is_asked_for(toy, monkeypatch, is_asked_for):
    said: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", said.append)  # else a slow import
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", said.append)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    options: MachineOptions = {"precision": "fp32", "max_tokens_per_device": 99}
    if is_asked_for:
        options["deterministic"] = True
    found = choose_machine(toy.recipe, 100, torch.device("cuda"), None, options)
    assert said == ([False, True] if is_asked_for else [False])
    assert found.facts()["deterministic"] == is_asked_for
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) == is_asked_for
