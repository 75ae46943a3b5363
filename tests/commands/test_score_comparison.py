"""``score --compare``: which systems differ from the baseline."""

import json

import pytest
import sacrebleu
from click.testing import CliRunner
from sacrebleu.significance import PairedTest

from nmt_cli import cli
from nmt_cli.commands import score
from nmt_cli.commands.scoring import system_comparison
from nmt_cli.commands.scoring.system_comparison import NamedText
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.metrics.bleu import bleu_scorer
from nmt_cli.metrics.scorer import NUM_SAMPLES, Resampling
from nmt_cli.metrics.significance import MetricFigures, SystemFigures

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
REFERENCE = [f"the {a} cat saw {b} mice in {a} houses" for a in NUMBERS for b in NUMBERS]
GOOD = [line.replace("four", "for") for line in REFERENCE]
SIMILAR = [line.replace("five", "fife") for line in REFERENCE]
POOR = [line.replace("cat", "cow").replace("mice", "mouse") for line in REFERENCE]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    logs.configure(quiet=True)
    monkeypatch.chdir(tmp_path)
    texts = {"ref": REFERENCE, "good": GOOD, "similar": SIMILAR, "poor": POOR}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(cli.main, ["score", *arguments])
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


COMPARED = ["good", "ref", "--compare", "similar", "--compare", "poor", "--samples", "200"]


def test_the_baselines_scores_come_first_then_a_table_and_sentences(folder):
    plain = run("good", "ref")
    output = run(*COMPARED)
    assert output.startswith(f"{plain}\n")
    header, baseline, similar, poor, empty, *sentences = (
        output.removeprefix(f"{plain}\n").removesuffix("\n").split("\n")
    )
    assert header.split() == ["system", "BLEU", "p", "chrF2", "p"]
    bleu = sacrebleu.corpus_bleu(GOOD, [REFERENCE]).score
    assert baseline.startswith(f"good (baseline)  {bleu:.2f} ± ")
    assert len(baseline.split()) == 2 + 2 * 3  # no p
    assert similar.split()[0] == "similar"
    assert poor.split()[0] == "poor"
    assert poor.split()[4] == f"{1 / 201:.4f}"
    assert empty == ""
    assert sentences == [
        "similar and good do not differ significantly in BLEU and chrF2.",
        "poor is significantly worse than good in BLEU and chrF2.",
        "Paired bootstrap, 200 samples, seed 12345: a difference is significant if p < 0.05; "
        "± is half of the 95 % confidence interval.",
    ]
    columns = [line.index(" ± ") for line in (baseline, similar, poor)]
    assert len(set(columns)) == 1


def test_figures_for_json(folder):
    output = run(*COMPARED, "--ter", "--test", "randomization", "--seed", "3", "--format", "json")
    figures = json.loads(output)
    assert figures["bleu"]["score"] == sacrebleu.corpus_bleu(GOOD, [REFERENCE]).score
    comparison = figures["comparison"]
    assert comparison["baseline"] == "good"
    assert comparison["test"] == {
        "method": "randomization", "num_samples": 200, "seed": 3, "significance_level": 0.05
    }  # fmt: skip
    assert "|ar:200|" in comparison["signatures"]["ter"]
    baseline, similar, poor = comparison["systems"]
    assert [system["name"] for system in (baseline, similar, poor)] == ["good", "similar", "poor"]
    assert baseline["chrf"]["p_value"] is None
    assert similar["bleu"]["verdict"] == "not significant"
    theirs = sacrebleu.corpus_ter(POOR, [REFERENCE])
    assert poor["ter"]["score"] == theirs.score
    assert poor["ter"]["edits"] == theirs.num_edits
    assert poor["ter"]["difference"] == theirs.score - baseline["ter"]["score"]
    assert poor["ter"]["verdict"] == "worse"
    assert len(poor["bleu"]["precisions"]) == 4
    assert poor["ter"]["confidence"] is None


def test_a_better_system_and_a_metric_without_difference(folder):
    output = run("poor", "ref", "--compare", "good", "--samples", "200", "--test", "randomization")
    assert "\ngood is significantly better than poor in BLEU and chrF2.\n" in output
    assert " ± " not in output
    assert output.endswith(
        "\nPaired approximate randomization, 200 samples, seed 12345: a difference is significant "
        "if p < 0.05.\n"
    )


def test_every_metric_of_the_call_is_tested(folder):
    output = run(*COMPARED, "--ter", "--paper", "en-de", "--tokenize", "intl")
    assert "\nsystem           " in output
    assert "poor is significantly worse than good in BLEU, paper's BLEU, chrF2 and TER.\n" in output


def test_the_same_call_gives_the_same_figures(folder, monkeypatch):
    first = run(*COMPARED)
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert run(*COMPARED) == first
    assert run(*COMPARED, "--seed", "99") != first


def test_a_compared_file_has_as_many_lines(folder):
    (folder / "short").write_text("one line\n")
    with pytest.raises(UserError, match=r"good has 100 segments, .*short has 1; segment n of "):
        score.run(folder / "good", [folder / "ref"], compared=[folder / "short"])


def test_a_system_is_given_once(folder):
    with pytest.raises(UserError, match="/poor is given twice; --compare needs another system's"):
        score.run(folder / "good", [folder / "ref"], compared=[folder / "poor", folder / "poor"])
    with pytest.raises(UserError, match="/good is given twice"):
        score.run(folder / "good", [folder / "ref"], compared=[folder / "good"])


def test_more_samples_than_memory(folder, monkeypatch):
    monkeypatch.setattr(system_comparison, "MOST_MEMORY", 1 << 30)
    with pytest.raises(UserError) as caught:
        score.run(folder / "good", [folder / "ref"], compared=[folder / "poor"], samples=1_000_000)
    assert str(caught.value) == (
        "1,000,000 samples of 100 segments need about 7 GiB of memory, 1 GiB are allowed; give "
        "fewer --samples."
    )


def test_default_numbers_of_samples_are_those_of_sacrebleu():
    assert {
        "bs": NUM_SAMPLES["bootstrap"],
        "ar": NUM_SAMPLES["randomization"],
    } == PairedTest._DEFAULT_SAMPLES


@pytest.mark.parametrize("arguments", [["--seed", "0"], ["--samples", "9"], ["--test", "t"]])
def test_values_that_no_test_can_take(folder, arguments):
    result = CliRunner().invoke(cli.main, ["score", *COMPARED[:4], *arguments])
    assert result.exit_code == 2


def test_warns_of_few_segments(folder, capsys):
    for name in ("ref", "good", "poor"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:99]))
    score.run(folder / "good", [folder / "ref"], compared=[folder / "poor"], samples=100)
    assert capsys.readouterr().err == (
        "Warning: 99 segments cannot give a reliable test; compare systems on 100 or more.\n"
    )


@pytest.mark.parametrize(
    ("p_value", "shown"), [(0.00009, "<0.0001"), (0.0001, "0.0001"), (1.0, "1.0000")]
)
def test_p_is_never_shown_as_zero(p_value, shown):
    systems = [NamedText("first", []), NamedText("second", [])]
    baseline = SystemFigures(30.0, 0.0, None, None, None, None)
    other = SystemFigures(31.0, 1.0, p_value, "better", None, None)
    outcomes = [MetricFigures("", [baseline, other])]
    resampling = Resampling("randomization", 20_000, 1)
    comparison = system_comparison.Comparison(systems, [[]], [bleu_scorer()], outcomes, resampling)
    row = comparison.as_table().split("\n")[2]
    assert row.split() == ["second", "31.00", shown]
