import pytest

from nmt_cli.hardware.choices import choose_decoding_precision
from nmt_cli.messages.errors import UserError


@pytest.mark.parametrize(
    ("name", "device", "has_bf16", "expected"),
    [
        ("auto", "cpu", True, "bf16"),
        ("auto", "cpu", False, "fp32"),
        ("auto", "cuda", True, "bf16"),
        ("fp32", "cpu", True, "fp32"),
        ("int8", "cpu", True, "int8"),
        ("bf16", "cuda", False, "bf16"),
    ],
)
def test_int8_is_chosen_only_by_name_and_bf16_where_there_are_instructions(
    name, device, has_bf16, expected, caplog
):
    assert choose_decoding_precision(name, device, has_bf16=has_bf16) == expected
    assert not caplog.records


def test_bf16_is_fp32_on_a_cpu_without_instructions_and_that_is_said(caplog):
    assert choose_decoding_precision("bf16", "cpu", has_bf16=False) == "fp32"
    assert "bf16 is computed in fp32: this CPU has no instructions for it." in caplog.text


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("int8", "cuda:1", "--precision int8 is for CPUs, the device is cuda:1"),
        ("int4", "cpu", "must be auto, fp32, bf16 or int8, but is int4"),
    ],
)
def test_what_a_device_cannot_do_is_refused(name, device, message):
    with pytest.raises(UserError, match=message):
        choose_decoding_precision(name, device, has_bf16=True)
