"""Millions of pairs: the number of workers changes no byte, and memory does not grow."""

import json

import pytest

from tests.benchmarks.large_corpus import measure
from tests.generated_pairs import write_generated

PAIRS = 2_000_000
MORE_MEMORY = 40 << 20  # bytes; the text of the large corpus has 200 MB more


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_million_pairs_in_constant_memory_by_any_number_of_workers(tmp_path):
    recipes = {n: write_generated(tmp_path / str(n), n) for n in (PAIRS // 10, PAIRS)}
    peaks = {}
    for num_pairs, recipe in recipes.items():
        for workers in (1, 2):
            figures = measure(recipe, recipe.parent / f"by-{workers}", workers)
            peaks[num_pairs, workers] = figures["memory"], figures["memory_of_a_worker"]
    for workers in (1, 2):
        small, large = peaks[PAIRS // 10, workers], peaks[PAIRS, workers]
        assert all(more - less < MORE_MEMORY for less, more in zip(small, large, strict=True))
    by_one, by_two = (recipes[PAIRS].parent / f"by-{workers}" for workers in (1, 2))
    names = sorted(path.name for path in by_one.iterdir())
    assert names == sorted(path.name for path in by_two.iterdir())
    for name in names:
        assert (by_one / name).read_bytes() == (by_two / name).read_bytes()
    report = json.loads((by_one / "manifest.json").read_text())["train"][0]
    dropped = {rule: counted["count"] for rule, counted in report["dropped"].items()}
    num_blank, num_repeated = PAIRS // 10_000, PAIRS // 1000
    assert report["pairs_read"] == PAIRS
    assert report["pairs_kept"] == PAIRS - num_blank - num_repeated
    assert (dropped["empty"], dropped["duplicate"]) == (num_blank, num_repeated)
    assert sum(dropped.values()) == num_blank + num_repeated
