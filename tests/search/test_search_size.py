"""How many tokens a search holds, against the bytes that its cache takes."""

import pytest
import torch

from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.search import search_size
from nmt_cli.search.attention_cache import empty_layers
from nmt_cli.search.engine import default_max_tokens
from nmt_cli.search.search_size import SearchSize

MEBIBYTE = 1 << 20


def config_of(name):
    """Return the architecture of the recipe ``name``."""
    return read_recipe(name).recipe.model


def cached_bytes(config, num_tokens):
    """Return the bytes of a cache with a place for each of so many tokens."""
    layers = empty_layers(config.decoder_shape, 1, num_tokens, torch.zeros(()))
    return sum(each.nbytes for layer in layers for each in layer)


@pytest.mark.parametrize("name", ["base", "big"])
def test_wide_models_search_what_takes_96_mebibytes(name):
    config = config_of(name)
    max_tokens = default_max_tokens(config, "cpu", "fp32")
    assert cached_bytes(config, max_tokens) <= 96 * MEBIBYTE
    assert cached_bytes(config, max_tokens + 1) > 96 * MEBIBYTE


def test_narrow_models_search_no_more_rows_than_keep_a_cpu_busy():
    quickstart = config_of("quickstart")
    assert default_max_tokens(quickstart, "cpu", "fp32") == 4_800
    assert default_max_tokens(quickstart, "cpu", "int8") == 2_880


def test_a_gpu_gets_the_same_for_all_models():
    assert {default_max_tokens(config_of(name), "cuda", "bf16") for name in ("base", "big")} == {
        65_536
    }


def test_some_sentences_are_searched_together_however_long_they_are():
    size = SearchSize(10_000, least=8)
    assert size.num_slots(100) == 100
    assert size.num_slots(4_000) == 8
    size.lower_to(8_000)  # the memory was full
    assert size.num_slots(4_000) == 2


def test_more_are_searched_again_when_many_sentences_have_found_room():
    size, number = SearchSize(1_000, least=8), search_size.SENTENCES_UNTIL_RAISED
    assert size.num_slots(1_000) == 8
    size.lower_to(300)
    size.lower_to(200)
    size.note_searched(number - 1)
    assert size.max_tokens == 200
    for raised in (400, 800, 1_000, 1_000):
        size.note_searched(number)
        assert size.max_tokens == raised
    assert size.num_slots(1_000) == 8
    size.lower_to(500)  # full again: it takes twice as many until the next time
    size.note_searched(2 * number - 1)
    assert size.max_tokens == 500
    size.note_searched(1)
    assert size.max_tokens == 1_000
