"""The cores of a process, from files of made-up machines."""

import os

import pytest

from nmt_cli.hardware.cpu import Cores, cores, threads_of_each


def test_a_quota_only_lowers_the_usable_cores():
    assert [Cores(4, quota).usable for quota in (None, 1.5, 6.0)] == [4, 1.5, 4]


def test_only_the_cores_of_this_process_count(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 6})
    assert cores(tmp_path) == Cores(3)


@pytest.mark.parametrize(("num_workers", "threads"), [(1, 3), (2, 1), (3, 1), (8, 1)])
def test_workers_share_the_cores_and_each_has_a_thread(monkeypatch, num_workers, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 6})
    assert threads_of_each(num_workers) == threads
