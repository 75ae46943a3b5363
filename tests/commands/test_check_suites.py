"""Suites of check: what a translation must have, must not have, and patterns that never end."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import check
from nmt_cli.commands.model_checks import suites
from nmt_cli.commands.model_checks.junit import as_junit
from nmt_cli.commands.model_checks.results import Results
from nmt_cli.commands.model_checks.shares import row_of
from nmt_cli.commands.model_checks.suites import Suite, has_match
from nmt_cli.messages.errors import UserError

FORMATS = Path(__file__).parents[1] / "formats"
MODEL = FORMATS / "format_2/whitespace/run/average"
NEVER_ENDS = "(x+x+)+y"  # in a text of many x without a y


@pytest.fixture
def suite(tmp_path):
    """Return a function that writes lines to a suite and reads it."""

    def write(*lines):
        path = tmp_path / "some.jsonl"
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text("".join(f"{text}\n" for text in texts))
        return Suite.read(path, None, ("en", "de"))

    return write


def rows(suite, *models, limit=None):
    sides = [{case.text: model[case.source] for case in suite.cases} for model in models]
    return {each.name: row_of(each, sides, may_be_worse=False) for each in suite.checks(limit)}


@pytest.mark.parametrize(
    ("wanted", "good", "bad", "problem"),
    [
        ({"any_of": ["Bank", "Ufer"]}, "am Ufer", "an der Uferstraße", "it has none of Bank, Ufer"),
        ({"any_of": "geht"}, "Geht er?", "er ging", "it has none of geht"),
        ({"none_of": ["nicht", "kein"]}, "nichts", "das ist kein Haus", "it has kein"),
        ({"matches": [r"\bH[äa]user?\b", "2"]}, "2 Häuser", "3 Häuser", "2 does not match"),
        ({"not_matches": r"\d"}, "zwei", "2", r"\d matches"),
        ({"matches": "^Ein", "not_matches": ["x", "y"]}, "Ein z", "Ein y", "y matches"),
    ],
)
def test_each_condition_decides(suite, wanted, good, bad, problem):
    read = suite({"source": "a", **wanted}, {"source": "b", **wanted})
    row = rows(read, {"a": good, "b": bad})["all"]
    assert (row.lines, row.value) == (2, 50)
    (example,) = row.examples
    assert (example["source"], example["translation"], example["problem"]) == ("b", bad, problem)
    assert example["line"] == "some:2"


def test_results_are_by_category_beside_the_old_model(suite):
    read = suite(
        {"source": "a", "any_of": "x", "category": "tense"},
        {"source": "b", "any_of": "x", "category": "names"},
        {"source": "c", "any_of": "x", "category": "tense"},
        "",
        {"source": "d", "reference": "x", "category": "names"},  # for the scores alone
        "",
    )
    found = rows(
        read, dict.fromkeys("abcd", "x") | {"a": "y"}, dict.fromkeys("abcd", "y"), limit=0.4
    )
    assert [(name, row.lines, row.value, row.old) for name, row in found.items()] == [
        ("tense", 2, 50, 100),
        ("names", 1, 0, 100),
    ]
    assert found["tense"].problems == ["1 of 2 lines fail, at most 40.00% may"]
    assert [case.place for case in read.as_set().cases] == ["some:5"]


def test_a_pattern_that_never_ends_counts_as_failed(suite):
    many = "x" * 60
    wanted = {"matches": NEVER_ENDS}
    read = suite(
        {"source": "a", **wanted}, {"source": "b", **wanted}, {"source": "c", "matches": "z"}
    )
    started = time.monotonic()
    row = rows(read, {"a": many, "b": f"{many}x", "c": "z"})["all"]
    assert time.monotonic() - started < 30
    assert row.value == pytest.approx(100 * 2 / 3)
    assert {each["problem"] for each in row.examples} == {
        f"the regular expression takes too long: {NEVER_ENDS}"
    }


def test_a_search_that_never_ends_leaves_others_alone():
    started = time.monotonic()
    assert has_match(NEVER_ENDS, "x" * 60) is None
    assert time.monotonic() - started < 20
    assert has_match(NEVER_ENDS, "xxy") is True
    assert has_match("b$", "abc") is False
    with pytest.raises(ValueError, match="missing \\), unterminated subpattern"):
        has_match("(", "")
    assert signal.getsignal(signal.SIGPROF) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0


def test_a_search_that_fills_memory_ends(monkeypatch):
    """Such a search spends its time in the kernel, which gives it memory."""

    def search(*_):
        end = time.process_time() + 5
        while time.process_time() < end:
            os.urandom(1 << 16)
        raise AssertionError("it was not stopped")

    monkeypatch.setattr(suites, "SECONDS", 0.1)
    monkeypatch.setattr(re, "search", search)
    assert has_match("a", "a") is None


def test_a_search_without_memory_takes_too_much(monkeypatch):
    def search(*_):
        raise MemoryError

    monkeypatch.setattr(re, "search", search)
    assert has_match("a", "a") is None


def test_patterns_of_which_python_warns_are_searched():
    assert has_match("[[a]", "[") is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "{",
            "2: it is not JSON: Expecting property name enclosed in double quotes at character 2.",
        ),
        ('["a"]', "2: it is not a JSON object."),
        ({"any_of": "x"}, "2: source: is missing."),
        ({"source": "a", "anyof": "x"}, "2: anyof: is not a key here; did you mean any_of?"),
        (
            {"source": "a", "lang": "x"},
            "2: lang: is not a key here; those are source, any_of, none_of",
        ),
        ({"source": 3}, "2: source: must be text, but is 3"),
        ('{"source": "a", "source": "b"}', '2: the key "source" is given twice.'),
        ({"source": "a", "any_of": [""]}, "2: any_of.0: must not be empty, but is ''"),
    ],
)
def test_a_wrong_line_is_named(suite, line, message):
    with pytest.raises(UserError) as error:
        suite({"source": "a"}, line)
    assert f"some.jsonl:{message}" in str(error.value)


def test_names_and_texts_with_odd_characters_stay_on_a_line_and_in_xml(tmp_path):
    path = tmp_path / "o\x1bd\nd.jsonl"
    line = {"source": "a\uffff", "any_of": "b", "category": "c\x00\x1b[31m\n<b>]]>"}
    path.write_text(json.dumps(line))
    read = Suite.read(path, None, ("en", "de"))
    found = Results("new", None, list(rows(read, {"a\uffff": "\x07"}, limit=0).values()), [])
    (row,) = found.as_table().splitlines()[2:3]
    assert row.split()[:3] == ["c", r"\x1b[31m", "<b>]]>"]
    (suite,) = ElementTree.fromstring(as_junit(found).encode())
    assert suite.get("name") == r"suite o\x1bd d"
    assert [case.get("name") for case in suite] == [r"c \x1b[31m <b>]]>"]
    assert "a\ufffd" in str(suite[0][0].text)


def test_a_wrong_pattern_is_named(suite):
    with pytest.raises(UserError) as error:
        suite({"source": "a", "matches": "b"}, "", {"source": "a", "not_matches": ["b", "b("]})
    place = "some.jsonl:3: not_matches: "
    assert f"{place}'b(' is no regular expression: missing )" in str(error.value)
    with pytest.raises(UserError) as error:
        suite()
    assert "has no lines" in str(error.value)


def test_the_command_takes_suites_and_a_limit(tmp_path, monkeypatch):
    paths = {name: tmp_path / name for name in ("terms.jsonl", "limits.yaml", "en", "de")}
    paths["terms.jsonl"].write_text(
        '{"source": "a red car", "any_of": "Auto", "reference": "Auto"}'
    )
    paths["limits.yaml"].write_text("suites: 0")
    paths["en"].write_text("The man is old.\n")
    paths["de"].write_text("Der Mann ist alt.\n")

    def run(translation, status):
        monkeypatch.setattr(
            check, "translate", lambda _, texts, *__: dict.fromkeys(texts, translation)
        )
        words = [
            "check",
            MODEL,
            "--test",
            f"t={paths['en']},{paths['de']}",
            "--format",
            "json",
            "--no-cost",
        ]
        words += ["--suite", paths["terms.jsonl"], "--limits", paths["limits.yaml"]]
        result = CliRunner().invoke(cli.main, list(map(str, words)))
        assert result.exit_code == status, result.output
        return {(row["group"], row["name"]): row for row in json.loads(result.stdout)["checks"]}

    found = run("Auto", 0)
    assert found["quality", "terms chrF2"]["value"] == 100
    assert found["suite terms", "all"]["value"] == 0
    assert run("Wagen", 4)["suite terms", "all"]["problems"] == [
        "1 of 1 lines fail, at most 0.00% may"
    ]


def test_the_documented_conversions_make_suites(tmp_path):
    page = (Path(__file__).parents[2] / "docs/how-to/check-a-model.md").read_text()
    programs = re.findall(r"^    python3 - .*<<'END'\n((?:    .*\n)*?)    END$", page, re.MULTILINE)
    dfki, templates = map(textwrap.dedent, programs)
    item = {"source_sentence": "a", "phenomenon": "p", "positive_regex": "x", "negative_regex": ""}
    own = [
        {**item, "positive_tokens": ["b? c"], "negative_tokens": ["d"]},
        {**item, "positive_regex": "", "positive_tokens": [], "negative_tokens": []},
    ]
    items, path = tmp_path / "items.json", tmp_path / "s.jsonl"
    items.write_text(json.dumps({"items": own}))

    def read(program, *words):
        command = [sys.executable, "-c", program, *words]
        path.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return Suite.read(path, None, ("en", "de"))

    converted = read(dfki, str(items))
    first, second = converted.cases.values()
    assert (first.category, first.reference, second.reference) == ("p", "b? c", None)
    values = [rows(converted, {"a": text})["p"].value for text in ("ax", "b? c", "b", "d", "dx")]
    assert values == [0, 0, 100, 100, 100]
    assert not second.patterns
    assert len(read(templates).cases) == 4
