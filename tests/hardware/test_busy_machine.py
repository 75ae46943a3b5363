"""Other programs on the cores, from facts of machines that these tests make up."""

import io
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import train, translate
from nmt_cli.commands.doctor import advice_on
from nmt_cli.hardware import cpu, thread_waiting
from nmt_cli.hardware.cpu import (
    MEASURED_SECONDS,
    Cores,
    CpuTimes,
    LoadMeter,
    advice_on_load,
)
from nmt_cli.messages import logs
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.translator import Translator
from tests.tagging import StandIn

cpu_times = cpu.cpu_times  # before conftest puts a quiet machine in its place


def write_stat(system, busy_ticks, *, idle=5000, waiting=300):
    """Write /proc/stat with this many ticks of work of each core, in four of its columns."""
    lines = ["cpu  1 2 3 4 5 6 7 8 9 0"]
    for core, ticks in busy_ticks.items():
        work = [ticks // 2, 0, ticks - ticks // 2 - 1, idle, waiting, 0, 1, 999]  # the last: stolen
        lines.append(f"cpu{core} {' '.join(map(str, work))} 77 88")
    (system / "proc").mkdir(exist_ok=True)
    (system / "proc/stat").write_text("\n".join([*lines, "intr 1 2 3", ""]))


def test_work_on_the_allowed_cores_is_counted_without_idle_and_stolen_time(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    write_stat(tmp_path, {0: 100_000, 1: 200, 2: 100_000, 3: 1000})
    times = cpu_times(tmp_path)
    assert times is not None
    assert times.busy == pytest.approx(1200 / os.sysconf("SC_CLK_TCK"))
    assert times.own == pytest.approx(time.process_time(), abs=0.5)


@pytest.mark.parametrize(
    "text", [None, "", "cpu 1 2 3\n", "cpu0 1 2\n", "cpu9999 1 2 3 4 5 6 7 8\n"]
)
def test_a_kernel_that_shows_nothing_is_no_busy_machine(tmp_path, text):
    if text is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/stat").write_text(text)
    assert cpu_times(tmp_path) is None
    assert advice_on_load(None, Cores(2), threads=2) is None


def machine(monkeypatch, *, others, own=0.0):
    """Let ``others`` cores be used by other programs and ``own`` by this one from now on."""
    began = time.monotonic()

    def times():
        at = time.monotonic() - began
        return CpuTimes(at + began, 100 + at * (others + own), 50 + at * own)

    monkeypatch.setattr(cpu, "cpu_times", times)


def test_its_own_work_does_not_make_a_machine_busy(monkeypatch):
    machine(monkeypatch, others=0.0, own=2.0)
    assert LoadMeter().others() == pytest.approx(0.0, abs=1e-9)
    machine(monkeypatch, others=1.5, own=0.5)
    meter = LoadMeter()
    started = time.monotonic()
    assert meter.others() == pytest.approx(1.5)
    assert time.monotonic() - started >= 0.9 * MEASURED_SECONDS


def test_a_long_enough_measurement_does_not_wait(monkeypatch):
    machine(monkeypatch, others=1.0)
    meter = LoadMeter()
    monkeypatch.setattr(cpu, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waits") if seconds else None)
    assert meter.others() == pytest.approx(1.0)


def test_this_machine_shows_its_load():
    if not Path("/proc/stat").exists():
        pytest.skip("no /proc/stat here")
    first = cpu_times()
    assert first is not None
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    second = cpu_times()
    assert second is not None
    assert second.busy - first.busy >= 0.05
    assert second.own - first.own >= 0.1


@pytest.mark.parametrize(
    ("others", "cores", "threads", "processes", "advice"),
    [
        (0.0, Cores(2), 2, 1, None),
        (0.6, Cores(2), 2, 1, None),  # a desktop at rest
        (1.0, Cores(2), 2, 1, "keep 1.0 of 2 cores busy, so 2 threads will be slow; end them, or "
         "give --threads 1."),
        (1.0, Cores(2), 1, 1, None),
        (2.1, Cores(2), 1, 1, "keep 2.0 of 2 cores busy, so 1 thread will be slow; end them."),
        (5.1, Cores(16), 16, 1, "so 16 threads will be slow; end them, or give --threads 11."),
        (5.1, Cores(16), 8, 1, None),
        (2.0, Cores(64), 64, 1, None),
        (60.0, Cores(64, quota=2.0), 2, 1, None),
        (63.0, Cores(64, quota=2.0), 2, 1, "so 2 threads will be slow; end them, or give --thr"),
        (64.0, Cores(64, quota=1.0), 1, 1, "so 1 thread will be slow; end them."),
        (64.0, Cores(64, quota=1.0), 8, 1, "so 8 threads will be slow; end them, or give --threa"),
        (8.0, Cores(16), 4, 4, "so 16 threads will be slow; end them, or give --threads 2."),
        (13.0, Cores(16), 4, 4, "so 16 threads will be slow; end them, or give --devices 3."),
        (8.0, Cores(16), 1, 8, None),  # of GPUs each is driven by a thread
    ],
)  # fmt: skip
def test_a_busy_machine_is_named_with_what_helps(others, cores, threads, processes, advice):
    found = advice_on_load(others, cores, threads, processes)
    assert (advice or "") in (found or "")
    assert (found is None) == (advice is None)


def test_a_single_worker_is_no_advice_because_it_has_all_threads():
    found = advice_on_load(1.0, Cores(2), 1, 2, option="--workers")
    assert (found or "").endswith("end them, or give --workers 1 --threads 1.")


FACTS = {
    "nmt-cli": "1", "cpu.cores": 2, "cpu.cores_allowed": 2, "cpu.quota_cores": None,
    "environment.OMP_NUM_THREADS": None, "environment.MKL_NUM_THREADS": None,
    "memory.huge_pages": "madvise", "memory.allowed_gib": 64.0, "torch.threads": 2,
    "disk.here_gib": 100.0, "disk.temporary_gib": 100.0, "disk.shared_memory_gib": 32.0,
}  # fmt: skip


def test_doctor_names_a_busy_machine(monkeypatch):
    assert advice_on(FACTS | {"cpu.used_by_others": 0.1}) == []
    (advice,) = advice_on(FACTS | {"cpu.used_by_others": 1.9})
    assert advice.startswith("other programs keep 1.9 of 2 cores busy, so 2 threads will be slow;")
    machine(monkeypatch, others=1000.0)
    result = CliRunner().invoke(cli.main, ["doctor"])
    assert "cpu.used_by_others: 1000.0\n" in result.stdout
    assert "\nadvice: other programs keep " in result.stdout


class Repeating(StandIn):
    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def translate_window(self, lines):
        time.sleep(self.seconds)
        return [Translation(line.text) for line in lines]


def test_short_work_brings_no_warning(toy, tmp_path, monkeypatch, capsys):
    machine(monkeypatch, others=1000.0)
    logs.configure(quiet=True)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: Repeating())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n" * 2000)))
    translate.run(Path("model"), device="cpu")
    train.run(
        str(toy.recipe_path),
        prepared=toy.prepared,
        run_dir=tmp_path / "run",
        overrides=["training.max_steps=2", "validation.bleu=off"],
        device="cpu",
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("others", "looks"), [(0.0, 2), (1000.0, 2), (1000.0, 10**6)])
@pytest.mark.parametrize("command", ["train", "translate"])
def test_long_work_brings_one_warning(  # of 0.3 s here
    toy, tmp_path, monkeypatch, capsys, others, looks, command
):
    machine(monkeypatch, others=others)
    logs.configure(quiet=True)
    monkeypatch.setattr(cpu, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(thread_waiting, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(thread_waiting, "LOOKS_BEFORE_WARNING", looks)
    if command == "train":
        train.run(
            str(toy.recipe_path),
            prepared=toy.prepared,
            run_dir=tmp_path / "run",
            overrides=["training.max_steps=20", "validation.bleu=off"],
            device="cpu",
        )
    else:
        monkeypatch.setattr(Translator, "load", lambda *_, **__: Repeating(seconds=0.3))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
        translate.run(Path("model"), device="cpu")
    warned = others > 0 and looks == 2
    assert capsys.readouterr().err.count("Warning: other programs keep ") == warned


def test_the_launcher_measures_before_its_workers_start(toy, tmp_path, monkeypatch, capsys):
    machine(monkeypatch, others=1000.0)
    logs.configure(quiet=True)
    launched = []

    def run_workers(*arguments):
        launched.append(capsys.readouterr().err)

    monkeypatch.setattr(train, "run_workers", run_workers)
    run_dir, device = tmp_path / "run", "cpu"
    train.run(
        str(toy.recipe_path), prepared=toy.prepared, run_dir=run_dir, device=device, devices=2
    )
    (messages,) = launched
    assert messages.count("Warning: other programs keep ") == 1
    assert capsys.readouterr().err == ""
