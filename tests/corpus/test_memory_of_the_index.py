"""The memory that training needs for a corpus of many pairs, before it reads any tokens."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from nmt_cli.corpus.binarized import HEADER, MAGIC, VERSION
from nmt_cli.files.atomic_files import SEAL, read_manifest, seal_of
from nmt_cli.files.file_names import MANIFEST
from nmt_cli.hardware.memory import allowed_memory

MOST = 8.0  # bytes for each pair, of all processes of a machine
RANKS = 8  # on the machine
LENGTHS_AT_ONCE = 1_000_000

# What training does with a corpus before its first batch, in one of several ranks.
PLANNING = """
import json, sys
from pathlib import Path

from nmt_cli.corpus import batching, binarized
from nmt_cli.corpus.node_memory import NodeMemory
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.recipe.reading.reader import read_recipe

def resident(name):
    return 1024 * int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0])

def measured(folder):
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    except OSError as error:
        return {"refused": str(error)}
    before, own_before = resident("VmHWM"), resident("RssAnon")
    corpus = open_prepared(Path(folder), recipe, "", is_checked_elsewhere=True)
    source, target = corpus.source.lengths, corpus.target.lengths
    plan = batching.BatchPlan(source, target, 25_000, seed=1)
    own = resident("RssAnon") - own_before
    plan.plan_in(NodeMemory())
    batch = plan.batch(0)
    peak = resident("VmHWM") - before
    return {"pairs": len(source), "own": own, "peak": peak, "tokens": int(target[batch].sum())}

recipe = read_recipe(sys.argv[1]).recipe
batching.PAIRS_AT_ONCE = int(sys.argv[2])
binarized.BLOCKS_AT_ONCE = batching.PAIRS_AT_ONCE // binarized.BLOCK
print(json.dumps(measured(sys.argv[3])))
"""


def write_sparse_corpus(toy, folder, num_pairs):
    """Write a prepared corpus of many pairs; its tokens are not written, so they take no disk."""
    shutil.copytree(toy.prepared, folder)
    manifest = read_manifest(folder)
    manifest["corpus_sizes"] = [num_pairs]
    rng = np.random.default_rng(1)
    for side in ("source", "target"):
        some = np.clip(rng.gamma(4.0, 7.0, LENGTHS_AT_ONCE), 2, 250).astype("<u2")
        lengths, tokens = (folder / f"train.{side}.{kind}" for kind in ("lengths", "tokens"))
        with lengths.open("wb") as stream:
            stream.write(HEADER.pack(MAGIC, VERSION, 2, num_pairs))
            for start in range(0, num_pairs, len(some)):
                some[: num_pairs - start].tofile(stream)
        num_tokens = num_pairs // len(some) * int(some.sum())
        num_tokens += int(some[: num_pairs % len(some)].sum())
        with tokens.open("wb") as stream:
            stream.write(HEADER.pack(MAGIC, VERSION, 2, num_tokens))
            stream.truncate(HEADER.size + 2 * num_tokens)
        for path in (lengths, tokens):
            manifest["files"][path.name]["bytes"] = path.stat().st_size
    (folder / MANIFEST).write_text(json.dumps({**manifest, SEAL: seal_of(manifest)}))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("num_pairs", "pairs_at_once"),
    [
        (8_000_000, 1 << 14),  # smaller parts, whose memory does not hide the rest
        pytest.param(1_000_000_000, 1 << 20, marks=pytest.mark.slow),
    ],
)
def test_the_index_takes_few_bytes_for_each_pair(num_pairs, pairs_at_once, toy, tmp_path):
    """Growth from a corpus of a quarter of the pairs, at the peak of all that is resident."""
    needed = 10 * num_pairs  # bytes, for the plan and for lengths on the disk
    if min(allowed_memory(), shutil.disk_usage(tmp_path).free) < needed:
        pytest.skip(f"{needed / 2**30:.0f} GiB of memory and of disk are not free")
    sizes = num_pairs // 4, num_pairs
    found = []
    for size in sizes:
        folder = tmp_path / str(size)
        write_sparse_corpus(toy, folder, size)
        options = [str(toy.recipe_path), str(pairs_at_once), str(folder)]
        command = [sys.executable, "-c", PLANNING, *options]
        found.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        shutil.rmtree(folder)
        if "refused" in found[-1]:
            pytest.skip(f"the peak of memory cannot begin anew: {found[-1]['refused']}")
    small, large = found
    assert (small["pairs"], large["pairs"]) == sizes
    assert 20_000 < large["tokens"] <= 25_000
    own, peak = ((large[name] - small[name]) / (sizes[1] - sizes[0]) for name in ("own", "peak"))
    assert peak > 4  # an entry of the plan
    assert peak + (RANKS - 1) * own <= MOST, (own, peak)
