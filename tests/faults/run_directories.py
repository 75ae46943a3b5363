"""Reads and checks run directories without the product's own code for that."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch

TIMELESS = (
    "step", "batch_index", "loss", "nll", "gradient_norm", "learning_rate", "target_tokens",
    "source_tokens",
)  # fmt: skip


class End(NamedTuple):
    """The end of a training: it must be the same however often the training was killed."""

    weights: bytes
    state: Any  # training_state.pt
    steps: list[dict[str, Any]]  # of metrics.jsonl, without times
    validations: list[dict[str, Any]]


def checkpoints(run_dir: Path) -> dict[int, Path]:
    """Return every checkpoint that has its final name, by step."""
    paths = (run_dir / "checkpoints").glob("step-*")
    return {int(path.name.removeprefix("step-")): path for path in sorted(paths)}


def newest(run_dir: Path) -> Path:
    return checkpoints(run_dir)[max(checkpoints(run_dir))]


def check_whole(checkpoint: Path) -> None:
    """Assert that each file has the hash of the manifest, can be loaded, and is finite."""
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    assert manifest["step"] == int(checkpoint.name.removeprefix("step-"))
    assert "model.safetensors" in manifest["files"]
    for name, entry in manifest["files"].items():
        content = (checkpoint / name).read_bytes()
        assert len(content) == entry["bytes"], f"{checkpoint / name} is torn"
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], f"{checkpoint / name}"
    weights = safetensors.torch.load_file(checkpoint / "model.safetensors")
    assert all(weight.isfinite().all() for weight in weights.values())
    if is_resumable(checkpoint):
        assert all(tensor.isfinite().all() for tensor in tensors_in(training_state(checkpoint)))


def is_resumable(checkpoint: Path) -> bool:
    return (checkpoint / "training_state.pt").exists()


def training_state(checkpoint: Path) -> Any:
    return torch.load(checkpoint / "training_state.pt", weights_only=True)


def tensors_in(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from tensors_in(value)


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two saved states are the same bit for bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        same_keys = list(one) == list(other)
        return same_keys and all(are_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def records(run_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl, without one that a kill has torn."""
    path = run_dir / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def step_records(run_dir: Path) -> list[dict[str, Any]]:
    return [record for record in records(run_dir) if "loss" in record]


def end_of(run_dir: Path) -> End:
    """Return the end of a finished training."""
    steps = [{k: record.get(k) for k in TIMELESS} for record in step_records(run_dir)]
    validations = [
        {"step": record["step"], **record["validation"]}
        for record in records(run_dir)
        if "validation" in record
    ]
    last = newest(run_dir)
    return End((last / "model.safetensors").read_bytes(), training_state(last), steps, validations)


def check_same_end(run_dir: Path, expected: End) -> None:
    """Assert that the training ended as ``expected`` and left no temporary files."""
    for checkpoint in checkpoints(run_dir).values():
        check_whole(checkpoint)
    found = end_of(run_dir)
    steps = [record["step"] for record in found.steps]
    assert steps == [record["step"] for record in expected.steps], f"the log has steps {steps}"
    assert found.steps == expected.steps, "other steps are logged"
    assert found.validations == expected.validations, f"{found.validations} are logged"
    assert are_equal(found.state, expected.state), "another state"
    assert found.weights == expected.weights, "other weights"
    assert not leftovers(run_dir), f"{leftovers(run_dir)} are left"


def leftovers(run_dir: Path) -> list[str]:
    """Return the files and folders that should have been temporary."""
    return sorted(str(path.relative_to(run_dir)) for path in run_dir.rglob(".*"))


def hashes(directory: Path) -> dict[str, str]:
    """Return a hash of every file."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
