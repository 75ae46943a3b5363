"""Models in torch, prepared for searches: on a GPU, or on a CPU without the library."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from nmt_cli.hardware.choices import (
    Computing,
    DecodingPrecision,
    choose_decoding_precision,
)
from nmt_cli.hardware.cpu import keep_num_threads
from nmt_cli.hardware.device import DTYPES, prefer_flash_attention
from nmt_cli.model.compiled.kernels import Kernels
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.model.precision import at_precision, torch_precision
from nmt_cli.model.transformer import Transformer, build_transformer
from nmt_cli.model_directory import Model
from nmt_cli.search import engine
from nmt_cli.search.beams import SearchSettings
from nmt_cli.search.graphed.model import GraphedTransformer


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


def prepared_by_torch(
    models: Sequence[Transformer], settings: SearchSettings, computing: Computing
) -> engine.PreparedModels:
    """Return ``models`` for searches in the precision that ``computing`` asks for.

    On a CPU with the library they are packed. Raises UserError if ``computing`` asks for what is
    not possible here.
    """
    device = models[0].output_weight.device
    kernels = engine.kernels_for(device.type)
    if kernels is not None:
        asked = computing.precision
        precision = choose_decoding_precision(asked, "cpu", has_bf16=kernels.has_bf16)
        found = [packed(each.eval(), precision, kernels) for each in models]
        chosen = {"device": "cpu", "precision": precision}
        return engine.PreparedModels(found, chosen)
    prefer_flash_attention(device)
    precision = torch_precision(computing.precision, device)
    rounded = [at_precision(each.eval(), precision) for each in models]
    graphed: GraphedTransformer | None = None
    if computing.cuda_graphs and len(models) == 1 and device.type == "cuda":
        graphed = GraphedTransformer(rounded[0], settings)
    return engine.PreparedModels(
        rounded,
        {"device": device.type, "precision": precision},
        graphed,
        partial(without_gradients, device),
    )


@contextmanager
def without_gradients(device: torch.device) -> Iterator[None]:
    """Compute without gradients and in the types of the weights in this block."""
    # Caches of one call may serve the next, so they must not be inference tensors.
    no_autocast = torch.autocast(device.type, enabled=False)
    with torch.inference_mode(False), torch.no_grad(), no_autocast:
        yield


def packed(model: Transformer, precision: str, kernels: Kernels) -> PackedModel:
    """Return a copy of ``model`` for the library."""
    weights = {
        name: weight.detach().float().cpu().numpy() for name, weight in model.named_parameters()
    }
    return PackedModel(model.config, weights, precision, kernels)
