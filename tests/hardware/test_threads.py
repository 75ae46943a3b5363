import sys

import pytest
import torch

from nmt_cli.hardware import cpu


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch):
    monkeypatch.setattr(cpu, "_num_threads", None)
    for name in cpu.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("cores", "variable", "expected"), [(2, None, 2), (64, None, 3), (2, "OMP_NUM_THREADS", 3)]
)
def test_a_quota_lowers_the_threads_that_nobody_chose(monkeypatch, cores, variable, expected):
    monkeypatch.setattr(cpu, "usable_cores", lambda: cores)
    if variable is not None:
        monkeypatch.setenv(variable, "3")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    chosen = [3]
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    cpu.set_num_threads(None)
    assert chosen[-1] == cpu.num_threads() == expected
    cpu.set_num_threads(5)
    assert chosen[-1] == cpu.num_threads() == 5


def test_without_torch_threads_are_those_that_were_set_or_as_many_as_cores(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(cpu, "usable_cores", lambda: 7)
    assert cpu.num_threads() == 7
    for text, expected in (("", 7), ("many", 7), ("0", 7), ("4", 4), ("9" * 20, 4096)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        cpu.set_num_threads(None)
        assert cpu.num_threads() == expected
    cpu.set_num_threads(2)
    assert cpu.num_threads() == 2


def test_torch_gets_the_number_that_was_set_before_it_was_imported(monkeypatch):
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "torch")
        cpu.set_num_threads(5)
    given: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    cpu.keep_num_threads()
    assert given == [5]
