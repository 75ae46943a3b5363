"""The targets on 2 CPU cores, against the best Python peer in the same precision."""

from typing import NamedTuple


class Target(NamedTuple):
    """A ratio to reach, and one to aim at."""

    least: float
    aim: float


class DecodingTarget(NamedTuple):
    """A ratio of our output tokens a second to a peer's, at its best setting."""

    shape: str
    ours: str  # precision
    peer: str
    theirs: str  # precision
    least: float
    aim: float | None = None


COLUMNS = (("S", "fp32"), ("base", "fp32"), ("S", "bf16"), ("base", "bf16"))
# Kinds of machine, distinguished by the CPU flag amx_bf16.
WITH_AMX, WITHOUT_AMX = "Intel with AMX", "AMD"
SPEED = {
    WITH_AMX: dict(
        zip(
            COLUMNS,
            (Target(1.75, 2.0), Target(1.25, 1.4), Target(2.2, 2.8), Target(1.7, 2.2)),
            strict=True,
        )
    ),
    WITHOUT_AMX: dict(
        zip(
            COLUMNS,
            (Target(2.2, 2.7), Target(1.9, 2.3), Target(1.65, 1.9), Target(1.3, 1.5)),
            strict=True,
        )
    ),
}
CTRANSLATE2, GENERATE = "CTranslate2", "Hugging Face generate"
OF_GENERATE = tuple(
    DecodingTarget(shape, precision, GENERATE, precision, least)
    for shape, least in (("S", 3.0), ("base", 1.5))
    for precision in ("fp32", "bf16")
)
DECODING = {
    WITH_AMX: (
        DecodingTarget("S", "fp32", CTRANSLATE2, "float32", 0.9, 1.1),
        DecodingTarget("base", "fp32", CTRANSLATE2, "float32", 1.0, 1.1),
        DecodingTarget("S", "bf16", CTRANSLATE2, "float32", 1.6, 2.2),
        DecodingTarget("base", "bf16", CTRANSLATE2, "float32", 2.0, 2.6),
        DecodingTarget("S", "int8", CTRANSLATE2, "int8", 0.9, 1.1),
        DecodingTarget("base", "int8", CTRANSLATE2, "int8", 0.9, 1.1),
        *OF_GENERATE,
    ),
    WITHOUT_AMX: (
        DecodingTarget("S", "fp32", CTRANSLATE2, "float32", 0.9, 1.1),
        DecodingTarget("base", "fp32", CTRANSLATE2, "float32", 1.0, 1.1),
        DecodingTarget("S", "bf16", CTRANSLATE2, "float32", 1.3, 1.6),
        DecodingTarget("base", "bf16", CTRANSLATE2, "float32", 1.5, 1.8),
        DecodingTarget("S", "int8", CTRANSLATE2, "int8", 0.9, 1.1),
        DecodingTarget("base", "int8", CTRANSLATE2, "int8", 0.9, 1.1),
        *OF_GENERATE,
    ),
}
# Against CTranslate2, with one process: milliseconds of a sentence alone, and memory.
OF_PEER = {"fp32": "float32", "bf16": "float32", "int8": "int8"}
MAX_LATENCY = Target(2.5, 1.5)
MAX_TRANSLATING_MEMORY = {"S": 2.5, "base": 1.5}
MAX_START = 1.4  # of `import torch`
MAX_SECONDS_LATER = 0.5  # two processes, after one
# Against peers with the same allocator and kernels; and the share of the fp32 ceiling.
TUNED = {"S": Target(1.15, 1.15), "base": Target(1.05, 1.05)}
CEILING_SHARE = {"S": Target(0.6, 0.6), "base": Target(0.75, 0.75)}
# Speed with the waiting that commands choose, of the quiet speed with OpenMP's default.
MIN_OF_BEST_WAITING = 0.8  # with 8,000 spins, of the best policy in each situation
MAX_MEMORY_RATIO = 0.5  # of the Hugging Face loop, scaled by tokens
MAX_LOSS_DIFFERENCE = 0.01
MAX_ATTENTION_PADDING = 0.05
MAX_WAIT_SHARE = 0.01
MIN_ENCODING_RATIO = 0.8  # of SentencePiece's own rate
MIN_SPEED_OF_TWO_WORKERS = 1.7  # of preprocess, of that of one
# Whole commands: our seconds, of those of a script around CTranslate2, and the aim.
COMMANDS = {
    "S fp32": Target(0.95, 0.85),
    "S int8": Target(0.95, 0.85),
    "S bf16": Target(0.65, 0.55),
    "base fp32": Target(0.85, 0.75),
    "base int8": Target(0.75, 0.65),
}
MAX_ONE_LINE = Target(2.0, 1.5)
MAX_MEMORY_OF_COMMANDS = 1.0
SERVING_SHARE = Target(0.8, 0.9)  # of the sentences that translate does in the same CPU time
MOST_MILLISECONDS_OF_HTTP = 10.0  # more than a sentence takes by Translator
MAX_PLANNER_SECONDS, MAX_PLANNER_MEMORY = 6.0, 700_000_000


def kind_of(flag: str) -> str:
    """Return which row of SPEED a CPU belongs to."""
    return WITH_AMX if flag == "amx_bf16" else WITHOUT_AMX


def verdict(reached: bool) -> str:
    """Return whether a target is reached, as text."""
    return "met" if reached else "**not met**"
