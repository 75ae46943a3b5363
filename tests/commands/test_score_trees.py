import gzip
import io
import json
import re

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands.scoring.against_gold import score_trees
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from tests.real_text import real_file

GOLD = [
    "(TOP (S (NP (NN rain)) (VP (VBZ falls) (ADVP (RB softly))) (. .)))",
    "(TOP (S (NP (PRP it)) (VP (VBZ is) (NP (JJ late)))))",
    "(TOP (S (NP (NN rain)) (VP (VBZ falls))))",
    "(TOP (UH no))",
]
PREDICTED = [
    "(TOP (S (NP (NN rain)) (VP (VBZ falls) (PRT (RP softly))) (. .)))",
    "(TOP (NP (NP (PRP it) (VBZ is)) (NP (JJ late))))",
    "(TOP (S (NP (NN snow)) (VP (VBZ falls))))",
    "",
]
TABLE = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
============================================================================
   1    4    0  100.00 100.00     4      4    4      0      3     2    66.67
   2    3    0   25.00  33.33     1      4    3      1      3     3   100.00
   3    2    1    0.00   0.00     0      0    0      0      0     0     0.00
   4    1    2    0.00   0.00     0      0    0      0      0     0     0.00
============================================================================
                 62.50  71.43      5     8     7      1      6     5    83.33
=== Summary ===

-- All --
Number of sentence        =      4
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      2
Bracketing Recall         =  62.50
Bracketing Precision      =  71.43
Bracketing FMeasure       =  66.67
Complete match            =  50.00
Average crossing          =   0.50
No crossing               =  50.00
2 or less crossing        = 100.00
Tagging accuracy          =  83.33

-- len<=3 --
Number of sentence        =      3
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      1
Bracketing Recall         =  25.00
Bracketing Precision      =  33.33
Bracketing FMeasure       =  28.57
Complete match            =   0.00
Average crossing          =   1.00
No crossing               =   0.00
2 or less crossing        = 100.00
Tagging accuracy          = 100.00
"""


@pytest.fixture
def rules(files):
    lines = ["CUTOFF_LEN 3", "DELETE_LABEL TOP", "DELETE_LABEL .", "EQ_LABEL ADVP PRT"]
    return files("rules.prm", [*lines, "MAX_ERROR 1"])


def test_the_table_of_trees_counted_by_hand(files, rules, capsys):
    score_trees(files("pred", PREDICTED), [files("gold", GOLD)], rules)
    assert capsys.readouterr().out == TABLE


def test_json_has_the_same_figures_unrounded(files, rules, capsys):
    score_trees(files("pred", PREDICTED), [files("gold", GOLD)], rules, "json")
    figures = json.loads(capsys.readouterr().out)
    assert figures["parameters"] == str(rules)
    every, short = figures["all"], figures["short"]
    assert (every["sentences"], every["errors"], every["skipped"], every["valid"]) == (4, 1, 1, 2)
    assert (every["recall"], every["precision"]) == (62.5, pytest.approx(500 / 7))
    assert every["f1"] == pytest.approx(200 / 3)
    assert (every["matched"], every["gold"], every["predicted"], every["crossing"]) == (5, 8, 7, 1)
    assert every["tagging_accuracy"] == pytest.approx(250 / 3)
    assert (short["cutoff_length"], short["sentences"], short["matched"]) == (3, 3, 1)
    assert [sentence["status"] for sentence in figures["sentences"]] == [
        "valid", "valid", "error", "skipped"
    ]  # fmt: skip
    second = figures["sentences"][1]
    assert (second["line"], second["length"], second["problem"]) == (2, 3, "")
    assert (second["matched"], second["gold"], second["predicted"]) == (1, 4, 3)
    assert second["precision"] == pytest.approx(100 / 3)
    assert figures["sentences"][2]["problem"].startswith("the predicted tree has 'snow'")


def test_our_own_parameters_are_the_default(files, capsys):
    predicted = ["(ROOT (S (NP (NN rain)) (PRT (RB down)) (. .)))"]
    gold = ["(TOP (S (NP (NN rain)) (ADVP (RB down)) (, .)))"]
    score_trees(files("pred", predicted), [files("gold", gold)], output_format="json")
    figures = json.loads(capsys.readouterr().out)
    assert figures["parameters"] == "default"
    assert figures["all"]["f1"] == 100
    assert figures["all"]["words"] == 2


def test_errors_are_warned_of(files, capsys):
    predicted = ["(S (NN rain)", *["(S (NN snow))"] * 6, "(S (NN rain))"]
    gold = ["(S (NN rain))"] * 8
    score_trees(files("pred", predicted), [files("gold", gold)])
    output, warnings = capsys.readouterr()
    assert "Number of Error sentence  =      7\n" in output
    lines = warnings.rstrip("\n").split("\n")
    assert len(lines) == 6
    assert re.fullmatch(
        r"Warning: .*/pred:1: 1 closing bracket is missing; no score counts this sentence\.",
        lines[0],
    )
    assert "/pred:2: the predicted tree has 'snow', the gold tree 'rain'; no score" in lines[1]
    assert lines[5] == "Warning: There are errors in 2 more sentences."


def test_more_errors_than_allowed_end_the_command(files, rules, capsys):
    predicted = files("pred", ["(NN snow)", "(NN rain)", "(NN hail)"])
    with pytest.raises(UserError) as caught:
        score_trees(predicted, [files("gold", ["(NN rain)"] * 3)], rules)
    assert str(caught.value) == (
        f"{predicted}:3: the predicted tree has 'hail', the gold tree 'rain'. This is one error "
        f"more than MAX_ERROR of {rules} allows; correct the trees or raise it."
    )
    assert capsys.readouterr().out == ""


def test_the_numbers_of_trees_must_agree(files):
    predicted, gold = files("pred", PREDICTED[:3]), files("gold", GOLD)
    with pytest.raises(UserError) as caught:
        score_trees(predicted, [gold])
    assert str(caught.value) == (
        f"{predicted} has 3 trees, {gold} has 4; line n of one must be a tree of the same sentence "
        "as line n of the other."
    )


def test_other_refusals(files, tmp_path):
    gold = files("gold", GOLD)
    with pytest.raises(UserError, match=r"/bad:2: 1 closing bracket is missing; each line of the "):
        score_trees(files("pred", GOLD[:2]), [files("bad", [GOLD[0], "(S (NN rain)"])])
    with pytest.raises(UserError, match=r"/empty is empty; there is nothing to score"):
        score_trees(files("none", []), [files("empty", [])])
    with pytest.raises(UserError, match="compare with one file, not with 2"):
        score_trees(gold, [gold, gold])
    with pytest.raises(UserError, match=r"no\.prm not found"):
        score_trees(gold, [gold], tmp_path / "no.prm")
    with pytest.raises(UserError, match=r"/p\.prm:1: LABELLED is not a parameter; did you"):
        score_trees(gold, [gold], files("p.prm", ["LABELLED 1"]))


def test_standard_input_and_compressed_files(files, tmp_path, capsys, monkeypatch):
    data = io.BytesIO("".join(f"{line}\n" for line in GOLD).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    packed = tmp_path / "gold.gz"
    packed.write_bytes(gzip.compress(("\r\n".join(GOLD)).encode()))
    score_trees(STANDARD_INPUT, [packed])
    assert "Bracketing FMeasure       = 100.00\n" in capsys.readouterr().out


def test_the_command_line(files, rules):
    predicted, gold = str(files("pred", PREDICTED)), str(files("gold", GOLD))
    arguments = ["score", "--metric", "parseval", predicted, gold]
    result = CliRunner().invoke(cli.main, [*arguments, "--parameters", str(rules)])
    assert (result.exit_code, result.stdout) == (0, TABLE)
    result = CliRunner().invoke(cli.main, [*arguments, "--format", "json", "--quiet"])
    assert json.loads(result.stdout)["all"]["valid"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--metric=parseval", "--lowercase"],
            "--lowercase has no meaning with --metric",
        ),
        (["--metric=parseval", "--tokenize=13a"], "--tokenize has no meaning with --metric parse"),
        (["--parameters=rules.prm"], "--parameters needs --metric parseval."),
        (["--metric=evalb"], "'evalb' is not one of 'bleu', 'parseval'"),
    ],
)
def test_options_that_do_not_go_together(files, options, message):
    gold = str(files("gold", GOLD))
    result = CliRunner().invoke(cli.main, ["score", *options, gold, gold])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("predicted", "gold", "parameters", "expected"),
    [
        ("sample.tst", "sample.gld", "sample.prm", "sample.out"),
        ("pairs.pred", "pairs.gold", "COLLINS-all-errors.prm", "pairs.collins.out"),
        ("pairs.pred", "pairs.gold", None, "pairs.collins.out"),
    ],
)
def test_every_digit_is_that_of_evalb(capsys, predicted, gold, parameters, expected):
    logs.configure(quiet=True)
    folder = real_file("evalb")
    rules = None if parameters is None else folder / parameters
    score_trees(folder / predicted, [folder / gold], rules)
    assert capsys.readouterr().out == (folder / expected).read_text(encoding="utf-8")


def test_the_rules_of_collins_end_after_ten_errors():
    folder = real_file("evalb")
    with pytest.raises(
        UserError, match=r"pairs\.pred:179: .*more than MAX_ERROR of .*COLLINS\.prm"
    ):
        score_trees(folder / "pairs.pred", [folder / "pairs.gold"], folder / "COLLINS.prm")
