import pytest
import torch

from nmt_cli.costs.flops import training_flops
from nmt_cli.model.packing import pack
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.training.gradient.loss import CHUNK_ROWS
from tests.benchmarks.ceiling import BareProducts, Product, forward_products

CONFIG = ModelConfig(num_layers=3, d_model=20, d_ff=28, num_heads=5, d_k=3, d_v=7)


def packed(lengths):
    return pack(torch.zeros(sum(lengths), dtype=torch.int64), lengths)


def products_of(source_lengths, target_lengths, vocabulary_size=11):
    return forward_products(CONFIG, vocabulary_size, packed(source_lengths), packed(target_lengths))


@pytest.mark.parametrize("num_pairs", [1, 4, CHUNK_ROWS["cpu"] // 5])
def test_products_are_the_arithmetic_of_a_training_step(num_pairs):
    # Equal lengths, so that attention has no padding.
    source_lengths, target_lengths = [6] * num_pairs, [9] * num_pairs
    flops = sum(product.flops for product in products_of(source_lengths, target_lengths))
    assert flops == training_flops(CONFIG, 11, source_lengths, target_lengths)


def test_padding_in_attention_is_part_of_the_products():
    unequal, equal = (6, 5), (6, 6)
    core = [
        sum(p.flops for p in products_of(lengths, (7, 7)) if p.in_attention)
        for lengths in (unequal, equal)
    ]
    assert core[0] == core[1]


def test_a_product_counts_itself_and_both_gradients():
    assert Product(2, 3, 5, batch=7).flops == 3 * (2 * 7 * 2 * 3 * 5)


@pytest.mark.parametrize("batch", [1, 6])
def test_bare_products_multiply(batch):
    product = Product(4, 3, 5, batch)
    bare = BareProducts(torch.device("cpu"), "fp32")
    bare.run([product])

    def matrix(name, rows, columns):
        return bare._matrix(name, product, rows, columns)

    x, weight, gradient = matrix("x", 4, 3), matrix("weight", 5, 3), matrix("y gradient", 4, 5)
    torch.testing.assert_close(matrix("y", 4, 5), x @ weight.mT)
    torch.testing.assert_close(matrix("x gradient", 4, 3), gradient @ weight)
    torch.testing.assert_close(matrix("weight gradient", 5, 3), gradient.mT @ x)
