"""The targets on 2 CPU cores, against the best Python peer in the same precision."""

from typing import NamedTuple


class Target(NamedTuple):
    """A ratio to reach, and one to aim at."""

    least: float
    aim: float


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
# Against peers with the same allocator and kernels; and the share of the fp32 ceiling.
TUNED = {"S": Target(1.15, 1.15), "base": Target(1.05, 1.05)}
CEILING_SHARE = {"S": Target(0.6, 0.6), "base": Target(0.75, 0.75)}
# Speed with the waiting that commands choose, of the quiet speed with OpenMP's default.
MIN_QUIET, MIN_BESIDE, MIN_TWO = 0.97, 0.47, 0.45
MAX_MEMORY_RATIO = 0.5  # of the Hugging Face loop, scaled by tokens
MAX_LOSS_DIFFERENCE = 0.01
MAX_ATTENTION_PADDING = 0.05
MAX_WAIT_SHARE = 0.01
MIN_ENCODING_RATIO = 0.8  # of SentencePiece's own rate
MAX_PLANNER_SECONDS, MAX_PLANNER_MEMORY = 6.0, 700_000_000


def kind_of(flag: str) -> str:
    """Return which row of SPEED a CPU belongs to."""
    return WITH_AMX if flag == "amx_bf16" else WITHOUT_AMX


def verdict(reached: bool) -> str:
    """Return whether a target is reached, as text."""
    return "met" if reached else "**not met**"
