"""Models in torch, prepared for searches or for a pass over given translations.

They are on a GPU, or on a CPU without the library.

Legend: N layers, H heads, S source pieces and </s>, T <s> and target pieces, D d_model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.hardware.cpu import keep_num_threads
from nmt_cli.hardware.device import DTYPES, bf16_is_fast, prefer_flash_attention
from nmt_cli.hardware.machine_options import DecodingPrecision, choose_decoding_precision
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled.c_library import Array, Library, library_for
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.model.packing import Packed, pack
from nmt_cli.model.transformer import Transformer, build_transformer
from nmt_cli.saved.model_directory import Model
from nmt_cli.search.sentences import AttentionWeights, SentencePair
from nmt_cli.search.torch_logits import log_normalizers


def loading_by_torch(
    device: str, precision: str
) -> tuple[Callable[[Model], Transformer], DecodingPrecision]:
    """Return what makes a Transformer on ``device`` of the files of a model, and its precision."""
    keep_num_threads()
    chosen = torch_precision(precision, device)

    def load(found: Model) -> Transformer:
        config, size = found.settings.architecture, found.settings.vocabulary_size
        return build_transformer(config, size, found.weights).to(device, DTYPES[chosen])

    return load, chosen


def prepared(
    models: Sequence[Transformer], precision: str
) -> tuple[list[PackedModel] | list[Transformer], dict[str, str]]:
    """Return ``models`` for searches in a ``precision``, and what "auto" became.

    On a CPU with the library they are packed. Raises UserError if the device does not have the
    precision.
    """
    device = models[0].output_weight.device
    library = library_for(device.type)
    if library is not None:
        chosen = choose_decoding_precision(precision, "cpu", has_bf16=library.has_bf16)
        of_library = [packed(each.eval(), chosen, library) for each in models]
        return of_library, {"device": "cpu", "precision": chosen}
    prefer_flash_attention(device)
    chosen = torch_precision(precision, device)
    rounded = [at_precision(each.eval(), chosen) for each in models]
    return rounded, {"device": device.type, "precision": chosen}


@contextmanager
def without_gradients(device: torch.device) -> Iterator[None]:
    """Compute without gradients and in the types of the weights in this block."""
    # Caches of one call may serve the next, so they must not be inference tensors.
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def packed(model: Transformer, precision: str, library: Library) -> PackedModel:
    """Return a copy of ``model`` for the library."""
    weights = {
        name: weight.detach().float().cpu().numpy() for name, weight in model.named_parameters()
    }
    return PackedModel(model.config, model.vocabulary_size, weights.items(), precision, library)


def torch_precision(name: str, device: torch.device | str) -> DecodingPrecision:
    """Return what a ``name`` of --precision means where torch translates; on a CPU it is fp32.

    Raises UserError if there is no such precision, or if ``device`` does not have it.
    """
    device = torch.device(device)
    is_gpu = device.type != "cpu"
    if not is_gpu and name in {"bf16", "int8"}:
        raise UserError(
            f"--precision {name} on a CPU needs nmt-cli's library, which is missing here (nmt-cli "
            "doctor says why); give fp32."
        )
    return choose_decoding_precision(name, device.type, has_bf16=is_gpu and bf16_is_fast(device))


def at_precision(model: Transformer, precision: DecodingPrecision) -> Transformer:
    """Return ``model`` itself if its weights have ``precision``, else a copy."""
    dtype = DTYPES[precision]
    return model if model.output_weight.dtype is dtype else copy.deepcopy(model).to(dtype)


# Enough to keep the product busy; the logits of so many rows are V times as many numbers.
ROWS_AT_ONCE = {"cpu": 512, "cuda": 4096}


class TorchForcing:
    """Reads given pairs by torch: by the forward pass of training, in evaluation mode.

    No other thread may use the model meanwhile.
    """

    def __init__(
        self, model: Transformer, tokenizer: Tokenizer, precision: str | None = None
    ) -> None:
        """Set ``model`` to evaluation mode; without a ``precision`` it keeps its own."""
        self._device = model.output_weight.device
        self.device = self._device.type
        prefer_flash_attention(self._device)
        self._model, self._tokenizer = model.eval(), tokenizer
        if precision is not None:
            self._model = at_precision(self._model, torch_precision(precision, self._device))

    def token_scores(self, pairs: Sequence[SentencePair]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then of its ``</s>``.

        Raises ValueError if a sentence is longer than learned positions allow.
        """
        targets = [[*pair.target, self._tokenizer.eos_id] for pair in pairs]
        tokens = torch.tensor(list(chain.from_iterable(targets)), device=self._device)
        at_once, scores = ROWS_AT_ONCE[self.device], []
        with without_gradients(self._device):
            rows = self._model(*self.packed(pairs))
            for some, of_some in zip(rows.split(at_once), tokens.split(at_once), strict=True):
                logits = self._model.project(some)
                chosen = logits.gather(1, of_some[:, None]).squeeze(1).float()
                scores.append(chosen - log_normalizers(logits))
        return [each.tolist() for each in torch.cat(scores).split([*map(len, targets)])]

    def attention(
        self, pairs: Sequence[SentencePair], layers: Sequence[int]
    ) -> list[AttentionWeights]:
        """Return the weights of ``layers``, ascending from 0, of a side as far as it has them.

        Raises ValueError if a sentence is longer than learned positions allow.
        """
        with without_gradients(self._device), _recording(self._model, layers) as recorded:
            self._model(*self.packed(pairs))
        return [
            AttentionWeights(*(_stacked([layer[number] for layer in kind]) for kind in recorded))
            for number in range(len(pairs))
        ]

    def packed(self, pairs: Sequence[SentencePair]) -> tuple[Packed, Packed]:
        """Return the sources and the inputs of the decoder, with their marks."""
        config, tokenizer = self._model.config, self._tokenizer
        end, start = source_end(config, tokenizer), start_id(config, tokenizer)
        sides = (
            [[*pair.source, *end] for pair in pairs],
            [[start, *pair.target] for pair in pairs],
        )
        source, target_input = (
            pack(torch.tensor(list(chain.from_iterable(side))), [*map(len, side)], self._device)
            for side in sides
        )
        return source, target_input


def _stacked(of_layers: Sequence[Tensor]) -> Array:
    return (torch.stack([*of_layers]) if of_layers else torch.empty(0)).cpu().numpy()


def _record(weights: list[list[Tensor]], attention: Any, args: Any, options: Any) -> None:
    weights.append(attention.weights(*args, **options))


@contextmanager
def _recording(
    model: Transformer, layers: Sequence[int]
) -> Iterator[tuple[list[list[Tensor]], ...]]:
    """Compute the weights of ``layers`` beside a pass, from what enters each attention.

    Yields those of the encoder, of the decoder and to the memory: by layer, then by sentence.
    """
    recorded: tuple[list[list[Tensor]], ...] = [], [], []
    kinds = (
        (model.encoder_layers, "self_attention"),
        (model.decoder_layers, "self_attention"),  # recurrent units have none
        (model.decoder_layers, "memory_attention"),
    )
    handles = []
    for weights, (stack, name) in zip(recorded, kinds, strict=True):
        for number in layers:
            if number < len(stack) and hasattr(stack[number], name):
                attention: nn.Module = getattr(stack[number], name)
                hook = partial(_record, weights)
                handles.append(attention.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()
