"""The command check: each fault is planted and found, a good model passes, limits decide."""

import html
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import check
from nmt_cli.commands.model_checks.behaviour import CHECKS, PROBES, terms_of
from nmt_cli.commands.model_checks.shares import sign_test
from nmt_cli.commands.model_checks.texts import Case
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.translation_faults import is_of_other_script
from nmt_cli.recipe.limits import read_limits

FORMATS = Path(__file__).parents[1] / "formats"
MODEL = FORMATS / "format_2/whitespace/run/average"
SOURCES = [f"The old man number {i} reads a long book in his garden." for i in range(1, 41)]
TARGETS = [
    f"Der alte Mann Nummer {i} liest ein langes Buch in seinem Garten." for i in range(1, 41)
]
TRANSLATED = {  # of the probes, too
    **dict(zip(SOURCES, TARGETS, strict=True)),
    **{
        form.replace("…", source): form.replace("…", target)
        for form in PROBES.values()
        for source, target in zip(SOURCES, TARGETS, strict=True)
    },
}
SOURCE, TARGET = "Ask the old man for 25 apples.", "Bitte den alten Mann um 25 Äpfel."
# By the check that finds it: a source, a correct translation and a wrong one.
PLANTED = [
    ("empty", SOURCE, TARGET, "\u200b "),
    ("untranslated", SOURCE, TARGET, SOURCE),
    ("language", SOURCE, TARGET, "Demandez au vieil homme de vous donner 25 pommes rouges."),
    ("language", SOURCE, TARGET, "Попросите старика дать вам 25 яблок."),
    ("repetition", SOURCE, TARGET, "Bitte den alten Mann, den alten Mann, den alten Mann um 25."),
    ("repetition", SOURCE, TARGET, "Bitte bitte bitte bitte bitte bitte."),
    ("length", f"{SOURCE} {SOURCE}", f"{TARGET} {TARGET}", TARGET[:-3]),
    ("length", SOURCE, TARGET, TARGET + " Und wir sahen gestern dann noch den ganzen weiten See."),
    ("numbers", SOURCE, TARGET, "Bitte den alten Mann um 52 Äpfel und 1 Birne."),
    ("urls", "See https://a.org/b?c=1.", "Siehe https://a.org/b?c=1.", "Siehe https://a.org/b."),
    ("emails", "Write to me@a.org.", "Schreibe an me@a.org.", "Schreibe an mich@a.org."),
    ("placeholders", "{n} of %d files", "%d Dateien, davon {n}", "{ n } von %d Dateien"),
    ("tags", "a <b>red</b> car", "ein <b>rotes</b> Auto", "ein <b>rotes< / b> Auto"),
    ("emoji", "Good 👍🏽", "Gut 👍🏽", "Gut 👍"),
    ("symbols", "5 € © me", "© ich, 5 €", "5 EUR © ich"),
    ("end_punctuation", "Are you here?", "Bist du hier?", "Bist du hier."),
    ("end_punctuation", "Save the file", "Die Datei speichern", "Die Datei speichern."),
    ("brackets_and_quotes", "a (red) car", "ein (rotes) Auto", "ein (rotes Auto"),
    ("brackets_and_quotes", 'He says "no".', "Er sagt „nein“.", "Er sagt „nein."),
]


@pytest.mark.parametrize(("name", "source", "correct", "wrong"), PLANTED)
def test_each_fault_is_found_by_its_check(name, source, correct, wrong):
    lines = [Case(source, None, ("en", "de"), reference=ref) for ref in (correct, None)]
    assert [CHECKS[name](line, correct) for line in lines] == (
        [False, None if name == "length" else False]
    )
    assert CHECKS[name](lines[0], wrong)


def test_every_check_has_a_planted_fault():
    assert {name for name, *_ in PLANTED} == set(CHECKS)
    assert set(PROBES) < set(CHECKS)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_what_the_reference_does_too_is_no_fault(name):
    odd = {
        "untranslated": ("Rio de Janeiro Branco", "Rio de Janeiro Branco"),
        "numbers": ("Give me 2.", "Gib mir zwei."),
        "end_punctuation": ("Save", "Speichern."),
        "urls": ("See https://a.org/en.", "Siehe https://a.org/de."),
        "symbols": ("It costs 5 $.", "Es kostet 4 €."),
        "repetition": ("ha ha ha ha ha", "ha ha ha ha ha"),
        "language": ("He said it.", "Demandez au vieil homme de vous donner des pommes rouges."),
        "brackets_and_quotes": ("1) here", "1) hier"),
    }
    source, target = odd.get(name, (SOURCE, TARGET))
    assert not CHECKS[name](Case(source, None, ("en", "de"), reference=target), target)


def test_lines_without_what_a_check_is_about_do_not_count():
    line = Case("The old man reads.", None, ("en", "de"))
    translation = "Der alte Mann liest 5 Bücher 👍 {n}."
    about = ("numbers", "urls", "emails", "placeholders", "tags", "emoji", "symbols", "length")
    assert [CHECKS[name](line, translation) for name in about] == [None] * len(about)


def test_terms_are_rendered_in_any_of_their_forms():
    has_terms = terms_of(Glossary.of({"apple": ["Apfel", "Äpfeln"], "man": "Mann"}))
    line = Case("an apple", None, ("en", "de"))
    assert has_terms(line, "mit Äpfeln") is False
    assert has_terms(line, "eine Birne") is True
    assert has_terms(line._replace(source="a pear"), "") is None


@pytest.mark.parametrize(
    ("worse", "better", "p_value", "verdict"),
    [
        (0, 0, 1.0, "not significant"),
        (7, 0, 1 / 128, "worse"),
        (0, 7, 1 / 128, "better"),
        (6, 0, 1 / 64, "not significant"),
        (8, 1, 10 / 512, "not significant"),  # (9 + 1) of the 512 outcomes
    ],
)
def test_the_sign_test_is_exact(worse, better, p_value, verdict):
    ours = [True] * worse + [False] * better + [True, False] * 5
    old = [False] * worse + [True] * better + [True, False] * 5
    assert sign_test(ours, old) == (p_value, verdict)


@pytest.fixture
def texts(tmp_path):
    """Write the test set; return the option that names it."""
    paths = []
    for name, lines in (("en", SOURCES), ("de", TARGETS)):
        paths.append(tmp_path / f"news.{name}")
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    return ["--test", f"news={paths[0]},{paths[1]}"]


@pytest.fixture
def checked(texts, monkeypatch):
    """Return a function that runs the command with models that are functions of a text."""

    def call(model, *options, old=None, status=0):
        models = iter([model, old])

        def translate(_, wanted, *__):
            function = next(models)
            return {text: function(text[0], TRANSLATED.get(text[0], "")) for text in wanted}

        monkeypatch.setattr(check, "translate", translate)
        words = [
            "check",
            MODEL,
            *texts,
            "--no-cost",
            *options,
            *(["--against", MODEL] if old else []),
        ]
        result = CliRunner().invoke(cli.main, list(map(str, words)))
        assert result.exit_code == status, result.output
        return result

    return call


def good(_, target):
    return target


def rows_of(result):
    """Return the rows by their names, but those of texts that the models here do not know."""
    rows = json.loads(result.stdout)["checks"]
    return {row["name"]: row for row in rows if row["group"] in {"quality", "behaviour"}}


def test_a_good_model_passes(checked):
    result = checked(good, "--format", "json")
    assert all(not row["value"] for name, row in rows_of(result).items() if "news" not in name)
    assert rows_of(result)["news BLEU"]["value"] == pytest.approx(100)
    assert json.loads(result.stdout)["may_be_used"] is True
    again = checked(good, "--format", "json")
    assert again.stdout == result.stdout
    assert "The model may be used: every limit is met." in checked(good).stdout


def some(wrong):
    """Return a model that translates every tenth line wrongly."""
    return lambda source, target: (
        wrong(source, target) if " 7 " in source or "10 " in source else target
    )


GROSS = {
    "empty": lambda *_: "",
    "repetition": lambda _, target: f"{target} {target} {target}",
}


@pytest.mark.parametrize("name", GROSS)
def test_gross_faults_fail_without_limits(checked, name):
    text = checked(some(GROSS[name]), status=4).stdout
    assert f"behaviour, {name}: " in text
    assert "The model may not be used: 1 limit is not met." in text
    (example, *_) = rows_of(checked(some(GROSS[name]), "--format", "json", status=4))[name][
        "examples"
    ]
    assert (example["line"], example["source"]) == ("news:7", SOURCES[6])
    assert example["source"] in text


def test_other_faults_are_only_shown_without_limits(checked):
    result = checked(lambda _, target: target.replace("Nummer", "9 Nummer"), "--format", "json")
    assert rows_of(result)["numbers"]["value"] == 100
    assert len(rows_of(result)["numbers"]["examples"]) == 5


LIMITS = """
quality: {min_bleu: 99.5, min_chrf: 99.5}
behaviour:
  numbers: 0.02
"""


def test_limits_of_a_file_decide(checked, tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text(LIMITS)
    assert not checked(good, "--limits", path).stderr.count("Error")
    text = checked(some(lambda _, t: t.replace("Nummer", "3")), "--limits", path, status=4).stdout
    assert "behaviour, numbers: " in text
    assert "lines fail, at most 2.00% may" in text
    assert "is less than 99.5" in text
    path.write_text("behaviour: {empty: null}")
    assert checked(some(GROSS["empty"]), "--limits", path).exit_code == 0


def test_limits_that_nothing_is_compared_with_are_named(checked, tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text("quality: {max_chrf_loss: 1}\nbehaviour: {terms: 0}\n")
    notes = checked(good, "--limits", path).stdout
    assert f"What is lost to OLD has a limit in {path}, but there is no --against OLD." in notes
    assert f"behaviour.terms has a limit in {path}, but there are no --terms FILE." in notes
    assert "lost to OLD has" not in checked(good, "--limits", path, old=good).stdout


def test_long_lines_get_no_variants(checked, tmp_path, texts):
    texts[1:] = [f"news={tmp_path}/long.en,{tmp_path}/long.de"]
    for name in ("en", "de"):
        (tmp_path / f"long.{name}").write_text(f"{'Anna sees two dogs. ' * 60}\nAnna sees a dog.\n")
    found = {}
    for row in json.loads(checked(good, "--format", "json", status=4).stdout)["checks"]:
        found[row["group"], row["name"]] = row["lines"]
    assert found["behaviour", "empty"] == 2 + 7  # one line with each kind of addition
    assert found["invariance", "upper_case"] == 1


def test_bytes_that_are_no_text_are_counted(checked, tmp_path, texts):
    texts[1:] = [f"news={tmp_path}/latin.en,{tmp_path}/latin.de"]
    for name in ("en", "de"):
        (tmp_path / f"latin.{name}").write_bytes("Caf\xe9.\n".encode("latin-1"))
    errors = checked(good, status=4).stderr
    assert "latin.de, 2 lines have bytes that are not UTF-8." in errors


def test_the_worst_line_comes_first(checked):
    def model(source, target):
        if " 5 " in source:
            return "Der alte Mann Nummer 6 liest ein langes Buch in seinem Garten."
        return "9" if " 8 " in source else target

    rows = rows_of(checked(model, "--format", "json"))
    assert [each["line"] for each in rows["numbers"]["examples"]][:2] == ["news:8", "news:5"]
    assert rows["news BLEU"]["examples"][0]["line"] == "news:8"


def test_wrong_limits_are_named_by_line(checked, tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text("may_be_worse: perhaps\nbehaviour:\n  number: 0.1\n  urls: 2\nspeed: 1\n")
    error = checked(good, "--limits", path, status=1).stderr
    assert error.splitlines() == [
        f"Error: {path}:1: may_be_worse: must be true or false, but is perhaps",
        f"{path}:3: behaviour.number: is not a key here; did you mean numbers?",
        f"{path}:4: behaviour.urls: must be at most 1, but is 2",
        f"{path}:5: speed: is not a key here; those are may_be_worse, quality, behaviour, "
        "invariance, single_words, suites",
    ]
    path.write_text("quality: 3\n")
    assert (
        "quality: must have keys and values, but is 3"
        in checked(good, "--limits", path, status=1).stderr
    )
    path.write_text("")
    assert checked(good, "--limits", path).exit_code == 0


def test_every_limit_is_documented_with_its_default():
    page = (Path(__file__).parents[2] / "docs/how-to/check-a-model.md").read_text()

    def keys(section, prefix=""):
        for name, value in section.items():
            if isinstance(value, dict):
                yield from keys(value, f"{name}.")
            else:
                yield f"`{prefix}{name}`", "none" if value is None else str(value).lower()

    for key, default in keys(read_limits(None, check.LIMITS)):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {key} |")]
        assert row.split("|")[2].strip() in {default, default.removesuffix(".0")}


def test_a_real_model_is_checked_with_the_texts_of_its_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["check", str(MODEL), "--device", "cpu", "--format", "json", "--no-cost"]
    missing = CliRunner().invoke(cli.main, words)
    assert "validation.en" in missing.stderr
    for language in ("en", "de"):
        lines = (FORMATS / f"text/train.{language}").read_text().splitlines()[:20]
        Path(f"validation.{language}").write_text("\n".join(lines))
    result = CliRunner().invoke(cli.main, words)
    assert result.exit_code == 0, result.output
    assert rows_of(result)["validation BLEU"]["value"] == pytest.approx(100)
    assert rows_of(result)["urls"]["value"] == 100  # it never saw one
    assert CliRunner().invoke(cli.main, words).stdout == result.stdout


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (
            ["--test", "news"],
            2,
            "'news' is not NAME=SOURCE,REFERENCE, such as news=news.en,news.de",
        ),
        *(
            (
                ["--test", f"{name}=a.en,b.de"],
                2,
                f"the name {name!r} must be 1 to 40 of the characters A-Z a-z 0-9 _ -, the f",
            )
            for name in ("news.2024", "news 2024", "zürich", "n" * 41, "", "-x")
        ),
        (["--test", "a=none.en,none.de"], 1, "none.en not found"),
        (["--against", "none"], 1, "model none not found"),
        (
            [*["--test", f"a={FORMATS}/text/train.en,{FORMATS}/text/train.de"] * 2],
            1,
            "2 test sets and suites are called a; rename one of them.",
        ),
    ],
)
def test_wrong_input_is_one_line(words, status, message):
    result = CliRunner().invoke(cli.main, ["check", str(MODEL), *words])
    assert result.exit_code == status
    assert message in result.stderr


def every_fourth(wrong):
    numbers = range(4, 41, 4)
    return lambda source, target: (
        wrong(target) if any(f" {number} " in source for number in numbers) else target
    )


def worse_number(target):
    return target.replace("Nummer", "Nummer 9")


def test_a_model_that_is_worse_than_the_old_one_fails(checked, tmp_path):
    result = checked(every_fourth(worse_number), old=good, status=4)
    assert "numbers: significantly more lines fail than with OLD (p <0.0001)" in result.stdout
    assert "news BLEU: significantly worse than OLD's (p " in result.stdout
    assert f"  OLD          {TARGETS[3]}" in result.stdout
    path = tmp_path / "limits.yaml"
    path.write_text("may_be_worse: true")
    rows = rows_of(
        checked(every_fourth(worse_number), "--limits", path, "--format", "json", old=good)
    )
    assert rows["numbers"]["verdict"] == rows["news BLEU"]["verdict"] == "worse"
    path.write_text("may_be_worse: true\nquality: {max_bleu_loss: 0.5, max_chrf_loss: 50}")
    text = checked(every_fourth(worse_number), "--limits", path, old=good, status=4).stdout
    assert "less than OLD's; 0.5 less is allowed" in text
    assert "The model may not be used: 1 limit is not met." in text


def test_a_model_that_is_better_or_the_same_passes(checked):
    rows = rows_of(checked(good, "--format", "json", old=every_fourth(worse_number)))
    assert rows["numbers"]["verdict"] == rows["news BLEU"]["verdict"] == "better"
    assert (rows["numbers"]["value"], rows["numbers"]["old"]) == (0, 25)
    one = every_fourth(worse_number)
    same = rows_of(checked(one, "--format", "json", old=one))
    assert {row["verdict"] for row in same.values()} == {"not significant"}
    assert {row["p_value"] for row in same.values()} == {1.0}


def test_lines_that_only_the_new_model_fails_come_first(checked):
    def old(source, target):
        return worse_number(target) if any(f" {n} " in source for n in range(1, 30)) else target

    model = every_fourth(worse_number)
    examples = rows_of(checked(model, "--format", "json", old=old, status=0))["numbers"]["examples"]
    assert [each["line"] for each in examples[:3]] == ["news:32", "news:36", "news:40"]


def test_scores_are_compared_as_by_score_compare(checked, texts, tmp_path):
    model = every_fourth(worse_number)
    rows = rows_of(checked(model, "--format", "json", old=good, status=4))
    outputs = [tmp_path / "old", tmp_path / "model"]
    for path, function in zip(outputs, (good, model), strict=True):
        lines = map(function, SOURCES, TARGETS)
        path.write_text("".join(f"{line}\n" for line in lines))
    reference = texts[1].partition(",")[2]
    words = ["score", outputs[0], reference, "--compare", outputs[1], "--format", "json"]
    found = CliRunner().invoke(cli.main, list(map(str, words)))
    system = json.loads(found.stdout)["comparison"]["systems"][1]
    for key, name in (("bleu", "news BLEU"), ("chrf", "news chrF2")):
        assert system[key]["p_value"] == rows[name]["p_value"]
        assert system[key]["score"] == rows[name]["value"]


def test_junit_has_a_test_for_each_check(checked):
    figures = json.loads(checked(some(lambda *_: "\x07"), "--format", "json", status=4).stdout)
    text = checked(some(lambda *_: "\x07"), "--format", "junit", status=4).stdout
    suites = list(ElementTree.fromstring(text.encode()))
    assert [each.get("name") for each in suites] == [
        "quality",
        "behaviour",
        "invariance",
        "single words",
    ]
    found = [(s.get("name"), c.get("name"), c) for s in suites for c in s]
    rows = figures["checks"]
    assert [(group, name) for group, name, _ in found] == [
        (row["group"], row["name"].replace("_", " ")) for row in rows
    ]
    for row, (_, _, case) in zip(rows, found, strict=True):
        assert [each.get("message") for each in case.iter("failure")] == (
            ["; ".join(row["problems"])] if row["problems"] else []
        )
        assert bool(list(case.iter("skipped"))) == (row["value"] is None)
    for suite in suites:
        for kind, child in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
            assert int(suite.attrib[kind]) == len(list(suite.iter(child)))
    (failure,) = ElementTree.fromstring(text.encode()).iter("failure")
    assert failure.get("message") == "16 of 320 lines fail, at most 0.00% may"
    assert SOURCES[6] in str(failure.text)


def test_cost_is_apart_and_beside_the_old_model(texts):
    words = ["check", MODEL, *texts, "--against", MODEL, "--device", "cpu", "--format", "json"]
    words = list(map(str, words))
    result = CliRunner().invoke(cli.main, words)
    found = json.loads(result.stdout)
    assert len(found["cost"]) == 2
    for cost in found["cost"]:
        assert cost["ms_of_one_line"] < 1000 < 1000 * cost["lines_per_second"]
        assert 20 < cost["megabytes_in_memory"] < 110  # torch would take more
        files = sum(each.stat().st_size for each in MODEL.iterdir() if each.name != "lexicon")
        assert cost["megabytes_on_disk"] == pytest.approx(files / 1e6, abs=0.01)
    without = json.loads(CliRunner().invoke(cli.main, [*words, "--no-cost"]).stdout)
    assert without == {**found, "cost": []}


def test_the_page_has_every_figure_and_example(checked, tmp_path):
    page = tmp_path / "check.html"
    model = some(lambda *_: "<b>")
    figures = json.loads(checked(model, "--format", "json", old=good, status=4).stdout)
    checked(model, "--output", page, old=good, status=4)
    text = re.sub(r"<[^>]*>", "\n", page.read_text())  # of the elements, as a reader sees it
    lines = [html.unescape(line) for line in text.split("\n")]
    for row in figures["checks"]:
        assert row["name"].replace("_", " ") in lines
        if row["value"] is not None:
            assert f"{row['value']:.2f}" in lines
            assert f"{row['old']:.2f}" in lines
        for example in row["examples"]:
            assert {*example.values()} <= {*lines}
    assert {*figures["problems"], "no"} <= {*lines}
    assert not re.search("(src|href)=", page.read_text())
    before = page.read_bytes()
    refused = checked(model, "--output", page, old=good, status=1)
    assert "already exists" in refused.stderr
    checked(model, "--output", page, "--force", old=good, status=4)
    assert page.read_bytes() == before


def test_examples_of_both_scores_are_printed_once(checked):
    text = checked(every_fourth(worse_number), old=good, status=4).stdout
    assert "quality, news BLEU: 5 examples" in text
    assert "quality, news chrF2: 5 examples" not in text


def test_terms_are_checked_with_a_limit(checked, tmp_path):
    terms, limits = tmp_path / "terms.tsv", tmp_path / "limits.yaml"
    terms.write_text("garden\tGarten ||| Park\nhouse\tHaus\n")
    limits.write_text("behaviour: {terms: 0.3}")
    options = ["--terms", terms, "--limits", limits, "--format", "json"]
    assert rows_of(checked(good, *options))["terms"]["value"] == 0
    found = rows_of(checked(lambda _, t: t.replace("Garten", "Hof"), *options, status=4))["terms"]
    assert (found["value"], found["examples"][0]["line"][:5]) == (100, "news:")
    assert "terms" not in rows_of(checked(good, "--format", "json"))


@pytest.mark.parametrize(
    ("text", "language", "is_other"),
    [
        ("Мы видели новый iPhone 15 в Apple Store.", "ru", False),
        ("We saw the new iPhone в Москве", "ru", False),
        ("We saw the new iPhone in Москве", "ru", True),
        ("NHKのニュース", "ja", False),
        ("Breaking news of today", "ja", True),
        ("iPhone Pro Max", "xx", False),  # a language whose script is not known
        ("Tim Cook", "ru", False),  # a name alone
    ],
)
def test_another_script_is_that_of_nearly_all_letters(text, language, is_other):
    assert is_of_other_script(text, language) is is_other
