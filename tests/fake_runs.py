"""Run directories as train leaves them, without the training."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RECIPE = """\
description: a run
data:
  source_language: en
  target_language: de
  train: [{source: a.en, target: a.de}]
  validation: {source: v.en, target: v.de}
tokenizer: {vocabulary_size: 300}
"""


def step_record(step: int, **changes: Any) -> dict[str, Any]:
    return {
        "step": step, "batch_index": step - 1, "loss": 2 + 6 / step, "nll": 1.5 + 6 / step,
        "gradient_norm": 1.0, "learning_rate": step * 1e-5, "target_tokens": 400,
        "source_tokens": 380, "seconds": 0.5, "data_wait_seconds": 0.001,
        "flop_utilization": None,
    } | changes  # fmt: skip


def validation_record(step: int, loss: float, bleu: float | None = None) -> dict[str, Any]:
    figures = {"loss": loss, "nll": loss, "bleu": bleu, "quality": -loss, "perplexity": 3 * loss}
    return {"step": step, "validation": figures}


def write_run(run_dir: Path, records: Iterable[dict[str, Any]], tail: str = "") -> Path:
    """Write ``metrics.jsonl`` and a recipe; ``tail`` follows the records as it is."""
    run_dir.mkdir(parents=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (run_dir / "metrics.jsonl").write_text(lines + tail)
    (run_dir / "recipe.yaml").write_text(RECIPE)
    return run_dir
