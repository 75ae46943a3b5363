"""The library for CPUs: what it does with logits, and which level of it is loaded."""

import ctypes
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt_cli.hardware.cpu import Cpu, read_cpu
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled import kernels as module
from nmt_cli.model.compiled.kernels import (
    FOLDER,
    LEVELS,
    LIBRARY,
    NoKernelsError,
    load_kernels,
    use_kernels,
)
from nmt_cli.search.choice import BestCandidates
from nmt_cli.search.rules.logits_rule import SlotStates
from nmt_cli.search.top_k import log_normalizers

# They are not read.
NO_STATES = SlotStates(np.zeros(0), np.zeros(0), np.zeros(0), {})


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.mark.parametrize("width", [7, 32, 50, 64])
def test_normalizers_are_those_of_torch_for_each_row_alone(kernels, width):
    logits = torch.randn(9, width) * 20
    logits[1] -= 1e4
    logits[2] += 100.0
    logits[3, 0] = torch.inf
    logits[4, -1] = torch.nan
    logits[5, 1:] = -torch.inf
    with use_kernels(kernels):
        found = log_normalizers(logits)
        alone = torch.cat([log_normalizers(row[None]) for row in logits])
    assert torch.equal(found.nan_to_num(), alone.nan_to_num())
    expected = log_normalizers(logits)
    assert torch.allclose(found, expected, rtol=1e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("number", [2, 8, 40])
@pytest.mark.parametrize("num_entries", [7, 64, 200, 1003])
def test_the_best_continuations_are_those_of_torch(kernels, num_entries, number):
    """Whole numbers, so that many are equal."""
    choice, (slots, beam_size) = BestCandidates(number), (6, 4)
    logits = torch.randint(-3, 4, (slots * beam_size, num_entries)).float()
    logits[:4, 3:] = -torch.inf
    logits[5] = -torch.inf
    scores = np.random.default_rng(1).integers(-2, 1, (slots, beam_size)).astype(np.float32)
    scores[2, 1:], scores[3] = -np.inf, -np.inf
    normalizers = torch.randint(0, 3, (slots * beam_size,)).float()
    expected = choice.candidates(logits, normalizers, scores, NO_STATES)
    with use_kernels(kernels):
        found = choice.candidates(logits, normalizers, scores, NO_STATES)
    assert np.array_equal(found.scores, expected.scores)
    exist = found.scores > -np.inf
    assert np.array_equal(found.tokens[exist], expected.tokens[exist])
    assert np.array_equal(found.parents[exist], expected.parents[exist])


def test_what_kernels_do_not_know_is_left_to_torch(kernels):
    logits = torch.randn(7, 48).numpy()
    assert kernels.can_choose(logits, 8)
    assert not kernels.can_choose(logits.astype(np.float16), 8)
    assert not kernels.can_choose(logits[:, ::2], 8)


def test_a_sum_of_very_many_exponentials_is_exact_to_fp32(kernels):
    logits = torch.randn(3, 300_000) * 3
    logits[1] = -torch.inf
    logits[1, 7] = -60.0
    with use_kernels(kernels):
        found = log_normalizers(logits)
    assert torch.allclose(found.double(), logits.double().logsumexp(1), rtol=0, atol=3e-6)


@pytest.fixture
def folder(monkeypatch, tmp_path, kernels):
    """Return a copy of the folder of the library, from which it is loaded."""
    del kernels  # skips where the library could not be built
    copy = tmp_path / "compiled"
    shutil.copytree(FOLDER, copy)
    monkeypatch.setattr(module, "FOLDER", copy)
    monkeypatch.setattr(module, "LIBRARY", copy / LIBRARY.name)
    return copy


def test_the_fastest_level_of_the_cpu_is_chosen(folder, monkeypatch):
    real = read_cpu().flags
    for level, flags in LEVELS.items():
        if "amx" in level and not flags <= real:
            continue  # Linux would refuse it
        cpu = Cpu("AnyVendor", 1, flags | {"fpu"})
        monkeypatch.setattr(module, "read_cpu", lambda cpu=cpu: cpu)
        if hasattr(ctypes.CDLL(str(folder / LIBRARY.name)), f"{level}_compute_rows"):
            assert load_kernels.__wrapped__().level == level


def test_a_cpu_without_a_level_has_no_library(folder, monkeypatch):
    del folder
    old = Cpu("GenuineIntel", 6, frozenset({"sse2", "avx"}))
    monkeypatch.setattr(module, "read_cpu", lambda: old)
    with pytest.raises(NoKernelsError, match="no compiled layers for this kind of CPU"):
        load_kernels.__wrapped__()


def test_a_missing_or_damaged_library_is_named_with_what_to_do(folder):
    library = folder / LIBRARY.name
    library.write_bytes(b"\x7fELF")
    with pytest.raises(NoKernelsError, match=r"library\.so cannot be loaded: .*Install a"):
        load_kernels.__wrapped__()
    library.unlink()
    with pytest.raises(NoKernelsError, match=r"library\.so was not built when .*apt install gcc"):
        load_kernels.__wrapped__()


def test_a_library_of_other_sources_is_refused(folder):
    load_kernels.__wrapped__()
    with (folder / "layers.c").open("a") as source:
        source.write("/* a change */")
    with pytest.raises(UserError, match="built from other sources than those"):
        load_kernels.__wrapped__()
    for each in (*folder.glob("*.c"), *folder.glob("*.h")):  # as in a wheel
        each.unlink()
    load_kernels.__wrapped__()


def test_setup_knows_the_levels_of_the_loader():
    text = Path("setup.py").read_text()
    assert set(re.findall(r'"(\w+)": \((?:"-march|V4)', text)) == set(LEVELS)
