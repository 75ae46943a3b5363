"""The marks at the start and the end of the sentences that a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt_cli.recipe.model_values import ModelShape

if TYPE_CHECKING:  # tokenizers need packages that the marks do not
    from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer


def start_id(model: ModelShape, tokenizer: Tokenizer) -> int:
    """Return the decoder's first token; a model that starts with zeros reads only its place."""
    return tokenizer.eos_id if model.decoder_start == "eos" else tokenizer.bos_id


def source_end(model: ModelShape, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the marks that end a source sentence: ``</s>`` or nothing."""
    return (tokenizer.eos_id,) if model.source_eos else ()


def without_end(source: Sequence[int], model: ModelShape) -> Sequence[int]:
    """Return the pieces of a source sentence without the marks of ``source_end``."""
    return source[:-1] if model.source_eos else source
