"""The models that are measured, and the settings of one worker process."""

import json
from typing import Any, NamedTuple

DROPOUT = 0.1
LABEL_SMOOTHING = 0.1
ADAM_BETAS = (0.9, 0.98)
ADAM_EPSILON = 1e-9
SEED = 1
PRECISIONS = ("fp32", "bf16")


class Shape(NamedTuple):
    """A Transformer and the tokens of either side of its batches."""

    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    vocabulary_size: int
    tokens: int


SHAPES = {
    "S": Shape(3, 256, 1024, 4, 8_000, 4_096),
    "base": Shape(6, 512, 2048, 8, 8_000, 4_096),
    # The paper's batches and vocabulary: for memory, and for speed on a GPU.
    "base-25k": Shape(6, 512, 2048, 8, 37_000, 25_000),
    "big-25k": Shape(6, 1024, 4096, 16, 37_000, 25_000),
}


class Setup(NamedTuple):
    """The settings of a worker process, which it gets as an argument."""

    shape: Shape
    folder: str  # of a corpus; data.py lists its files
    threads: int
    is_tuned: bool = False  # a peer with settings that few users know: see the README
    fp32_products: str = "mkl"  # or "onednn", for us and for tuned peers
    memory_limit: int | None = None  # bytes of data; more fails, before the OOM killer acts

    def as_json(self) -> str:
        """Return this as one argument of a command line."""
        return json.dumps({**self._asdict(), "shape": self.shape._asdict()})

    @classmethod
    def from_json(cls, text: str) -> "Setup":
        """Return the setup that ``as_json`` wrote."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "shape": Shape(**values["shape"])})
