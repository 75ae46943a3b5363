"""The settings of a paired test. No sacrebleu here, because the command line shows the defaults."""

from __future__ import annotations

from typing import Literal, NamedTuple

Method = Literal["bootstrap", "randomization"]

# The defaults of sacrebleu, so that both programs report the same figures.
NUM_SAMPLES: dict[Method, int] = {"bootstrap": 1_000, "randomization": 10_000}
SEED = 12_345
SIGNIFICANCE_LEVEL = 0.05


class Resampling(NamedTuple):
    """A paired test by resampling: its method and how its samples are drawn."""

    method: Method
    num_samples: int
    seed: int  # 1 or more; sacrebleu takes 0 for no seed

    @classmethod
    def chosen(cls, method: Method | None, num_samples: int | None, seed: int | None) -> Resampling:
        """Return the settings with a default for each that is None."""
        method = method or "bootstrap"
        return cls(method, num_samples or NUM_SAMPLES[method], seed or SEED)
