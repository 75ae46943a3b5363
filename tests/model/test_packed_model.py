"""Packed weights are those of the model in torch, at each precision and for every architecture."""

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.model.compiled.c_library import LEVELS, Library
from nmt_cli.model.compiled.packed_model import PackedModel
from tests.architectures import OPTION_SETS, random_model
from tests.fake_models import packed_model
from tests.rounded_model import at_precision, output_of

SIZE = 37
PRECISIONS = ["fp32", "bf16", "int8"]
BLOCK = {"v3": 16, "v3_vnni": 16, "arm_dot": 8}  # outputs; 32 at other levels


def packed_at(model, library, precision):
    if precision == "bf16" and not library.functions.has_bf16():
        pytest.skip("this level has no instructions for bf16")
    return packed_model(model, library, precision)


def numbers(address, count, dtype=np.float32):
    """Return a copy of the numbers at an address."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(address, size), dtype)


def unpacked(matrix, precision, library):
    """Return the weight [O, I] in a matrix: blocks of outputs, of groups of four bytes each."""
    block, of_group = BLOCK.get(library.level, 32), {"fp32": 1, "bf16": 2, "int8": 4}[precision]
    size = library.functions.size_of_blocks(matrix.type, matrix.I, matrix.O)
    dtype = {"fp32": np.float32, "bf16": np.uint16, "int8": np.int8}[precision]
    stored = numbers(matrix.blocks, 4 * (size // 4) // np.dtype(dtype).itemsize, dtype)
    groups = stored.reshape(-(-matrix.O // block), -1, block, of_group)
    rows = groups.transpose(0, 2, 1, 3).reshape(groups.shape[0] * block, -1)
    if precision == "bf16":
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    assert not rows[matrix.O :].any()
    assert not rows[:, matrix.I :].any()
    return rows[: matrix.O, : matrix.I]


def assert_is(matrix, linear, precision, library):
    """Assert that a matrix has the weight and the bias of a layer of torch."""
    if precision == "int8":
        expected = linear.integers.numpy()
        assert np.array_equal(numbers(matrix.scales, matrix.O), linear.scales.numpy())
        sums = numbers(matrix.sums, matrix.O, np.int32)
        if library.level in ("v3", "v4"):  # see add_integers in layers.c
            excess = np.minimum(expected, 0)
        else:
            excess = (0 if library.level == "arm_dot" else 128) * expected.astype(np.int32)
        assert np.array_equal(sums, excess.sum(axis=1, dtype=np.int32))
    else:
        expected = linear.weight.detach().float().numpy()
    assert np.array_equal(unpacked(matrix, precision, library), expected)
    assert (linear.bias is None) == (matrix.bias is None)
    if linear.bias is not None:
        bias = linear.bias.detach().float().numpy()
        assert np.array_equal(numbers(matrix.bias, matrix.O), bias)


def packed_and_rounded(options, library, precision):
    """Return a random model as the library has it, and as torch rounds it."""
    model = random_model(options, SIZE).eval()
    return packed_at(model, library, precision), at_precision(model, precision)


def assert_is_norm(packed, norm):
    if isinstance(norm, torch.nn.Identity):
        assert packed.weight is None
        return
    for own, other in ((packed.weight, norm.weight), (packed.bias, norm.bias)):
        assert np.array_equal(numbers(own, len(other)), other.detach().float().numpy())
    assert packed.epsilon == np.float32(norm.eps)


def overwriting(model):
    """Yield the weights of ``model``; each array is overwritten by the next."""
    memory = np.empty(max(weight.numel() for weight in model.parameters()), np.float32)
    for name, weight in reversed([*model.named_parameters()]):
        memory[...] = np.nan
        array = memory[: weight.numel()].reshape(weight.shape)
        array[...] = weight.detach().numpy()
        yield name, array


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("level", LEVELS)
def test_weights_are_those_of_torch_at_each_level(library, level, precision):
    del library  # skips where the library could not be built
    if not LEVELS[level] <= read_cpu().flags:
        pytest.skip("the level is for other CPUs")
    test_all_weights_are_those_of_torch(Library(level), OPTION_SETS[1], precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", OPTION_SETS)
def test_all_weights_are_those_of_torch(library, options, precision):
    packed, expected = packed_and_rounded(options, library, precision)
    assert_is(packed.output, output_of(expected, precision), precision, library)
    stacks = (
        (packed.encoder, packed._layers[0], expected.encoder_layers, expected.encoder_norm),
        (packed.decoder, packed._layers[1], expected.decoder_layers, expected.decoder_norm),
    )
    for stack, layers, of_torch, last in stacks:
        assert stack.layers == ctypes.addressof(layers)
        assert stack.N == len(layers) == len(of_torch)
        assert_is_norm(stack.last, last)
        for number, own in enumerate(layers):
            other: Any = of_torch[number]
            network = other.feed_forward
            pairs = [(own.inner, network.inner), (own.outer, network.outer)]
            norms = [(own.feed_forward_norm, other.feed_forward_residual.norm)]
            if hasattr(other, "recurrence"):
                unit = other.recurrence
                pairs += [(own.candidates, unit.candidates), (own.forget_gates, unit.forget_gates)]
                norms += [(own.recurrence_norm, other.recurrence_residual.norm)]
                assert own.queries_keys_values.O == 0
            else:
                attention = other.self_attention
                pairs += [(own.queries_keys_values, attention.queries_keys_values)]
                pairs += [(own.self_attention_output, attention.output)]
                norms += [(own.self_attention_norm, other.self_attention_residual.norm)]
                assert own.candidates.O == 0
            if of_torch is expected.decoder_layers:
                attention = other.memory_attention
                pairs += [(own.memory_queries, attention.queries)]
                pairs += [(own.memory_output, attention.output)]
                pairs += [(packed.keys_values[number], attention.keys_values)]
                norms += [(own.memory_attention_norm, other.memory_attention_residual.norm)]
            for matrix, linear in pairs:
                assert_is(matrix, linear, precision, library)
            for norm in norms:
                assert_is_norm(*norm)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", OPTION_SETS)
def test_embeddings_and_positions_are_those_of_torch(library, options, precision):
    packed, expected = packed_and_rounded(options, library, precision)
    sides = (
        ("source", packed.source, expected.source_embedding),
        ("target", packed.target, expected.target_embedding),
    )
    for side, own, embedding in sides:
        vectors = embedding.weight.detach().float().numpy()
        if own.vectors is not None:
            found = numbers(own.vectors, vectors.size).reshape(vectors.shape)
        else:
            assert own.shared == ctypes.addressof(packed.output)
            found = unpacked(packed.output, precision, library)
        assert np.array_equal(found, vectors)
        assert_is_norm(own.after, embedding.norm)
        assert (own.scale, own.D) == (np.float32(embedding.scale), vectors.shape[1])
        assert bool(own.starts_with_zeros) == embedding.starts_with_zeros
        for number in (1, 64) if "learned" in options.values() else (1, 256, 300, 2_000):
            of_torch = embedding.positions(number).detach().float().numpy()
            assert np.array_equal(packed.vectors(side, number)[:number], of_torch[:number])
        if "learned" in options.values():
            with pytest.raises(
                ValueError, match=r"65 pieces is longer than model.max_positions 64"
            ):
                packed.vectors(side, 65)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_each_weight_is_packed_before_the_next_is_taken(library, precision):
    model = random_model(OPTION_SETS[0], SIZE)
    packed = PackedModel(model.config, SIZE, overwriting(model), precision, library)
    assert np.array_equal(packed._memory, packed_model(model, library, precision)._memory)


def test_weights_of_another_model_are_refused(library):
    model = random_model(OPTION_SETS[0], SIZE)
    weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    name = "encoder_layers.0.feed_forward.inner.weight"
    with pytest.raises(ValueError, match=rf"{name} is \[28, 19\], not \[28, 20\]"):
        PackedModel(
            model.config, SIZE, {**weights, name: weights[name][:, :19]}.items(), "fp32", library
        )
    del weights[name]
    with pytest.raises(ValueError, match=f"^{name} missing$"):
        PackedModel(model.config, SIZE, weights.items(), "fp32", library)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_has_no_copy_of_the_weights(library):
    memory = packed_model(random_model(OPTION_SETS[0], SIZE), library)._memory
    assert num_own_pages(memory) == -(-memory.nbytes // mmap.PAGESIZE)
    child = os.fork()
    if child == 0:
        memory.sum()  # reads every page
        os._exit(num_own_pages(memory) > 0)
    assert os.waitpid(child, 0)[1] == 0


def num_own_pages(memory):
    """The number of the pages of an array's memory that no other process has."""
    first, last = (memory.ctypes.data + place for place in (0, memory.nbytes - 1))
    pages = range(first // mmap.PAGESIZE, last // mmap.PAGESIZE + 1)
    with Path("/proc/self/pagemap").open("rb", buffering=0) as stream:
        stream.seek(8 * pages.start)
        facts = np.frombuffer(stream.read(8 * len(pages)), np.uint64)
    return int((facts >> 56 & 1).sum())  # the bit of pages that are mapped exclusively
