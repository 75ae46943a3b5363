"""The library for CPUs under sanitizers, and its products on another kind of CPU."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.levels import LEVELS_HERE

ROOT = Path(__file__).parents[2]
HERE, SOURCES = Path(__file__).parent, ROOT / "nmt_cli/model/compiled"
SANITIZERS = "-g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
TESTS = ("tests/model/test_c_library.py", "tests/model/test_compiled_layers.py",
         "tests/search/test_cached_model.py", "tests/search/test_compiled_beams.py",
         "tests/search/test_compiled_logits.py", "tests/search/test_shortlist.py",
         "tests/search/test_steps_of_the_library.py",
         "tests/search/test_teacher_forcing.py")  # fmt: skip
# Runs pytest with the library of another folder.
WITH_LIBRARY = """
import sys
from pathlib import Path
import pytest
from nmt_cli.model.compiled import c_library

c_library.LIBRARY = Path(sys.argv[1])
sys.exit(pytest.main(sys.argv[2:]))
"""


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    return subprocess.run(
        [*map(str, words)], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )


def compiled(folder: Path, compiler: Sequence[str], source: str, *flags: str) -> Path:
    """Return a program of the C file ``source`` of this folder and of files of the library."""
    program = folder / "program"
    words = (*compiler, "-O3", "-fopenmp-simd", *flags, '-DSOURCES="none"', f"-I{SOURCES}")
    files = [HERE / source, SOURCES / "threads.c"]
    if source == "products.c":
        files.append(SOURCES / "logits.c")
    result = run(*words, *files, "-o", program, "-lm", "-pthread")
    assert result.returncode == 0, result.stderr
    return program


def runtime_of(sanitizer: str) -> str:
    found = run("gcc", f"-print-file-name=lib{sanitizer}.so").stdout.strip()
    return found if Path(found).is_absolute() else ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_library_passes_its_tests_under_sanitizers(tmp_path):
    if shutil.which("gcc") is None or not (runtime_of("asan") and runtime_of("ubsan")):
        pytest.skip("gcc has no sanitizers here")
    built = run(sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", tmp_path,
                "--build-temp", tmp_path / "temp", CC=f"gcc {SANITIZERS}")  # fmt: skip
    library = tmp_path / "nmt_cli/model/compiled/library.so"
    assert library.exists(), built.stderr
    result = run(
        *(sys.executable, "-c", WITH_LIBRARY, library, *TESTS, "-q", "-p", "no:cacheprovider"),
        *("--timeout", "900"),
        LD_PRELOAD=f"{runtime_of('asan')} {runtime_of('ubsan')}",
        ASAN_OPTIONS="detect_leaks=0",  # Python's own
        OMP_NUM_THREADS="1",
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]


@pytest.mark.slow
def test_threads_share_work_without_races(tmp_path):
    if shutil.which("gcc") is None or not runtime_of("tsan"):
        pytest.skip("gcc has no ThreadSanitizer here")
    assert run(compiled(tmp_path, ["gcc"], "shared_work.c")).returncode == 0
    checked = compiled(tmp_path, ["gcc"], "shared_work.c", "-g", "-fsanitize=thread")
    result = run(checked, "before a fork")
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("level", ["v3", "v4"])
def test_results_without_vnni_are_those_of_sums_in_double_precision(tmp_path, level):
    if level not in LEVELS_HERE or shutil.which("gcc") is None:
        pytest.skip("this CPU has no such level, or there is no gcc")
    flags = (f"-march=x86-64-{level}", "-ffp-contract=fast", f"-DLEVEL={level}")
    result = run(compiled(tmp_path, ["gcc"], "products.c", *flags))
    assert result.returncode == 0, result.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", ["997", pytest.param("1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("level", ["v3", "v4"])
def test_functions_of_vectors_are_exact_to_two_units_in_the_last_place(tmp_path, level, step):
    """For every 997th number in fp32, or for each."""
    if level not in LEVELS_HERE or shutil.which("gcc") is None:
        pytest.skip("this CPU has no such level, or there is no gcc")
    flags = (f"-march=x86-64-{level}", "-ffp-contract=fast", "-fno-math-errno")
    result = run(compiled(tmp_path, ["gcc"], "functions.c", *flags), step)
    assert result.returncode == 0, result.stdout


ZIG = [sys.executable, "-m", "ziglang", "cc"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "march"),
    [
        (["aarch64-linux-gnu-gcc"], "-march=armv8.2-a+dotprod"),
        ([*ZIG, "-target", "aarch64-linux-musl"], "-march=generic+v8_2a+dotprod"),
    ],
    ids=["gcc", "zig"],
)
def test_results_on_arm_are_those_of_sums_in_double_precision(tmp_path, compiler, march):
    emulator = "qemu-aarch64"
    if not shutil.which(emulator) or run(*compiler, "--version").returncode != 0:
        pytest.skip(f"there is no {compiler[0]} or no {emulator}")
    level = (march, "-ffp-contract=fast", "-DLEVEL=arm_dot", "-static")
    result = run(emulator, "-cpu", "max", compiled(tmp_path, compiler, "products.c", *level))
    assert result.returncode == 0, result.stdout
