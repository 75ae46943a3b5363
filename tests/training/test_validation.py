"""Validation BLEU of a model that repeats its input: perfect where the target is the source.

Of several validation sets, each is measured as if it were the only one, and one decides.
"""

import json
import shlex
import sys
from statistics import mean

import pytest
import torch

from nmt_cli.commands import preprocess
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.hardware.machine import Machine
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.model.compiled import c_library
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import best_checkpoint, list_checkpoints
from nmt_cli.search import engine as search_engine
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.validation import Validator
from tests.conftest import RECIPE, ToyExperiment, write_pairs
from tests.fake_models import CopyModel
from tests.forked_ranks import run_ranks
from tests.trainers import StopAfter, changed, new_trainer, weights_of

MACHINE = Machine(torch.device("cpu"), "fp32")
IN_PIECES = ["the lo@@ w@@ est house falls", "a  wid@@ er mo@@ on shines", "it ra@@ ins to@@ day"]
RAW = ["the lowest house falls", "a wider moon shines", "it rains today"]
CHINESE = ["天天下雨的地方真多", "他每天都去看月亮", "月亮不在这里"]
RAW_TEXT = "tokenizer={type: sentencepiece, vocabulary_size: 285}"


@pytest.mark.parametrize(
    ("lines", "tokenizer", "tokenize"),
    [
        (IN_PIECES, 'tokenizer={type: whitespace, joiner: "@@"}', "none"),
        (IN_PIECES, "tokenizer={type: whitespace}", "none"),
        (RAW, RAW_TEXT, "13a"),
        (CHINESE, RAW_TEXT.replace("285", "292"), "zh"),
    ],
)
def test_a_perfect_translation_scores_100(tmp_path, monkeypatch, lines, tokenizer, tokenize):
    for name in ("train", "validation"):
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    path, prepared = tmp_path / "toy.yaml", tmp_path / "prepared"
    path.write_text(RECIPE.format(folder=tmp_path))
    preprocess.run(recipe=str(path), overrides=[tokenizer], output=prepared, workers=1)
    recipe = read_recipe(str(path), [tokenizer]).recipe
    corpus = open_prepared(prepared, recipe, "toy")
    size = corpus.tokenizer.size
    monkeypatch.setattr(search_engine, "step_model", lambda *_: CopyModel(size))
    model = Transformer(recipe.model, size)
    engine = GradientEngine.of(model, start_id(model.config, corpus.tokenizer), 0.1, 1, MACHINE)
    validation = Validator(recipe, corpus, engine).validate(200, StopRequest())
    assert validation is not None
    assert validation.bleu == pytest.approx(100.0)
    assert f"|tok:{tokenize}|" in validation.as_record()["bleu_signature"]


def test_a_library_of_other_sources_is_refused_before_the_first_step(toy, monkeypatch):
    def refuse():
        raise UserError("library.so was built from other sources")

    monkeypatch.setattr(c_library, "load_library", refuse)
    engine = GradientEngine.of(Transformer(toy.recipe.model, 16), 1, 0.1, 1, MACHINE)
    with pytest.raises(UserError, match="built from other sources"):
        Validator(toy.recipe, toy.corpus, engine)
    silent = toy.recipe.model_copy(
        update={"validation": toy.recipe.validation.model_copy(update={"bleu": "off"})}
    )
    Validator(silent, toy.corpus, engine)  # which translates nothing


SIZES = {"news": 11, "talks": 7, "web": 1}
BEST = {"every_steps": 1, "best_by": "bleu"}


def prepared(folder, name, *overrides):
    path, output = folder / "toy.yaml", folder / name
    preprocess.run(recipe=str(path), overrides=overrides, output=output, workers=1)
    recipe = read_recipe(str(path), overrides).recipe
    return ToyExperiment(path, recipe, output, open_prepared(output, recipe, ""))


def files_of(folder, name):
    return f"source: {folder}/{name}.en, target: {folder}/{name}.de"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    logs.configure(quiet=True)
    folder = tmp_path_factory.mktemp("sets")
    for seed, (name, count) in enumerate({"train": 150, **SIZES}.items()):
        write_pairs(folder, name, count, seed)
    (folder / "toy.yaml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="module")
def alone(folder):
    """The same experiment with each set as the only one, which has no name."""
    return {
        name: prepared(folder, f"only-{name}", f"data.validation={{{files_of(folder, name)}}}")
        for name in SIZES
    }


@pytest.fixture(scope="module")
def together(folder):
    sets = ", ".join(f"{{name: {name}, {files_of(folder, name)}}}" for name in SIZES)
    return prepared(folder, "together", f"data.validation=[{sets}]")


def measured(experiment, run_dir, ranks=None):
    options = {} if ranks is None else {"ranks": ranks}
    trainer = new_trainer(experiment, run_dir, **options)
    training = trainer.training
    found = Validator(experiment.recipe, experiment.corpus, training.engine).validate(
        60, StopRequest()
    )
    assert found is not None
    return found


def test_each_set_is_prepared_as_if_it_were_the_only_one(alone, together):
    names = {path.name for path in together.prepared.iterdir()}
    for name, only in alone.items():
        for path in only.prepared.glob("validation.*"):
            of_set = path.name.replace("validation", f"validation.{name}")
            assert (together.prepared / of_set).read_bytes() == path.read_bytes()
            names.remove(of_set)
    assert names == {path.name for path in only.prepared.iterdir() if "valid" not in path.name}
    listed = {entry.pop("name"): entry for entry in together.corpus.manifest["validation"]}
    assert listed == {name: only.corpus.manifest["validation"] for name, only in alone.items()}


@pytest.fixture
def copying(together, monkeypatch):
    """A model that repeats its input, whose BLEU is above 0."""
    size = together.corpus.tokenizer.size
    monkeypatch.setattr(search_engine, "step_model", lambda *_: CopyModel(size))


@pytest.mark.usefixtures("copying")
def test_each_set_is_measured_as_if_it_were_the_only_one(alone, together, tmp_path):
    found = measured(together, tmp_path / "together")
    assert [each.name for each in found.sets] == list(SIZES)
    for each in found.sets:
        only = measured(alone[each.name], tmp_path / each.name)
        assert each == only._replace(name=each.name)
        figures = only.as_record()
        del figures["quality"]
        assert found.as_record()["sets"][each.name] == figures
    assert len({each.loss for each in found.sets}) == len(SIZES)
    assert len({each.bleu for each in found.sets} - {0}) == len(SIZES)


@pytest.mark.parametrize("best_on", [None, *SIZES])
def test_one_set_decides(together, tmp_path, best_on):
    validation = {"best_on": best_on, "best_by": "loss"}
    recipe = changed(together.recipe, validation=validation)
    found = measured(together._replace(recipe=recipe), tmp_path / "run")
    (decides,) = [each for each in found.sets if each.name == (best_on or "news")]
    assert found == decides._replace(sets=found.sets)
    assert found.quality == -decides.loss
    assert {**found.as_record(), "sets": None} == {**decides.as_record(), "sets": None}


@pytest.mark.usefixtures("copying")
@pytest.mark.parametrize("best_by", ["loss", "bleu"])
def test_the_mean_decides(together, tmp_path, best_by):
    recipe = changed(together.recipe, validation={"best_on_mean": True, "best_by": best_by})
    found = measured(together._replace(recipe=recipe), tmp_path / "run")
    one = measured(together, tmp_path / "one")
    figures = ("loss", "nll", "bleu")
    assert [[getattr(each, name) for name in figures] for each in found.sets] == [
        [getattr(each, name) for name in figures] for each in one.sets
    ]
    record = found.as_record()
    for name in figures:
        assert record[name] == pytest.approx(mean(getattr(each, name) for each in found.sets))
    assert record["quality"] == pytest.approx(
        -record["loss"] if best_by == "loss" else record["bleu"], abs=0.01
    )
    assert list(record["sets"]) == list(SIZES)


def test_best_and_patience_follow_the_mean(together, tmp_path, caplog):
    scores = {1: (20.0, 10.0, 5.0), 2: (31.0, 5.0, 5.0), 3: (8.0, 30.0, 5.0), 4: (32.0, 1.0, 1.0)}
    validation = {**BEST, "best_on_mean": True, "patience": 1}
    logs.configure(quiet=False)
    assert train(together, tmp_path / "run", validation, scores) == (4, 3)
    lines = [line for line in caplog.messages if line.startswith("step 3, ")]
    assert [line.split(": ")[0] for line in lines] == [
        *(f"step 3, {name}" for name in SIZES),
        "step 3, mean of all sets",
    ]
    assert [line.endswith("BLEU 14.33 (best)") for line in lines] == [False, False, False, True]


@pytest.mark.usefixtures("copying")
@pytest.mark.parametrize("best_on", [None, "talks"])
def test_each_set_is_judged_and_the_number_of_one_decides(together, tmp_path, best_on):
    recipe = changed(together.recipe, validation={"best_on": best_on})
    lines = (
        "import sys; print(*(open(name).read().count('\\n') for name in sys.argv[1:]), sep='\\n')"
    )
    script = shlex.join([sys.executable, "-S", "-c", lines, "{source}", "{reference}", "{output}"])
    training = new_trainer(together._replace(recipe=recipe), tmp_path / "run").training
    validator = Validator(recipe, together.corpus, training.engine, script)
    found = validator.validate(60, StopRequest())
    assert found is not None
    assert {each.name: each.script for each in found.sets} == SIZES
    assert found.quality == found.as_record()["script"] == SIZES[best_on or "news"]
    assert {name: each["script"] for name, each in found.as_record()["sets"].items()} == SIZES


@pytest.mark.usefixtures("copying")
def test_ranks_measure_what_one_rank_measures(together, tmp_path):
    """The set of one line leaves a rank without any."""
    whole = measured(together, tmp_path / "one")
    on_ranks = run_ranks(2, tmp_path, lambda ranks: measured(together, tmp_path / "two", ranks))
    for found in on_ranks:
        assert found == on_ranks[0]
        assert [each.bleu for each in found.sets] == [each.bleu for each in whole.sets]
        losses = [each.loss for each in found.sets]
        assert losses == pytest.approx([each.loss for each in whole.sets], rel=1e-6)


def train(together, run_dir, validation, scores, *, resume=False):
    """Train with a validation every step, whose BLEU of each set is ``scores`` of that step.

    Return the last step and the best one.
    """
    recipe = changed(together.recipe, validation=validation, training={"max_steps": max(scores)})
    trainer = new_trainer(together, run_dir, recipe, resume=resume)

    def score(_, measured, translations):
        assert translations == ["translated"]
        bleus = dict(zip(SIZES, scores[trainer.state.progress.step], strict=True))
        return bleus[measured.name], None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validator, "_translate", lambda *_: [["translated"] for _ in SIZES])
        patch.setattr(Validator, "_score", score)
        trainer.train(StopRequest())
    best = best_checkpoint(list_checkpoints(run_dir))
    assert best is not None
    return trainer.state.progress.step, best.step


@pytest.mark.parametrize(("best_on", "best"), [("news", 2), ("talks", 3), (None, 2)])
def test_best_and_patience_follow_the_set_that_decides(together, tmp_path, best_on, best):
    scores = {1: (20.0, 10.0, 5.0), 2: (30.0, 5.0, 6.0), 3: (25.0, 11.0, 7.0), 4: (24.0, 3.0, 8.0)}
    scores.update({step: (1.0, 2.0, 9.0 + step) for step in range(5, 8)})
    validation = {**BEST, "best_on": best_on, "patience": 2}
    assert train(together, tmp_path / "run", validation, scores) == (best + 2, best)


def test_another_set_may_decide_from_a_resume_on(together, tmp_path):
    scores = {1: (20.0, 50.0, 5.0), 2: (10.0, 60.0, 6.0)}
    assert train(together, tmp_path / "run", {**BEST, "best_on": "talks"}, scores) == (2, 2)
    scores.update({3: (15.0, 40.0, 5.0), 4: (12.0, 70.0, 5.0)})
    news = {**BEST, "best_on": "news"}
    assert train(together, tmp_path / "run", news, scores, resume=True) == (4, 3)


def records(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    timed = [json.loads(line) for line in lines]
    return [{key: r[key] for key in r if "seconds" not in key} for r in timed]


def test_a_resumed_run_equals_an_uninterrupted_one(together, tmp_path):
    recipe = changed(together.recipe, validation={"every_steps": 3})
    whole = new_trainer(together, tmp_path / "whole", recipe)
    whole.train(StopRequest())
    for resume, step in ((False, 3), (True, 7)):  # a validation is due at 3: it is measured later
        interrupted = new_trainer(together, tmp_path / "parts", recipe, resume=resume)
        with pytest.raises(InterruptedTrainingError):
            interrupted.train(StopAfter(interrupted, step))
    resumed = new_trainer(together, tmp_path / "parts", recipe, resume=True)
    resumed.train(StopRequest())
    assert torch.equal(weights_of(resumed), weights_of(whole))
    assert records(tmp_path / "parts") == records(tmp_path / "whole")
    measured_at = [r["step"] for r in records(tmp_path / "parts") if "validation" in r]
    assert measured_at == [3, 6, 9, 12]
    last = list_checkpoints(tmp_path / "parts")[-1].manifest["validation"]
    assert set(last["sets"]) == set(SIZES)


def test_each_set_has_a_line_in_the_log(together, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logs, "info", said.append)
    training = {"max_steps": 3, "warmup_steps": 50}  # it does not count as diverged
    recipe = changed(together.recipe, validation={"best_on": "talks"}, training=training)
    trainer = new_trainer(together, tmp_path / "run", recipe)
    trainer.train(StopRequest())
    figures = records(tmp_path / "run")[-1]["validation"]["sets"]
    (signature,) = {of_set["bleu_signature"] for of_set in figures.values()}
    assert "|tok:none|" in signature
    lines = [line for line in said if "validation" in line]
    assert lines == [f"The validation BLEU is sacreBLEU's {signature}."] + [
        f"step 3, {name}: validation loss {of_set['loss']:.4f}, perplexity "
        f"{of_set['perplexity']:.3f}, BLEU {of_set['bleu']:.2f}"
        f"{' (best)' if name == 'talks' else ''}"
        for name, of_set in figures.items()
    ]
