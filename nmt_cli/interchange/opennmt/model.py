"""Makes our model of one of eole or OpenNMT-py, whose tensors have other names.

Both normalize before each sub-layer, and after the last one. Their projections have biases or not,
as their options state, but these were not always saved, so the tensors decide.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.files import SIDES, Array
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.tensor_names import (
    AttentionNames,
    Pair,
    StackNames,
    dotted,
    known_sinusoids,
    order_from_sines_first,
)
from nmt_cli.interchange.vocabularies import Vocabulary, marks_first, problems_of_pieces
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
    stack: StackNames


class Embeddings(NamedTuple):
    """The embeddings of a model, from its options."""

    positions: str  # a name in SINUSOIDS, or LEARNED
    is_shared: bool  # the target's matrix is the source's
    is_tied: bool  # that of the softmax is the target's
    has_bias: bool = True  # that of the softmax
    position_shift: int = 0  # the row of the first learned position


class Configuration(NamedTuple):
    """The architecture of a model, from its options."""

    options: dict[str, Any]  # of our architecture
    embeddings: Embeddings
    attention_widths: Mapping[str, int]  # of all heads together, by side


class Tokens(NamedTuple):
    """The tokens of both languages in the order of their rows, and the names of the marks."""

    source: Sequence[str]
    target: Sequence[str]
    unknown: str
    end: str
    start: str  # what the decoder reads first
    other_start: str  # our <s> if the decoder reads the end first


def attention_names(attention: str, norm: str) -> AttentionNames:
    """Return the names of an attention and of the norm before it."""
    inputs = (dotted(f"{attention}.linear_{part}") for part in ("query", "keys", "values"))
    return AttentionNames(tuple(inputs), dotted(f"{attention}.final_linear"), dotted(norm))


def make_model(
    tensors: Mapping[str, Array],
    names: Names,
    configuration: Configuration,
    tokens: Tokens,
    models: Mapping[Side, bytes] | None,
) -> ImportedModel:
    """Return the model; ``models`` are its SentencePiece models, None for text in pieces.

    Raises ValueError with all reasons if our architecture cannot represent it.
    """
    options, embeddings, widths = configuration
    taken = TensorsTaken(tensors)
    taken.reasons += _uneven_biases(tensors)
    vocabularies = _read_vocabularies(tokens, taken.reasons, are_words=models is None)
    start = "eos" if tokens.start == tokens.end else "bos"
    order = None
    if embeddings.positions == CONCATENATED and options["d_model"] % 2 == 0:
        order = order_from_sines_first(options["d_model"])
    weights = WeightsTaken(taken, {**options, "decoder_start": start}, order, may_lack_biases=True)
    _take_pieces(weights, names, embeddings, vocabularies)
    if embeddings.positions == LEARNED:
        _take_learned(weights, names.learned, embeddings.position_shift)
    else:
        _compare_sinusoids(weights, names.sinusoids, embeddings.positions)
    for side in SIDES:
        weights.take_stack(side, names.stack, widths[side])
    return weights.model(vocabularies, models)


def _read_vocabularies(
    tokens: Tokens, reasons: list[str], *, are_words: bool
) -> dict[Side, Vocabulary]:
    """Return the vocabularies; the reasons against them are added to ``reasons``."""
    start = tokens.other_start if tokens.start == tokens.end else tokens.start
    marks = (tokens.unknown, start, tokens.end)
    is_shared = tokens.source == tokens.target
    sides: dict[Side, Sequence[str]] = {"source": tokens.source, "target": tokens.target}
    found: dict[Side, Vocabulary] = {}
    for side, of_side in sides.items():
        if side == "target" and is_shared:
            found[side] = found["source"]
            continue
        places = {token: place for place, token in enumerate(of_side)}
        if len(places) < len(of_side):
            reasons.append(f"the {side} vocabulary holds a token twice")
        missing = [mark for mark in marks if mark not in places]
        if missing and (side == "target" or is_shared):
            reasons.append(f"the {side} vocabulary has no {', '.join(missing)}")
        found[side] = marks_first(of_side, [places.get(mark, -1) for mark in marks])
        reasons += problems_of_pieces(found[side].pieces, side, are_words=are_words)
    return found


def _take_pieces(
    taken: WeightsTaken,
    names: Names,
    embeddings: Embeddings,
    vocabularies: Mapping[Side, Vocabulary],
) -> None:
    # The rows of the matrices; a mark that the source lacks has none.
    rows = [max(each.rows) + 1 for each in vocabularies.values()]
    if embeddings.is_shared and rows[0] != rows[1]:
        taken.tensors.reasons.append("both languages share embeddings, but no vocabulary")
    matrices = taken.take_matrices(
        [*names.embeddings, names.output.weight],
        rows,
        is_shared=embeddings.is_shared,
        is_tied=embeddings.is_tied,
    )
    bias = taken.tensors.take(names.output.bias, rows[1]) if embeddings.has_bias else None
    taken.put_pieces(vocabularies, matrices, bias)


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


def _take_learned(taken: WeightsTaken, names: Sequence[str], shift: int) -> None:
    tables = []
    for name in names:
        table = taken.tensors.take_if_there(name)
        if table is None or table.shape[1:] != (taken.d_model,) or len(table) <= shift:
            taken.tensors.reasons.append(f"{name} is not a vector for each position")
        else:
            tables.append(taken.tensors.take(name, *table.shape)[shift:])
    if len({len(table) for table in tables}) > 1:
        taken.tensors.reasons.append("its sides have unlike numbers of positions")
    if len(tables) == len(SIDES):
        taken.put_learned_positions(tables)


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
