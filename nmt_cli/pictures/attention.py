"""What a picture of attention shows: pieces, and the weights between them."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DIGITS = 6  # of a weight in JSON


class Kind(NamedTuple):
    """A kind of attention, and which pieces attend to which."""

    name: str
    title: str
    queries: str  # the sequence of pieces that attend
    keys: str  # the sequence that they attend to


# Row t of the decoder reads piece t of the target input and predicts piece t of the target output.
# Self-attention is between the same pieces; attention to the source explains the output.
KINDS = {
    kind.name: kind
    for kind in (
        Kind("encoder", "Encoder self-attention", "source", "source"),
        Kind("decoder", "Decoder self-attention", "target_input", "target_input"),
        Kind("memory", "Encoder-decoder attention", "target_output", "source"),
    )
}
HEADINGS = {
    "source": "Source",
    "target_input": "Target input",
    "target_output": "Target output",
}


class Attention(NamedTuple):
    """The attention weights of one sentence pair in one model."""

    model: str
    source: str
    target: str
    is_given: bool  # whether the user gave the target; otherwise it is the model's translation
    pieces: Mapping[str, tuple[str, ...]]  # of each sequence of HEADINGS
    languages: Mapping[str, str]  # of each sequence, as HTML names languages
    layers: tuple[int, ...]  # counted from 1
    heads: tuple[int, ...]  # counted from 1
    weights: Mapping[str, NDArray[np.float32]]  # by the name of the kind: layer, head, query, key

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of attention that have weights."""
        return [KINDS[name] for name in self.weights]


def as_json(attention: Attention) -> str:
    """Return a JSON object with the pieces and all weights."""
    record: dict[str, Any] = {
        "model": attention.model,
        **attention.pieces,
        "layers": attention.layers,
        "heads": attention.heads,
        "weights": {
            name: np.round(weights.astype(np.float64), DIGITS).tolist()
            for name, weights in attention.weights.items()
        },
    }
    return json.dumps(record, ensure_ascii=False) + "\n"
