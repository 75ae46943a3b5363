"""Objects of other programs in a pickle become stand-ins, and nothing of them runs."""

from argparse import Namespace
from collections import defaultdict

import numpy as np
import pytest
import torch

from nmt_cli.interchange.pickled_tensors import (
    BYTES,
    Inert,
    inert_mapping,
    members,
    read_pickle,
    read_pickled_tensors,
    unwrapped,
)
from nmt_cli.messages.errors import DamagedError, UserError
from tests.interchange.hostile_pickles import zipped

OWN = f"{__name__} Marked"
STAND_INS = {
    **dict.fromkeys(["argparse Namespace", "numpy dtype", BYTES, OWN, "builtins list"], Inert),
    **dict.fromkeys(["numpy._core.multiarray scalar", "numpy.core.multiarray scalar"], Inert),
    "collections defaultdict": inert_mapping,
}


class Marked:
    """Would notice if it were made or filled."""

    def __init__(self):
        self.value = 3

    def __setstate__(self, state):
        raise AssertionError


def test_stand_ins_hold_what_the_objects_hold(tmp_path):
    path = tmp_path / "file.pt"
    content = {
        "args": Namespace(width=8, own=Marked()),
        "numbers": [np.float64(2), np.float32(3)],
        "counts": defaultdict(list, {1: [2]}),
        "tensors": {"a": torch.ones(2)},
    }
    torch.save(content, path)
    before = set(torch.serialization.get_safe_globals())
    found = read_pickle(path, STAND_INS)
    assert set(torch.serialization.get_safe_globals()) == before
    assert members(found["args"])["width"] == 8
    assert members(members(found["args"])["own"]) == {"value": 3}
    assert {type(each) for each in found["numbers"]} == {Inert}
    assert found["counts"] == {1: [2]}
    assert torch.equal(found["tensors"]["a"], torch.ones(2))
    with pytest.raises(UserError, match=r"it calls .*argparse\.Namespace.*; elsewhere\.$"):
        read_pickle(path, {OWN: Inert}, "elsewhere")
    with pytest.raises(UserError, match="it calls "):
        read_pickled_tensors(path)


def test_omegaconf_wraps_what_it_holds():
    number, section, cycle = Inert(), Inert(), Inert()
    number.state, section.state = {"_val": 4, "_metadata": None}, {"_content": {"a": number}}
    cycle.state = {"_val": cycle}
    assert unwrapped(members(section)["a"]) == 4
    assert isinstance(unwrapped(cycle), Inert)
    assert members(3) == members(Inert()) == {}


def text(content):
    return b"X" + len(content).to_bytes(4, "little") + content


ENCODE, CODEC = b"c_codecs\nencode\n", text(b"latin1")


@pytest.mark.parametrize(
    "instructions",
    [
        text(b"x" * 99) + b"q\x00" + ENCODE + b"h\x00" + CODEC + b"\x86R",
        text(b"x" * 99) + b"q\x00" + ENCODE + b"q\x01" + text(b"y") + CODEC + b"\x86Rh\x01h\x00",
        ENCODE + b"q\x01" + text(b"y") + CODEC + b"\x86Rh\x01q\x02" + text(b"y") + CODEC
        + b"\x86Rh\x02h\x00" + CODEC + b"\x86R",
        ENCODE + text(b"y") + text(b"utf-8") + b"\x86R",
        CODEC + b"q\x03" + text(b"utf-8") + b"q\x03" + ENCODE + text(b"y") + b"h\x03\x86R",
    ],
)  # fmt: skip
def test_bytes_are_made_only_of_a_text_that_stands_there(tmp_path, instructions):
    zipped(tmp_path / "file.pt", b"\x80\x02" + instructions + b".")
    with pytest.raises(DamagedError):
        read_pickle(tmp_path / "file.pt", STAND_INS)


def test_bytes_of_texts_are_read(tmp_path):
    pair = CODEC + b"q\x03" + ENCODE + b"q\x01" + text(b"\xc3\xa9") + b"h\x03\x86Rq\x02"
    again = b"h\x01" + text(b"z") + b"q\x05h\x03\x86R"
    zipped(tmp_path / "file.pt", b"\x80\x02" + pair + again + b"\x86.")
    assert read_pickle(tmp_path / "file.pt", STAND_INS) == (b"\xe9", b"z")


def test_a_stand_in_cannot_be_called_in_other_ways(tmp_path):
    inert = b"cargparse\nNamespace\n"
    for content in (inert + b"h\x09.", inert + b"K\x01\x81.", inert + b"}b.", b"}" + inert + b"a."):
        zipped(tmp_path / "file.pt", b"\x80\x02" + content)
        with pytest.raises((UserError, DamagedError)) as caught:
            read_pickle(tmp_path / "file.pt", STAND_INS)
        assert "\n" not in str(caught.value)
