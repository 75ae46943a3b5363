"""Text is prepared in memory that does not grow with it, by any number of workers."""

import json
import subprocess
import sys

import pytest

from tests.benchmarks.large_corpus import measure
from tests.conftest import RECIPE, write_pairs
from tests.generated_pairs import write_generated

PAIRS, PIECES = 50_000, 10
ALLOWED = 64 << 20  # bytes beyond what Python and the libraries take, for over 100 MB of text
IN_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from nmt_cli.commands import preprocess
preprocess.run(recipe=sys.argv[1], output=Path(sys.argv[2]), workers=1)  # all that is ever loaded
status = Path("/proc/self/status").read_text()
used = int(status.partition("VmData:")[2].split()[0]) << 10
resource.setrlimit(resource.RLIMIT_DATA, 2 * [used + int(sys.argv[5])])
preprocess.run(recipe=sys.argv[3], output=Path(sys.argv[4]), workers=1)
"""


def test_a_corpus_larger_than_the_memory_allowed(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    for folder in (small, large):
        folder.mkdir()
        write_pairs(folder, "train", 200, seed=1)
        write_pairs(folder, "validation", 5, seed=2)
        (folder / "toy.yaml").write_text(RECIPE.format(folder=folder))
    for side in ("en", "de"):
        with (large / f"train.{side}").open("a") as stream:
            words = " ".join(f"{side}-{piece:0100}" for piece in range(PIECES))
            stream.writelines(f"{' '.join(str(pair))} {words}\n" for pair in range(PAIRS))
    assert sum((large / f"train.{side}").stat().st_size for side in ("en", "de")) > 1.5 * ALLOWED
    arguments = [
        part for folder in (small, large) for part in (folder / "toy.yaml", folder / "out")
    ]
    command = [sys.executable, "-c", IN_LITTLE_MEMORY, *map(str, arguments), str(ALLOWED)]
    subprocess.run(command, check=True, timeout=100)
    manifest = json.loads((large / "out" / "manifest.json").read_text())
    assert manifest["train"][0]["pairs_kept"] > PAIRS


MANY_PAIRS = 2_000_000
MORE_MEMORY = 40 << 20  # bytes; the text of the large corpus has 200 MB more


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_million_pairs_in_constant_memory_by_any_number_of_workers(tmp_path):
    recipes = {n: write_generated(tmp_path / str(n), n) for n in (MANY_PAIRS // 10, MANY_PAIRS)}
    peaks = {}
    for num_pairs, recipe in recipes.items():
        for workers in (1, 2):
            figures = measure(recipe, recipe.parent / f"by-{workers}", workers)
            peaks[num_pairs, workers] = figures["memory"], figures["memory_of_a_worker"]
    for workers in (1, 2):
        small, large = peaks[MANY_PAIRS // 10, workers], peaks[MANY_PAIRS, workers]
        assert all(more - less < MORE_MEMORY for less, more in zip(small, large, strict=True))
    by_one, by_two = (recipes[MANY_PAIRS].parent / f"by-{workers}" for workers in (1, 2))
    names = sorted(path.name for path in by_one.iterdir())
    assert names == sorted(path.name for path in by_two.iterdir())
    for name in names:
        assert (by_one / name).read_bytes() == (by_two / name).read_bytes()
    report = json.loads((by_one / "manifest.json").read_text())["train"][0]
    dropped = {rule: counted["count"] for rule, counted in report["dropped"].items()}
    num_blank, num_repeated = MANY_PAIRS // 10_000, MANY_PAIRS // 1000
    assert report["pairs_read"] == MANY_PAIRS
    assert report["pairs_kept"] == MANY_PAIRS - num_blank - num_repeated
    assert (dropped["empty"], dropped["duplicate"]) == (num_blank, num_repeated)
    assert sum(dropped.values()) == num_blank + num_repeated
