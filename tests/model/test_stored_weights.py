"""Files of weights, as the library of the format reads and writes them."""

import hashlib
import json
import mmap

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from nmt_cli.costs.parameters import parameter_shapes
from nmt_cli.messages.errors import DamagedError
from nmt_cli.model import stored_weights
from nmt_cli.model.stored_weights import StoredWeights, as_bytes
from nmt_cli.model.transformer import Transformer, build_transformer
from nmt_cli.recipe.sections.model import ModelConfig
from tests.rounded_model import rounded_rows

CONFIG = ModelConfig(num_layers=2, num_heads=3, d_model=6, d_ff=5, d_k=4, d_v=7, dropout=0.0)
ARRAYS = {
    "b": np.float32(np.random.default_rng(1).normal(size=(3, 5))),
    "c": np.arange(7, dtype=np.float32),
    "none": np.zeros((0, 2), np.float32),
    "number": np.array(0.5, np.float32),
}


@pytest.fixture
def path(tmp_path):
    safetensors.numpy.save_file(ARRAYS, tmp_path / "x.safetensors", {"key": "a value"})
    return tmp_path / "x.safetensors"


def save(path, tensors):
    path.write_bytes(safetensors.numpy.save(tensors))
    return path


def new_weights(seed=1):
    torch.manual_seed(seed)
    model = Transformer(CONFIG, 11)
    return {name: each.detach().numpy() for name, each in model.named_parameters()}


def test_weights_are_those_that_the_library_reads(path):
    stored = StoredWeights(path)
    assert stored.keys() == ARRAYS.keys()
    for name, array in safetensors.numpy.load_file(path).items():
        assert stored[name].dtype == array.dtype
        np.testing.assert_array_equal(stored[name], array, strict=True)


def test_what_is_written_is_what_the_library_writes(path):
    assert as_bytes(ARRAYS, in_int8=False) == safetensors.torch.save(
        {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    )


def test_matrices_in_int8_are_products_by_a_scale_for_each_row(tmp_path):
    """Rounded as the layers of a translation in int8 round them."""
    matrix = np.float32(np.random.default_rng(1).normal(size=(5, 9)))
    matrix[3] = 0
    path = tmp_path / "x"
    path.write_bytes(as_bytes({"m": matrix, "v": matrix[0]}, in_int8=True))
    stored = safetensors.torch.load_file(path)
    scales, rounded = rounded_rows(torch.from_numpy(matrix))
    assert torch.equal(stored["m"], rounded)
    assert torch.equal(stored["m.scales"], scales)
    found = StoredWeights(path)
    assert found.keys() == {"m", "v"}
    assert torch.equal(torch.from_numpy(found["m"]), rounded.float() * scales)
    assert np.array_equal(found["v"], matrix[0])


def test_a_model_computes_in_the_memory_that_its_weights_were_read_into():
    weights = new_weights()
    for name, parameter in build_transformer(CONFIG, 11, weights).named_parameters():
        assert parameter.data_ptr() == weights[name].ctypes.data


def test_a_weight_is_read_when_it_is_taken(path):
    stored = StoredWeights(path)
    first = stored["b"]
    path.write_bytes(path.read_bytes()[:-1])
    assert np.array_equal(first, ARRAYS["b"])
    with pytest.raises(DamagedError, match="cannot be read: it ends in "):
        dict(stored)
    path.unlink()
    with pytest.raises(DamagedError, match="No such file"):
        stored["b"]


def checked(path):
    """Return copies of the weights in a file that is read and hashed at the same time."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {name: weight.copy() for name, weight in StoredWeights(path).checked(digest)}


@pytest.mark.parametrize("pages_at_once", [1, 3, stored_weights.MAPPED_AT_ONCE // mmap.PAGESIZE])
@pytest.mark.parametrize("in_int8", [False, True])
def test_weights_that_are_checked_meanwhile_are_the_same(
    tmp_path, monkeypatch, in_int8, pages_at_once
):
    monkeypatch.setattr(stored_weights, "MAPPED_AT_ONCE", pages_at_once * mmap.PAGESIZE)
    path = tmp_path / "x"
    arrays = {name: array for name, array in ARRAYS.items() if array.size or not in_int8}
    large = np.random.default_rng(2).normal(size=(50, 200))
    arrays |= {f"large {number}": np.float32(large * number) for number in range(4)}
    path.write_bytes(as_bytes(arrays, in_int8=in_int8))
    found, stored = checked(path), StoredWeights(path)
    assert list(found) == list(stored)
    for name, weight in stored.items():
        np.testing.assert_array_equal(found[name], weight, strict=True)
    weights = stored.checked("0" * 64)
    for _ in stored:
        next(weights)
    with pytest.raises(DamagedError, match="x has changed since it was written; it is damaged"):
        next(weights)


def test_weights_at_any_byte_of_a_file_are_read(tmp_path):
    """No library writes such a file, but they read it."""
    content = b"\x05" + np.array([[1], [0.5]], np.float32).tobytes() + b"\1\2\3\4"
    header = {
        "byte": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]},
        "m.scales": {"dtype": "F32", "shape": [2, 1], "data_offsets": [1, 9]},
        "m": {"dtype": "I8", "shape": [2, 2], "data_offsets": [9, 13]},
    }
    vector = np.array([3, -2], np.float32)
    header["v"] = {"dtype": "F32", "shape": [2], "data_offsets": [13, 21]}
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + content + vector.tobytes()
    (tmp_path / "y").write_bytes(content)
    found = checked(tmp_path / "y")
    assert found["m"].tolist() == [[1, 2], [1.5, 2]]
    assert found["v"].tolist() == [3, -2]
    assert found["byte"].tolist() == [5]


def test_a_file_that_ends_early_is_a_user_error(path):
    content = path.read_bytes()
    for size in (0, 7, 100, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedError, match="cannot be read"):
            StoredWeights(path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x", np.zeros(2, np.float16), "x has the type F16"),
        ("b.scales", np.ones((2, 1), np.float32), "b.scales does not have a scale for each row"),
        ("z.scales", np.ones((2, 1), np.float32), "z.scales does not have a scale for each row"),
    ],
)
def test_what_no_model_is_stored_in_is_named(tmp_path, name, array, message):
    with pytest.raises(DamagedError, match=message):
        StoredWeights(save(tmp_path / "y", {**ARRAYS, name: array}))


def test_impossible_shapes_are_named(tmp_path):
    """The library finds that a tensor of no bytes fits."""
    tensor = {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}
    header = json.dumps({"x": tensor}).encode()
    (tmp_path / "y").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(DamagedError, match=r"x has the shape \[0, 9223372036854775808\]"):
        StoredWeights(tmp_path / "y")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("output_weight"), "output_weight is in one and not in the"),
        (lambda weights: weights.update(x=ARRAYS["b"]), "x is in one and not in the other"),
        (
            lambda weights: weights.update(output_weight=ARRAYS["b"]),
            r"output_weight is float32 \[3, 5\], not float32 \[11, 6\]",
        ),
        (
            lambda weights: weights.update(output_weight=np.zeros((11, 6), np.int8)),
            r"output_weight is int8 \[11, 6\], not float32",
        ),
    ],
)
def test_weights_of_another_model_are_refused_by_the_header(tmp_path, change, message):
    weights = new_weights()
    change(weights)
    path = save(tmp_path / "y", weights)
    with pytest.raises(DamagedError, match=message):
        StoredWeights(path, parameter_shapes(CONFIG, 11))
