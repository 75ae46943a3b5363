"""A whole experiment with several validation and test sets, each reported by its name."""

import json
import re
from pathlib import Path

import pytest
from sacrebleu.metrics.chrf import CHRF

from nmt_cli.commands import run as command
from nmt_cli.commands.experiments.comparison_table import OF_SETS, as_rows, as_table
from nmt_cli.commands.experiments.run_details import details_of
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.commands.recipes import check
from nmt_cli.files.file_names import MANIFEST
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.metrics.bleu import bleu_scorer, chrf_scorer
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.report import drawing
from nmt_cli.report.run_history import read_runs
from tests.commands.conftest import FP32, undrawn
from tests.commands.test_report import CHARTS, page_of
from tests.commands.test_run import skipped, write_experiment
from tests.conftest import write_pairs
from tests.tiny_treebank import write_treebank

TESTS = {"news": 7, "talks": 5}


def sets_of(*names, suffixes=("en", "de")):
    source, target = suffixes
    entries = (f"{{name: {n}, source: {n}.{source}, target: {n}.{target}}}" for n in names)
    return f"[{', '.join(entries)}]"


OVERRIDES = [
    f"data.test={sets_of(*TESTS)}",
    f"data.validation={sets_of('validation', 'talks')}",
    "validation.best_on=talks",
    "training.max_steps=6",
    "validation.bleu=greedy",
]


def do(*overrides, recipe="toy.yaml", until="report", **options):
    given = [*OVERRIDES, *overrides] if recipe == "toy.yaml" else list(overrides)
    options = {**FP32, **options}
    command.run(recipe, until=until, overrides=given, threads=1, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("named")
    write_experiment(folder)
    for seed, (name, count) in enumerate(TESTS.items(), 5):
        write_pairs(folder, name, count, seed)
    return folder


@pytest.fixture(autouse=True)
def _in_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(drawing, "_drawing", undrawn)
    logs.configure(quiet=False)


@pytest.fixture(scope="module")
def printed(folder):
    """What run writes to stdout; the results stay in the folder."""
    lines: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(
            drawing,
            "_drawing",
            undrawn,
        )
        patch.setattr(StandardOutput, "write", lambda _, text: lines.append(text))
        do()
    return b"".join(lines).decode().splitlines()


@pytest.fixture
def caplog(caplog, monkeypatch):
    monkeypatch.setattr("nmt_cli.messages.logs._logger.propagate", True)
    caplog.set_level("INFO", logger="nmt_cli")
    return caplog


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def expected_scores(folder):
    """Return BLEU and chrF of each test set from its files."""
    found = {}
    for name in TESTS:
        hypotheses = lines_of(folder / f"runs/toy/test/test.{name}.de")
        references = [lines_of(folder / f"{name}.de")]
        found[name] = [
            scorer.score(hypotheses, references) for scorer in (bleu_scorer("none"), chrf_scorer())
        ]
    return found


def test_run_scores_every_test_set(folder, printed):
    expected = expected_scores(folder)
    assert len(printed) == len(TESTS)
    for line, (name, (bleu, chrf)) in zip(printed, expected.items(), strict=True):
        assert line.startswith(
            f"toy, {name}: BLEU {bleu.score:.2f} ({bleu.signature}), chrF2 {chrf.score:.2f} "
        )
        assert line.endswith(f", {TESTS[name]} lines")
    scores = json.loads((folder / "runs/toy/scores/scores.json").read_text())
    assert {name: of["bleu"]["score"] for name, of in scores["sets"].items()} == {
        name: bleu.score for name, (bleu, _) in expected.items()
    }
    assert list(scores) == ["sets"]


@pytest.mark.usefixtures("printed")
def test_nothing_is_made_twice_and_a_changed_set_is_scored_again(folder, caplog):
    do()
    assert skipped(caplog) == ["preprocess", "train", "average", "translate", "score", "report"]
    caplog.clear()
    reference = folder / "news.de"
    before = reference.read_bytes()
    try:
        reference.write_bytes(before.upper())
        do(until="score")
        assert skipped(caplog) == ["preprocess", "train", "average", "translate"]
    finally:
        reference.write_bytes(before)
        do()


@pytest.mark.usefixtures("printed")
def test_the_report_shows_each_set_by_its_name(folder):
    records = map(json.loads, lines_of(folder / "runs/toy/metrics.jsonl"))
    sets = [record["validation"]["sets"] for record in records if "validation" in record]
    page = page_of(folder / "runs/toy/report/index.html")
    shown = {row[0]: row[1] for row in page.rows if len(row) == 2}
    for name in ("validation", "talks"):
        best = min(of[name]["loss"] for of in sets)
        assert shown[f"best validation loss of {name}"] == f"{best:.4f} (step 6)"
    assert "best validation loss" not in shown  # it is that of talks, which decides
    for name, (bleu, chrf) in expected_scores(folder).items():
        assert shown[f"BLEU of the test set {name}"] == f"{bleu.score:.2f}"
        assert shown[f"chrF2 of the test set {name}"] == f"{chrf.score:.2f}"
    assert "BLEU of the test text" not in shown
    drawn = {path.stem for path in (folder / "runs/toy/report").glob("*.png")}
    assert drawn == CHARTS


@pytest.mark.usefixtures("printed")
def test_the_report_shows_translations_and_the_worst_of_each_set(folder):
    page = page_of(folder / "runs/toy/report/index.html")
    rows = [row for row in page.rows if len(row) == 5 and "nmt-cli" not in row[-1]][1:]
    headings = ["Line", "Source", "Translation", "Reference", "chrF2"]
    expected = []
    for name in TESTS:
        texts = [
            lines_of(folder / path)
            for path in (f"{name}.en", f"runs/toy/test/test.{name}.de", f"{name}.de")
        ]
        scores = [
            CHRF().sentence_score(line, [ref]).score for _, line, ref in zip(*texts, strict=True)
        ]
        of_set = [[f"{n}", *row] for n, row in enumerate(zip(*texts, strict=True), 1)]
        lines = [[*row, f"{score:.1f}"] for row, score in zip(of_set, scores, strict=True)]
        worst = sorted(range(len(lines)), key=lambda place: scores[place])
        expected += [headings, *lines, headings, *(lines[place] for place in worst)]
    assert rows == expected


@pytest.mark.usefixtures("printed")
def test_the_report_shows_the_text_and_the_way_to_serve(folder):
    page = page_of(folder / "runs/toy/report/index.html")
    rows = {row[0]: row[1:] for row in page.rows}
    read = len(lines_of(folder / "train.en"))
    dropped = [int(cell) for name, (cell, *_) in rows.items() if name.startswith("dropped ")]
    assert rows["pairs read"] == [f"{read:,}"]
    assert rows["pairs kept"] == [f"{read - sum(dropped):,}"]
    (started,) = [name for name in rows if re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", name)]
    assert rows[started][0] == "0"
    assert "nmt-cli serve runs/toy" in page.text
    assert re.search(r"Training finished, 20\d\d-", page.text)


@pytest.mark.usefixtures("printed")
def test_translations_of_changed_text_are_not_shown(folder, caplog):
    before = (folder / "news.en").read_bytes()
    prepared = folder / "prepared/toy/manifest.json"
    try:
        (folder / "news.en").write_bytes(before.upper())
        prepared.rename(folder / "away.json")
        details = details_of(Path("runs/toy"))
    finally:
        (folder / "news.en").write_bytes(before)
        (folder / "away.json").rename(prepared)
    assert [of_set.name for of_set in details.translated] == ["talks"]
    cleaning, translations = caplog.messages
    assert cleaning.startswith("What cleaning dropped is not shown: prepared/toy ")
    assert translations == (
        "Warning: the translations of news.en and news.de are not shown: news.en has "
        "changed since; nmt-cli run translates it again."
    )
    assert details.dropped == []
    assert details.serve == "nmt-cli serve runs/toy"


@pytest.mark.usefixtures("printed")
def test_compare_has_a_column_for_each_test_set(folder):
    rows = as_rows(["toy"], read_runs([folder / "runs/toy"]))
    expected = expected_scores(folder)
    assert rows[0].as_json()["test_sets"] == {
        name: [bleu.score] for name, (bleu, _) in expected.items()
    }
    headings, figures, *_ = as_table([*rows, rows[0]._replace(name="other", test_sets={})]).split(
        "\n"
    )
    assert headings.split()[-2:] == list(TESTS)
    assert figures.split()[-2:] == [f"{bleu.score:.2f}" for bleu, _ in expected.values()]
    assert OF_SETS in as_table(rows)


def test_a_missing_file_of_a_set_is_named(folder):
    with pytest.raises(UserError, match=r"^no\.en not found"):
        do(f"data.test={sets_of('news', 'no')}")
    with pytest.raises(RecipeError, match=r"^toy\.yaml: data\.test\.1\.source: no\.en does not"):
        check("toy.yaml", [*OVERRIDES, f"data.test={sets_of('news', 'no')}"])


def test_a_set_of_unequal_length_is_named(folder):
    (folder / "uneven.en").write_text("a\nb\n")
    (folder / "uneven.de").write_text("a\n")
    with pytest.raises(UserError, match=r"^uneven\.en has 2 lines but uneven\.de has 1;"):
        do(f"data.test={sets_of('news', 'uneven')}")


def test_sets_of_trees_are_scored_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_treebank(tmp_path)
    trees = (tmp_path / "dev.mrg").read_text()
    (tmp_path / "few.mrg").write_text(trees[: trees.index("(. .)) )\n") + 9])
    sets = sets_of("dev", "few", suffixes=("mrg", "mrg"))
    overrides = [f"data.validation={sets}", f"data.test={sets}"]
    do(*overrides, recipe="tiny.yaml", until="score")
    run = tmp_path / "runs/tiny"
    scores = json.loads((run / "scores/scores.json").read_text())["sets"]
    for name, count in {"dev": 8, "few": 1}.items():
        parses = lines_of(run / f"test/test.{name}.trees")
        golds = lines_of(run / f"test/gold.{name}.trees")
        assert len(parses) == len(golds) == count
        assert scores[name] == {"lines": count, "parseval": score_trees(parses, golds)._asdict()}
    prepared = tmp_path / "prepared/tiny"
    assert lines_of(prepared / "validation.dev.target.txt") == lines_of(run / "test/gold.dev.trees")
    assert lines_of(prepared / "validation.few.target.txt") == lines_of(run / "test/gold.few.trees")
    record = json.loads(lines_of(run / "metrics.jsonl")[-1])["validation"]
    assert record["parseval"] == record["sets"]["dev"]["parseval"] is not None
    assert re.search(r'"name": "few"', (prepared / MANIFEST).read_text())
