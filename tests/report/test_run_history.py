import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.report.run_history import distinct_labels, read_runs, sets_to_show
from tests.fake_runs import step_record, validation_record, write_run


def test_figures_stand_in_the_order_of_their_steps(tmp_path):
    records = [step_record(3), validation_record(2, 5.0, 12.0), step_record(1), step_record(2)]
    (run,) = read_runs([write_run(tmp_path / "a", records)])
    assert run.training.steps.tolist() == [1, 2, 3]
    assert run.training.column("loss").tolist() == [8, 5, 4]
    assert run.validation.steps.tolist() == [2]
    assert run.validation.column("bleu").tolist() == [12]
    assert run.recipe is not None


def test_figures_of_each_validation_set_are_found_by_its_name(tmp_path):
    records = [validation_record(step, 5.0) for step in (2, 4)]
    odd = {"../x": {"loss": 1.0}, "y": 3, "talks": {"loss": 7.0}}
    for record, sets in zip(records, ({"news": {"loss": 5.0}}, odd), strict=True):
        record["validation"]["sets"] = sets
    (run,) = read_runs([write_run(tmp_path / "a", records)])
    found = {name: of.column("loss").tolist() for name, of in run.validation_sets.items()}
    assert found == {"news": [5], "talks": [7]}
    assert run.validated("talks").steps.tolist() == [4]
    assert run.validated("none").steps.tolist() == []
    assert run.validated(None) is run.validation


def test_a_set_is_shown_by_its_name_alone_unless_a_run_has_none_for_it(tmp_path):
    def run_of(name, sets, best_on="null"):
        record = validation_record(2, 5.0)
        record["validation"]["sets"] = {each: {"loss": 5.0} for each in sets}
        run_dir = write_run(tmp_path / name, [record])
        named = "".join(f"{{name: {each}, source: v.en, target: v.de}}, " for each in sets)
        recipe = (run_dir / "recipe.yaml").read_text()
        if sets:
            recipe = recipe.replace("{source: v.en, target: v.de}", f"[{named}]")
        (run_dir / "recipe.yaml").write_text(f"{recipe}validation: {{best_on: {best_on}}}\n")
        return read_runs([run_dir])[0]

    one, other = run_of("one", ["news", "talks"], "talks"), run_of("other", ["wiki"])
    plain = run_of("plain", [])
    assert (one.deciding_set, other.deciding_set, plain.deciding_set) == ("talks", "wiki", None)
    assert sets_to_show([one, other]) == ["news", "talks", "wiki"]
    assert sets_to_show([one, plain]) == [None, "news", "talks"]
    assert sets_to_show([plain]) == [None]
    assert sets_to_show([one._replace(recipe=None)]) == [None, "news", "talks"]


def test_a_stage_begins_after_the_last_step_of_the_one_before(tmp_path):
    records = [step_record(step, stage=1 + (step > 3) + (step > 4)) for step in range(1, 7)]
    stages, plain = read_runs(
        [write_run(tmp_path / "a", records), write_run(tmp_path / "b", [step_record(1)])]
    )
    assert stages.stage_starts() == {2: 3, 3: 4}
    assert plain.stage_starts() == {}
    resumed = [step_record(1), step_record(2, stage=2), step_record(3, stage=2)]
    (run,) = read_runs([write_run(tmp_path / "c", resumed)])  # the first names no stage
    assert run.stage_starts() == {}


def test_of_a_step_the_later_record_counts(tmp_path):
    records = [step_record(s, loss=1.0) for s in (1, 2, 3)]
    records += [step_record(s, loss=9.0) for s in (2, 3, 4)]
    records += [validation_record(2, 5.0), validation_record(2, 4.0)]
    (run,) = read_runs([write_run(tmp_path / "a", records)])
    assert run.training.steps.tolist() == [1, 2, 3, 4]
    assert run.training.column("loss").tolist() == [1, 9, 9, 9]
    assert run.validation.column("loss").tolist() == [4]


def test_what_is_not_a_finite_figure_is_missing(tmp_path):
    odd = [math.nan, math.inf, None, "3", [1], 10**400, True]
    records = [step_record(i + 1, loss=value) for i, value in enumerate(odd)]
    records.append({"step": 20, "seconds": 1.5})
    (run,) = read_runs([write_run(tmp_path / "a", records)])
    loss = run.training.column("loss")
    assert np.isnan(loss[[0, 1, 2, 3, 4, 5, 7]]).all()
    assert np.isnan(run.training.column("no such figure")).all()
    assert run.training.column("seconds")[-1] == 1.5


@pytest.mark.parametrize(
    ("tail", "warned"),
    [
        ('{"step": 3, "lo', ""),
        ('garbage\n[]\n{"step": 3', "2 damaged lines"),
        ('{"step": null}\n{"step": -1}\n{"step": "3"}\n{}\n', ""),
    ],
)
def test_damaged_lines_are_reported_and_a_last_one_is_being_written(tmp_path, capsys, tail, warned):
    logs.configure(quiet=True)
    (run,) = read_runs([write_run(tmp_path / "a", [step_record(1), step_record(2)], tail)])
    assert run.training.steps.tolist() == [1, 2]
    told = capsys.readouterr().err
    assert warned in told
    assert bool(told) == bool(warned)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "not found"),
        ({}, "a is empty; give the run directory that train wrote"),
        ({"sessions.jsonl": ""}, "holds no metrics.jsonl; run report after"),
        ({"metrics.jsonl": ""}, "holds no step yet"),
        ({"metrics.jsonl": '{"validation": {}}\n'}, "holds no step yet"),
    ],
)
def test_what_is_not_a_run_is_refused(tmp_path, files, message):
    if files is not None:
        (tmp_path / "a").mkdir()
        for name, text in files.items():
            (tmp_path / "a" / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read_runs([tmp_path / "a"])


def test_a_recipe_of_another_version_is_reported_and_left_out(tmp_path, capsys):
    logs.configure(quiet=True)
    run_dir = write_run(tmp_path / "a", [step_record(1)])
    (run_dir / "recipe.yaml").write_text("nonsense: 1\n")
    (run,) = read_runs([run_dir])
    assert run.recipe is None
    assert "is not compared" in capsys.readouterr().err


def test_parameters_are_those_of_the_newest_checkpoint_that_can_be_read(tmp_path):
    run_dir = write_run(tmp_path / "a", [step_record(1)])
    assert read_runs([run_dir])[0].num_parameters is None
    for step, width in ((10, 3), (20, 5)):
        checkpoint = run_dir / f"checkpoints/step-{step:08d}"
        checkpoint.mkdir(parents=True)
        tensors = {"a": torch.zeros(2, width), "b": torch.zeros(7)}
        save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    assert read_runs([run_dir])[0].num_parameters == 2 * 5 + 7
    (checkpoint / "model.safetensors").write_bytes(b"\xff" * 12)
    assert read_runs([run_dir])[0].num_parameters == 2 * 3 + 7


def test_sessions_are_read(tmp_path):
    run_dir = write_run(tmp_path / "a", [step_record(1)])
    (run_dir / "sessions.jsonl").write_text(json.dumps({"device": "cpu"}) + "\n")
    assert read_runs([run_dir])[0].sessions == [{"device": "cpu"}]


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["/r/a"], ["a"]),
        (["/r/a", "/r/b"], ["a", "b"]),
        (["/x/runs/a", "/y/runs/a", "/y/runs/b"], ["x/runs/a", "y/runs/a", "b"]),
        (["/a", "/r/a"], ["/a", "r/a"]),
        (["/r/\x1bm"], ["\\x1bm"]),
    ],
)
def test_labels_are_as_short_as_they_can_be(paths, labels):
    assert distinct_labels([Path(path) for path in paths]) == labels


def test_a_run_is_drawn_once(tmp_path):
    with pytest.raises(UserError, match="given twice"):
        distinct_labels([tmp_path / "a", tmp_path / "b" / ".." / "a"])
