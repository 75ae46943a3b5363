"""Texts that are not in memory: what will be read is asked for ahead, all at the same time."""

import ctypes
import json
import mmap
import os
import resource
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import BinarizedText, writing_binarized
from nmt_cli.corpus.loader import load_batches

MEMORY = 160 << 20  # bytes; the process needs 60 MB besides the text that it reads
TOKENS_OF_A_SIDE = 200_000_000  # 400 MB


def write_text(folder, name, num_sentences, longest):
    """Write a text of random sentences, in memory that does not grow with it."""
    rng = np.random.default_rng(1)
    with writing_binarized(folder, name, 1 << 16, longest) as writer:
        for start in range(0, num_sentences, 50_000):
            lengths = rng.integers(1, longest + 1, min(50_000, num_sentences - start))
            writer.append(rng.integers(0, 1 << 16, int(lengths.sum())), lengths)


def evict(path):
    """Remove the pages of a file from the system's memory; they must not be mapped in use."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pages_in_memory(tokens):
    """Return for each page of a mapped file whether it is in memory."""
    first = tokens.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    size = tokens.ctypes.data + tokens.nbytes - first
    found = np.empty(-(-size // mmap.PAGESIZE), dtype=np.uint8)
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    if mincore(ctypes.c_void_p(first), ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)):
        raise OSError(ctypes.get_errno(), "mincore")
    return (found & 1).astype(bool)


def disk_reads(work):
    """Return how often this thread waited for a page that nobody had asked for ahead."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    work()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - before


def test_expected_sentences_are_read_together_and_others_are_not(tmp_path):
    write_text(tmp_path, "train.source", 20_000, 400)
    text = BinarizedText.open(tmp_path, "train.source")
    chosen = np.arange(100, 20_000, 1_000)
    starts, lengths = text.starts_of(chosen), text.lengths[chosen].astype(np.int64)
    expected = text.gather(chosen).tokens

    def evicted():
        mapped = text._tokens.base
        assert isinstance(mapped, mmap.mmap)
        mapped.madvise(mmap.MADV_DONTNEED)
        evict(tmp_path / "train.source.tokens")

    evicted()
    if pages_in_memory(text._tokens).any():
        pytest.skip(f"the file system of {tmp_path} keeps files in memory")
    assert disk_reads(lambda: text.read(starts, lengths)) > 0
    evicted()
    text.gather(chosen).expect()
    needed = set()
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        needed |= {(64 + 2 * token) // mmap.PAGESIZE for token in (start, start + length - 1)}
    deadline = time.monotonic() + 60
    while not pages_in_memory(text._tokens)[sorted(needed)].all():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert pages_in_memory(text._tokens).mean() < 0.5
    assert disk_reads(lambda: text.read(starts, lengths)) == 0
    assert text.read(starts, lengths).tolist() == expected.tolist()


def test_the_next_batch_is_expected_before_this_one_is_read(tmp_path, monkeypatch):
    write_text(tmp_path, "train.source", 300, 9)
    text = BinarizedText.open(tmp_path, "train.source")
    plan, starts = BatchPlan(text.lengths, text.lengths, 50, 1), text.starts_of(np.arange(300))
    batch_of = {starts[pair]: i for i in plan.batches_of(0) for pair in plan.batch(i)}
    done = []
    for name in ("expect", "read"):
        method = getattr(BinarizedText, name)

        def noted(text, starts, lengths, name=name, method=method):
            done.append((name, *{batch_of[start] for start in starts}))
            return method(text, starts, lengths)

        monkeypatch.setattr(BinarizedText, name, noted)
    batches = load_batches(plan, [text, text], count())
    assert [next(batches).number for _ in range(3)] == [0, 1, 2]
    order = [("expect", 0), ("expect", 1), ("read", 0), ("expect", 2), ("read", 1), ("expect", 3)]
    # The thread of the loader may go on meanwhile.
    assert done[: 2 * len(order)] == [each for each in order for _side in range(2)]


@contextmanager
def little_memory(num_bytes):
    """Yield the file that puts a process into a new control group; skip where that is forbidden."""
    own = dict(
        line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines()
    )
    name = f"nmt-cli-test-{os.getpid()}"
    if "memory" in own:
        group, limit = Path(f"/sys/fs/cgroup/memory{own['memory']}", name), "memory.limit_in_bytes"
    else:
        group, limit = Path(f"/sys/fs/cgroup{own['']}", name), "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(num_bytes))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group of little memory can be made: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


LOADING = """
import json, os, resource, sys
from itertools import count, islice
from pathlib import Path

Path(sys.argv[2]).write_text(str(os.getpid()))

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.loader import load_batches

def bytes_read():
    return int(Path("/proc/self/io").read_text().partition("read_bytes: ")[2].split()[0])

if sys.argv[3] == "late":
    BinarizedText.expect = lambda text, starts, lengths: None
source, target = (BinarizedText.open(Path(sys.argv[1]), f"train.{s}") for s in ("source", "target"))
plan = BatchPlan(source.lengths, target.lengths, 5_000, seed=1)
batches = load_batches(plan, [source, target], count())
next(batches)
before, faults = bytes_read(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt
sizes = [len(batch.micro_batches[0].source.lengths) for batch in islice(batches, int(sys.argv[4]))]
after = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
print(json.dumps({
    "sentences": 2 * sum(sizes),
    "disk_reads": after - faults,
    "bytes_read": bytes_read() - before,
    "text": 2 * (source.num_tokens + target.num_tokens),
}))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_text_larger_than_memory_is_read_ahead_and_only_where_it_is_needed(tmp_path):
    longest = 60
    for side in ("source", "target"):
        write_text(tmp_path, f"train.{side}", 2 * TOKENS_OF_A_SIDE // (longest + 1), longest)
    found = {}
    for way, num_batches in (("ahead", 40), ("late", 2)):
        for path in tmp_path.iterdir():
            evict(path)
        with little_memory(MEMORY) as processes:
            options = [str(tmp_path), str(processes), way, str(num_batches)]
            command = [sys.executable, "-c", LOADING, *options]
            output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        found[way] = json.loads(output)
    ahead, late = found["ahead"], found["late"]
    assert ahead["text"] > 4 * MEMORY
    assert ahead["disk_reads"] < 0.05 * ahead["sentences"]
    assert late["disk_reads"] > 0.5 * late["sentences"]
    assert ahead["bytes_read"] < 4 * mmap.PAGESIZE * ahead["sentences"]
