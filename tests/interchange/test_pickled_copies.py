"""Pickles that hold the same again and again are refused before they take memory."""

import io
import pickle
import zipfile
from argparse import Namespace
from typing import Any

import pytest
import torch

from nmt_cli.interchange.huggingface.importer import PICKLED, read_tensors
from nmt_cli.interchange.opennmt.importer import read_checkpoint
from nmt_cli.interchange.pickled_tensors import refuse_copies
from nmt_cli.messages.errors import DamagedError
from tests.interchange.hostile_pickles import zipped

# A list that is kept, and what could be made of it again and again.
KEPT = b"\x80\x02](K\x01K\x02eq\x01"
SET, ORDERED = b"c__builtin__\nset\n", b"ccollections\nOrderedDict\n"


@pytest.mark.parametrize(
    "copying",
    [
        KEPT + (SET + b"h\x01\x85R") * 2 + b".",
        KEPT + SET + b"q\x02h\x01\x85R0h\x02h\x01\x85R.",
        KEPT + SET + b"]0h\x01\x85R" + ORDERED + b"h\x01\x85R.",
        KEPT + b"\x85q\x02" + (SET + b"h\x02R") * 2 + b".",
        KEPT + (ORDERED + b"(h\x01tR") * 2 + b".",
        KEPT + SET + b"]h\x01aR.",
        b"\x80\x02X\x02\x00\x00\x00abq\x01" + (SET + b"h\x01\x85R") * 2 + b".",
        KEPT + b"0" + SET + b"h\x01\x85Rq\x02" + (SET + b"h\x02\x85R") * 2 + b".",
        b"\x80\x02}q\x01" + (ORDERED + b")Rh\x01b") * 2 + b".",
        b"\x80\x02}q\x01" + (ORDERED + b")Rh\x01K\x01K\x02sb") * 2 + b".",
    ],
)
def test_pickles_that_copy_what_they_hold_are_refused(tmp_path, copying):
    with pytest.raises(ValueError, match=r"of what it holds already|without a tuple"):
        refuse_copies(copying)
    zipped(tmp_path / "model.pt", copying)
    with pytest.raises(DamagedError):
        read_checkpoint(tmp_path / "model.pt")


def test_weights_that_are_copied_again_and_again_are_refused(tmp_path, monkeypatch):
    zipped(tmp_path / PICKLED, KEPT + (ORDERED + b"h\x01\x85R") * 9 + b".")
    monkeypatch.setattr(torch, "load", lambda *arguments, **options: pytest.fail("it was loaded"))
    with pytest.raises(DamagedError, match="is damaged"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("depth", [12, 40, 4000])
def test_a_key_of_nested_tuples_is_refused_at_once(tmp_path, monkeypatch, depth):
    nested = b")" + b"q\x010h\x01h\x01\x86" * depth  # each holds the one before twice
    content = b"\x80\x02}" + nested + b"K\x01s."
    with pytest.raises(ValueError, match="holds the same tuples too often"):
        refuse_copies(content)
    zipped(tmp_path / "model.pt", content)
    monkeypatch.setattr(torch, "load", lambda *arguments, **options: pytest.fail("it was loaded"))
    with pytest.raises(DamagedError):
        read_checkpoint(tmp_path / "model.pt")


def test_many_tuples_side_by_side_are_no_nested_ones():
    refuse_copies(pickle.dumps({("a", (number, ("b",))): number for number in range(2000)}, 2))


def test_what_torch_saves_copies_nothing():
    module = torch.nn.Linear(2, 2)
    contents: list[Any] = [{"a": set()}, {"a": {"one"}, "b": {"a", "b"}, "c": module.state_dict()}]
    for content in contents:
        file = io.BytesIO()
        torch.save([content, Namespace(content=content)], file)
        with zipfile.ZipFile(file) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".pkl"))
            pickled = archive.read(name)
        refuse_copies(pickled)
    refuse_copies(pickle.dumps([{"a"}, {"a", "b"}], 2))
