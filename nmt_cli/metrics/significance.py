"""Paired tests of sacrebleu: does a system score differently from a baseline on the same text?"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from sacrebleu.significance import PairedTest, Result

from nmt_cli.metrics.scorer import SIGNIFICANCE_LEVEL, Method, Resampling, Scorer

Verdict = Literal["better", "worse", "not significant"]

SACREBLEU_METHODS: dict[Method, str] = {"bootstrap": "bs", "randomization": "ar"}
SEED_VARIABLE = "SACREBLEU_SEED"
# sacrebleu holds all samples at once. Of chrF, which has the most statistics, a bootstrap holds 18
# float32 (three more for each order of words) and an index of 8 bytes for each segment of each
# sample; randomization holds two booleans and a copy of one as int64.
BYTES_PER_SAMPLED_SEGMENT: dict[Method, int] = {"bootstrap": 80, "randomization": 10}


class SystemFigures(NamedTuple):
    """The figures of one system in one metric, beside those of the baseline."""

    score: float
    difference: float  # from the baseline
    p_value: float | None  # None for the baseline
    verdict: Verdict | None  # None for the baseline
    bootstrap_mean: float | None  # None for randomization
    confidence: float | None  # half of the bootstrap's 95 % interval; None for randomization


class MetricFigures(NamedTuple):
    """The outcome of a paired test in one metric."""

    signature: str  # of the metric and the test
    systems: list[SystemFigures]  # the baseline first


BYTES_PER_WORD_ORDER: dict[Method, int] = {"bootstrap": 12, "randomization": 0}


def memory_needed(resampling: Resampling, num_segments: int, word_order: int = 0) -> int:
    """Return about how many bytes a paired test of a text takes at most; the order is chrF's."""
    method, num_samples, _ = resampling
    each = BYTES_PER_SAMPLED_SEGMENT[method] + word_order * BYTES_PER_WORD_ORDER[method]
    return each * num_samples * num_segments


def paired_test(
    scorer: Scorer,
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    resampling: Resampling,
) -> MetricFigures:
    """Compare each system with the first one, the baseline; equal arguments give equal figures.

    A system is a name and its lines.
    """
    with _seed_of_sacrebleu(resampling.seed):
        test = PairedTest(
            list(systems),
            {scorer.name: scorer.metric},
            references,
            test_type=SACREBLEU_METHODS[resampling.method],
            n_samples=resampling.num_samples,
        )
        signatures, columns = test()
    ((metric_name, signature),) = signatures.items()
    results = [result for result in columns[metric_name] if isinstance(result, Result)]
    return MetricFigures(
        str(signature),
        [_figures(result, results[0].score, scorer.higher_is_better) for result in results],
    )


def _figures(result: Result, baseline: float, higher_is_better: bool) -> SystemFigures:
    difference, p_value, verdict = float(result.score - baseline), None, None
    if result.p_value is not None:
        # sacrebleu counts the samples that differ more, plus one, so equal scores would get the
        # smallest p. Every sample differs at least as much as they do.
        p_value = 1.0 if difference == 0 else float(result.p_value)
        verdict = _verdict(difference, p_value, higher_is_better)
    return SystemFigures(
        float(result.score),
        difference,
        p_value,
        verdict,
        None if result.mean is None else float(result.mean),
        None if result.ci is None else float(result.ci),
    )


def _verdict(difference: float, p_value: float, higher_is_better: bool) -> Verdict:
    if p_value >= SIGNIFICANCE_LEVEL:
        return "not significant"
    return "better" if (difference > 0) == higher_is_better else "worse"


@contextmanager
def _seed_of_sacrebleu(seed: int) -> Iterator[None]:
    """Set the environment variable that is the only way to give sacrebleu's tests a seed."""
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before
