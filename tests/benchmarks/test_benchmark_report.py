import pytest

from tests.benchmarks import report, speed
from tests.benchmarks.hardware import NO_FLAG, Hardware, describe_cpu
from tests.benchmarks.memory_of_a_step import Peak, memory_at, tokens_at
from tests.benchmarks.processes import EOLE, HUGGING_FACE, OURS, WorkerError
from tests.benchmarks.speed import Rounds, Row

CPUINFO = """\
processor\t: 0
model name\t: Some(R) Xeon(R) CPU @ 2.60GHz
flags\t\t: fpu avx512_bf16 amx_bf16
processor\t: 1
model name\t: Other
"""


class FakeWorker:
    """Takes a second for the first step of a turn and ``seconds`` for the others."""

    def __init__(self, seconds, fails_at=None):
        self.facts = {"version": "fake", "flops_per_target_token": 1e6}
        self.seconds, self.fails_at, self.turns = seconds, fails_at, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def turn(self, variant, first, count):
        self.turns.append((variant, first, count))
        if first == self.fails_at:
            raise WorkerError("no memory left")
        seconds = [1.0] + [self.seconds] * (count - 1)
        step = {"target_tokens": 100, "loss": 1.0, "wait_seconds": 0.0}
        steps = [{**step, "seconds": s, "cpu_seconds": 2 * s} for s in seconds]
        return {"steps": steps, "memory": 7}


def measured_with(workers):
    rows = [
        *(Row(toolkit, p) for toolkit in workers for p in ("fp32", "bf16")),
        *(Row(OURS, f"ceiling {p}") for p in ("fp32", "bf16")),
    ]
    rounds = Rounds(warm_up=2, counted=3, max_rounds=4, seconds=1e6)
    return speed.measure(rows, workers.__getitem__, rounds)


def record_of(measured):
    hardware = Hardware("A CPU", "amx_bf16", 2, 10**9, None)._asdict()
    shape = {**measured, "data": "random pieces", "padding_of_peers": 0.04}
    return {
        "date": "2026-01-02",
        "hardware": hardware,
        "torch": "2",
        "threads": 2,
        "is_quick": False,
        "speed": {"S": shape},
    }


def test_all_rows_train_on_the_same_batches_and_the_first_step_of_a_turn_is_not_counted():
    workers = {OURS: FakeWorker(0.1), HUGGING_FACE: FakeWorker(0.2)}
    measured = measured_with(workers)
    assert measured["rounds"] == 4
    of_fp32 = measured["rows"]["nmt-cli"]["fp32"]
    assert of_fp32["rates"] == pytest.approx([1000.0] * 4)
    assert (of_fp32["rate"], of_fp32["cpu_rate"]) == pytest.approx((1000.0, 500.0))
    turns = {
        worker: [turn for turn in worker.turns if turn[0] == "bf16"] for worker in workers.values()
    }
    assert all(
        seen == [("bf16", 0, 2)] + [("bf16", 2 + 4 * r, 4) for r in range(4)]
        for seen in turns.values()
    )
    assert report.ratio_to_best(measured, "fp32", [HUGGING_FACE.name]) == pytest.approx(2.0)


def test_the_best_peer_counts_and_a_failed_one_is_listed_with_its_error():
    workers = {
        OURS: FakeWorker(0.1),
        HUGGING_FACE: FakeWorker(0.2),
        EOLE: FakeWorker(0.16, fails_at=6),
    }
    measured = measured_with(workers)
    assert measured["failures"] == {"eole": "no memory left"}
    ratio = report.ratio_to_best(measured, "bf16", report.ALL_PEERS)
    assert ratio == pytest.approx(2.0)
    text = report.markdown(record_of(measured))
    assert "| eole | failed | " in text
    assert "| no memory left |" in text
    reached = "reached, against the best plain loop | 2.00 met | not run | 2.00 **not met** |"
    assert f"Intel with AMX: {reached}" in text
    assert "AMD: reached | not run |" in text
    assert "the best, tuned ones too: reached | 2.00 met |" in text
    assert "share: reached | 100% met |  |" in text


@pytest.mark.parametrize(("variant", "name"), [("mkl", "MKL"), ("onednn", "oneDNN")])
def test_the_faster_library_is_the_ceiling(variant, name):
    ours = {
        "fp32": {"rate": 3.0, "wait_share": 0.0, "rates": [3.0]},
        f"{variant} fp32": {"rate": 2.0, "rates": [2.0]},
        "ceiling fp32": {"rate": 4.0, "rates": [4.0]},
        f"ceiling {variant} fp32": {"rate": 6.0, "rates": [6.0]},
    }
    measured = {"rows": {OURS.name: ours}, "failures": {}, "facts": {}, "rounds": 1}
    text = report.markdown(record_of(measured))
    assert "share: reached | 50% **not met** |" in text
    assert f"| nmt-cli, fp32 products by {name} | 2 (2 to 2) |" in text
    assert "| ceiling | 6 (6 to 6) |" in text


def test_the_fastest_of_several_peers_counts():
    rows = {"a": {"fp32": {"rate": 5.0}}, "b": {"fp32": {"rate": 7.0}, "bf16": {"rate": 1.0}}}
    assert report.best_peer(rows, "fp32", ("a", "b")) == ("b", 7.0)
    assert report.best_peer(rows, "fp32", ("a",)) == ("a", 5.0)
    assert report.best_peer(rows, "bf16", ("a",)) is None


def test_memory_on_a_line():
    small, large = Peak(1_000, 3_000), Peak(2_000, 5_000)
    assert memory_at(4_000, small, large) == 9_000
    assert tokens_at(9_000, small, large) == 4_000
    peaks = {"small": small._asdict(), "large": large._asdict()}
    assert report.scaled_memory(peaks, 4_000) == (10_000, 9_000)


def test_a_machine_is_named_by_its_cpu_and_flags():
    cpu, flags = describe_cpu(CPUINFO)
    assert cpu == "Some(R) Xeon(R) CPU @ 2.60GHz"
    assert {"avx512_bf16", "amx_bf16"} < flags
    assert Hardware(cpu, "amx_bf16", 2, 1, None).slug == "some-xeon-amx-bf16-2-cores"
    assert Hardware(cpu, NO_FLAG, 2, 1, None).slug == "some-xeon-no-bf16-2-cores"
    assert Hardware(cpu, NO_FLAG, 2, 1, "NVIDIA H200").slug == "nvidia-h200-2-cores"
    assert describe_cpu("") == ("", frozenset())


def test_waiting_is_shown_as_shares_of_the_best_policy():
    rates = {
        "OpenMP's default": {"quiet": [90.0, 100.0, 130.0], "beside": [40.0]},
        "8,000 spins": {"quiet": [98.0], "beside": [50.0]},
    }
    text = report.markdown(
        {
            **record_of(measured_with({OURS: FakeWorker(0.1)})),
            "waiting": {"precision": "bf16", "rates": rates},
        }
    )
    assert "| OpenMP's default | 100 (100%) | 40 (80%) |" in text
    assert "| 8,000 spins | 98 (98%) | 50 (100%) |" in text


def test_products_of_all_libraries_are_shown():
    rates = {"1 x 2 x 3": {"mkl fp32": 10.0, "bf16": 20.0}, "4 x 1 x 2 x 3": {"mkl fp32": 5.0}}
    record = record_of(measured_with({OURS: FakeWorker(0.1)}))
    text = report.markdown({**record, "kernels": {"rates": rates, "errors": {"mkl": 1e-6}}})
    assert "| 1 x 2 x 3 | 10 | 20 |" in text
    assert "| 4 x 1 x 2 x 3 | 5 |  |" in text
    assert "against float64: mkl 1.0e-06." in text
