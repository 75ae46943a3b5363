import os

import pytest
import torch

from nmt_cli.hardware import cpu, memory
from nmt_cli.hardware.cpu import THREAD_VARIABLES, Cores, set_num_threads
from nmt_cli.hardware.machine import (
    Machine,
    choose_machine,
    choose_rank_device,
    count_devices,
    log_changes,
)
from nmt_cli.hardware.machine_options import MachineOptions
from nmt_cli.launch.worker import Worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

MACHINE = Machine(torch.device("cpu"), "fp32")


def test_changes_of_the_machine_are_logged(capsys):
    logs.configure(quiet=False)
    before = {**MACHINE.arithmetic(), "precision": "bf16", "max_tokens_per_device": 100}
    log_changes(before, {**MACHINE.arithmetic(), "max_tokens_per_device": 30})
    found = capsys.readouterr().err
    assert "precision (was bf16, is fp32), max_tokens_per_device (was 100, is 30)" in found


def test_nothing_is_logged_if_nothing_changed(capsys):
    logs.configure(quiet=False)
    log_changes(MACHINE.arithmetic(), MACHINE.arithmetic())
    log_changes(MACHINE.arithmetic(), {**MACHINE.arithmetic(), "kernels": "ours"})  # on a GPU
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


def test_a_training_alone_has_no_more_threads_than_a_quota_leaves(monkeypatch):
    monkeypatch.setattr(cpu, "cores", lambda: Cores(64, quota=2.0))
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(3)
    try:
        found = choose_machine(torch.device("cpu"), None, MachineOptions())
        assert found.arithmetic()["threads"] == 2
    finally:
        set_num_threads(1)


def test_a_gpu_with_a_number_is_the_current_one(monkeypatch):
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for name in ("cpu", "cuda", "cuda:1"):
        assert choose_rank_device(name, None) == torch.device(name)
    assert chosen == [torch.device("cuda:1")]


def test_deterministic_training_does_not_take_our_kernels():
    options = MachineOptions(deterministic=True, kernels="ours")
    with pytest.raises(UserError, match="leave it or --kernels ours out"):
        choose_machine(torch.device("cpu"), None, options)


def test_a_worker_sets_up_the_allocator_before_torch_initializes_its_gpu(monkeypatch):
    """torch reads the variable in ``set_device``."""
    for name in memory.GPU_ALLOCATOR_VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found: list[tuple[torch.device, str | None]] = []

    def set_device(device):
        found.append((device, os.environ.get("PYTORCH_ALLOC_CONF")))

    monkeypatch.setattr(torch.cuda, "set_device", set_device)
    worker = Worker(3, 4, 1, 2, "launch", 0, None)
    assert choose_rank_device("auto", worker) == torch.device("cuda", 1)
    assert found == [(torch.device("cuda", 1), "expandable_segments:True")]


@pytest.mark.parametrize(
    ("name", "visible", "chosen"),
    [
        ("auto", 8, 5),
        ("auto", 1, 0),  # --gpus-per-task=1
        ("cuda:0", 1, 0),
        ("auto", 2, "srun has started 8 tasks on this node, but they see 2 GPUs; give it --gpus-p"),
        ("cuda:5", 8, "--device cuda:5 is one GPU, but 8 workers need one."),
    ],
)
def test_a_task_of_srun_sees_all_gpus_of_its_node_or_its_own(monkeypatch, name, visible, chosen):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    worker = Worker(5, 8, 5, 8, "7.0.0", 0, None, is_of_srun=True)
    if isinstance(chosen, str):
        with pytest.raises(UserError, match=chosen):
            choose_rank_device(name, worker)
        return
    assert choose_rank_device(name, worker) == torch.device("cuda", chosen)
    if visible < 8:
        with pytest.raises(UserError, match=r"visible|one GPU"):
            choose_rank_device(name, worker._replace(is_of_srun=False))


@pytest.mark.parametrize(
    ("variable", "is_of_srun", "threads"),
    [(None, True, 2), ("1", True, 2), ("3", True, 3), ("3", False, 2), ("1", False, 2)],
)
def test_the_workers_of_a_machine_share_its_threads(monkeypatch, variable, is_of_srun, threads):
    """torchrun sets the variable to 1 if it is not set, and enroot does so for tasks of srun."""
    monkeypatch.setattr(cpu, "cores", lambda: Cores(16))
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    worker = Worker(0, 8, 0, 8, "", 0, None, is_of_srun=is_of_srun, cores=16)
    torch.set_num_threads(int(variable or 16))  # as torch does when it is imported
    try:
        found = choose_machine(torch.device("cpu"), worker, MachineOptions())
        assert found.arithmetic()["threads"] == threads
    finally:
        set_num_threads(1)


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_gpu_is_deterministic_where_that_is_asked_for(monkeypatch, is_asked_for):
    calls: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", calls.append)  # else a slow import
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", calls.append)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    options = MachineOptions(precision="fp32", deterministic=is_asked_for)
    found = choose_machine(torch.device("cuda"), None, options)
    assert calls == ([False, True] if is_asked_for else [False])
    assert found.arithmetic()["deterministic"] == is_asked_for
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) == is_asked_for
