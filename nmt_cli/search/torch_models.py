"""Models in torch, prepared for searches: on a GPU, or on a CPU without the library."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from nmt_cli.hardware.choices import DecodingPrecision, choose_decoding_precision
from nmt_cli.hardware.cpu import keep_num_threads
from nmt_cli.hardware.device import DTYPES, bf16_is_fast, prefer_flash_attention
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled.kernels import Kernels, kernels_for
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.model.transformer import Transformer, build_transformer
from nmt_cli.model_directory import Model


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
    kernels = kernels_for(device.type)
    if kernels is not None:
        chosen = choose_decoding_precision(precision, "cpu", has_bf16=kernels.has_bf16)
        of_library = [packed(each.eval(), chosen, kernels) for each in models]
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


def packed(model: Transformer, precision: str, kernels: Kernels) -> PackedModel:
    """Return a copy of ``model`` for the library."""
    weights = {
        name: weight.detach().float().cpu().numpy() for name, weight in model.named_parameters()
    }
    return PackedModel(model.config, weights, precision, kernels)


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
