"""The Transformer of the search: computes one token at a time from the past that it has cached.

Legend: S slots, K beam, R rows, K for each slot, B new sentences, L length of the longest, V
vocabulary, H heads, D d_model.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt_cli.hardware.device import sent_to
from nmt_cli.model.attention import MemoryAttention
from nmt_cli.model.compiled.c_library import Library
from nmt_cli.model.layers import DecoderLayer
from nmt_cli.model.packing import pack
from nmt_cli.model.recurrence import RecurrentUnit
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_values import StackShape
from nmt_cli.search import attention_cache as cache
from nmt_cli.search.beams import StepInput
from nmt_cli.search.torch_logits import TorchLogits


class RecurrentPast:
    """The past of every hypothesis as states of recurrent units, in place of a ``Past``.

    Their tensor keeps its address, so that a CUDA graph can repeat a step.
    """

    def __init__(self, num_slots: int, beam_size: int, shape: StackShape, like: Tensor) -> None:
        """Make states of zeros with the dtype and device of ``like`` [any, D]."""
        self.states = like.new_zeros(num_slots, beam_size, shape.num_layers, like.shape[1])
        self.layers = list[cache.KeysValues]()  # there are no entries

    @property
    def of_slots(self) -> list[Tensor]:
        """What it keeps of each slot [S, any]."""
        return [self.states]

    @property
    def of_places(self) -> list[Tensor]:
        """What it keeps of places: nothing."""
        return []

    def of_first_tokens(self) -> Tensor:
        """Return the states [S, layers, D] of slots with one hypothesis, for ``start``."""
        return self.states[:, 0]

    def start(self, slots: Sequence[int], kept: Tensor) -> None:
        """Let ``kept`` [B, layers, D] be the states of all hypotheses in ``slots``."""
        self.states[sent_to(self.states.device, slots)] = kept[:, None]

    def advance(self, parents: Tensor, positions: Tensor) -> None:
        """Give each hypothesis the states of its parent, at ``parents`` [S, K] in the beam."""
        del positions  # what free slots compute is not read
        at = parents[:, :, None, None].expand_as(self.states)
        self.states.copy_(self.states.gather(1, at))

    def attend(self, layer: int, sublayer: nn.Module, rows: Tensor) -> Tensor:
        """Return the output [S*K, D] of ``rows`` [S*K, D]; keep their states."""
        assert isinstance(sublayer, RecurrentUnit)
        decays, inputs = sublayer.parts(rows)
        states = self.states[:, :, layer].flatten(0, 1)
        found = (decays * states + inputs).to(rows.dtype)
        self.states[:, :, layer] = found.unflatten(0, self.states.shape[:2])
        return found.relu()

    def end_step(self) -> None:
        """Do nothing: no tensor of the step is kept."""

    def num_places(self) -> Tensor:
        """Return 0 for each slot [S]."""
        return torch.zeros(len(self.states), dtype=torch.int64, device=self.states.device)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these."""
        self.states = self.states[sent_to(self.states.device, slots)]

    def forget(self, slots: Sequence[int]) -> None:
        """Set the states of ``slots`` to 0."""
        self.states[sent_to(self.states.device, slots)] = 0.0


class Encoded(NamedTuple):
    """The keys and values that all hypotheses of a sentence attend to."""

    source: tuple[Tensor, ...]  # [L, H*(d_k + d_v)] for each layer
    start_mark: Tensor  # [layers, any], what the decoder's layers keep of it


class IncrementalTransformer:
    """Computes the decoder one token at a time, with the caches of a subclass.

    It shares the weights of ``model`` and computes in their precision. For each slot the keys and
    values of the source are cached, which ``encode`` computes once, and those of the past of each
    hypothesis. Not to be shared between threads.
    """

    c_library: Library | None = None

    def __init__(self, model: Transformer) -> None:
        self._model, self._is_recurrent = model, model.config.is_recurrent
        self._shape = model.config.decoder_shape
        self._decoder_layers = cast(Sequence[DecoderLayer], list(model.decoder_layers))

    @torch.no_grad()
    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[Encoded], TorchLogits]:
        """Return the keys and values of each sentence, and the logits [B, V] of its first token."""
        lengths = [len(sentence) for sentence in sentences]
        tokens = torch.tensor(list(chain.from_iterable(sentences)))
        encoded = self._model.encode(pack(tokens, lengths, self._device))
        sources = [layer.memory_attention.keys_values(encoded) for layer in self._decoder_layers]
        memory = cache.Memory(list(self._entries(sources, lengths)), 1)
        memory.make_room(range(len(lengths)), lengths)
        memory.update_mask()
        past = self._past_of_first_tokens(len(lengths))
        zeros = torch.zeros(len(lengths), 1, dtype=torch.int64, device=self._device)
        past.advance(zeros, zeros[:, 0])
        logits = self._decoded(zeros + start_mark, zeros[:, 0], 1, past, memory)
        of_sentences = zip(*(each.split(lengths) for each in sources), strict=True)
        return list(map(Encoded, of_sentences, past.of_first_tokens())), TorchLogits(logits)

    def _past_of_first_tokens(self, num_slots: int) -> cache.Past | RecurrentPast:
        like = self._model.output_weight
        if self._is_recurrent:
            return RecurrentPast(num_slots, 1, self._shape, like)
        return cache.Past(cache.empty_layers(self._shape, num_slots, 1, like), 1)

    def _entries(
        self, sources: Iterable[Tensor], lengths: Sequence[int]
    ) -> Iterator[cache.KeysValues]:
        """Yield the keys and values of sources of these ``lengths``, which are packed by layer."""
        places = sent_to(self._device, _padded_places(lengths))
        for layer, packed in zip(self._decoder_layers, sources, strict=True):
            yield _padded_entries(packed, places, len(lengths), layer.memory_attention)

    def _write_new(
        self,
        slots: Sequence[int],
        encoded: Sequence[Encoded],
        past: cache.Past | RecurrentPast,
        memory: cache.Memory,
    ) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks."""
        lengths = [len(each.source[0]) for each in encoded]
        at = memory.make_room(slots, lengths)
        of_layers = map(torch.cat, zip(*(each.source for each in encoded), strict=True))
        for number, new in enumerate(self._entries(of_layers, lengths)):
            memory.put(number, at, new)
        past.start(slots, torch.stack([each.start_mark for each in encoded]))

    @property
    def _device(self) -> torch.device:
        return self._model.output_weight.device

    def _decoded(
        self,
        tokens: Tensor,
        positions: Tensor,
        num_positions: int,
        past: cache.Past | RecurrentPast,
        memory: cache.Memory,
    ) -> Tensor:
        """Return the logits [R, V] of what follows ``tokens`` [S, K] at ``positions`` [S].

        All positions are below ``num_positions``. ``past``, in which the step has begun, keeps what
        the next step needs of the tokens.
        """
        rows = self._model.target_embedding.embed(
            tokens.flatten(),
            positions[:, None].expand(-1, tokens.shape[1]).flatten(),
            num_positions,
        )
        for number, layer in enumerate(self._decoder_layers):
            rows = layer.compose(
                rows,
                partial(past.attend, number, layer.first),
                partial(memory.attend, number, layer.memory_attention),
            )
        return self._logits(rows)

    def _logits(self, rows: Tensor) -> Tensor:
        rows, model = self._model.decoder_norm(rows), self._model
        if (
            rows.device.type != "cuda"
            or rows.dtype is torch.float32
            or torch.version.hip is not None
        ):
            return model.project(rows)
        # In fp32, because many logits would be equal in bf16.
        rows, weight = model.factors(rows, model.output_weight)
        logits = torch.mm(rows, weight.T, out_dtype=torch.float32)
        return logits if model.output_bias is None else logits.add_(model.output_bias)


def _padded_entries(
    packed: Tensor, places: Tensor, num_sentences: int, attention: MemoryAttention
) -> cache.KeysValues:
    """Return the ``packed`` keys and values of sources, with the rows at ``places`` [B*L]."""
    keys, values = (
        part.view(num_sentences, -1, attention.num_heads, part.shape[1] // attention.num_heads)
        for part in packed.index_select(0, places).split(attention.widths[1:], dim=1)
    )  # B L H any
    return cache.KeysValues(keys.permute(0, 2, 3, 1), values.transpose(1, 2))


def _padded_places(of_sentences: Sequence[int]) -> NDArray[np.int64]:
    """Return the packed row [B*L] of each padded place; holes repeat the sentence's last row."""
    lengths = np.array(of_sentences)[:, None]
    starts = lengths.cumsum(0) - lengths
    places = np.arange(cache.room_of_sources(max(of_sentences)))
    return (starts + np.minimum(places, lengths - 1)).ravel()


class CachedTransformer(IncrementalTransformer):
    """A ``StepModel`` whose caches have the room that their sentences need at each step."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self._kind: type[cache.GrowingPast | RecurrentPast]
        self._kind = RecurrentPast if self._is_recurrent else cache.GrowingPast
        self.reset(0, 1)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences of ``beam_size`` hypotheses."""
        like = self._model.output_weight
        self._past = self._kind(num_slots, beam_size, self._shape, like)
        self._memory = cache.GrowingMemory(num_slots, beam_size, self._shape, like)

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks."""
        self._write_new(slots, encoded, self._past, self._memory)

    def forget(self, slots: Sequence[int]) -> None:
        """Set all that is cached for ``slots`` to 0."""
        self._past.forget(slots)
        self._memory.forget(slots)

    @torch.no_grad()
    def step(self, state: StepInput) -> TorchLogits:
        """Return the logits [R, V] of the next token of each hypothesis in busy slots."""
        num_positions = int(state.positions.max()) + 1
        # Copies, because the beams change before a GPU has read them.
        tokens, parents, positions = (
            sent_to(self._device, each) for each in (state.tokens, state.parents, state.positions)
        )
        self._past.advance(parents, positions)
        logits = self._decoded(tokens, positions, num_positions, self._past, self._memory)
        if state.positions.all():
            return TorchLogits(logits)
        busy = sent_to(self._device, np.flatnonzero(state.positions))
        return TorchLogits(logits.view(*tokens.shape, -1).index_select(0, busy).flatten(0, 1))

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        self._past.keep_slots(slots)
        self._memory.keep_slots(slots)
