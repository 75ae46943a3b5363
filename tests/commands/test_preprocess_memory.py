"""Text is prepared in memory that does not grow with it."""

import json
import subprocess
import sys

from tests.conftest import RECIPE, write_pairs

PAIRS, PIECES = 200_000, 20
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
            words = " ".join(f"{side}-{piece:010}" for piece in range(PIECES))
            stream.writelines(f"{' '.join(str(pair))} {words}\n" for pair in range(PAIRS))
    assert sum((large / f"train.{side}").stat().st_size for side in ("en", "de")) > 1.5 * ALLOWED
    arguments = [
        part for folder in (small, large) for part in (folder / "toy.yaml", folder / "out")
    ]
    command = [sys.executable, "-c", IN_LITTLE_MEMORY, *map(str, arguments), str(ALLOWED)]
    subprocess.run(command, check=True, timeout=100)
    manifest = json.loads((large / "out" / "manifest.json").read_text())
    assert manifest["train"][0]["pairs_kept"] > PAIRS
