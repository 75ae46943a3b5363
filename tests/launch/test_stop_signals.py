import os
import signal
import time

import pytest

from nmt_cli.launch.stop_signals import (
    MAX_TIME,
    REASONS,
    StopRequest,
    handling_stop_signals,
)


def test_signals_set_the_request_while_the_block_runs():
    before = signal.getsignal(signal.SIGUSR1)
    stop = StopRequest()
    with handling_stop_signals(stop.handle):
        assert not stop
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.reason == "SIGUSR1"
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        stop = StopRequest()
        with handling_stop_signals(stop.handle):
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_deadline_leaves_time_for_a_step_and_a_save(monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stop = StopRequest(deadline=1_100.0)
    assert not stop
    stop.note_seconds("step", 20.0)
    stop.note_seconds("step", 3.0)  # the longest counts
    stop.note_seconds("save", 40.0)
    now = 1_009.0
    assert not stop
    now = 1_010.0  # 1.5 * 60 seconds are left
    assert stop.reason is None
    assert stop
    assert stop.reason == MAX_TIME


def test_the_deadline_leaves_time_for_a_window_of_validation(monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stop = StopRequest(deadline=1_100.0)
    stop.note_seconds("step", 2.0)
    stop.note_seconds("save", 10.0)
    stop.note_seconds("window", 30.0)
    now = 1_039.0
    assert not stop
    now = 1_040.0  # 1.5 * 40 seconds are left; a window is longer than a step
    assert stop


def test_a_validation_is_begun_unsaved_only_if_it_is_known_to_end_in_time(monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert StopRequest().has_time_to_validate()
    stop = StopRequest(deadline=1_100.0)
    assert not stop.has_time_to_validate()  # no validation has been measured
    stop.note_seconds("save", 10.0)
    stop.note_seconds("validation", 30.0)
    now = 1_039.0
    assert stop.has_time_to_validate()
    now = 1_040.0
    assert not stop.has_time_to_validate()


def test_a_clock_that_is_set_does_not_matter(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert not StopRequest(deadline=time.monotonic() + 60)


@pytest.mark.parametrize("reason", REASONS)
def test_a_request_of_one_rank_stops_all(reason):
    asking, other = StopRequest(), StopRequest()
    asking.reason = reason
    sums = [a + b for a, b in zip(asking.flags(), other.flags(), strict=True)]
    for stop in (asking, other):
        assert stop.agreed is None
        stop.agree(sums)
        assert stop.agreed == reason


def test_no_request_is_no_agreement():
    stop = StopRequest()
    stop.agree(stop.flags())
    assert stop.agreed is None


def test_only_a_single_process_ends_at_the_second_interrupt():
    alone, worker = StopRequest(), StopRequest(second_interrupt_ends=False)
    for stop in (alone, worker):
        stop.handle(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        alone.handle(signal.SIGINT, None)
    worker.handle(signal.SIGINT, None)
    assert worker.reason == "SIGINT"


def test_the_time_that_was_given_is_named():
    stop = StopRequest(deadline=0.0, max_time=12_600)
    stop.agree(stop.flags())
    assert stop.why == "--max-time 3h30m"
