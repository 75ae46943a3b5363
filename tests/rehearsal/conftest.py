import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ToyExperiment
from tests.rehearsal.scenarios import Report
from tests.rehearsal.shim import built_shim, found_compiler

Rehearse = Callable[..., Report]


@pytest.fixture(scope="session")
def host() -> Iterator["subprocess.Popen[str]"]:
    compiler = found_compiler()
    if compiler is None:
        pytest.skip("the fake GPU needs a C++ compiler, such as g++")
    if torch.version.cuda is not None:
        pytest.skip("the fake GPU needs a build of torch for CPUs, and this one is for CUDA")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.rehearsal.host", built_shim(compiler)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    yield process
    process.communicate()


@pytest.fixture(scope="session")
def rehearse(
    host: "subprocess.Popen[str]", toy: ToyExperiment, tmp_path_factory: pytest.TempPathFactory
) -> Rehearse:
    """Return a function that rehearses a scenario and returns its report."""

    def ask(name: str, fault: str | None = None, **options: Any) -> Report:
        run_dir = tmp_path_factory.mktemp("run")
        report = tmp_path_factory.mktemp("report") / "report"
        request: dict[str, Any] = {
            "name": name,
            "fault": fault,
            "options": options,
            "run_dir": str(run_dir),
        }
        request |= {"toy": [str(toy.recipe_path), str(toy.prepared)], "report": str(report)}
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(json.dumps(request) + "\n")
        host.stdin.flush()
        assert host.stdout.readline().strip() == "0", "the traceback is in stderr"
        found: Report = pickle.loads(report.read_bytes())
        return found

    return ask
