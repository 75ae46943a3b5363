import json
import math
import resource
import signal
import sys
import types
from contextlib import contextmanager

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from nmt_cli.messages import logs
from nmt_cli.saved.metrics_log import MetricsLog

TENSORBOARD_LOG = "nmt_cli.saved.tensorboard_log"
RECORD_WRITER = "tensorboard.summary.writer.record_writer"
STEP = {"step": 3, "batch_index": 4, "loss": 2.5, "nll": 2.0, "gradient_norm": 0.5,
        "learning_rate": 1e-3, "target_tokens": 100, "seconds": 0.25}  # fmt: skip


def records_in(path):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    lines = path.read_text().removesuffix("\n").split("\n")
    return [json.loads(line, parse_constant=refuse) for line in lines]


def steps_in(path):
    return [json.loads(line)["step"] for line in path.read_text().split("\n") if line]


def test_records_are_kept_until_the_step_resumed_from(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, keep_until_step=0)
    for step in (1, 2, 3, 4):
        log.append({"step": step, "loss": 1 / step})
    log = MetricsLog(path, keep_until_step=2)
    log.append({"step": 3, "loss": 0.5})
    assert steps_in(path) == [1, 2, 3]


@pytest.mark.parametrize("torn", ['{"step": 2, "lo', "\x00\x00", '{"no": 1}', "3", "[]"])
def test_a_torn_line_is_dropped(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' + torn)
    MetricsLog(path, keep_until_step=5)
    assert steps_in(path) == [1]


def test_nothing_is_rewritten_where_nothing_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    before = path.stat().st_ino
    MetricsLog(path, keep_until_step=1)
    assert path.stat().st_ino == before


@contextmanager
def files_no_larger_than(num_bytes):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)


def test_a_full_disk_is_logged_once_and_training_goes_on(tmp_path, capsys):
    logs.configure(quiet=False)
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    with files_no_larger_than(0):
        log.append({"step": 1})
        log.append({"step": 2})
    assert capsys.readouterr().err.count("training goes on") == 1


def test_a_full_disk_tears_neither_file(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    log.append({"step": 1, "loss": 4.0})
    size = (tmp_path / "metrics.jsonl").stat().st_size
    with files_no_larger_than(size + 10):
        log.append({"step": 2, "loss": 3.0})
    log.append({"step": 3, "loss": 2.0})
    assert [record["step"] for record in records_in(tmp_path / "metrics.jsonl")] == [1, 3]
    assert [event.step for event in scalars_in(tmp_path, "train/loss")] == [1, 3]


def test_what_is_not_finite_is_null(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    log.append({"step": 1, "loss": math.nan})
    log.append({"step": 1, "validation": {"perplexity": math.inf, "bleu": None}})
    assert records_in(tmp_path / "metrics.jsonl") == [
        {"step": 1, "loss": None},
        {"step": 1, "validation": {"perplexity": None, "bleu": None}},
    ]


def test_a_validation_measured_again_after_a_resume_stands_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, keep_until_step=0)
    for record in ({"step": 1}, {"step": 2}, {"step": 2, "validation": {"loss": 5.0}}):
        log.append(record)
    log = MetricsLog(path, keep_until_step=2)
    assert len(records_in(path)) == 3  # it may not be measured again
    log.append({"step": 2, "validation": {"loss": 4.0}})
    log.append({"step": 3})
    assert records_in(path) == [
        {"step": 1}, {"step": 2}, {"step": 2, "validation": {"loss": 4.0}}, {"step": 3}
    ]  # fmt: skip


def scalars_in(run_dir, tag):
    """Read with TensorBoard's own reader, which hides what a restart repeats."""
    reader = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    return reader.Scalars(tag) if tag in reader.Tags()["scalars"] else []


def test_tensorboard_shows_what_was_logged(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    log.append(STEP)
    log.append({"step": 3, "validation": {"loss": 2.25, "bleu": 30.0, "perplexity": math.inf}})
    expected = {
        "train/loss": 2.5, "train/nll": 2.0, "train/perplexity": math.exp(2),
        "train/learning_rate": 1e-3, "train/gradient_norm": 0.5, "train/tokens_per_second": 400,
        "validation/loss": 2.25, "validation/bleu": 30,
    }  # fmt: skip
    for tag, value in expected.items():
        (event,) = scalars_in(tmp_path, tag)
        assert event.step == 3
        assert event.value == pytest.approx(value)
    for tag in ("validation/perplexity", "train/step", "train/batch_index"):
        assert not scalars_in(tmp_path, tag)


def test_tensorboard_shows_the_figures_of_each_validation_set_by_its_name(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    sets = {"news": {"loss": 2.0, "bleu": None}, "talks": {"loss": 3.0, "bleu": 20.0}}
    log.append({"step": 3, "validation": {"loss": 2.0, "sets": sets}})
    expected = {"loss": 2, "news/loss": 2, "talks/loss": 3, "talks/bleu": 20}
    found = {
        name: [event.value for event in scalars_in(tmp_path, f"validation/{name}")]
        for name in (*expected, "news/bleu")
    }
    assert found == {**{name: [value] for name, value in expected.items()}, "news/bleu": []}


def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path):
    for keep_until_step, steps in ((0, (1, 2, 3)), (1, (2, 3, 4))):
        log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=keep_until_step)
        for step in steps:
            log.append({"step": step, "loss": keep_until_step + step})
    assert [(e.step, e.value) for e in scalars_in(tmp_path, "train/loss")] == [
        (1, 1), (2, 3), (3, 4), (4, 5)
    ]  # fmt: skip


def test_nothing_is_written_for_tensorboard_before_there_is_something(tmp_path):
    MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    assert not (tmp_path / "tensorboard").exists()


def test_a_folder_that_cannot_be_made_is_logged_once_and_training_goes_on(tmp_path, capsys):
    logs.configure(quiet=False)
    (tmp_path / "tensorboard").write_text("a file")
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    log.append({"step": 1})
    log.append({"step": 2})
    assert steps_in(tmp_path / "metrics.jsonl") == [1, 2]
    assert capsys.readouterr().err.count("tensorboard") == 1


@pytest.mark.parametrize(("module", "is_warned"), [(None, False), (types.ModuleType("old"), True)])
def test_training_goes_on_without_tensorboard(tmp_path, monkeypatch, capsys, module, is_warned):
    """None is how Python marks a module that is not there; an empty one lacks what we need."""
    logs.configure(quiet=False)
    monkeypatch.delitem(sys.modules, TENSORBOARD_LOG, raising=False)
    monkeypatch.setitem(sys.modules, RECORD_WRITER, module)
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    log.append(STEP)
    assert records_in(tmp_path / "metrics.jsonl") == [STEP]
    assert not (tmp_path / "tensorboard").exists()
    assert ("TensorBoard cannot be used" in capsys.readouterr().err) == is_warned
