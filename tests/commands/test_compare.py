"""A set of recipes is trained, and a table shows their figures beside the paper's."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import compare
from nmt_cli.commands import run as run_command
from nmt_cli.commands.experiments.comparison_table import (
    OURS,
    PAPERS,
    ROWS,
    ComparedRow,
    PaperRow,
    as_table,
    row_of,
)
from nmt_cli.launch.python_process import PARENT
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes
from nmt_cli.training import session
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions
from tests.commands.test_run import write_experiment
from tests.test_recipes import rows_of_table_3

SHORT = ["training.max_steps=6", "validation.bleu=off"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two recipes: a base, and one that differs in its heads and has the name of a row."""
    write_experiment(tmp_path)
    (tmp_path / "toy.yaml").rename(tmp_path / "base.yaml")
    (tmp_path / "a-1-head.yaml").write_text(
        "extends: ./base.yaml\ndescription: One head.\nmodel: {num_heads: 1}\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def in_this_process(monkeypatch):
    """Let trainings be calls instead of processes, because a start of torch takes seconds."""

    def train_all(trainings, devices, options):
        commands = [compare._command(t, devices[0], 1)[3:] for t in trainings]
        statuses = [CliRunner().invoke(cli.main, command).exit_code for command in commands]
        return [t for t, status in zip(trainings, statuses, strict=True) if status]

    monkeypatch.setattr(compare, "_train_all", train_all)


def do(*recipes, **options):
    options = {"overrides": SHORT, **options}
    compare.run([f"./{name}.yaml" for name in recipes], device="cpu", threads=1, **options)


def started_sessions(folder, run):
    return (folder / "runs" / run / "sessions.jsonl").read_text().splitlines()


def records_of(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def last_perplexity(run_dir):
    return [r["validation"]["perplexity"] for r in records_of(run_dir) if "validation" in r][-1]


@pytest.mark.usefixtures("in_this_process")
def test_every_recipe_and_seed_is_a_run_and_a_figure_of_the_table(folder, capfdbinary):
    do("base", "a-1-head", seeds=[1, 2], output_format="json")
    rows = json.loads(capfdbinary.readouterr().out)
    assert [row["name"] for row in rows] == ["base", "a-1-head"]
    for row in rows:
        runs = [folder / "runs" / row["name"] / f"seed-{seed}" for seed in (1, 2)]
        scores = [json.loads((run / "scores/scores.json").read_text()) for run in runs]
        assert row["bleus"] == [score["bleu"]["score"] for score in scores]
        assert row["signatures"] == [scores[0]["bleu"]["signature"]]
        assert row["perplexities"] == [last_perplexity(run) for run in runs]
        steps = [[r for r in records_of(run) if "seconds" in r] for run in runs]
        assert row["seconds"] == pytest.approx([sum(r["seconds"] for r in of) for of in steps])
        assert row["target_tokens"] == [sum(r["target_tokens"] for r in of) for of in steps]
        tested = row["bleu_tests"]["test"]
        assert [each["run"] for each in tested] == [str(run.relative_to(folder)) for run in runs]
        assert [each["score"] for each in tested] == row["bleus"]
        assert row["paper"]["perplexity"] == ROWS[row["name"]].perplexity
    assert rows[0]["perplexities"][0] != rows[0]["perplexities"][1]

    do("base", "a-1-head", seeds=[1, 2])
    assert len(started_sessions(folder, "base/seed-1")) == 1
    table, _, notes = capfdbinary.readouterr().out.decode().partition("\n\n")
    assert [line.split()[0] for line in table.splitlines()] == ["recipe", "base", "a-1-head"]
    assert table.splitlines()[0].split()[-2:] == ["time", "tokens/s"]
    assert "\ntest:\nsystem " in notes
    assert "runs/base/seed-1 (baseline) " in notes
    assert f"The signature of BLEU is {rows[0]['signatures'][0]}.\n" in notes


@pytest.mark.usefixtures("in_this_process")
def test_a_perplexity_that_is_no_number_is_null(folder, capfdbinary):
    do("base")
    metrics = folder / "runs/base/metrics.jsonl"
    records = map(json.loads, metrics.read_text().splitlines())
    metrics.write_text("".join(f"{json.dumps(r)}\n" for r in records if "validation" not in r))
    capfdbinary.readouterr()
    do("base", output_format="json")
    (row,) = json.loads(capfdbinary.readouterr().out, parse_constant=pytest.fail)
    assert row["perplexities"] == [None]


@pytest.mark.usefixtures("in_this_process")
def test_a_failed_training_does_not_end_the_others(folder, capfdbinary):
    do("base")
    (folder / "runs/base/recipe.yaml").write_text("broken: true\n")
    capfdbinary.readouterr()
    with pytest.raises(UserError, match=r"^1 of 2 trainings failed \(runs/base\)"):
        do("base", "a-1-head")
    table, _, _ = capfdbinary.readouterr().out.decode().partition("\n\n")
    assert [line.split()[0] for line in table.splitlines()] == ["recipe", "a-1-head"]


@pytest.mark.parametrize(
    ("override", "state", "change"),
    [
        ("model.dropout=0.3", "finished", "model.dropout (was 0.1, is 0.3)"),
        ("training.clip_norm=3.5", "interrupted", "training.clip_norm (was null, is 3.5)"),
        ("decoding.beam_size=3", "finished", None),
        ("training.max_steps=9", "interrupted", None),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_the_folder_of_another_recipe_is_found_before_any_training(
    folder, override, state, change, capfdbinary
):
    do("base")
    status = folder / "runs/base/status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "state": state}))
    overrides = [*SHORT, override]
    if change is None:
        do("base", overrides=overrides)
        return
    with pytest.raises(UserError) as caught:
        do("a-1-head", "base", overrides=overrides)
    assert str(caught.value) == (
        f"runs/base was trained with another recipe: {change}. Choose another --runs, or move it "
        "away."
    )
    assert not (folder / "runs/a-1-head").exists()


@pytest.mark.usefixtures("in_this_process")
def test_a_run_that_began_from_another_model_is_found_before_any_training(folder):
    do("base")
    run_command.run(
        "./base.yaml",
        until="train",
        overrides=SHORT,
        run_dir=Path("runs/tuned/base"),
        init_from=Path("runs/base"),
        device="cpu",
        threads=1,
    )
    message = (
        r"^the training in runs/tuned/base began from the weights of runs/base/average, but no "
        r"model\.from is given; give model\.from runs/base/average, or choose another --runs\.$"
    )
    with pytest.raises(UserError, match=message):
        do("a-1-head", "base", runs=Path("runs/tuned"))
    assert not (folder / "runs/tuned/a-1-head").exists()


def test_a_folder_of_the_user_in_a_run_is_found_before_any_training(folder):
    (folder / "runs/base/seed-2/scores").mkdir(parents=True)
    (folder / "runs/base/seed-2/scores/notes.txt").touch()
    message = r"^runs/base/seed-2/scores exists, .*; move it away, or choose another --runs\.$"
    with pytest.raises(UserError, match=message):
        do("a-1-head", "base", seeds=[1, 2])
    assert not (folder / "prepared").exists()


def test_a_training_that_failed_names_the_command_that_makes_it_anew(folder, monkeypatch):
    logs.configure(quiet=True)  # as compare was; that decides nothing
    monkeypatch.setenv(PARENT, str(os.getppid()))
    monkeypatch.setattr(run_command, "end_with_parent", lambda _: None)
    (folder / "runs/base").mkdir(parents=True)
    (folder / "runs/base/metrics.jsonl").touch()  # of no run
    message = (
        r"the same command goes on with train; to make it anew: nmt-cli run ./base\.yaml "
        r"--set=training\.max_steps=6 --set=validation\.bleu=off --run-dir=runs/base "
        r"--force-from=train\.$"
    )
    with pytest.raises(UserError, match=message):
        run_command.run("./base.yaml", until="train", overrides=SHORT, run_dir=Path("runs/base"))


@pytest.mark.usefixtures("in_this_process")
def test_a_finished_run_of_the_same_recipe_and_seed_is_used(folder, capfdbinary, monkeypatch):
    do("base")
    capfdbinary.readouterr()
    do("base", seeds=[1, 2], output_format="json")
    (row,) = json.loads(capfdbinary.readouterr().out)
    runs = [folder / "runs/base", folder / "runs/base/seed-2"]
    assert row["perplexities"] == [last_perplexity(run) for run in runs]
    assert len(started_sessions(folder, "base")) == 1
    assert not (folder / "runs/base/seed-1").exists()
    # A folder of the seed that is left from another recipe does not hide it.
    shutil.copytree(folder / "runs/base/seed-2", folder / "runs/base/seed-1")
    (first,) = compare._trainings(["./base.yaml"], [1], Path("runs"), TrainOptions(overrides=SHORT))
    assert str(first.run_dir) == "runs/base"
    # Another recipe of this name is not taken for it, nor a run that has not finished, nor one that
    # began from a model which the recipe does not name.
    other = [*SHORT, "model.dropout=0.3"]
    for overrides, state, began_from in (
        (other, "finished", None),
        (SHORT, "interrupted", None),
        (SHORT, "finished", {"model": "another"}),
    ):
        status = json.loads((folder / "runs/base/status.json").read_text())
        (folder / "runs/base/status.json").write_text(json.dumps({**status, "state": state}))
        checkpoint = SimpleNamespace(manifest={"initialized_from": began_from})
        monkeypatch.setattr(compare, "list_checkpoints", lambda _, found=checkpoint: [found])
        (first, second) = compare._trainings(
            ["./base.yaml"], [1, 2], Path("runs"), TrainOptions(overrides=overrides)
        )
        assert [str(each.run_dir) for each in (first, second)] == [
            "runs/base/seed-1",
            "runs/base/seed-2",
        ]


def test_a_recipe_given_twice_is_refused(folder):
    with pytest.raises(UserError, match=r"runs/base would be the folder of several trainings"):
        do("base", "base")
    assert not (folder / "prepared").exists()


def test_each_recipe_is_read_once_before_training(folder, monkeypatch):
    read = []

    def spy(*given):
        read.append(given)
        return read_recipe(*given)

    monkeypatch.setattr(compare, "read_recipe", spy)
    monkeypatch.setattr("nmt_cli.commands.run.run", lambda *_, **__: None)
    monkeypatch.setattr(compare, "_train_all", lambda trainings, *_: trainings)
    with pytest.raises(UserError, match=r"^1 of 1 training failed \(runs/base\)"):
        do("base")
    assert read == [("./base.yaml", SHORT)]


def test_recipes_with_other_text_need_folders_of_their_own(folder):
    (folder / "other.yaml").write_text(
        "extends: ./base.yaml\ndescription: Short.\ndata: {max_length: 20}\n"
    )
    with pytest.raises(UserError, match=r"base and other differ in data or tokenizer, but both "):
        do("base", "a-1-head", "other", prepared=Path("prepared/all"))
    assert not (folder / "prepared").exists()


COMPARING = """\
import sys
from nmt_cli.commands.compare import _Children
_Children().call([sys.executable, "-c", sys.argv[1]])
"""
RUNNING = """\
import os, time
from pathlib import Path
from nmt_cli.commands import run
from nmt_cli.training import session
from nmt_cli.training.options import TrainOptions
def read_recipe(*_):
    Path("process.new").write_text(str(os.getpid()))
    Path("process.new").rename("process")
    time.sleep(100)
run.read_recipe = read_recipe
run.run("base", until="report", overrides=())
"""


def test_trainings_end_with_a_comparison_that_is_killed(folder):
    """The training runs where ``run`` begins; SIGTERM lets it save what it has."""
    started = folder / "process"
    with subprocess.Popen([sys.executable, "-c", COMPARING, RUNNING]) as process:
        until = time.monotonic() + 60
        while not started.exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        process.kill()
    child = Path("/proc") / started.read_text()
    until = time.monotonic() + 10
    while child.exists():
        state = (child / "stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # ended, and nobody asks for its status
            break
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow  # processes start torch four times
def test_an_interrupted_comparison_goes_on(folder):
    command = [sys.executable, "-m", "nmt_cli", "compare", "./base.yaml", "./a-1-head.yaml"]
    command += ["--device=cpu", "--threads=1", "--set=training.max_steps=100000"]
    command += ["--set=validation.bleu=off", "--set=checkpoints.every_steps=100000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, text=True) as process:
        metrics = folder / "runs/base/metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, messages = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "Run the same command again to continue." in messages
    assert not (folder / "runs/a-1-head").exists()
    step = json.loads(metrics.read_text().splitlines()[-1])["step"]
    do("base", overrides=[f"training.max_steps={step + 1}", SHORT[1]])
    assert [json.loads(line)["from_step"] for line in started_sessions(folder, "base")] == [0, step]


@pytest.mark.usefixtures("in_this_process")
def test_what_max_time_ended_is_shown_and_is_no_failure(folder, capfdbinary, monkeypatch):
    monkeypatch.setattr(session, "started_at", time.monotonic)  # of a process of its own
    (folder / "a-1-head.yaml").write_text(
        "extends: ./base.yaml\ntraining: {max_steps: 1000000}\ncheckpoints: {every_steps: 9999}\n"
    )
    do("base", overrides=SHORT[1:])
    capfdbinary.readouterr()
    with pytest.raises(InterruptedTrainingError, match=r"^1 of 2 trainings reached --max-time"):
        do("base", "a-1-head", max_time=2.0, overrides=SHORT[1:])
    table = capfdbinary.readouterr().out.decode().splitlines()
    assert [line.split()[0] for line in table[:3]] == ["recipe", "base", "a-1-head"]
    assert "tokens/s" in table[0]
    assert json.loads((folder / "runs/a-1-head/status.json").read_text())["exit_status"] == 75


def test_a_folder_stands_for_its_recipes():
    names = compare._recipes_of("table3-small")
    assert names[0] == "table3-small/base"
    assert set(names) == {n for n in shipped_recipes() if n.startswith("table3-small/")}
    assert compare._recipes_of("table3-small/") == names
    assert compare._recipes_of("base") == ["base"]


def test_a_name_with_a_dash_is_no_option():
    training = Experiment.of("-odd.yaml", read_recipe("base"), TrainOptions())
    assert compare._command(training, "cpu", 1)[3:5] == ["run", "./-odd.yaml"]


@pytest.mark.parametrize("is_quiet", [False, True])
def test_trainings_are_as_quiet_as_the_comparison(is_quiet):
    logs.configure(quiet=is_quiet)
    training = Experiment.of("base", read_recipe("base"), TrainOptions())
    assert ("--quiet" in compare._command(training, "cpu", 1)) == is_quiet


def test_a_folder_of_the_user_stands_for_its_recipes_too(folder):
    (folder / "mine").mkdir()
    for name in ("base", "a-1-head"):
        (folder / f"{name}.yaml").rename(folder / f"mine/{name}.yaml")
    assert compare._recipes_of("mine") == ["mine/base.yaml", "mine/a-1-head.yaml"]
    assert compare._recipes_of("mine/base.yaml") == ["mine/base.yaml"]


def test_runs_of_several_seeds_are_not_taken_for_one(folder):
    (folder / "runs/base/seed-1").mkdir(parents=True)
    (folder / "runs/base/seed-1/sessions.jsonl").touch()
    message = r"^runs/base holds runs; give --seeds, or choose another --runs\.$"
    with pytest.raises(UserError, match=message):
        do("base")


def test_numbers_stand_in_columns():
    rows = [
        ComparedRow("base", 7_568_384, [4.5], [38.25], [], PaperRow(4.92, 25.8, 65)),
        ComparedRow("mine", 36_992, [10.0, 11.0], [], [], None),
    ]
    assert as_table(rows) == (
        "recipe  seeds  10⁶ parameters  paper              perplexity  paper   BLEU  paper\n"
        "base        1             7.6     65                    4.50   4.92  38.25   25.8\n"
        "mine        2           0.037         10.50 (10.00 to 11.00)\n\n"
        f"{OURS}\n{PAPERS}"
    )
    assert as_table(rows[1:]).endswith(f"\n\n{OURS}")


def test_parsers_are_compared_by_f1():
    row = ComparedRow("parsing-small", 6_545_408, [1.4], [], [61.25], None)
    table = "recipe         seeds  10⁶ parameters  perplexity     F1"
    assert as_table([row]).splitlines()[:2] == [
        table,
        "parsing-small      1             6.5        1.40  61.25",
    ]


@pytest.mark.usefixtures("in_this_process")
def test_validation_sets_that_do_not_decide_have_columns(folder, capfdbinary):
    text = f"source: {folder}/validation.en, target: {folder}/validation.de"
    sets = f"data.validation=[{{name: news, {text}}}, {{name: talks, {text}}}]"
    do("base", overrides=[*SHORT, sets], output_format="json")
    (row,) = json.loads(capfdbinary.readouterr().out)
    assert list(row["validation_sets"]) == ["talks"]  # the first one decides
    assert row["validation_sets"]["talks"] == row["perplexities"]  # it is the same text
    rows = [
        ComparedRow("base", 36_992, [4.5], [], [], None, validation_sets={"talks": [5.25]}),
        ComparedRow("mine", 36_992, [4.0], [], [], None),
    ]
    assert as_table(rows).splitlines()[:3] == [
        "recipe  seeds  10⁶ parameters  perplexity  talks ppl",
        "base        1           0.037        4.50       5.25",
        "mine        1           0.037        4.00",
    ]


@pytest.mark.parametrize("row", list(rows_of_table_3()), ids=lambda row: row.name)
def test_the_papers_figures_are_those_of_its_table(row):
    paper = row_of(row.name)
    assert paper is not None
    assert (f"{paper.perplexity:.2f}", f"{paper.bleu:.1f}") == (row.perplexity, row.bleu)
    assert paper.parameters in {None, row.millions}
