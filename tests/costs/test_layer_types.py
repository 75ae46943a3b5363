"""Table 1, against the paper's formulas and against signals that really travel."""

import math

import pytest

from nmt_cli.costs.parameters import KERNEL_WIDTH, NEIGHBOURHOOD, layer_types


@pytest.mark.parametrize(("n", "d"), [(27, 512), (1, 8), (10, 8), (11, 8), (1000, 1024)])
def test_the_rows_are_those_of_the_paper(n, d):
    rows = {row.name: row for row in layer_types(n, d)}
    r, k = min(NEIGHBOURHOOD, n), KERNEL_WIDTH
    operations = {
        "self-attention": n**2 * d,
        "recurrent": n * d**2,
        "convolutional": k * n * d**2,
        "self-attention (restricted)": r * n * d,
    }
    assert {name: row.operations for name, row in rows.items()} == operations
    assert {name: row.sequential for name, row in rows.items()} == {
        name: n if name == "recurrent" else 1 for name in operations
    }
    assert rows["self-attention"].longest_path == 1
    assert rows["recurrent"].longest_path == n
    assert rows["self-attention (restricted)"].longest_path == math.ceil(n / r)


@pytest.mark.parametrize(("n", "path"), [(1, 1), (3, 1), (4, 2), (9, 2), (10, 3), (243, 5)])
def test_the_path_of_a_convolution_is_the_logarithm_to_its_width(n, path):
    (row,) = [row for row in layer_types(n, 8) if row.name == "convolutional"]
    assert row.longest_path == path


def test_self_attention_is_cheaper_as_long_as_sentences_are_shorter_than_wide():
    for length, is_cheaper in ((27, True), (511, True), (513, False)):
        attention, recurrent = layer_types(length, 512)[:2]
        assert (attention.operations < recurrent.operations) is is_cheaper
