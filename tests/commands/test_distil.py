"""A student by one command: what its teacher translates, what is chosen, made, skipped, resumed."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from nmt_cli.commands import distil as command
from nmt_cli.commands import preprocess
from nmt_cli.commands import run as run_command
from nmt_cli.commands.distilling import measuring, teaching
from nmt_cli.commands.distilling.distillation import Distillation
from nmt_cli.commands.experiments.pipeline import STAGES_OF_DISTIL
from nmt_cli.commands.experiments.run_stages import why_diverged
from nmt_cli.commands.lines.resumable_output import ResumableOutput
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.file_names import MANIFEST
from nmt_cli.files.formats import INT8
from nmt_cli.launch.python_process import python_command
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.optimization import learning_rate
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.report import drawing
from nmt_cli.report.run_history import read_runs
from nmt_cli.saved.model_directory import find_model
from nmt_cli.search.sentences import Sampling
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.rescorer import Rescorer
from nmt_cli.translating.translator import Translator
from tests.commands.conftest import FP32, undrawn
from tests.commands.test_run import write_experiment
from tests.folders_in_memory import tmp_path as tmp_path
from tests.imported_modules import ended

TEACHER = Path("runs/toy")
RUN = Path("runs/student")
STUDENT = """\
extends: toy.yaml
model: {num_layers: 1, d_model: 10, d_ff: 16, num_heads: 1, decoder: ssru}
training: {max_steps: 6, warmup_steps: 10}
distillation: {n_best: 4, targets: 2, original_weight: 0.5, guided_alignment: 0.1, int8_steps: 4}
decoding: {beam_size: 1}
"""
SHORT = ["training.max_steps=6", "validation.bleu=off"]


def do(*overrides, until="ship", teachers=(TEACHER,), **options):
    options = {**FP32, "threads": 1, "arguments": ["distil"], **options}
    command.run(teachers, "student.yaml", until=until, overrides=[*SHORT, *overrides], **options)


def quickly(patch):
    patch.setattr(measuring, "ROUNDS", 1)
    patch.setattr(measuring, "MOST_CORES", 1)
    patch.setattr(drawing, "_drawing", undrawn)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a teacher and its student; tests copy it."""
    folder = tmp_path_factory.mktemp("distil")
    write_experiment(folder)
    (folder / "student.yaml").write_text(STUDENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        quickly(patch)
        options: dict[str, Any] = {**FP32, "overrides": SHORT, "threads": 1}
        run_command.run("toy.yaml", until="average", **options)
        do(until="report")
    return folder


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    """The working directory, with the finished student in it."""
    shutil.copytree(finished, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    quickly(monkeypatch)
    logs.configure(quiet=False)
    return tmp_path / "work"


@pytest.fixture
def caplog(caplog, monkeypatch):
    monkeypatch.setattr("nmt_cli.messages.logs._logger.propagate", True)
    caplog.set_level("INFO", logger="nmt_cli")
    return caplog


def skipped(caplog):
    return [name for name in STAGES_OF_DISTIL if f"{name}: unchanged, skipped." in caplog.messages]


def lines(*parts):
    return RUN.joinpath("distillation", *parts).read_text(encoding="utf-8").splitlines()


def test_the_stages_have_the_names_of_the_help(folder):
    each = Distillation((TEACHER,), None, read_recipe("./student.yaml"), TrainOptions())
    assert tuple(stage.name for stage in command.stages_of_distil(each)) == STAGES_OF_DISTIL


def test_a_student_that_ships_and_a_table_are_made(folder, capfdbinary, caplog):
    do(until="report", output_format="json")
    facts = json.loads(capfdbinary.readouterr().out)
    rows = {(row["system"], row["precision"], row["shortlist"]): row for row in facts["rows"]}
    assert list(rows) == [
        *((system, p, False) for system in ("teacher", "student") for p in ("fp32", "int8")),
        *(("student", p, True) for p in ("fp32", "int8")),
    ]
    assert [row["beam_size"] for row in rows.values()] == [2, 2, 1, 1, 1, 1]
    assert all(row["lines_per_second"] > 0 < row["ms_of_one_line"] for row in rows.values())
    shipped = RUN / "student"
    on_disk = sum(path.stat().st_size for path in shipped.iterdir())
    assert rows["student", "int8", True]["megabytes"] == round(on_disk / 1e6, 2)
    assert read_manifest(shipped)["format_version"] >= INT8
    sources, references = (Path(f"test.{code}").read_text().splitlines() for code in ("en", "de"))
    assert find_model(shipped).uses_shortlist
    for shortlist in (False, True):
        options: dict[str, Any] = {"precision": "int8", "shortlist": shortlist}
        translator = Translator.load(shipped, device="cpu", **options)
        texts = [each.text for each in translator.translate(sources)]
        chrf = CHRF().corpus_score(texts, [references]).score
        assert rows["student", "int8", shortlist]["sets"]["test"]["chrf"]["score"] == chrf
    assert "The student is runs/student/student." in caplog.messages
    assert skipped(caplog) == [name for name in STAGES_OF_DISTIL if name != "filter"]
    assert "filter is left out: no --reverse-model is given." in caplog.messages  # no warning
    do(until="report")
    assert (
        capfdbinary.readouterr()
        .out.decode()
        .splitlines()[6]
        .startswith("student       int8        yes")
    )


def test_the_report_shows_the_table(folder, caplog):
    page = (RUN / "report/index.html").read_text(encoding="utf-8")
    for row in lines("table", "table.txt")[1:7]:
        assert all(re.search(rf"<t[dh][^>]*>{re.escape(cell)}</t", page) for cell in row.split())
    figures = RUN / "distillation/table/figures.json"
    damaged = json.loads(figures.read_text())
    del damaged["rows"][0]["beam_size"]
    figures.write_text(json.dumps(damaged))
    assert read_runs([RUN])[0].student_table is None
    assert any("figures.json is not shown" in text for text in caplog.messages)


def test_each_line_is_translated_once_and_the_most_like_the_reference_are_chosen(folder):
    pairs = list(
        zip(*(Path(f"train.{code}").read_text().splitlines() for code in ("en", "de")), strict=True)
    )
    different: dict[str, str] = {}
    for source, target in pairs:
        different.setdefault(source, target)
    assert len(different) < len(pairs)
    assert lines("texts", "train.0.source") == list(different)
    assert lines("texts", "train.0.target") == list(different.values())
    translator = Translator.load(TEACHER, device="cpu", n_best=4, beam_size=4, precision="fp32")
    wanted = []
    for translation, (source, target) in zip(
        translator.translate(different), different.items(), strict=True
    ):
        texts = dict.fromkeys(each.text for each in translation.ranked if each.text)
        chrf = {text: CHRF().sentence_score(text, [target]).score for text in texts}
        best = sorted(chrf, key=lambda text: -chrf[text])[:2]
        wanted += [(source, text) for text in best]
    chosen = [lines("chosen", f"train.0.{side}") for side in ("source", "target")]
    assert list(zip(*chosen, strict=True)) == wanted


def test_by_score_the_best_translation_is_chosen(folder):
    do("distillation.choose=score", "distillation.targets=1", until="choose")
    sources = lines("texts", "train.0.source")
    translator = Translator.load(TEACHER, device="cpu", n_best=4, beam_size=4, precision="fp32")
    ranked = [[each.text for each in found.ranked] for found in translator.translate(sources)]
    best = [next(filter(None, texts)) for texts in ranked]  # an empty line teaches nothing
    assert lines("chosen", "train.0.target") == best


def test_of_samples_the_one_that_agrees_most_is_chosen(folder):
    do("distillation.choose=mbr", "distillation.targets=1", until="choose")
    sampling = Sampling(seed=read_recipe("student.yaml").recipe.training.seed)
    options: dict[str, Any] = {"n_best": 4, "sampling": sampling, "choose": "mbr"}
    translator = Translator.load(TEACHER, device="cpu", precision="fp32", **options)
    sources = lines("texts", "train.0.source")
    requests = [Request(source, line=number) for number, source in enumerate(sources, 1)]
    expected = [
        next(each.text for each in found.ranked if each.text)
        for found in translator.translate(requests)
        if any(each.text for each in found.ranked)
    ]
    assert lines("chosen", "train.0.target") == expected


def test_the_student_reads_pairs_with_links_and_the_originals(folder):
    recipe = read_recipe("runs/student/distillation/student.yaml").recipe
    taught, original = recipe.data.train
    assert (taught.weight, original.weight) == (1, 0.5)
    assert original.source == Path("train.en")
    assert recipe.tokenizer.model == TEACHER / "average"
    names = ("chosen/train.0.source", "chosen/train.0.target", "links/train.0")
    sizes = {len(lines(name)) for name in names}
    assert len(sizes) == 1
    manifest = read_manifest(RUN / "distillation/prepared")
    assert manifest["corpus_sizes"] == [*sizes, 150]


def test_the_recipe_of_the_student_extends_the_users(folder):
    """The user's is there as it was given, with --set."""
    given = read_recipe("runs/student/distillation/student-given.yaml").recipe
    assert given == read_recipe("./student.yaml", SHORT).recipe
    text = Path("runs/student/distillation/student.yaml").read_text()
    assert text.startswith("extends: student-given.yaml\n")
    assert "max_steps" not in text


@pytest.mark.parametrize(
    ("override", "made"),
    [
        ("decoding.length_penalty=0.7", ["ship", "measure"]),
        ("distillation.targets=1", ["choose", "align", "preprocess"]),
        ("distillation.n_best=3", ["teach", "choose", "align", "preprocess"]),
    ],
)
def test_what_has_not_changed_is_skipped(folder, caplog, override, made):
    until = "preprocess" if "distillation" in override else "measure"
    do(override, until=until)
    names = STAGES_OF_DISTIL[: STAGES_OF_DISTIL.index(until) + 1]
    left = [name for name in names if name not in {*made, "filter"}]
    assert skipped(caplog)[: len(left)] == left


def test_another_teacher_translates_anew(folder, caplog):
    """Also an ensemble is another teacher."""
    do(teachers=[TEACHER, TEACHER / "checkpoints/step-00000003"], until="teach")
    assert skipped(caplog) == ["texts"]


def test_students_of_one_teacher_share_what_it_translates(folder, caplog):
    shared = Path("shared")
    do(until="choose", taught=shared)
    expected = lines("chosen", "train.0.target")
    caplog.clear()
    do("model.d_ff=20", taught=shared, run_dir=Path("runs/other"), until="choose")
    assert skipped(caplog) == ["texts", "teach"]
    other = Path("runs/other/distillation/chosen/train.0.target").read_text().splitlines()
    assert other == expected
    assert sorted(path.name for path in shared.iterdir()) == ["teacher", "texts"]


def test_the_least_likely_sources_are_left_out(folder):
    """The teacher itself serves as the model of the other direction."""
    do("distillation.keep_share=0.7", reverse_model=TEACHER, until="preprocess")
    chosen, filtered = (
        list(zip(*(lines(name, f"train.0.{side}") for side in ("source", "target")), strict=True))
        for name in ("chosen", "filtered")
    )
    rescorer = Rescorer.load(TEACHER, device="cpu", length_penalty=1.0, precision="fp32")
    scores = [each.score or 0.0 for each in rescorer.rescore((t, s) for s, t in chosen)]
    least = sorted(scores)[-round(0.7 * len(scores))]
    expected = [pair for pair, score in zip(chosen, scores, strict=True) if score >= least]
    assert filtered == expected
    assert len(filtered) < len(chosen)
    assert len(lines("links", "train.0")) == len(filtered)


TEXTS = [
    "data.train=[{source: train.en, target: train.de, name: a}, "
    "{source: validation.en, target: validation.de, name: b}]",
    "distillation.monolingual=[{source: test.en, weight: 3}]",
]
STAGES = "data.stages=[{%s, until: {steps: 2}}, {%s}]"


def recipes_of(folder, *overrides):
    """Return the recipes that a distillation writes: of its training, and of that in int8."""
    (folder / "student.yaml").write_text(STUDENT)
    write_experiment(folder)
    file = read_recipe("./student.yaml", ["distillation.tokenizer=own", *TEXTS, *overrides])
    each = Distillation((TEACHER,), None, file, TrainOptions())
    return each.student.recipe, each.int8_run.recipe


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("weights: {a: 2, b: 1}", "weights: {a: 1}", [[2, 1, 3, 1, 0.5], [1, 0, 3, 0.5, 0]]),
        (
            "shares: {a: 3, b: 1}",
            "shares: {b: 1}",
            [[2, 2 / 3, 3, 1, 1 / 3], [0, 4 / 3, 3, 0, 2 / 3]],
        ),
        ("weights: {a: 2}", "until: null", [[2, 0, 3, 1, 0], [1, 1, 3, 0.5, 0.5]]),
    ],
)
def test_each_stage_has_the_monolingual_texts_and_the_originals(
    tmp_path, monkeypatch, first, last, expected
):
    """The teacher's a and b, monolingual, original a and b; the last stage in int8."""
    monkeypatch.chdir(tmp_path)
    student, in_int8 = recipes_of(tmp_path, STAGES % (first, last))
    sizes = [60] * 5
    for stage, weights in enumerate(expected):
        assert student.data.weights(sizes, stage) == pytest.approx(weights)
    assert in_int8.data.weights(sizes) == pytest.approx(expected[-1])


def test_originals_and_monolingual_texts_have_their_weight_beside_a_temperature(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    student, in_int8 = recipes_of(tmp_path, "data.mixing.temperature=1")
    assert student.data.weights([60] * 5) == in_int8.data.weights([60] * 5) == [1, 1, 3, 0.5, 0.5]


def test_without_further_texts_the_stages_are_as_they_were_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = ["distillation.original_weight=0", "distillation.monolingual=[]", "data.prepared=mine"]
    stages = STAGES % ("shares: {a: 3, b: 1}", "weights: {b: 1}")
    student, _ = recipes_of(tmp_path, *plain, stages)
    read = read_recipe("./student.yaml", [*TEXTS, *plain, stages]).recipe
    assert student.data.stages == read.data.stages
    assert student.data.prepared is None  # it is that of the distillation


def weights():
    return hashlib.sha256((RUN / "student/model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("override", "options", "goes_on"),
    [
        ("distillation.n_best=4", {}, True),
        ("distillation.n_best=3", {}, False),
        ("distillation.n_best=4", {"force_from": "teach"}, False),
    ],
)
def test_a_translation_that_was_interrupted_goes_on(
    folder, monkeypatch, caplog, override, options, goes_on
):
    """What is finished of it is kept, unless the settings have changed or it is forced."""
    expected = lines("chosen", "train.0.target")
    begin = ResumableOutput.finish

    def interrupted(output, **_):
        raise KeyboardInterrupt

    shutil.rmtree(RUN / "distillation/teacher")
    monkeypatch.setattr(ResumableOutput, "finish", interrupted)
    with pytest.raises(UserError, match=r"teach failed: interrupted\. The output of \d+ lines"):
        do(until="teach")
    monkeypatch.setattr(ResumableOutput, "finish", begin)
    caplog.clear()
    do(override, until="choose", **options)
    assert any(text.startswith("Continuing after line") for text in caplog.messages) == goes_on
    assert (lines("chosen", "train.0.target") == expected) == (override == "distillation.n_best=4")
    assert not (RUN / "distillation/teacher-begun").exists()


@pytest.mark.parametrize(
    "override", ["distillation.int8_learning_rate=0.002", "training.max_steps=9"]
)
def test_the_steps_in_int8_begin_anew_by_another_recipe_or_from_another_average(folder, override):
    """And else they are not made again."""
    of_int8 = RUN / "distillation/int8"
    (before,) = (of_int8 / "checkpoints").iterdir()
    weights_before = find_model(before).weights_sha256
    do(until="round")
    assert find_model(before).weights_sha256 == weights_before
    do(override, until="round")
    (session,) = (of_int8 / "sessions.jsonl").read_text().splitlines()
    assert json.loads(session)["from_step"] == 0
    (checkpoint,) = (of_int8 / "checkpoints").iterdir()
    assert find_model(checkpoint).weights_sha256 != weights_before
    began = read_manifest(checkpoint)["initialized_from"]["weights_sha256"]
    assert began == find_model(RUN / "average").weights_sha256


@pytest.mark.parametrize("num_steps", [1, 9, 10, 300])
def test_the_learning_rate_in_int8_rises_for_a_tenth_of_the_steps(tmp_path, monkeypatch, num_steps):
    write_experiment(tmp_path)
    (tmp_path / "student.yaml").write_text(STUDENT)
    monkeypatch.chdir(tmp_path)
    settings = ["distillation.tokenizer=own", f"distillation.int8_steps={num_steps}"]
    file = read_recipe("student.yaml", [*settings, "distillation.int8_learning_rate=0.002"])
    training = Distillation((TEACHER,), None, file, TrainOptions()).int8_run.recipe.training
    steps = range(1, num_steps + 1)
    rates = [learning_rate(step, training, d_model=10) for step in steps]
    tenth = max(1, num_steps // 10)
    assert training.max_steps == num_steps
    assert rates[:tenth] == pytest.approx([0.002 * step / tenth for step in steps[:tenth]])
    assert rates[tenth:] == sorted(rates[tenth:], reverse=True)
    assert num_steps == 1 or rates[-1] == 0


def test_the_better_one_in_int8_ships(folder, monkeypatch):
    """Of equal ones, the first."""
    bleus = {"average": 3.0, "other": 3.0}
    paths = {"average": RUN / "average", "other": TEACHER / "average"}
    monkeypatch.setattr(command, "candidates", lambda _: paths)
    by_path = {path: name for name, path in paths.items()}
    monkeypatch.setattr(command, "_int8_bleu", lambda _, path: bleus[by_path[path]])
    before = weights()
    do()
    assert weights() == before
    bleus["other"] = 3.1
    do(force_from="ship")
    assert weights() != before
    assert read_manifest(RUN / "student")["shipped"] == "other"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.source_language=de", "data.target_language=en"], "translates from en to de, the"),
        (["data.target_language=fr"], "en to de, the recipe from en to fr; give another teacher"),
        (["distillation.n_best=0"], "distillation.n_best: must be"),
        (
            ["distillation.tokenizer=own", "tokenizer={type: sentencepiece, vocabulary_size: 300}"],
            "must be whitespace",
        ),
    ],
)
def test_what_cannot_be_distilled_is_refused_at_once(folder, overrides, message):
    with pytest.raises(UserError, match=message):
        do(*overrides, run_dir=Path("runs/other"))
    assert not Path("runs/other/distillation/texts").exists()


def test_a_training_that_diverged_does_not_ship(folder, caplog):
    away = ["training.peak_learning_rate=50", "training.warmup_steps=1", "validation.every_steps=2"]
    options: dict[str, Any] = {"run_dir": Path("runs/other"), "taught": RUN / "distillation"}
    for _ in range(2):
        with pytest.raises(UserError, match=r"average failed: the training in runs/other diverged"):
            do(*away, **options)
        assert not Path("runs/other/average").exists()
    assert "train: unchanged, skipped." in caplog.messages
    do(force_from="train", **options)
    assert Path("runs/other/student").exists()


@pytest.mark.parametrize(
    ("losses", "bleus", "reason"),
    [
        ([5.0, 4.0, 6.0], [0.2, 0.3, 0.1], None),
        ([5.0, 6.0, 7.0], [0.2, 0.3, 0.1], None),
        ([5.0], [0.3], None),
        ([5.0, 6.0, 5.0], [0.2, 0.1, 0.2], "no validation was better than the first, of step 1"),
        ([5.0, 6.0], [None, None], "no validation was better than the first, of step 1"),
        ([5.0, 4.0, None], [0.2, 0.3, 0.1], "the validation loss is not finite"),
        ([5.0, 4.0], [0.0, 0.004], None),  # it is young
        ([7.7, 7.6], [0.06, 0.0], None),
        ([5.0, 4.0, 4.5], [0.0, 0.0, 0.0], "the BLEU of the last validation is 0.00"),
        ([5.0, 4.0, 3.0], [1.2, 2.3, 0.004], "the BLEU of the last validation is 0.00"),
    ],
)
def test_a_training_diverged_by_its_validations(folder, losses, bleus, reason):
    records = [
        {"step": step, "validation": {"loss": loss, "bleu": bleu}}
        for step, (loss, bleu) in enumerate(zip(losses, bleus, strict=True), 1)
    ]
    (RUN / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    file = read_recipe("./student.yaml")
    student = Experiment.of("./student.yaml", file, TrainOptions(run_dir=RUN))
    assert why_diverged(student) == reason


def test_the_run_of_another_training_is_refused_before_the_teacher_translates(folder):
    with pytest.raises(UserError, match=r"runs/toy was trained with another recipe: .*--run-dir"):
        do(run_dir=TEACHER)
    assert not (TEACHER / "distillation/texts").exists()


@pytest.mark.parametrize("name", ["student", "distillation/lexicon", "distillation/table"])
def test_folders_of_the_user_are_kept(folder, name):
    shutil.rmtree(RUN / name, ignore_errors=True)
    (RUN / name).mkdir(parents=True)
    (RUN / name / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=f"runs/student/{name} exists, and `nmt-cli distil` did"):
        do()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tokenizer.type=sentencepiece", "type must be whitespace, as of"),
        ("model={source_vocabulary_size: 9, tied_embeddings: none}", "size must be null, as of"),
        ("tokenizer.model=toy.yaml", r"must be the folder of a model .*, but is toy\.yaml"),
    ],
)
def test_the_tokenizer_of_a_model_must_fit(folder, override, message):
    model = f"tokenizer.model={TEACHER}"
    with pytest.raises(UserError, match=message):
        preprocess.run(recipe="./toy.yaml", overrides=[model, override], output=Path("prepared/x"))
    assert not Path("prepared/x").exists()


def test_least_score_is_that_of_the_share():
    scores = np.array([3.0, -np.inf, 1.0, 2.0, 4.0])
    assert [teaching._least_score(scores, share) for share in (1.0, 0.5, 0.01)] == [1, 3, 4]
    with pytest.raises(UserError, match="could score no pair"):
        teaching._least_score(scores[1:2], 1.0)


def test_scores_take_no_more_memory_than_their_array_and_its_copy(monkeypatch):
    """A list of Python's floats takes 32 bytes for each pair, beside the array."""
    num_pairs = 200_000
    lines_of_scores = (("-1.25", "")[line % 2] for line in range(num_pairs))
    monkeypatch.setattr(teaching, "lines_in", lambda _: lines_of_scores)
    tracemalloc.start()
    scores = teaching._scores_in(Path("scores"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scores.tolist() == [-1.25, -np.inf] * (num_pairs // 2)
    assert peak < 2.5 * 8 * num_pairs


# What is logged within a stage when a part of its result is there; else it is the stage's name.
AT = {
    **{"texts": "141 different", "teach": "Translated", "choose": "Chose", "filter": "Kept"},
    **{"align": "Aligned", "train": "step 3:", "average": "Averaged", "round": "step 4:"},
    **{"ship": "BLEU", "measure": "Translated", "report": "Wrote"},
}
KILLED = """
import os, signal, sys
from nmt_cli import cli
from nmt_cli.messages import logs

log, seen, (stage, at) = logs.info, [], sys.argv[1:3]
del sys.argv[1:3]

def log_and_die(message):
    log(message)
    seen.append(message)
    if f"{stage}:" in seen and message.startswith(at):
        os.kill(os.getpid(), signal.SIGKILL)

logs.info = log_and_die
cli.main()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_in_every_stage_it_is_the_same_student(finished, tmp_path):
    """Each time the same command goes on; all files that ship are the same, to the last bit."""
    settings = [*SHORT, "validation.every_steps=3", "distillation.int8_steps=4"]
    options = [
        *(f"--set={each}" for each in settings),
        *("--threads=1", "--precision=fp32", "--device=cpu"),
        f"--reverse-model={TEACHER}",
    ]
    never, often = tmp_path / "never", tmp_path / "often"
    for folder in (never, often):
        shutil.copytree(finished, folder)
        shutil.rmtree(folder / RUN)
    assert ended(["distil", str(TEACHER), "student.yaml", *options], never).status == 0
    for stage in STAGES_OF_DISTIL:
        words = [stage, AT.get(stage, stage), "distil", str(TEACHER), "student.yaml", *options]
        done = subprocess.run(
            python_command(KILLED, *words), cwd=often, capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL, (stage, done.stderr.decode())
    assert ended(["distil", str(TEACHER), "student.yaml", *options], often).status == 0
    for path in (never / RUN / "student").iterdir():
        if path.name != MANIFEST:
            assert path.read_bytes() == (often / RUN / "student" / path.name).read_bytes(), path
    parts = [
        [path.relative_to(folder / RUN) for path in sorted((folder / RUN).glob("distillation/*"))]
        for folder in (never, often)
    ]
    assert parts[0] == parts[1]  # nothing half-written stays
