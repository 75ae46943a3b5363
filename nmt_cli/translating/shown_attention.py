"""The attention of a model within a sentence and its translation, for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from nmt_cli.corpus.text.language_codes import spelled
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.pictures.attention import KINDS, Attention
from nmt_cli.recipe.model_settings import ModelSettings, alignment_layer, length_limits
from nmt_cli.recipe.model_values import ModelShape
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.teacher_forcing import teacher_forcing

if TYPE_CHECKING:
    from nmt_cli.model.compiled.packed_model import PackedModel
    from nmt_cli.model.transformer import Transformer

MOST_WEIGHTS = 10_000_000  # a page of so many has about 30 MB


class Target(NamedTuple):
    """A translation, and the ids of its pieces."""

    text: str
    tokens: Sequence[int]
    is_given: bool  # it does not come from the model


class Shown(NamedTuple):
    """What is shown: names of KINDS, and layers and heads counted from 1."""

    kinds: Sequence[str]
    layers: Sequence[int]
    heads: Sequence[int]
    remedy: str = "give a shorter sentence"  # where this is too much for a page

    @classmethod
    def everything(cls, architecture: ModelShape) -> Shown:
        """Return all layers and heads that every kind of attention has."""
        kinds = kinds_of(architecture)
        num_layers, num_heads = common_counts(architecture, kinds)
        return cls(kinds, range(1, num_layers + 1), range(1, num_heads + 1))


def kinds_of(architecture: ModelShape) -> tuple[str, ...]:
    """Return the names of KINDS that a model has: recurrent units replace one of them."""
    return tuple(kind for kind in KINDS if kind != "decoder" or not architecture.is_recurrent)


def common_counts(architecture: ModelShape, kinds: Sequence[str]) -> tuple[int, int]:
    """Return how many layers, and heads of each, all attention of ``kinds`` has."""
    stacks = [
        architecture.encoder_shape if kind == "encoder" else architecture.decoder_shape
        for kind in kinds
    ]
    return min(each.num_layers for each in stacks), min(each.num_heads for each in stacks)


def attention_between(
    settings: ModelSettings,
    tokenizer: Tokenizer,
    model: Transformer | PackedModel,
    name: str,
    source: str,
    target: Target,
    shown: Shown,
) -> Attention:
    """Return the attention of ``model``, which the picture calls ``name``.

    Raises UserError if a sentence is too long for the model, or both together for a page.
    """
    pieces = tokenizer.encode(source, "source")
    refuse_too_long(settings, pieces, "source")
    refuse_too_long(settings, target.tokens, "target")
    _refuse_too_many(shown, len(pieces) + 1, len(target.tokens) + 1)
    pairs, layers = [SentencePair(pieces, target.tokens)], [layer - 1 for layer in shown.layers]
    weights = teacher_forcing(model, tokenizer).attention(pairs, layers)[0]._asdict()
    heads = [head - 1 for head in shown.heads]
    end = tokenizer.pieces([tokenizer.eos_id])
    start = tokenizer.pieces([start_id(model.config, tokenizer)])
    end_of_source = tokenizer.pieces(source_end(model.config, tokenizer))
    source_pieces = tokenizer.pieces(pieces, "source")
    target_pieces = tokenizer.pieces(target.tokens)
    return Attention(
        name,
        source,
        target.text,
        target.is_given,
        {
            "source": (*source_pieces, *end_of_source),
            "target_input": (*start, *target_pieces),
            "target_output": (*target_pieces, *end),
        },
        languages_of(settings.text.source_language, settings.text.target_language),
        tuple(shown.layers),
        alignment_layer(len(shown.layers)),
        tuple(shown.heads),
        {kind: weights[kind][:, heads] for kind in shown.kinds},
    )


def languages_of(source: str, target: str) -> dict[str, str]:
    """Return the language of each sequence, as HTML names languages; models name them by codes."""
    source, target = spelled(source), spelled(target)
    return {"source": source, "target_input": target, "target_output": target}


def refuse_too_long(settings: ModelSettings, tokens: Sequence[int], side: Side) -> None:
    """Raise UserError if a sentence has more pieces than the model takes."""
    limits = length_limits(settings)
    limit = limits.source if side == "source" else limits.target
    if limit is not None and len(tokens) > limit:
        raise UserError(
            f"the {side} has {len(tokens):,} pieces, the model takes {limit:,}; give a shorter one."
        )


def _refuse_too_many(shown: Shown, source: int, target: int) -> None:
    pairs = {"encoder": source * source, "decoder": target * target, "memory": target * source}
    num_heads = len(shown.layers) * len(shown.heads)
    count = num_heads * sum(pairs[kind] for kind in shown.kinds)
    if count > MOST_WEIGHTS:
        raise UserError(
            f"{count:,} weights are more than a page can show ({MOST_WEIGHTS:,}); {shown.remedy}."
        )
