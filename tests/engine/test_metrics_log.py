import json
import resource
import signal

import pytest

from nmt_cli import logs
from nmt_cli.engine.metrics_log import MetricsLog


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


def test_a_full_disk_is_told_once_and_stops_nothing(tmp_path, capsys):
    logs.configure(quiet=False)
    log = MetricsLog(tmp_path / "metrics.jsonl", keep_until_step=0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        log.append({"step": 1})
        log.append({"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert capsys.readouterr().err.count("training goes on") == 1
