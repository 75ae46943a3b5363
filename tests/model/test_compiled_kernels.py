"""The library of --compile: what it does with logits, and how it is made."""

import numpy as np
import pytest
import torch

from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled.kernels import load_kernels, use_kernels
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
    logits = torch.randn(7, 48)
    assert kernels.can_choose(logits, 8)
    assert not kernels.can_choose(logits.bfloat16(), 8)
    assert not kernels.can_choose(logits[:, ::2], 8)
    assert not kernels.can_choose(logits, 10_000)


def test_a_sum_of_very_many_exponentials_is_exact_to_fp32(kernels):
    logits = torch.randn(3, 300_000) * 3
    logits[1] = -torch.inf
    logits[1, 7] = -60.0
    with use_kernels(kernels):
        found = log_normalizers(logits)
    assert torch.allclose(found.double(), logits.double().logsumexp(1), rtol=0, atol=3e-6)


def test_without_a_compiler_the_message_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UserError, match=r"no C compiler was found \(.*\)\. Install one"):
        load_kernels.__wrapped__()


def test_a_compiler_that_fails_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(UserError, match="--compile is not possible: false failed: exit status 1"):
        load_kernels.__wrapped__()
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"cannot run .*none: No such file"):
        load_kernels.__wrapped__()
    monkeypatch.setenv("CC", "gcc '")
    with pytest.raises(UserError, match="CC is gcc ', which is no command: No closing quotation"):
        load_kernels.__wrapped__()
    monkeypatch.setenv("CC", "true")
    with pytest.raises(UserError, match="what true made cannot be loaded"):
        load_kernels.__wrapped__()
    assert list(tmp_path.glob("nmt-cli/kernels/*")) == []


def test_the_error_of_a_compiler_is_shown(kernels, monkeypatch, tmp_path):
    del kernels
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "cc -D__builtin_convertvector=nothing")
    with pytest.raises(UserError, match=r"not possible: cc failed: .*vectors.h:.* error: "):
        load_kernels.__wrapped__()


def test_without_openmp_one_thread_computes(kernels, monkeypatch, tmp_path, caplog):
    del kernels
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-fopenmp\\ *) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", str(compiler))
    found = load_kernels.__wrapped__()
    assert found.log_normalizers(torch.zeros(1, 8)).item() == pytest.approx(np.log(8))
    assert "Compiled layers use one thread, because" in caplog.text


def test_what_was_compiled_is_used_again(monkeypatch, tmp_path, kernels):
    del kernels
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_kernels.__wrapped__()
    (library,) = (tmp_path / "nmt-cli/kernels").iterdir()
    made = library.stat().st_mtime_ns
    load_kernels.__wrapped__()
    assert [each.stat().st_mtime_ns for each in library.parent.iterdir()] == [made]


def test_a_damaged_library_is_compiled_again(monkeypatch, tmp_path, kernels):
    del kernels
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "whole"))
    load_kernels.__wrapped__()
    (whole,) = (tmp_path / "whole/nmt-cli/kernels").iterdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "damaged"))
    damaged = tmp_path / "damaged/nmt-cli/kernels" / whole.name
    damaged.parent.mkdir(parents=True)
    damaged.touch()
    load_kernels.__wrapped__()
    assert damaged.stat().st_size == whole.stat().st_size
