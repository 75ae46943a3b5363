"""Searches with our kernels, in Triton's interpreter, find what the others find."""

import random
from contextlib import contextmanager

import pytest
import torch

from nmt_cli.hardware.device import DTYPES
from nmt_cli.search.graphed import kernel_check
from nmt_cli.search.graphed import model as model_module
from nmt_cli.search.graphed.kernel_check import kernels_work
from tests.fake_models import BOS
from tests.kernels_in_triton import DEVICE, MARKS
from tests.search.graphed.test_graphed_search import (
    VARIANTS,
    VOCABULARY_SIZE,
    assert_same,
    plain_search,
    search_ahead,
    sentences_of,
    settings_of,
    sharp_model,
)

from nmt_cli.model.triton_kernels import beam_attention, best_entries  # isort: skip

pytestmark = MARKS


def why_not(precision="fp32"):
    model, settings = sharp_model(d_v=6), settings_of(3)
    shape = model.config.decoder_shape._replace(num_layers=1)
    return kernel_check._why_not(shape, settings, DTYPES[precision], VOCABULARY_SIZE, DEVICE)


@pytest.mark.parametrize("config", VARIANTS[2::2])
def test_finds_what_the_other_search_finds(config, monkeypatch):
    monkeypatch.setattr(model_module, "kernels_work", lambda *_: True)
    model, settings = sharp_model(num_heads=2, **config).to(DEVICE), settings_of(2, n_best=2)
    sentences = sentences_of(random.Random(5), 3, 5, 4)
    expected = plain_search(model, sentences, 3, settings)
    assert_same(search_ahead(model, sentences, 2, settings), expected)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_kernels_pass_their_trial(precision):
    assert why_not(precision) is None


def test_kernels_that_fail_or_compute_something_else_are_not_used(monkeypatch, caplog):
    attend, entries = beam_attention.attend_to_past, best_entries.best_entries
    monkeypatch.setattr(beam_attention, "attend_to_past", lambda *given: 1.03 * attend(*given))
    for precision in ("fp32", "bf16"):
        assert why_not(precision).startswith("the result of attention to the past is off by 3.")
    monkeypatch.setattr(beam_attention, "attend_to_past", attend)
    without = entries(torch.zeros(12, 37, device=DEVICE), 6, BOS)[2] * torch.nan
    monkeypatch.setattr(best_entries, "best_entries", lambda *x: (*entries(*x)[:2], without[:6]))
    assert why_not() == "the result of normalizers is off by nan%, torch's by 0.0%"
    monkeypatch.setattr(best_entries, "best_entries", lambda x, n, _: entries(x, n, -1))
    assert why_not() == "they find other pieces"
    monkeypatch.setattr(best_entries, "best_entries", lambda *_: 1 // 0)
    assert why_not().startswith("ZeroDivisionError: ")
    monkeypatch.setattr(kernel_check, "has_triton", lambda _: True)
    on_gpu, chosen = torch.device("cuda", 1), list[torch.device | None]()

    @contextmanager
    def current(device):
        chosen.append(device)
        yield
        chosen.append(None)

    def fails(*_):
        assert chosen == [on_gpu]  # Triton launches on it
        return "CompilationError: at 3:4"

    monkeypatch.setattr(torch.cuda, "device", current)
    monkeypatch.setattr(kernel_check, "_why_not", fails)
    shape = sharp_model().config.decoder_shape
    for _ in range(2):
        assert not kernels_work(shape, settings_of(3), torch.float32, 37, on_gpu)
    assert caplog.text.count("CompilationError: at 3:4") == 1
    assert kernels_work(shape, settings_of(33), torch.float32, 37, on_gpu) is False
