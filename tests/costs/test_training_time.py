"""Costs of whole trainings, against what the paper reports."""

import numpy as np
import pytest

from nmt_cli.costs import flops
from nmt_cli.costs.flops import (
    H100,
    HOUR,
    P100S,
    PAPER_BASE,
    PAPER_BIG,
    PAPER_GPUS,
    PAPER_SUSTAINED_FLOPS,
    SentenceLengths,
    planned_training,
    sum_lengths,
    sum_of_text,
    training_flops,
)
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.recipe.sections.training import TrainingConfig

SENTENCES = SentenceLengths(sum_lengths([27], [27]), 1, "assumed")


@pytest.mark.parametrize(
    ("config", "steps", "step_seconds", "hours", "flops"),
    [(PAPER_BASE, 100_000, 0.4, 12, 3.3e18), (PAPER_BIG, 300_000, 1.0, 84, 2.3e19)],
)
def test_the_papers_models_take_what_the_paper_reports(config, steps, step_seconds, hours, flops):
    seconds = P100S.step_seconds(config, 25_000)
    assert seconds is not None
    assert round(seconds, 1) == step_seconds
    assert steps * seconds == pytest.approx(hours * HOUR)
    estimate = steps * seconds * PAPER_GPUS * PAPER_SUSTAINED_FLOPS
    assert float(f"{estimate:.1e}") == flops  # Table 2


@pytest.mark.parametrize(
    "changes", [{"num_layers": 2}, {"d_k": 16}, {"num_heads": 4}, {"d_ff": 4096}, {"d_model": 1024}]
)
def test_no_other_model_has_a_published_time(changes):
    assert P100S.step_seconds(ModelConfig(**changes), 25_000) is None
    assert P100S.step_seconds(PAPER_BASE, 24_999) is None


def test_settings_that_change_no_width_keep_the_published_time():
    config = ModelConfig(dropout=0.3, positions="learned", d_k=64)
    assert P100S.step_seconds(config, 25_000) == P100S.step_seconds(PAPER_BASE, 25_000)


def test_the_papers_rate_is_that_of_base():
    per_token = training_flops(PAPER_BASE, 37_000, [27], [27]) / 27  # 381 MFLOP
    assert P100S.flops_per_second == pytest.approx(25_000 * per_token / 0.432)
    assert P100S.flops_per_second < 8 * 9.5e12


def test_the_rate_of_an_h100_is_the_measured_share_of_its_peak():
    assert H100.flops_per_second / 989.4e12 == pytest.approx(0.183, abs=0.002)
    flops_of_big = 25_000 * training_flops(PAPER_BIG, 37_000, [27], [27]) / 27
    assert flops_of_big / H100.of_big / 989.4e12 == pytest.approx(0.315, abs=0.004)


def test_a_step_is_full_on_its_longer_side():
    config = TrainingConfig(tokens_per_step=6_000, max_steps=10)
    longer_source, longer_target = (
        planned_training(PAPER_BASE, 900, config, SentenceLengths(sums, 1, "given"))
        for sums in (sum_lengths([30], [20]), sum_lengths([20], [30]))
    )
    assert longer_source is not None
    assert longer_target is not None
    assert longer_source.target_tokens_per_step == 4_000
    assert longer_target.target_tokens_per_step == 6_000
    assert longer_source.flops_per_step == pytest.approx(
        training_flops(PAPER_BASE, 900, [30] * 200, [20] * 200)
    )
    assert longer_source.flops == 10 * longer_source.flops_per_step
    assert longer_source.target_tokens == 40_000


@pytest.mark.parametrize(
    ("max_steps", "max_epochs", "pairs", "steps"),
    [
        (10, None, None, 10),
        (10, 3, None, 10),  # nothing is known of epochs
        (None, 3, None, None),
        (None, 3, 500, 15),  # 100 pairs a step
        (None, 3, 501, 16),
        (14, 3, 500, 14),
        (16, 3, 500, 15),
    ],
)
def test_the_end_that_comes_first_counts(max_steps, max_epochs, pairs, steps):
    config = TrainingConfig(tokens_per_step=2_700, max_steps=max_steps, max_epochs=max_epochs)
    lengths = SentenceLengths(SENTENCES.sums, 1, "a text", pairs)
    training = planned_training(PAPER_BASE, 900, config, lengths)
    assert (training.steps if training else None) == steps


def test_a_learning_rate_of_0_ends_training_too():
    config = TrainingConfig(
        tokens_per_step=2_700,
        max_steps=None,
        max_epochs=3,
        schedule="cosine",
        peak_learning_rate=1e-3,
        warmup_steps=4,
        decay_steps=8,
    )
    lengths = SentenceLengths(SENTENCES.sums, 1, "a text", 500)
    training = planned_training(PAPER_BASE, 900, config, lengths)
    assert training is not None
    assert training.steps == 12


def test_a_text_is_summed_in_parts(monkeypatch):
    monkeypatch.setattr(flops, "PAIRS_AT_ONCE", 7)
    rng = np.random.default_rng(1)
    source, target = rng.integers(1, 900, (2, 40), dtype=np.uint16)
    assert sum_of_text(source, target) == sum_lengths(source, target)


def test_the_means_are_those_of_the_pairs():
    text = SentenceLengths(sum_lengths([3, 4, 8], [1, 1, 7]), 3, "a text")
    assert (text.mean_source, text.mean_target) == (5, 3)
