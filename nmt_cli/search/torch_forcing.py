"""A pass over given translations by torch's layers.

Legend: N layers, H heads, S source pieces and </s>, T <s> and target pieces, D d_model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple, cast

import torch
from torch import Tensor

from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.hardware.device import prefer_flash_attention
from nmt_cli.model.attention import (
    MemoryAttention,
    SelfAttention,
    weights_to_memory,
    weights_within,
)
from nmt_cli.model.layers import DecoderLayer, EncoderLayer
from nmt_cli.model.packing import Packed, pack
from nmt_cli.model.precision import at_precision, torch_precision
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.beams import Array
from nmt_cli.search.teacher_forcing import AttentionWeights, SentencePair
from nmt_cli.search.top_k import log_normalizers


class TeacherForced(NamedTuple):
    """What the model computes for sentence pairs."""

    rows: Tensor  # the decoder's output [T, D], pair after pair; ``project`` makes logits of it
    lengths: tuple[int, ...]  # how many of the rows belong to each pair
    weights: tuple[AttentionWeights, ...]  # of each pair; empty if no layer was asked for


@torch.no_grad()
def teacher_forced(
    model: Transformer,
    pairs: Sequence[SentencePair],
    tokenizer: Tokenizer,
    *,
    layers_with_weights: Sequence[int] = (),
) -> TeacherForced:
    """Return what ``model``, in evaluation mode, computes for ``pairs`` in one pass.

    It is the pass of training. ``layers_with_weights`` are the layers, counted from 0 and
    ascending, whose attention weights are returned, of a side as far as it has them; their memory
    grows with the square of the lengths. Raises ValueError if a sentence is longer than learned
    positions allow. A model must not be used by another thread meanwhile.
    """
    assert not model.training, "dropout would change the result"
    device = model.output_weight.device
    end, start = source_end(model.config, tokenizer), start_id(model.config, tokenizer)
    source = _packed([[*pair.source, *end] for pair in pairs], device)
    target_input = _packed([[start, *pair.target] for pair in pairs], device)
    with (
        torch.autocast(device.type, enabled=False),
        _recording(model, source, target_input, layers_with_weights) as recorded,
    ):
        rows = model(source, target_input)
    weights: list[AttentionWeights] = []
    if layers_with_weights:
        weights = [
            AttentionWeights(*(_of_layers([layer[pair] for layer in kind]) for kind in recorded))
            for pair in range(len(pairs))
        ]
    return TeacherForced(rows, target_input.lengths, tuple(weights))


def _of_layers(weights: list[Tensor]) -> Array:
    found = torch.stack(weights) if weights else torch.empty(0)
    return found.cpu().numpy()


def _packed(sentences: Sequence[Sequence[int]], device: torch.device) -> Packed:
    tokens = torch.tensor(list(chain.from_iterable(sentences)))
    return pack(tokens, [len(sentence) for sentence in sentences], device)


class _Recorded(NamedTuple):
    """The weights of each kind of attention, layer by layer, then sentence by sentence."""

    encoder: list[list[Tensor]]
    decoder: list[list[Tensor]]
    memory: list[list[Tensor]]


@contextmanager
def _recording(
    model: Transformer, source: Packed, target_input: Packed, layers: Sequence[int]
) -> Iterator[_Recorded]:
    """Compute the weights of ``layers`` beside a pass, from the rows that enter each attention."""
    recorded = _Recorded([], [], [])

    def in_encoder(attention: SelfAttention, args: tuple[Tensor, ...]) -> None:
        recorded.encoder.append(weights_within(attention, args[0], source, causal=False))

    def in_decoder(attention: SelfAttention, args: tuple[Tensor, ...]) -> None:
        recorded.decoder.append(weights_within(attention, args[0], target_input, causal=True))

    def to_memory(attention: MemoryAttention, args: tuple[Tensor, ...]) -> None:
        rows, memory, *_ = args
        weights = weights_to_memory(attention, rows, memory, target_input, source)
        recorded.memory.append(weights)

    handles = []
    try:
        for number, layer in enumerate(model.encoder_layers):
            if number in layers:
                encoder = cast(EncoderLayer, layer)
                handles += [encoder.self_attention.register_forward_pre_hook(in_encoder)]
        for number, layer in enumerate(model.decoder_layers):
            if number in layers:
                decoder = cast(DecoderLayer, layer)
                handles += [
                    decoder.self_attention.register_forward_pre_hook(in_decoder),
                    decoder.memory_attention.register_forward_pre_hook(to_memory),
                ]
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


# Enough to keep the product busy; the logits of so many rows are V times as many numbers.
ROWS_AT_ONCE = {"cpu": 512, "cuda": 4096}


def torch_forcing(model: Transformer, tokenizer: Tokenizer, precision: str | None) -> TorchForcing:
    """Return what ``teacher_forcing`` returns for a model of torch; set it to evaluation mode."""
    model, device = model.eval(), model.output_weight.device
    prefer_flash_attention(device)
    if precision is not None:
        model = at_precision(model, torch_precision(precision, device))
    return TorchForcing(model, tokenizer)


class TorchForcing:
    """A ``TeacherForcing`` by torch, with a model in evaluation mode."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        self._model, self._tokenizer = model, tokenizer
        self.device = model.output_weight.device.type

    @torch.no_grad()
    def token_scores(self, pairs: Sequence[SentencePair]) -> list[list[float]]:
        """Return the log-probabilities, as ``TeacherForcing`` describes."""
        forced = teacher_forced(self._model, pairs, self._tokenizer)
        device = forced.rows.device
        targets = torch.tensor(
            list(chain.from_iterable([*pair.target, self._tokenizer.eos_id] for pair in pairs)),
            device=device,
        )
        at_once = ROWS_AT_ONCE.get(device.type, ROWS_AT_ONCE["cpu"])
        scores = []
        for rows, tokens in zip(forced.rows.split(at_once), targets.split(at_once), strict=True):
            with torch.autocast(device.type, enabled=False):
                logits = self._model.project(rows)
            chosen = logits.gather(1, tokens[:, None]).squeeze(1).float()
            scores.append(chosen - log_normalizers(logits))
        return [of_pair.tolist() for of_pair in torch.cat(scores).split(forced.lengths)]

    def attention(
        self, pairs: Sequence[SentencePair], layers: Sequence[int]
    ) -> list[AttentionWeights]:
        """Return the attention weights, as ``TeacherForcing`` describes."""
        forced = teacher_forced(self._model, pairs, self._tokenizer, layers_with_weights=layers)
        return list(forced.weights)
