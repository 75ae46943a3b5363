"""What a search takes and returns: settings, sentences and samples, and hypotheses or failures.

Sentence pairs are for models that read a given translation instead of searching for one.

Legend: N layers, H heads, S source pieces and </s>, T <s> and target pieces.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.messages import logs
from nmt_cli.messages.errors import NoTextError, WrongUsageError, means_full_memory
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.recipe.translation_options import NUM_SAMPLES, NUMBERS, refuse_outside

PASSED_BUG = "several sentences met a bug that halves of them did not meet; please report it"


class SearchSettings(NamedTuple):
    """The settings of a beam search."""

    beam_size: int
    length_penalty: float
    n_best: int
    bos_id: int
    eos_id: int
    token_scores: bool = False  # whether hypotheses get them

    def refuse_wrong(self) -> None:
        """Raise UserError if a setting, an option of translate, is out of range."""
        refuse_outside(beam_size=self.beam_size, length_penalty=self.length_penalty)
        if not 1 <= self.n_best <= self.beam_size:
            raise WrongUsageError(
                f"--n-best {self.n_best} must be at least 1 and at most "
                f"--beam-size {self.beam_size}."
            )


class Shortlist:
    """The only tokens that may follow the hypotheses of a sentence; it never changes.

    The probabilities of these tokens sum to 1. ``</s>`` is one of them, the start mark is none
    unless it is the same token.
    """

    def __init__(self, tokens: Array, eos_id: int) -> None:
        """``tokens`` are ascending."""
        self.tokens = np.ascontiguousarray(tokens, np.int64)
        # For the library: their address, how many there are, and the place of </s> among them.
        place = int(self.tokens.searchsorted(eos_id))
        self.location = self.tokens.ctypes.data, len(self.tokens), place


class Sentence(NamedTuple):
    """A sentence to translate."""

    tokens: Sequence[int]  # with </s>, as the encoder reads them
    longest_output: int  # tokens, without </s>
    rule_data: Mapping[str, Any] = MappingProxyType({})  # data for rules, by the rule's name
    n_best: int | None = None  # how many hypotheses to find; by default those of the settings
    beam_size: int | None = None  # at most that of the settings, which is the default
    length_penalty: float | None = None  # by default that of the settings
    # Whether its beam is shared between banks; hypotheses of only one bank can end.
    shares_beam: bool = False
    needs_units: bool = False  # whether its hypotheses need what their units attend to
    needs_words: bool = False  # whether they need what their words attend to
    shortlist: Shortlist | None = None  # all sentences of a search have one, or none has
    tag_length: int = 0  # tokens at its beginning that do not belong to its text

    @property
    def has_rules(self) -> bool:
        """Whether rules, or the choice of candidates, have data for it."""
        return bool(self.rule_data)


class Attended(NamedTuple):
    """The places of the greatest attention of one output."""

    tokens: tuple[int, ...]  # of each token: the place of a token of the source
    words: tuple[int, ...]  # of each word: the number of a word of the source
    num_source_words: int
    # If asked for: of each unit, the number of a unit of the source; of each unit of the source,
    # the number of the unit that attends to it most.
    units: tuple[int, ...] = ()
    attending: tuple[int, ...] = ()


class Hypothesis(NamedTuple):
    """A translation that has ended."""

    tokens: tuple[int, ...]  # without </s>
    log_probability: float  # of the tokens and </s>
    score: float  # the log-probability over the length penalty
    token_scores: tuple[float, ...] = ()  # log-probability of each token and of </s>, if asked for
    attended: Attended | None = None  # if asked for


class Cause(Enum):
    """Why a sentence has no hypothesis."""

    ITSELF = auto()  # what it contains, or what the model computes from it
    IMPOSSIBLE = auto()  # no output has a probability above 0
    NO_MEMORY = auto()
    BUG = auto()


@dataclass(frozen=True)
class Failure:
    """Why a sentence has no hypothesis, and the reason as messages show it."""

    cause: Cause
    reason: str
    bug: Exception | None = None


Hypotheses = tuple[Hypothesis, ...]  # of a sentence, best first
Outcome = Hypotheses | Failure
Done = tuple[int, Outcome]  # of a sentence, by its number in the order of admission
NOT_A_NUMBER = Failure(Cause.ITSELF, "the model's output is not a number")
IMPOSSIBLE = Failure(Cause.IMPOSSIBLE, "the model gives every translation probability 0")
NO_MEMORY = Failure(
    Cause.NO_MEMORY,
    "the memory is full even for this line alone; shorten it, or end other programs",
)


def failure_of(error: Exception) -> Failure | None:
    """Return why a line cannot be translated; None if ``error`` is a bug.

    An error is not a bug if it is caused by the line itself or by full memory.
    """
    if isinstance(error, (FloatingPointError, NoTextError)):
        return Failure(Cause.ITSELF, str(error))
    if means_full_memory(error):
        return NO_MEMORY
    return None


def ends_the_device(error: Exception) -> bool:
    """Return whether every later use of the GPU will fail too."""
    torch = sys.modules.get("torch")  # without it there is no such error
    is_of_gpu = torch is not None and isinstance(error, torch.AcceleratorError)
    return is_of_gpu and not means_full_memory(error)


def warn_of_passed(bug: Exception) -> None:
    """Warn of a bug that did not come back when the sentences were searched in halves."""
    logs.warning(f"{PASSED_BUG}:\n{''.join(traceback.format_exception(bug))}")


class SentencePair(NamedTuple):
    """A source and its translation as ids of pieces, without marks of start and end."""

    source: Sequence[int]
    target: Sequence[int]


class AttentionWeights(NamedTuple):
    """The attention weights of one sentence pair; those of a query sum to 1.

    Row t of the decoder reads the t-th token of <s> and the target, and predicts the t-th token of
    the target and </s>.
    """

    encoder: Array  # N H S S
    decoder: Array  # N H T T
    memory: Array  # N H T S


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
    """How samples are drawn instead of the best translations.

    Each sample is a search of its own with a beam of 1, so any number of samples of a sentence
    share the slots with those of other sentences.
    Of the pieces that the rules allow, the ``top_k`` most probable stay, and of these the fewest
    whose share of the probability reaches ``top_p``. One is drawn with probability proportional to
    p^(1 / ``temperature``), which also decides the shares.
    """

    temperature: float = NUMBERS["temperature"].default
    top_k: int | None = None
    top_p: float = NUMBERS["top_p"].default
    seed: int = NUMBERS["seed"].default

    @property
    def fp32_temperature(self) -> float:
        """The temperature, or the least one above 0 in fp32: it leaves only the largest logits."""
        return max(self.temperature, float(np.finfo(np.float32).tiny))

    def refuse_wrong(self, num_samples: int) -> None:
        """Raise UserError if a setting, an option of translate, is out of range."""
        refuse_outside(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        if not NUM_SAMPLES.holds(num_samples):
            given = f"but is {num_samples}"
            raise WrongUsageError(f"--n-best with --sample must be {NUM_SAMPLES}, {given}.")


def samples_of(
    sentences: Iterable[Sentence], sampling: Sampling, line: int, num_samples: int
) -> list[Sentence]:
    """Return each of ``sentences``, the parts of a line, once for each sample.

    What is drawn depends on the seed, the number of the line and the part, and the rank of the
    sample. It depends neither on the number of samples nor on other lines.
    """
    keys = [
        (sentence, key_of((sampling.seed, line, part, rank)))
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
