"""Makes our model of one of eole or OpenNMT-py, whose tensors have other names.

Both normalize before each sub-layer, and after the last one. Their projections have biases or not,
as their options state, but these were not always saved, so the tensors decide.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.files import Array
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.tensor_names import (
    Pair,
    StackNames,
    known_sinusoids,
    order_from_sines_first,
)
from nmt_cli.interchange.vocabularies import Vocabulary, vocabulary_of
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken

# The sinusoids by their names there, all from position 0.
SINUSOIDS = {"SinusoidalInterleaved": "paper", "SinusoidalConcat": "tensor2tensor"}
CONCATENATED, LEARNED = "SinusoidalConcat", "Learned"
ROUNDING = 5e-3  # of sinusoids that are stored in half precision
IN_LAYER = re.compile(r"(.*?)\.(\d+)\.(.*\.bias)")


class Names(NamedTuple):
    """The names of tensors; those of each side are in the order of encoder and decoder."""

    embeddings: Sequence[str]
    sinusoids: Sequence[str]
    learned: Sequence[str]
    output: Pair
    stacks: Mapping[str, StackNames]


class Configuration(NamedTuple):
    """What the options of a model state."""

    options: dict[str, Any]  # of our architecture
    positions: str  # a name in SINUSOIDS, or LEARNED
    is_shared: bool  # the target's matrix is the source's
    is_tied: bool  # that of the softmax is the target's
    has_bias: bool = True  # that of the softmax
    position_shift: int = 0  # the row of the first learned position


class Tokens(NamedTuple):
    """The tokens of both languages in the order of their rows, and the names of the marks."""

    source: Sequence[str]
    target: Sequence[str]
    unknown: str
    end: str
    start: str  # what the decoder reads first
    other_start: str  # our <s> if the decoder reads the end first


def names_of_attention(attention: str, norm: str) -> list[str]:
    """Return the names of an attention and of the norm before it."""
    linears = ("linear_query", "linear_keys", "linear_values", "final_linear")
    return [*(f"{attention}.{linear}.{{}}" for linear in linears), f"{norm}.{{}}"]


def make_model(
    found: Mapping[str, Array],
    names: Names,
    configuration: Configuration,
    tokens: Tokens,
    models: Mapping[Side, bytes] | None,
) -> ImportedModel:
    """Return the model; ``models`` are its SentencePiece models, None for text in pieces.

    Raises ValueError with all reasons if our architecture cannot represent it.
    """
    options, positions, is_shared, is_tied, has_bias, shift = configuration
    tensors = TensorsTaken(found)
    tensors.reasons += _uneven_biases(found)
    vocabularies = _read_vocabularies(tokens, tensors.reasons)
    options["decoder_start"] = "eos" if tokens.start == tokens.end else "bos"
    order = None
    if positions == CONCATENATED and options["d_model"] % 2 == 0:
        order = order_from_sines_first(options["d_model"])
    taken = WeightsTaken(tensors, options, order, may_lack_biases=True)
    # The rows of the matrices; a mark that the source lacks has none.
    rows = [max(each.rows) + 1 for each in vocabularies.values()]
    if is_shared and rows[0] != rows[1]:
        tensors.reasons.append("both languages share embeddings, but no vocabulary")
    matrices = taken.take_matrices(
        [*names.embeddings, names.output.weight], rows, is_shared=is_shared, is_tied=is_tied
    )
    bias = tensors.take(names.output.bias, rows[1]) if has_bias else None
    taken.put_pieces(vocabularies, matrices, bias)
    if positions == LEARNED:
        taken.put_learned_positions(taken.take_tables(names.learned, shift))
    else:
        _compare_sinusoids(taken, names.sinusoids, positions)
    for side, of_side in names.stacks.items():
        taken.take_stack(side, of_side)
    return taken.model(vocabularies, models)


def _read_vocabularies(tokens: Tokens, reasons: list[str]) -> dict[Side, Vocabulary]:
    """Return the vocabularies; the reasons against them are added to ``reasons``."""
    start = tokens.other_start if tokens.start == tokens.end else tokens.start
    marks = (tokens.unknown, start, tokens.end)
    is_shared = tokens.source == tokens.target
    of_source = vocabulary_of(tokens.source, marks, "source", reasons, needs_marks=is_shared)
    if is_shared:
        return {"source": of_source, "target": of_source}
    of_target = vocabulary_of(tokens.target, marks, "target", reasons, needs_marks=True)
    return {"source": of_source, "target": of_target}


def _compare_sinusoids(taken: WeightsTaken, names: Sequence[str], kind: str) -> None:
    """Add a reason for each stored table that is not the sinusoids that the options name."""
    expected = {"sinusoid_frequencies": SINUSOIDS[kind], "first_position": 0}
    taken.options |= expected
    reasons = taken.tensors.reasons
    for name in names:
        table = taken.tensors.take_if_there(name)
        if table is None:  # it is not stored, and computed from the options
            continue
        if not table.ndim or table.size != len(table) * taken.d_model:
            reasons.append(f"{name} has the shape {list(table.shape)}")
            continue
        flat = taken.columns(table.reshape(-1, taken.d_model))
        if not taken.tensors.is_wrong and known_sinusoids([flat], ROUNDING) != expected:
            reasons.append(f"{name} is not {kind}, as its options say")


def _uneven_biases(names: Iterable[str]) -> list[str]:
    """Return the reasons against a model that has a bias in some layers of a stack only."""
    by_stack: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        if match := IN_LAYER.fullmatch(name):
            by_stack[match[1]][match[3]].add(match[2])
    reasons = []
    for stack, biases in by_stack.items():
        layers = set().union(*biases.values())
        reasons += [
            f"only {len(found):,} of {len(layers):,} layers of {stack} have {bias}"
            for bias, found in biases.items()
            if found != layers
        ]
    return reasons
