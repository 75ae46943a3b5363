"""A whole experiment by one command: what is made, what is skipped, what is made again."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from nmt_cli import cli
from nmt_cli.commands import preprocess, report
from nmt_cli.commands import run as command
from nmt_cli.commands.experiments.pipeline import STAGES_OF_RUN
from nmt_cli.files.file_names import MANIFEST
from nmt_cli.files.folders import IMPORTED
from nmt_cli.files.locks import claimed
from nmt_cli.files.temporary_names import temporary_path
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.metrics.bleu import (
    PAPER_PAIRS,
    bleu_scorer,
    chrf_scorer,
    paper_bleu_scorer,
)
from nmt_cli.report import drawing
from nmt_cli.report.run_history import read_runs
from nmt_cli.training.trainer import update_weights
from nmt_cli.translating.translator import Translator
from tests.commands.conftest import FP32, undrawn
from tests.conftest import RECIPE, write_pairs
from tests.folders_in_memory import tmp_path as tmp_path
from tests.imported_modules import ended


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which the experiment was done once; tests copy it."""
    folder = tmp_path_factory.mktemp("run")
    write_experiment(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(
            drawing,
            "_drawing",
            undrawn,
        )
        do()
    return folder


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    """The working directory, with the finished experiment in it."""
    shutil.copytree(finished, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(drawing, "_drawing", undrawn)
    logs.configure(quiet=False)
    return tmp_path / "work"


def write_experiment(folder):
    for seed, (name, count) in enumerate({"train": 150, "validation": 11, "test": 7}.items()):
        write_pairs(folder, name, count, seed)
    test = "  test: {source: test.en, target: test.de}\n  max_length: 30\n"
    recipe = RECIPE.format(folder=".").replace("  max_length: 30\n", test)
    (folder / "toy.yaml").write_text(recipe)


def do(*, until="report", overrides=(), max_steps=6, **options):
    overrides = [f"training.max_steps={max_steps}", "validation.bleu=off", *overrides]
    options = {**FP32, **options}
    command.run("toy.yaml", until=until, overrides=overrides, threads=1, **options)


def skipped(caplog):
    """Return the stages that the last call skipped."""
    return [name for name in STAGES_OF_RUN if f"{name}: unchanged, skipped." in caplog.messages]


@pytest.fixture
def caplog(caplog, monkeypatch):
    monkeypatch.setattr("nmt_cli.messages.logs._logger.propagate", True)
    caplog.set_level("INFO", logger="nmt_cli")
    return caplog


def test_everything_is_made_and_scored(folder, capfdbinary):
    hypotheses = (folder / "runs/toy/test/test.de").read_text().split("\n")[:-1]
    references = (folder / "test.de").read_text().split("\n")[:-1]
    bleu = bleu_scorer("none").score(hypotheses, [references])
    chrf = chrf_scorer().score(hypotheses, [references])
    do()
    line = capfdbinary.readouterr().out.decode()
    assert line == (
        f"toy: BLEU {bleu.score:.2f} ({bleu.signature}), chrF2 {chrf.score:.2f} "
        f"({chrf.signature}), 7 lines\n"
    )
    scores = json.loads((folder / "runs/toy/scores/scores.json").read_text())
    assert scores["bleu"]["score"] == bleu.score
    assert (folder / "runs/toy/report/index.html").is_file()


def test_a_test_set_may_be_a_table(folder, capfdbinary, caplog):
    """Its translation and scores are those of two text files with the same pairs."""
    scores = Path("runs/toy/scores/scores.json").read_text()
    sides = [(folder / f"test.{code}").read_text().splitlines() for code in ("en", "de")]
    table = folder / "test.tsv"
    table.write_text(
        "".join(f"{target}\t{source}\n" for source, target in zip(*sides, strict=True))
    )
    as_table = ["data.test={tsv: test.tsv, columns: [2, 1]}"]
    do(overrides=as_table)
    line = capfdbinary.readouterr().out
    assert Path("runs/toy/scores/scores.json").read_text() == scores
    caplog.clear()
    do(overrides=as_table)
    assert skipped(caplog) == list(STAGES_OF_RUN)
    table.write_text(table.read_text().replace("ein", "zwei"))
    do(overrides=as_table, until="score")
    assert capfdbinary.readouterr().out != line
    caplog.clear()
    do(overrides=["data.test={tsv: test.tsv, columns: [1, 2]}"])
    assert skipped(caplog) == ["preprocess", "train", "average"]


def test_nothing_is_made_twice(folder, caplog):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    do()
    assert skipped(caplog) == list(STAGES_OF_RUN)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert after == before


def test_what_will_be_done_is_listed_first(folder, caplog):
    """A decoding key needs no training; what follows the first stage to do may be the same."""
    do(overrides=["decoding.beam_size=3"])
    listed = [text for text in caplog.messages if text.partition(":")[0] in STAGES_OF_RUN]
    assert listed[: len(STAGES_OF_RUN)] == [
        "preprocess: unchanged, skipped.",
        "train: unchanged, skipped.",
        "average: unchanged, skipped.",
        "translate: to do.",
        "score: after translate.",
        "report: after translate.",
    ]
    assert not any("Resuming" in text or "nothing to do" in text for text in caplog.messages)
    assert "beam_size: 3" in (folder / "runs/toy/recipe.yaml").read_text()
    caplog.clear()
    do(overrides=["decoding.beam_size=3"])
    assert skipped(caplog) == list(STAGES_OF_RUN)
    do()


def test_nothing_to_do_needs_no_torch(folder):
    recipe = ["toy.yaml", "--set=training.max_steps=6", "--set=validation.bleu=off"]
    found = ended(["run", *recipe, "--threads=1", "--precision=fp32"], folder)
    assert found.status == 0, found.stderr
    assert found.stderr.count(": unchanged, skipped.") == len(STAGES_OF_RUN)
    assert "torch" not in found.modules


def change_reference(folder):
    write_pairs(folder, "other", 7, seed=9)
    (folder / "other.de").rename(folder / "test.de")


def change_source(folder):
    write_pairs(folder, "other", 7, seed=9)
    (folder / "other.en").rename(folder / "test.en")


def damage_translation(folder):
    (folder / "runs/toy/test/test.de").write_text("ant\n" * 7)


def remove_average(folder):
    shutil.rmtree(folder / "runs/toy/average")


@pytest.mark.parametrize(
    ("change", "made"),
    [
        (change_reference, ["score", "report"]),
        (change_source, ["translate"]),  # a model that learned nothing translates it the same
        (damage_translation, ["translate"]),  # to the same bytes as before
        (remove_average, ["average"]),  # likewise
    ],
)
def test_only_what_depends_on_a_change_is_made_again(folder, caplog, change, made):
    change(folder)
    do()
    assert skipped(caplog) == [name for name in STAGES_OF_RUN if name not in made]


def test_a_decoding_key_needs_no_training(folder, caplog, monkeypatch):
    load, used = Translator.load, {}

    def spy(*arguments, **options):
        used.update(options)
        return load(*arguments, **options)

    monkeypatch.setattr(Translator, "load", spy)
    do(overrides=["decoding.length_penalty=0.1", "decoding.max_extra_length=7"])
    decoding = {"beam_size": 2, "length_penalty": 0.1, "max_extra_length": 7}
    assert {**decoding, "well_formed_trees": False}.items() <= used.items()
    assert skipped(caplog)[0] == "preprocess"
    assert "average" in skipped(caplog)
    assert "translate" not in skipped(caplog)
    manifest = json.loads((folder / "runs/toy/test/manifest.json").read_text())
    assert manifest["made_from"]["decoding"]["length_penalty"] == 0.1


def test_longer_training_goes_on_from_the_end(folder, caplog):
    do(max_steps=9)
    assert not {"train", "average", "translate"} & set(skipped(caplog))
    starts = (folder / "runs/toy/sessions.jsonl").read_text().splitlines()
    assert [json.loads(start)["from_step"] for start in starts] == [0, 6]
    averaged = json.loads((folder / "runs/toy/average/manifest.json").read_text())["averaged"]
    assert [part["step"] for part in averaged] == [9]
    left_out = "Left out of the average, as too early in a training of 9 steps ("
    assert sum(message.startswith(left_out) for message in caplog.messages) == 1
    assert not any(message.startswith("Next: ") for message in caplog.messages)


def test_a_change_that_a_finished_training_takes_is_recorded(folder, caplog):
    changed = {"overrides": ["training.clip_norm=3.5", "data.test=null"], "until": "train"}
    do(allowed_changes=["training.clip_norm"], **changed)
    assert not skipped(caplog)[1:]
    assert "clip_norm: 3.5\n" in (folder / "runs/toy/recipe.yaml").read_text()
    do(**changed)
    assert skipped(caplog)[1:] == ["train"]


def test_scores_of_an_earlier_step_are_not_shown(folder, capsys):
    run = folder / "runs/toy"
    assert read_runs([run])[0].scores["lines"] == 7
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps({**last, "step": 9}) + "\n")
    assert read_runs([run])[0].scores == {}
    assert "runs/toy/scores is not shown: it is of step 6, and the run is at step 9" in (
        capsys.readouterr().err
    )


def test_run_has_the_options_that_messages_of_training_name():
    train, run = cli.main.commands["train"], cli.main.commands["run"]
    missing = {option.name for option in train.params} - {option.name for option in run.params}
    assert missing == {"in_run", "nnodes", "rdzv_endpoint", "rdzv_id"}


def test_a_run_from_other_weights_is_another_experiment(folder, caplog):
    tuned, parent = Path("runs/tuned"), Path("runs/toy")

    def tune(**options):
        do(run_dir=tuned, max_steps=1, until="train", **options)

    tune(init_from=parent)
    manifest = json.loads((tuned / "checkpoints/step-00000001/manifest.json").read_text())
    assert manifest["initialized_from"]["path"] == "runs/toy/average"
    caplog.clear()
    tune(init_from=parent / "average")
    assert skipped(caplog) == ["preprocess", "train"]
    with pytest.raises(UserError, match="of runs/toy/average, but no --init-from is given; give"):
        tune()
    other = parent / "checkpoints/step-00000003"
    with pytest.raises(UserError, match=f"but --init-from is {other}, which has other weights;"):
        tune(init_from=other)
    with pytest.raises(
        UserError, match=r"toy began from random weights, .*; leave --init-from out"
    ):
        do(init_from=other)
    shutil.rmtree(parent)
    tune(init_from=parent)
    tune(init_from=parent.absolute())
    message = r"^the training in .* but --init-from is absent, which does not exist; .*-dir\.$"
    with pytest.raises(UserError, match=message):
        tune(init_from=Path("absent"))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("absent", {"run_dir": Path("runs/new")}, "^model absent not found"),
        ("runs/toy", {"force_from": "train"}, "--init-from runs/toy is a part of runs/toy, which"),
    ],
)
def test_a_run_that_cannot_begin_from_the_model_changes_nothing(folder, model, options, message):
    shutil.rmtree(folder / "prepared")
    with pytest.raises(UserError, match=message):
        do(init_from=Path(model), **options)
    assert not (folder / "prepared").exists()
    assert (folder / "runs/toy/average").exists()


def test_changed_text_is_refused_by_the_run_until_it_is_forced(folder, caplog):
    write_pairs(folder, "train", 160, seed=5)
    with pytest.raises(UserError, match=r"^train failed: .* --force-from train makes it anew\.$"):
        do()
    assert "preprocess: unchanged, skipped." not in caplog.messages
    do(force_from="train")
    starts = (folder / "runs/toy/sessions.jsonl").read_text().splitlines()
    assert len(starts) == 1


def test_text_that_another_recipe_prepared_anew_needs_no_training(folder, caplog):
    seeded = ["training.max_steps=6", "training.seed=9"]
    preprocess.run(recipe="toy.yaml", overrides=seeded, output=Path("prepared/toy"), force=True)
    assert "seed: 9" in Path("prepared/toy/recipe.yaml").read_text()
    do()
    assert "train" in skipped(caplog)


@pytest.mark.parametrize("stage", ["preprocess", "average", "score"])
def test_forced_stages_and_those_behind_them_are_made_again(folder, caplog, stage):
    do(force_from=stage)
    assert skipped(caplog) == list(STAGES_OF_RUN[: STAGES_OF_RUN.index(stage)])


def test_until_ends_behind_a_stage(folder, caplog, capfdbinary):
    shutil.rmtree(folder / "runs")
    do(until="average")
    assert (folder / "runs/toy/average").is_dir()
    assert not (folder / "runs/toy/test").exists()
    assert capfdbinary.readouterr().out == b""
    assert skipped(caplog) == ["preprocess"]


def test_an_interrupted_training_goes_on(folder, monkeypatch, caplog):
    shutil.rmtree(folder / "runs")

    def interrupted(state, *arguments):
        if state.progress.step == 4:
            signal.raise_signal(signal.SIGINT)
        return update_weights(state, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr("nmt_cli.training.trainer.update_weights", interrupted)
        with pytest.raises(InterruptedTrainingError):
            do()
    assert not (folder / "runs/toy/average").exists()
    do()
    starts = (folder / "runs/toy/sessions.jsonl").read_text().splitlines()
    assert [json.loads(start)["from_step"] for start in starts] == [0, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "test.de").unlink(), r"test\.de"),
        (lambda folder: (folder / "test.de").write_text("ant\n"), r"test\.en has 7 lines"),
        (lambda folder: [(folder / f"test.{side}").write_text("") for side in ("en", "de")],
         r"test\.en is empty"),
    ],
)  # fmt: skip
def test_a_bad_test_text_is_refused_before_training(folder, change, message):
    shutil.rmtree(folder / "runs")
    change(folder)
    with pytest.raises(UserError, match=message):
        do()
    assert not (folder / "runs").exists()


def test_a_folder_of_the_user_with_the_name_of_a_result_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_experiment(tmp_path)
    notes = tmp_path / "mine/test/notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    with pytest.raises(UserError, match="mine/test exists, and `nmt-cli run` did not write it"):
        do(run_dir=Path("mine"))
    assert notes.read_text() == "mine"
    assert not (tmp_path / "prepared").exists()


def test_an_imported_model_in_the_place_of_the_average_is_not_replaced(folder):
    average = folder / "runs/toy/average"
    manifest = json.loads((average / MANIFEST).read_text())
    imported = json.dumps({**manifest, IMPORTED: {"from": "fairseq"}})
    (average / MANIFEST).write_text(imported)
    with pytest.raises(UserError, match=r"average exists, and `nmt-cli run` did not write it"):
        do(force_from="train")
    assert (average / MANIFEST).read_text() == imported


def test_the_scores_are_written_where_they_are_the_last_stage(folder, capfdbinary):
    do()
    line = capfdbinary.readouterr().out
    do(until="score")
    assert capfdbinary.readouterr().out == line
    do(until="translate")
    assert capfdbinary.readouterr().out == b""


def test_force_from_is_proposed_only_where_the_same_command_would_be_refused(tmp_path, monkeypatch):
    write_experiment(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.en").unlink()
    with pytest.raises(UserError, match=r"^preprocess failed: .* goes on with preprocess\.$"):
        do()


def test_without_a_test_text_nothing_is_translated(folder, caplog, capfdbinary):
    do(overrides=["data.test=null"])
    assert "Warning: translate is left out: the recipe has no data.test." in caplog.messages
    assert capfdbinary.readouterr().out == b"toy: runs/toy/average\n"


def test_a_run_without_its_figures_has_no_report_that_is_up_to_date(folder):
    (folder / "runs/toy/metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"^report failed: .*holds no metrics\.jsonl"):
        do(overrides=["data.test=null"])


def test_a_report_is_made_again_if_what_it_shows_has_changed(folder, caplog):
    """Times of files do not matter, nor which command drew it."""
    metrics = folder / "runs/toy/metrics.jsonl"
    metrics.touch()
    do()
    assert skipped(caplog) == list(STAGES_OF_RUN)
    times = metrics.stat().st_atime_ns, metrics.stat().st_mtime_ns - 10**12
    record = json.loads(metrics.read_text().splitlines()[0])
    with metrics.open("a") as stream:
        stream.write(json.dumps({**record, "loss": 1.0}) + "\n")
    os.utime(metrics, ns=times)
    caplog.clear()
    do()
    assert "report" not in skipped(caplog)
    metrics.write_text(metrics.read_text().replace("1.0", "2.0"))
    report.run([folder / "runs/toy"], force=True)
    caplog.clear()
    do()
    assert skipped(caplog) == list(STAGES_OF_RUN)


@pytest.mark.parametrize(("stage", "name"), [("translate", "test"), ("score", "scores")])
def test_a_stage_cleans_up_and_makes_its_folder_alone(folder, stage, name):
    run = folder / "runs/toy"
    leftover = temporary_path(run / name, "partial")
    leftover.mkdir()
    with claimed(run / name, ""), pytest.raises(UserError, match=f"{name} is in use: process"):
        do(force_from=stage)
    leftover.mkdir(exist_ok=True)
    do(force_from=stage)
    assert not leftover.exists()


def test_a_missing_matplotlib_leaves_out_the_report(folder, monkeypatch, caplog):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    shutil.rmtree(folder / "runs/toy/report")
    do()
    assert any(
        "report is left out: report draws with matplotlib" in message for message in caplog.messages
    )
    assert not (folder / "runs/toy/report").exists()


PLAIN = ["tokenizer={type: sentencepiece, vocabulary_size: 290}"]


def test_the_papers_bleu_is_of_plain_text(folder, capfdbinary):
    do(overrides=PLAIN, run_dir=Path("runs/plain"), prepared=Path("prepared/plain"), until="score")
    references = (folder / "test.de").read_text().split("\n")[:-1]
    hypotheses = (folder / "runs/plain/test/test.de").read_text().split("\n")[:-1]
    paper = paper_bleu_scorer(*PAPER_PAIRS["en-de"]).score(hypotheses, [references])
    line = capfdbinary.readouterr().out.decode()
    assert f", paper's BLEU {paper.score:.2f} ({paper.signature}), 7 lines\n" in line


IN_PIECES = ["un@@ der lo@@ w@@ er moons", "a wi@@ der fa@@ ll of ra@@ in"]


CHINESE = ["天天下雨的地方真多", "他每天都去看月亮"]
JOINER = ['tokenizer={type: whitespace, joiner: "@@"}']


@pytest.mark.parametrize(
    ("lines", "overrides", "tokenizer"),
    [
        (IN_PIECES, JOINER, "none"),
        (IN_PIECES, [*JOINER, "validation.tokenize=13a"], "13a"),
        (CHINESE, PLAIN, "zh"),
        (CHINESE, [*PLAIN, "validation.tokenize=char"], "char"),
    ],
)
def test_a_perfect_translation_of_the_test_text_scores_100(
    folder, monkeypatch, caplog, lines, overrides, tokenizer
):
    """Its lines are joined like the references, and the tokenizer fits both."""
    joined = [line.replace("@@ ", "") for line in lines]
    for side in ("en", "de"):
        (folder / f"test.{side}").write_text("".join(f"{line}\n" for line in lines))

    def translate(*_, output_path, **__):
        output_path.write_text("".join(f"{line}\n" for line in joined))

    monkeypatch.setattr("nmt_cli.commands.translate.run", translate)
    options = {"run_dir": Path("runs/perfect"), "prepared": Path("prepared/perfect")}
    do(overrides=overrides, until="score", **options)
    scores = json.loads((folder / "runs/perfect/scores/scores.json").read_text())
    assert scores["bleu"]["score"] == pytest.approx(100.0)
    assert f"|tok:{tokenizer}|" in scores["bleu"]["signature"]
    caplog.clear()
    do(overrides=[*overrides, "validation.tokenize=intl"], until="score", **options)
    assert skipped(caplog) == list(STAGES_OF_RUN[:4])  # only the scores are made again


def test_packages_of_a_tokenizer_are_asked_for_before_training(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", None)
    with pytest.raises(UserError, match=r"^BLEU with the tokenizer ja-mecab needs packages .*ja"):
        do(overrides=["validation.tokenize=ja-mecab"], run_dir=Path("runs/new"))
    assert not (folder / "runs/new").exists()


@pytest.mark.parametrize("stage", ["preprocess", "train"])
def test_a_forced_training_leaves_what_is_not_of_the_run(folder, stage):
    """Such as notes, and a run of another seed, which compare has put there."""
    run = folder / "runs/toy"
    shutil.copytree(run, folder / "runs/other")
    (folder / "runs/other").rename(run / "seed-2")
    (run / "notes.txt").write_text("mine")
    others = {path: path.read_bytes() for path in (run / "seed-2").rglob("*") if path.is_file()}
    do(force_from=stage, max_steps=3)
    assert (run / "notes.txt").read_text() == "mine"
    assert all(path.read_bytes() == content for path, content in others.items())
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000003"]
    starts = (run / "sessions.jsonl").read_text().splitlines()
    assert [json.loads(start)["from_step"] for start in starts] == [0]
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 3


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("prepared/toy/validation.source.txt", "preprocess"),
        ("runs/toy/checkpoints/step-00000006/model.safetensors", "train"),
        ("runs/toy/average/model.safetensors", "average"),
        ("runs/toy/test/test.de", "translate"),
        ("runs/toy/scores/scores.json", "score"),
        ("runs/toy/report/index.html", "report"),
    ],
)
@pytest.mark.parametrize("damage", [Path.unlink, cut_short])
def test_a_stage_whose_file_was_deleted_or_cut_short_is_made_again(
    folder, caplog, name, made, damage
):
    before = (folder / name).read_bytes()
    damage(folder / name)
    do()
    assert made not in skipped(caplog)
    assert skipped(caplog)[: STAGES_OF_RUN.index(made)] == list(
        STAGES_OF_RUN[: STAGES_OF_RUN.index(made)]
    )
    assert (folder / name).read_bytes() == before
    caplog.clear()
    do()
    assert skipped(caplog) == list(STAGES_OF_RUN)


def test_an_average_with_a_wrong_byte_is_made_again(folder):
    weights = folder / "runs/toy/average/model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    do()
    assert weights.read_bytes() == before


@pytest.mark.parametrize("name", ["average", "test", "scores", "report"])
def test_an_emptied_folder_of_a_stage_is_filled_again(folder, name):
    made = folder / "runs/toy" / name
    names = {path.name for path in made.iterdir()}
    shutil.rmtree(made)
    made.mkdir()
    do()
    assert {path.name for path in made.iterdir()} == names


def test_a_run_that_cannot_go_on_is_refused_before_its_text_is_prepared_anew(folder):
    prepared = (folder / "prepared/toy/manifest.json").read_bytes()
    changed = ["data.max_length=29", "model.d_ff=17"]
    with pytest.raises(UserError) as caught:
        do(overrides=changed)
    message = str(caught.value)
    assert message.startswith("runs/toy was trained with another recipe: ")
    assert "model.d_ff (was " in message
    assert message.endswith("Choose another --run-dir, or give --force-from train to train anew.")
    assert (folder / "prepared/toy/manifest.json").read_bytes() == prepared
