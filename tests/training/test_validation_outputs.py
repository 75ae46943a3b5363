"""What becomes of the translations of a validation: a script judges them, files keep them."""

import json
import shlex
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.checkpoints import best_checkpoint, list_checkpoints
from nmt_cli.training import validation_outputs
from nmt_cli.training.training import Training
from nmt_cli.training.validation_outputs import Verdict, judge, keep_translations
from tests.forked_ranks import run_ranks
from tests.trainers import changed, new_trainer

TEXTS = {"source": ["a b", "ü"], "reference": ["b a", "ü"], "output": ["b a", "u"]}
WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(child.pid))
"""


@pytest.fixture(autouse=True)
def _polled_often(monkeypatch):
    monkeypatch.setattr(validation_outputs, "POLL_SECONDS", 0.01)


def python(program, *arguments):
    return shlex.join([sys.executable, "-S", "-c", program, *map(str, arguments)])


def ends(process):
    """Return whether a process ends; one that was killed may wait for init to take it."""
    stat = Path(f"/proc/{process}/stat")
    for _ in range(500):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:  # it is gone
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("print('loading'); print(' -0.25 ')", Verdict(-0.25)),
        ("print('x' * 10_000_000); print(1e3)", Verdict(1000.0)),
        ("import sys; print(*(open(f).read().split()[0] for f in sys.argv[1:])); print(7)",
         Verdict(7.0)),
        ("print('BLEU = 3')", Verdict(None, 'its last line is no finite number: "BLEU = 3"')),
        ("print('1_0')", Verdict(None, 'its last line is no finite number: "1_0"')),
        ("print('nan')", Verdict(None, 'its last line is no finite number: "nan"')),
        ("print('1e999')", Verdict(None, 'its last line is no finite number: "1e999"')),
        ("print('\\n')", Verdict(None, "it printed nothing on stdout")),
        ("import sys; print(5); sys.exit('no model\\n')",
         Verdict(None, "it ended with status 1: no model")),
        ("print(5); raise SystemExit(3)", Verdict(None, "it ended with status 3")),
        ("import os; print(5, flush=True); os.kill(os.getpid(), 9)",
         Verdict(None, "it ended with signal 9 (Killed)")),
        ("import shutil, sys, os; shutil.rmtree(os.path.dirname(sys.argv[1])); print(4)",
         Verdict(4.0)),
        ("import os; print(sum(n in os.environ for n in ('RANK', 'NMT_CLI_LAUNCHED_AT')))",
         Verdict(0.0)),
        ("while True: print('y' * 1000)", Verdict(None, "it was killed after it printed 20 MB")),
        ("import time; print(5, flush=True); time.sleep(60)",
         Verdict(None, "it was killed after 2s")),
    ],
)  # fmt: skip
def test_a_number_counts_only_if_the_script_ended_well(monkeypatch, program, verdict):
    monkeypatch.setattr(validation_outputs, "LIMIT_SECONDS", 2.0 if "sleep" in program else 60.0)
    monkeypatch.setattr(validation_outputs, "MOST_BYTES", 20_000_000)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("NMT_CLI_LAUNCHED_AT", "7.5")
    script = f"{python(program)} {{source}} {{reference}} {{output}}"
    assert judge(script, TEXTS, ALONE, StopRequest()) == verdict


def test_a_program_that_is_gone_gives_no_number():
    verdict = judge("./gone {output}", TEXTS, ALONE, StopRequest())
    assert verdict == Verdict(None, "it was not started: ./gone: No such file or directory")


@pytest.mark.parametrize("rest", ["print(6)", "time.sleep(60)"])
def test_children_end_with_the_script_and_are_not_waited_for(tmp_path, monkeypatch, rest):
    monkeypatch.setattr(validation_outputs, "LIMIT_SECONDS", 2.0)
    note, started = tmp_path / "child", time.monotonic()
    verdict = judge(python(WITH_CHILD + rest, note), TEXTS, ALONE, StopRequest())
    assert time.monotonic() - started < 30
    assert verdict == (Verdict(6.0) if "print" in rest else Verdict(None, "it was killed after 2s"))
    assert ends(int(note.read_text()))


def test_a_request_to_stop_kills_the_script_and_its_children(tmp_path):
    note, stop, started = tmp_path / "child", StopRequest(), time.monotonic()

    def ask():
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        stop.reason = "SIGTERM"

    thread = threading.Thread(target=ask)
    thread.start()
    assert judge(python(f"{WITH_CHILD}time.sleep(60)", note), TEXTS, ALONE, stop) is None
    thread.join()
    assert time.monotonic() - started < 30
    assert ends(int(note.read_text()))


JUDGE = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
with (folder / "calls").open("a") as calls:
    print("call", file=calls)
files = [pathlib.Path(name).read_text().splitlines() for name in sys.argv[2:]]
assert len(set(map(len, files))) == 1, files
verdicts = (folder / "verdicts").read_text().split()
(folder / "verdicts").write_text(" ".join(verdicts[1:]))
print(verdicts[0])
"""
# It is never called diverged.
EVERY_STEP = {
    "validation": {"every_steps": 1, "patience": 2},
    "training": {"warmup_steps": 100},
}


class Judging:
    """A script that prints the given words, one each time it is called."""

    def __init__(self, folder):
        self.folder = folder
        self.command = f"{python(JUDGE, folder)} {{source}} {{reference}} {{output}}"

    def will_say(self, *words):
        (self.folder / "verdicts").write_text(" ".join(words))
        (self.folder / "calls").write_text("")

    @property
    def num_calls(self):
        return len((self.folder / "calls").read_text().split())


@pytest.fixture
def judging(tmp_path):
    return Judging(tmp_path)


def validations(run_dir):
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return {r["step"]: r["validation"] for r in records if "validation" in r}


def best_of(run_dir):
    found = best_checkpoint(list_checkpoints(run_dir))
    assert found is not None
    return found.step


def test_the_script_decides_and_without_a_number_nothing_changes(toy, tmp_path, judging, capsys):
    run_dir, recipe = tmp_path / "run", changed(toy.recipe, **EVERY_STEP)
    judging.will_say("-3", "-1", "never", "-2", "-1.5")
    logs.configure(quiet=False)
    trainer = new_trainer(toy, run_dir, recipe, validation_script=judging.command)
    trainer.train(StopRequest())
    assert (trainer.state.progress.step, best_of(run_dir)) == (5, 2)  # the loss improves always
    numbers = {step: each.get("script") for step, each in validations(run_dir).items()}
    assert numbers == {1: -3.0, 2: -1.0, 3: None, 4: -2.0, 5: -1.5}
    told = capsys.readouterr().err
    assert ", script -1.0000 (best)\n" in told
    assert (
        "Warning: step 3: --validation-script gave no number: its last line is no finite number: "
        '"never". The best checkpoint and the patience stay as they were.\n'
    ) in told


def test_a_resumed_training_goes_on_with_the_numbers_of_the_script(toy, tmp_path, judging, capsys):
    run_dir, recipe = tmp_path / "run", changed(toy.recipe, **EVERY_STEP)
    shorter = changed(recipe, training={"max_steps": 2})
    judging.will_say("5", "4")
    new_trainer(toy, run_dir, shorter, validation_script=judging.command).train(StopRequest())

    def resume(steps, **options):
        longer = changed(recipe, training={"max_steps": steps})
        trainer = new_trainer(toy, run_dir, longer, resume=True, **options)
        trainer.train(StopRequest())
        return trainer.state.progress.step

    judging.will_say("4.5")
    assert resume(9, validation_script=judging.command) == 3  # the patience of both sessions
    assert (best_of(run_dir), judging.num_calls) == (1, 1)
    with pytest.raises(UserError, match=r"chose the best checkpoint of .*: give it again, or") as e:
        resume(9)
    assert shlex.split(str(e.value))[:2] == ["--validation-script", judging.command]
    logs.configure(quiet=False)
    other = f"{judging.command} "
    judging.will_say("1", "2", "1.5")
    assert resume(6, validation_script=other) == 6
    assert best_of(run_dir) == 5
    assert "start anew at step 3, because --validation-script (was " in capsys.readouterr().err
    resume(7, validation_script="off")
    told = capsys.readouterr().err
    assert ", is off) changed: the loss cannot be compared with earlier values." in told
    assert best_of(run_dir) == 7


def test_a_step_that_was_judged_before_it_was_saved_is_not_judged_again(
    toy, tmp_path, judging, monkeypatch
):
    run_dir = tmp_path / "run"
    recipe = changed(toy.recipe, **EVERY_STEP)
    recipe = changed(recipe, training={"max_steps": 2}, checkpoints={"every_steps": 1})
    judging.will_say("5", "6")
    deadline = StopRequest(time.monotonic() + 1000, max_time=1000)  # so it saves, then validates

    def die(*_):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Training, "count_validation", die)
        with pytest.raises(RuntimeError):
            new_trainer(toy, run_dir, recipe, validation_script=judging.command).train(deadline)
    assert judging.num_calls == 1
    again = new_trainer(toy, run_dir, recipe, resume=True, validation_script=judging.command)
    assert again.state.progress.step == 1
    again.train(StopRequest())
    assert judging.num_calls == 2
    assert {n: v["script"] for n, v in validations(run_dir).items()} == {1: 5.0, 2: 6.0}
    assert best_of(run_dir) == 2


def test_sacrebleu_as_the_script_finds_the_bleu_of_the_validation(toy, tmp_path):
    recipe = changed(toy.recipe, training={"max_steps": 30}, validation={"every_steps": 30})
    script = f"{sys.executable} -m sacrebleu {{reference}} -i {{output}} -tok none -b -w 6 --force"
    run_dir = tmp_path / "run"
    new_trainer(toy, run_dir, recipe, validation_script=script).train(StopRequest())
    (validation,) = validations(run_dir).values()
    assert validation["script"] == pytest.approx(validation["bleu"], abs=1e-6)


def test_the_first_of_several_ranks_runs_the_script_and_all_take_its_number(toy, tmp_path, judging):
    recipe = changed(toy.recipe, **EVERY_STEP)
    judging.will_say("2", "x", "1", "1.5")

    def work(ranks):
        trainer = new_trainer(
            toy, tmp_path / "run", recipe, ranks=ranks, validation_script=judging.command
        )
        trainer.train(StopRequest())
        return trainer.state.progress

    first, second = run_ranks(2, tmp_path, work)
    assert first == second
    assert (first.step, first.best_quality, judging.num_calls) == (4, 2.0, 4)


def test_the_translations_of_the_last_validations_stay(toy, tmp_path, judging):
    run_dir, recipe = tmp_path / "run", changed(toy.recipe, validation={"every_steps": 1})
    recipe = changed(recipe, training={"max_steps": 4})
    (run_dir / "validations").mkdir(parents=True)
    (run_dir / "validations" / "step-00000009.txt").write_text("of a session that was lost\n")
    judging.will_say(*"1234")
    new_trainer(toy, run_dir, recipe, keep_validations=2, validation_script=judging.command).train(
        StopRequest()
    )
    kept = sorted((run_dir / "validations").iterdir())
    assert [path.name for path in kept] == ["step-00000003.txt", "step-00000004.txt"]
    assert kept[0].read_text().count("\n") == 11


def test_each_set_has_a_file_of_its_own(tmp_path):
    for step in (10, 20, 30):
        keep_translations(tmp_path, step, {"news": ["a"], "web": ["b", "c"]}, 2)
    texts = {path.name: path.read_text() for path in (tmp_path / "validations").iterdir()}
    of_step = {"news.txt": "a\n", "web.txt": "b\nc\n"}
    names = {f"step-000000{step}.{name}": t for step in (20, 30) for name, t in of_step.items()}
    assert texts == names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--validation-script=cat"], "{output} must be in the command"),
        (["--validation-script=wc -l < {output}"], "so < has no meaning; write bash -c '...'"),
        (["--validation-script=judge-it {output}"], "there is no program judge-it to run"),
        (["--validation-script=cat '{output}"], "No closing quotation"),
        (["--validation-script=cat {output}", "--set=validation.bleu=off"],
         "--validation-script needs translations, but validation.bleu is off"),
        (["--keep-validations=1", "--set=validation.bleu=off"],
         "--keep-validations needs translations, but validation.bleu is off"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["train", "run"])
def test_what_cannot_judge_is_refused_before_the_training(
    toy, tmp_path, command, arguments, message
):
    given = [command, str(toy.recipe_path), f"--run-dir={tmp_path / 'run'}", *arguments]
    ended = CliRunner().invoke(cli.main, given)
    assert ended.exit_code in (1, 2)
    assert message in ended.stderr
    assert not list(tmp_path.iterdir())
