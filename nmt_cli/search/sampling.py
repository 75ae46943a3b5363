"""Samples of a model's translations instead of its best ones.

Each sample is a search of its own with a beam of 1, so any number of samples of a sentence share
the slots with those of other sentences.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.recipe.search_ranges import (
    NUM_SAMPLES,
    SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    refuse_outside,
)
from nmt_cli.search.beams import Array, SearchSettings
from nmt_cli.search.sentences import Cause, Failure, Outcome, Sentence

SAMPLING = "sampling"  # the key of a sample's random numbers in ``Sentence.rule_data``

# SplitMix64: the n-th number of a key is a hash of key + n * STEP, modulo 2^64.
STEP = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)
BITS_64 = (1 << 64) - 1


def key_of(numbers: Iterable[int]) -> int:
    """Return 64 random bits, equal for equal ``numbers``, which may be any whole numbers."""
    key = 0
    for number in numbers:
        key = _mixed((key ^ number & BITS_64) + STEP & BITS_64)
    return key


def uniforms(keys: Array, positions: Array) -> Array:
    """Return the number in [0, 1) of each key (uint64) at its position, counted from 0."""
    bits = keys + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(STEP)
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits ^= bits >> np.uint64(SHIFTS[-1])
    return (bits >> np.uint64(11)) * 2.0**-53


def _mixed(bits: int) -> int:
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        bits = (bits ^ (bits >> shift)) * factor & BITS_64
    return bits ^ (bits >> SHIFTS[-1])


class Sampling(NamedTuple):
    """How translations are drawn.

    Of the pieces that the rules allow, the ``top_k`` most probable stay, and of these the fewest
    whose share of the probability reaches ``top_p``. One is drawn with probability proportional to
    p^(1 / ``temperature``), which also decides the shares.
    """

    temperature: float = TEMPERATURE.default
    top_k: int | None = None
    top_p: float = TOP_P.default
    seed: int = SEED.default

    @property
    def fp32_temperature(self) -> float:
        """The temperature, or the least one above 0 in fp32: it leaves only the largest logits."""
        return max(self.temperature, float(np.finfo(np.float32).tiny))

    def refuse_wrong(self, num_samples: int) -> None:
        """Raise UserError if a setting, an option of translate, is out of range."""
        refuse_outside("--temperature", self.temperature, TEMPERATURE)
        refuse_outside("--sample-top-k", self.top_k, TOP_K)
        refuse_outside("--sample-top-p", self.top_p, TOP_P)
        refuse_outside("--n-best with --sample", num_samples, NUM_SAMPLES)

    def search_settings(
        self, settings: SearchSettings, num_samples: int, beam_size: int | None
    ) -> SearchSettings:
        """Return the settings for the search of a sample; a ``beam_size`` has no effect.

        Raises UserError if there is one, or if a setting is out of range.
        """
        self.refuse_wrong(num_samples)
        if beam_size is not None:
            raise WrongUsageError("--beam-size is not for --sample, which draws --n-best samples.")
        return settings._replace(beam_size=1, n_best=1)

    def samples_of(
        self, sentences: Iterable[Sentence], line: int, num_samples: int
    ) -> list[Sentence]:
        """Return each of ``sentences``, the parts of a line, once for each sample.

        What is drawn depends on the seed, the number of the line and the part, and the rank of the
        sample. It depends neither on the number of samples nor on other lines.
        """
        keys = [
            (sentence, key_of((self.seed, line, part, rank)))
            for part, sentence in enumerate(sentences)
            for rank in range(num_samples)
        ]
        return [
            sentence._replace(rule_data={**sentence.rule_data, SAMPLING: key}, n_best=1)
            for sentence, key in keys
        ]


def gathered(outcomes: Sequence[Outcome], num_samples: int) -> list[Outcome]:
    """Return the outcome of each sentence; ``outcomes`` are those of its samples, one by one.

    The hypotheses stay in the order in which they were drawn. A sample that nothing could continue
    is left out if another one of its sentence has an end.
    """
    merged: list[Outcome] = []
    for start in range(0, len(outcomes), num_samples):
        samples = outcomes[start : start + num_samples]
        drawn = [sample for sample in samples if not isinstance(sample, Failure)]
        failures = [sample for sample in samples if isinstance(sample, Failure)]
        failures.sort(key=lambda failure: failure.cause is Cause.IMPOSSIBLE)  # this one last
        if drawn and all(failure.cause is Cause.IMPOSSIBLE for failure in failures):
            merged.append(tuple(hypothesis for sample in drawn for hypothesis in sample))
        else:
            merged.append(failures[0])
    return merged
