"""A stopped benchmark keeps what it measured, and the next call continues it."""

import argparse

import pytest

from tests.benchmarks.hardware import Hardware
from tests.benchmarks.parts import Step
from tests.benchmarks.run import measure, open_store
from tests.benchmarks.speed import Rounds

MACHINE = Hardware("A CPU", "amx_bf16", 2, 10**9, None)


def options(**given):
    return argparse.Namespace(**{"quick": False, "threads": 2, "anew": False, **given})


def steps_that(measured, fail_at="nothing"):
    def step(part, of):
        def run(record):
            if of == fail_at:
                raise KeyboardInterrupt
            measured.append((part, of))
            return {"figure": len(measured)}

        return Step(part, of, run)

    return [step("kernels", None), step("speed", "S"), step("speed", "base"), step("loss", "S")]


def test_a_stopped_run_is_continued_by_the_next_call_and_a_finished_one_is_not(tmp_path):
    measured = list[tuple[str, str | None]]()
    with pytest.raises(KeyboardInterrupt):
        measure(steps_that(measured, "base"), open_store(MACHINE, options(), tmp_path))
    store = open_store(MACHINE, options(), tmp_path)
    assert store.record["speed"] == {"S": {"figure": 2}}
    measure(steps_that(measured), store)
    assert measured == [("kernels", None), ("speed", "S"), ("speed", "base"), ("loss", "S")]
    again = open_store(MACHINE, options(), tmp_path)
    assert again.record["speed"] == {"S": {"figure": 2}, "base": {"figure": 3}}
    assert again.record["kernels"] == {"figure": 1}
    measure(steps_that(measured), again)
    assert len(measured) == 8
    assert set(again.seconds) == {"kernels", "speed: S", "speed: base", "loss: S"}


def test_a_run_that_was_stopped_yesterday_is_continued_under_its_date(tmp_path):
    measured = list[tuple[str, str | None]]()
    with pytest.raises(KeyboardInterrupt):
        measure(steps_that(measured, "base"), open_store(MACHINE, options(), tmp_path))
    (path,) = tmp_path.iterdir()
    earlier = path.with_name("2020-01-02" + path.name.removeprefix(path.name[:10]))
    earlier.write_text(path.read_text().replace(path.name[:10], "2020-01-02"))
    path.unlink()
    assert open_store(MACHINE, options(), tmp_path).name == earlier.stem
    anew = open_store(MACHINE, options(anew=True), tmp_path)
    assert anew.name != earlier.stem
    assert not anew.done
    other = open_store(MACHINE._replace(cores=4), options(), tmp_path)
    assert not other.done


def test_steps_of_another_part_do_not_end_the_stopped_run(tmp_path):
    measured = list[tuple[str, str | None]]()
    with pytest.raises(KeyboardInterrupt):
        measure(steps_that(measured, "base"), open_store(MACHINE, options(), tmp_path))
    measure(steps_that(measured)[-1:], open_store(MACHINE, options(), tmp_path))
    measure(steps_that(measured), open_store(MACHINE, options(), tmp_path))
    assert measured.count(("speed", "S")) == 1
    assert measured.count(("loss", "S")) == 2


@pytest.mark.parametrize(("step_seconds", "counted"), [(1, 10), (10, 3), (19, 1), (1_000, 1)])
def test_a_slow_machine_gets_turns_of_fewer_steps(step_seconds, counted):
    rounds = Rounds(warm_up=5, counted=10, max_rounds=5, seconds=120)
    assert rounds.fitted(step_seconds).counted == counted
