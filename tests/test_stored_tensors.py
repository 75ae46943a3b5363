import json

import pytest
import safetensors.torch
import torch

from nmt_cli.model_directory import read_shapes, read_tensors

TENSORS = {
    "b": torch.randn(3, 5),
    "a": torch.arange(-6, 6, dtype=torch.int8).view(4, 3),
    "c": torch.randn(7),
    "none": torch.empty(0, 2),
    "number": torch.tensor(0.5),
}


@pytest.fixture
def path(tmp_path):
    safetensors.torch.save_file(TENSORS, tmp_path / "x.safetensors", {"key": "a value"})
    return tmp_path / "x.safetensors"


def test_tensors_are_those_that_the_library_reads(path):
    expected = safetensors.torch.load_file(path)
    found = read_tensors(path)
    assert found.keys() == expected.keys() == TENSORS.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_tensors_outlive_their_file(path):
    found = read_tensors(path)
    path.write_bytes(b"")
    assert torch.equal(found["b"], TENSORS["b"])


def test_shapes_take_no_memory(path):
    for name, shape in read_shapes(path).items():
        assert (shape.shape, shape.dtype) == (TENSORS[name].shape, TENSORS[name].dtype)
        assert shape.is_meta


def test_other_types_are_named(tmp_path):
    safetensors.torch.save_file({"x": torch.zeros(2, dtype=torch.float16)}, tmp_path / "y")
    with pytest.raises(ValueError, match="x has the type F16"):
        read_tensors(tmp_path / "y")


def test_impossible_shapes_are_named(tmp_path):
    """The library finds that a tensor of no bytes fits."""
    tensor = {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}
    header = json.dumps({"x": tensor}).encode()
    (tmp_path / "y").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match=r"x has the shape \[0, 9223372036854775808\]"):
        read_tensors(tmp_path / "y")


def test_a_file_that_shrinks_while_it_is_read_is_an_error(path, monkeypatch):
    shapes = read_shapes(path)
    monkeypatch.setattr("nmt_cli.model_directory.read_shapes", lambda path: shapes)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="it ends in "):
        read_tensors(path)
