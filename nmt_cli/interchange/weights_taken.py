"""Takes the weights of a model of another program by the names that it gives to them.

What an importer states is a table: the names of all tensors. The order of dimensions, the pieces in
our order, tied matrices and missing biases are the same for all programs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.interchange.files import SIDES, Array
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.options import refuse
from nmt_cli.interchange.tensor_names import READING, RECURRENT, Pair, StackNames
from nmt_cli.interchange.vocabularies import NEVER, Vocabulary, unreachable
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.model_values import Architecture

NAMED = 5  # tensors in a reason
JOINER = "@@"  # of subword-nmt and fastBPE, behind the pieces inside a word
SEPARATORS = " \t\r\n"  # of the words of a text, for all programs


class TensorsTaken:
    """Gives out tensors by name, and collects the reasons why they do not make a model."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors, self._taken = tensors, set[str]()
        self.reasons: list[str] = []
        self._missing: list[str] = []
        self._shapes: list[str] = []

    @property
    def is_wrong(self) -> bool:
        """Whether there is a reason already, so that the tensors need not be computed with."""
        return bool(self.reasons or self._missing or self._shapes)

    def has(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        return name in self._tensors

    def get(self, name: str) -> Array | None:
        """Return a tensor without taking it, or None if there is none of this name."""
        return self._tensors.get(name)

    def length(self, name: str) -> int:
        """Return the first size of a tensor; 0 if there is none of this name."""
        found = self._tensors.get(name)
        return 0 if found is None or not found.ndim else len(found)

    def take(self, name: str, *shape: int) -> Array:
        """Return a tensor of ``shape``; if there is none, one of zeros, and a reason."""
        found = self.take_if_there(name)
        if found is None:
            self._missing.append(name)
        elif found.shape != shape:
            self._shapes.append(f"{name} has the shape {list(found.shape)}, not {list(shape)}")
        elif not np.isfinite(found).all():
            self.reasons.append(f"{name} holds a number that is not finite")
        else:
            return found
        return np.broadcast_to(np.float32(0), shape)

    def take_if_there(self, name: str) -> Array | None:
        """Return a tensor, or None if there is none of this name."""
        self._taken.add(name)
        return self._tensors.get(name)

    def take_shared(self, names: Sequence[str], *shape: int) -> Array:
        """Return the tensor that has at least one of ``names``, which must be equal."""
        first = next((name for name in names if self.has(name)), names[0])
        found = self.take(first, *shape)
        for name in names:
            other = found if name == first else self.take_if_there(name)
            if other is not None and not np.array_equal(other, found):
                self.reasons.append(f"{name} is not {first}, as its options say")
        return found

    def take_number(self, name: str, default: float) -> float:
        """Return a number; ``default`` if there is none of this name."""
        found = self.take_if_there(name)
        if found is None:
            return default
        if found.size != 1 or not np.isfinite(found).all():
            self.reasons.append(f"{name} is not a number")
            return default
        return float(found.flat[0])

    def refuse_wrong(self) -> None:
        """Raise ValueError with all reasons, if there are any.

        Tensors that are missing, and those that nobody took, are among them.
        """
        left = [name for name in self._tensors if name not in self._taken]
        reasons = [*self.reasons, *self._shapes[:NAMED]]
        if len(self._shapes) > NAMED:
            more = counted(len(self._shapes) - NAMED, "more tensor")
            reasons.append(f"{more} of another shape")
        for names, what in ((self._missing, "missing"), (left, "unknown")):
            if names:
                more = ", ..." if len(names) > NAMED else ""
                listed = ", ".join(names[:NAMED])
                reasons.append(f"{counted(len(names), 'tensor')} {what}: {listed}{more}")
        refuse(reasons)


class WeightsTaken:
    """Our weights, taken one by one into ``weights``; ``options`` gets what follows from them.

    ``order`` are the places of our dimensions among theirs [d_model]; None if they are the same.
    Where ``options`` do not state whether there are biases, layers without one get zeros if they
    ``may_lack_biases``, and biases that are all zero are left out at the end.
    """

    def __init__(
        self,
        tensors: TensorsTaken,
        options: Mapping[str, Any],
        order: NDArray[np.intp] | None = None,
        *,
        may_lack_biases: bool = False,
    ) -> None:
        self.tensors, self.options = tensors, dict(options)
        self.weights: dict[str, Array] = {}
        self.d_model: int = self.options["d_model"]
        self.order, self._may_lack_biases = order, may_lack_biases

    def take_matrices(
        self,
        names: Sequence[str],
        rows: Sequence[int],
        *,
        is_shared: bool,
        is_tied: bool,
        of_both: Sequence[str] = (),
    ) -> list[Array]:
        """Return the embeddings of source and target and the matrix of the softmax.

        ``names`` are theirs, and ``rows`` the numbers of pieces of source and target. If the target
        ``is_shared`` with the source, the matrix may be called by one of ``of_both`` as well.
        """
        groups, places = [[*of_both, names[0]]], [0]
        for name, is_same in zip(names[1:], (is_shared, is_tied), strict=True):
            if not is_same:
                groups.append([])
            groups[-1].append(name)
            places.append(len(groups) - 1)
        found = [
            self.tensors.take_shared(group, rows[min(number, 1)], self.d_model)
            for number, group in enumerate(groups)
        ]
        return [found[place] for place in places]

    def put_pieces(
        self,
        vocabularies: Mapping[Side, Vocabulary],
        matrices: Sequence[Array],
        bias: Array | None = None,
    ) -> None:
        """Put the embeddings of source and target, and the matrix and the bias of the softmax.

        Their rows get the order of our pieces. A mark that the model lacks is never an output.
        """
        if self.tensors.is_wrong:
            return
        of_source, of_target = vocabularies["source"], vocabularies["target"]
        is_shared = of_source.pieces == of_target.pieces
        if not is_shared:
            self.options["source_vocabulary_size"] = len(of_source.pieces)
        source, target, output = (
            vocabulary.rows_of(matrix)
            for vocabulary, matrix in zip((of_source, of_target, of_target), matrices, strict=True)
        )
        tied = "none"
        if np.array_equal(target, output):
            tied = "all" if is_shared and np.array_equal(source, target) else "decoder"
        self.options["tied_embeddings"] = tied
        self.weights["output_weight"] = self.columns(output)
        if tied != "all":
            self.weights["source_embedding.weight"] = self.columns(source)
        if tied == "none":
            self.weights["target_embedding.weight"] = self.columns(target)
        if bias is None and min(of_target.rows) < 0:
            bias = np.zeros(len(matrices[2]), np.float32)
        if bias is not None:
            self.weights["output_bias"] = of_target.rows_of(bias, NEVER)

    def take_tables(self, names: Sequence[str], first: int = 0) -> list[Array]:
        """Return the tables of positions [P, d_model] of these names, behind ``first`` rows."""
        return [
            self.columns(self.tensors.take(name, self.tensors.length(name), self.d_model)[first:])
            for name in names
        ]

    def put_learned_positions(self, tables: Sequence[Array]) -> None:
        """Put the learned positions of the source and of the target."""
        if len({len(table) for table in tables}) > 1:
            self.tensors.reasons.append("its sides have unlike numbers of positions")
        self.options |= {"positions": "learned", "max_positions": len(tables[0])}
        for side, table in zip(SIDES.values(), tables, strict=True):
            self.weights[f"{side}_embedding.positions.weight"] = table

    def take_stack(self, side: str, names: StackNames) -> None:
        """Take the layers of the encoder or the decoder, as many as the options have."""
        if names.embedding_norm is not None and self.options.get("embedding_norm"):
            self._take_part(f"{SIDES[side]}_embedding.norm", [names.embedding_norm])
        if self.options["norm"] == "pre":
            self._take_part(f"{side}_norm", [names.last_norm])
        prefix = "decoder_" if side == "decoder" else ""
        count, d_ff, num_heads = (
            self.options.get(f"{prefix}{key}", self.options[key])
            for key in ("num_layers", "d_ff", "num_heads")
        )
        width = self.options["d_k"] * num_heads if "d_k" in self.options else self.d_model
        for number in range(count):
            parts = dict(names.of_layer(number))
            if not self.tensors.has(parts["feed_forward.inner"][0].weight):
                reason = f"it has {number:,} layers of the {side}, not {count:,}"
                self.tensors.reasons.append(reason)
                return
            for ours, theirs in parts.items():
                of_part = d_ff if "feed_forward" in ours else width
                self._take_part(f"{side}_layers.{number}.{ours}", theirs, of_part)

    def _take_part(self, ours: str, theirs: Sequence[Pair], width: int = 0) -> None:
        """Take a layer, whose rows may have several names there, or a norm.

        A layer reads vectors of the model or writes them; on the other side it has ``width``
        numbers. Those of a recurrence do both, and its candidates have no bias.
        """
        kind = ours.rpartition(".")[2]
        if kind in READING:
            rows, columns = READING[kind] * width // len(theirs), [self.d_model]
        else:
            rows, columns = self.d_model, [] if kind.endswith("norm") else [width]
        parts = {"weight": [self.tensors.take(pair.weight, rows, *columns) for pair in theirs]}
        option = "feed_forward_biases" if "feed_forward" in ours else "attention_biases"
        if kind.endswith("norm"):
            parts["bias"] = [self.tensors.take(pair.bias, rows) for pair in theirs]
        elif kind != "candidates" and self.options.get(option, True):
            parts["bias"] = [self._take_bias(pair.bias, rows) for pair in theirs]
        for part, arrays in parts.items():
            # Zeros without memory of their own stand for a missing tensor. Their shape is what the
            # configuration states and may be huge, so nothing is computed with them.
            if self.tensors.is_wrong:
                return
            together = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
            if kind not in READING and self.order is not None:
                together = together[self.order]
            if part == "weight" and kind in (*READING, *RECURRENT):
                together = self.columns(together)
            self.weights[f"{ours}.{part}"] = together

    def _take_bias(self, name: str, rows: int) -> Array:
        if self._may_lack_biases and not self.tensors.has(name):
            return np.zeros(0 if self.tensors.is_wrong else rows, np.float32)
        return self.tensors.take(name, rows)

    def columns(self, array: Array) -> Array:
        """Return ``array`` [any, d_model] with its columns in our order."""
        return array if self.order is None or self.tensors.is_wrong else array[:, self.order]

    def model(
        self, vocabularies: Mapping[Side, Vocabulary], sentencepiece: Mapping[Side, bytes] | None
    ) -> ImportedModel:
        """Return the model. Raises ValueError with all reasons if it cannot be represented.

        Without SentencePiece models it reads text in pieces, which are joined where they end in the
        joiner of subword-nmt.
        """
        for side, vocabulary in vocabularies.items():
            if side == "source" or vocabulary != vocabularies.get("source"):
                are_words = sentencepiece is None
                self.tensors.reasons += _problems_of_pieces(vocabulary.pieces, side, are_words)
        self.tensors.refuse_wrong()
        self._leave_out_zeros()
        source, target = vocabularies["source"].pieces, vocabularies["target"].pieces
        joiner = None
        if sentencepiece is None:
            # White space separates pieces here. For other programs only ``SEPARATORS`` do, so a
            # piece may hold a no-break space.
            source, target = (
                [
                    each if each.split() == [each] else unreachable(n)
                    for n, each in enumerate(pieces)
                ]
                for pieces in (source, target)
            )
            joiner = JOINER if any(piece.endswith(JOINER) for piece in (*source, *target)) else None
        return ImportedModel(
            Architecture(**self.options),
            target,
            source if "source_vocabulary_size" in self.options else None,
            sentencepiece,
            self.weights,
            joiner,
        )

    def _leave_out_zeros(self) -> None:
        """Leave out biases that are all zero, unless the options state that there are some."""
        groups = {
            "output_bias": ["output_bias"],
            "attention_biases": [n for n in self.weights if "attention" in n and "norm" not in n],
            "feed_forward_biases": [n for n in self.weights if "feed_forward." in n],
        }
        for option, names in groups.items():
            if option in self.options:
                continue
            biases = [name for name in names if name in self.weights and name.endswith("bias")]
            self.options[option] = any(self.weights[name].any() for name in biases)
            if not self.options[option]:
                for name in biases:
                    del self.weights[name]


def _problems_of_pieces(pieces: Sequence[str], side: Side, are_words: bool) -> list[str]:
    """Return the reasons why ``pieces`` cannot be a vocabulary of ours.

    They ``are_words`` of text in pieces, which white space separates.
    """
    problems, others = [], list(pieces)
    for mark in CONTROL:
        if mark in others:
            others.remove(mark)
    if len(set(others)) < len(others):
        problems.append(f"the {side} vocabulary holds a token twice")
    wrong = next((piece for piece in others if not piece or set(piece) & set(SEPARATORS)), None)
    if are_words and wrong is not None:
        problems.append(
            f"the {side} vocabulary holds {wrong!r}, which is not one word, and there is no "
            "SentencePiece model"
        )
    if not are_words and not set(CONTROL).isdisjoint(others):
        problems.append(f"the {side} vocabulary has other marks than {', '.join(CONTROL)}")
    return problems
