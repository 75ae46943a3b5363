import threading
from itertools import chain

import numpy as np
import pytest
import torch

from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.costs.parameters import activation_bytes_per_token
from nmt_cli.hardware.machine import Machine
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.launch.worker import Worker
from nmt_cli.messages import logs
from nmt_cli.model.cpu_attention import MAX_KEYS
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.training import batch_cut
from nmt_cli.training.batch_cut import (
    BatchCut,
    choose_cut,
    cut_as_before,
    report_other_limit,
)
from tests.forked_ranks import run_ranks
from tests.trainers import changed, new_trainer

ALLOWED = "nmt_cli.hardware.memory.allowed_memory"
CPU = Machine(torch.device("cpu"), "fp32")


@pytest.fixture(autouse=True)
def not_quiet():
    logs.configure(quiet=False)
    yield
    logs.configure(quiet=True)


def facts(max_tokens=100, multiple_of=1, limited_by="estimate"):
    return {
        "max_tokens_per_device": max_tokens,
        "micro_batches_multiple_of": multiple_of,
        "micro_batches_limited_by": limited_by,
    }


@pytest.mark.parametrize(
    ("before", "ranks", "expected"),
    [
        (facts(), 1, (100, 1)),
        (facts(max_tokens=80), 1, (80, 1)),  # about what fits here: the same draws of dropout
        (facts(max_tokens=60), 1, (100, 1)),  # this machine holds more
        (facts(max_tokens=200), 1, (100, 1)),  # this machine holds less
        (facts(max_tokens=80, limited_by="full memory"), 1, (100, 1)),  # tried again
        (facts(max_tokens=80, limited_by="option"), 1, (100, 1)),  # not given again
        (facts(multiple_of=4), 2, (100, 4)),  # the same pieces, two for each rank
        (facts(multiple_of=4), 1, (100, 4)),
        (facts(multiple_of=4), 3, (100, 3)),
        (facts(multiple_of=2), 4, (100, 4)),
        (facts(max_tokens=80), 2, (80, 2)),
        (facts(max_tokens=5), 1, (100, 1)),
    ],
)
def test_batches_are_cut_as_before_where_that_suits_the_machine(before, ranks, expected, capsys):
    found = cut_as_before(BatchCut(100), before, ranks)
    assert (found.max_tokens, found.multiple_of) == expected
    assert not capsys.readouterr().err  # a probe may still lower the limit
    report_other_limit(found, before)
    changed = before["max_tokens_per_device"] != found.max_tokens
    assert capsys.readouterr().err.count("\n") == changed


@pytest.mark.parametrize(
    ("limited_by", "reason"),
    [
        ("full memory", "lowered because memory was full"),
        ("option", "--max-tokens-per-device"),
        ("estimate", "what fits the memory"),
    ],
)
def test_another_limit_is_reported_with_its_reason(limited_by, reason, capsys):
    report_other_limit(BatchCut(100), facts(max_tokens=50, limited_by=limited_by))
    assert (
        "Micro-batches have at most 100 tokens a side (what fits the memory), "
        f"before 50 ({reason})."
    ) in capsys.readouterr().err


def test_a_limit_that_the_user_chose_stays(capsys):
    chosen = BatchCut(100, limited_by="option")
    assert cut_as_before(chosen, facts(max_tokens=80), 1) == chosen
    report_other_limit(chosen, facts(max_tokens=80))
    assert "(--max-tokens-per-device), before 80 (" in capsys.readouterr().err
    assert cut_as_before(BatchCut(30, limited_by="option"), facts(), 1).max_tokens == 30


def test_a_checkpoint_keeps_what_the_next_session_needs():
    cut = BatchCut(90, multiple_of=4)
    assert cut_as_before(BatchCut(100), cut.as_manifest(), 2) == cut


@pytest.mark.parametrize(
    ("name", "gibibytes", "processes", "is_enough"),
    [
        ("big", 64, 8, True),
        ("big", 8, 1, True),
        ("base", 4, 1, True),
        ("big", 4, 1, False),
        ("big", 16, 8, False),
    ],
)
def test_the_longest_sentence_always_fits_a_micro_batch(
    monkeypatch, capsys, name, gibibytes, processes, is_enough
):
    monkeypatch.setattr(ALLOWED, lambda: gibibytes << 30)
    recipe = read_recipe(name).recipe
    worker = Worker(0, processes, 0, processes, "launch", 0, None) if processes > 1 else None
    cut = choose_cut(recipe, 37_000, 600, CPU, worker, None)
    assert cut.max_tokens > 600 if is_enough else cut.max_tokens == 600
    assert not cut.is_limit_chosen
    stderr = capsys.readouterr().err
    assert (not stderr) == is_enough
    if not is_enough:
        assert stderr.startswith(f"Warning: {gibibytes}.0 GiB of memory are allowed")
        assert "600 are used, the longest sentence." in stderr
        assert ("fewer --devices" in stderr) == (processes > 1)


def cut_of_base(tokens_per_step=25_000, processes=1):
    recipe = changed(read_recipe("base").recipe, training={"tokens_per_step": tokens_per_step})
    worker = Worker(0, processes, 0, processes, "launch", 0, None)
    return choose_cut(recipe, 37_000, 1, CPU, worker, None).max_tokens


@pytest.mark.parametrize("processes", [1, 2])
def test_the_cpu_limit_fits_a_third_of_what_the_weights_leave(monkeypatch, processes):
    parameters = 4 * 4 * 63_100_000
    for gibibytes in (4, 6, 16):
        monkeypatch.setattr(
            "nmt_cli.hardware.memory.allowed_memory", lambda size=gibibytes: size << 30
        )
        max_tokens = cut_of_base(processes=processes)
        activations = max_tokens * activation_bytes_per_token(ModelConfig(), MAX_KEYS)
        left = (gibibytes << 30) / processes - parameters
        assert activations <= 1.01 * left / 3
        assert activations > 0.95 * left / 3 or max_tokens == batch_cut.MAX_TOKENS_ON_CPU


def test_nothing_fits_where_the_weights_do_not(monkeypatch, capsys):
    monkeypatch.setattr(ALLOWED, lambda: 1 << 29)
    assert cut_of_base() == 1
    assert "room for micro-batches of about 0 tokens a side; 1 are" in capsys.readouterr().err


def test_more_than_products_need_or_a_step_holds_is_never_taken(monkeypatch):
    monkeypatch.setattr(ALLOWED, lambda: 1 << 40)
    assert cut_of_base() == batch_cut.MAX_TOKENS_ON_CPU
    assert cut_of_base(tokens_per_step=700) == 700


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_each_rank_reads_only_its_own_pairs(toy, tmp_path, num_ranks):
    recipe = changed(toy.recipe, validation={"bleu": "off"}, training={"max_steps": 3})

    def on_rank(ranks):
        found, text = [], toy.corpus.source
        starts, read = text.starts_of(np.arange(len(text))), BinarizedText.read

        def noted(of, starts_read, lengths):
            if of is text:
                pairs = np.searchsorted(starts, starts_read).tolist()
                found.append((threading.current_thread().name, pairs))
            return read(of, starts_read, lengths)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BinarizedText, "read", noted)
            trainer = new_trainer(toy, tmp_path / "run", recipe, ranks=ranks)
            trainer.train(StopRequest())
        return found, [trainer.training.plan.batch(index).tolist() for index in range(3)]

    outcomes = run_ranks(num_ranks, tmp_path, on_rank)
    ahead = [[p for name, p in found if name.startswith("loader")] for found, _ in outcomes]
    # Micro-batch n is that of rank n. The loader may be at the batch after the last one.
    together = [list(chain(*parts)) for parts in zip(*ahead, strict=False)]
    assert together[:3] == outcomes[0][1]
    read = [set(chain(*(pairs for _, pairs in found))) for found, _ in outcomes]
    assert not set.intersection(*read) or num_ranks == 1
