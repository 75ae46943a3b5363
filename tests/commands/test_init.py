"""``nmt-cli init``: the recipe that it writes, and what it finds in files of several kinds."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.command_line import training
from nmt_cli.commands import init
from nmt_cli.commands.starting import trial
from nmt_cli.commands.starting.plan import (
    Measured,
    parents_for,
    plan_training,
    vocabulary_size,
)
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.training.expected_length import planned_work

ENGLISH = "The quick farmer carries a basket of apples over the old bridge near our house"
FRENCH = "Le fermier porte un panier de pommes sur le vieux pont près de notre maison"
TINY = """\
extends: base
model: {num_layers: 1, d_model: 16, d_ff: 16, num_heads: 2}
training: {tokens_per_step: 512, max_steps: 100, warmup_steps: 10}
data: {max_length: 100}
"""


@pytest.fixture(autouse=True)
def work_in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def measured(monkeypatch):
    """Let a trial measure 1,000 target tokens a second, in pairs of 10 and 12 pieces."""
    found = trial.Trial(Measured(1000, 10, 12), 8000)
    monkeypatch.setattr(init, "try_out", lambda *_, **__: found)


def pairs(number):
    draw = random.Random(1)
    for _ in range(number):
        yield (
            " ".join(draw.choices(FRENCH.split(), k=9)),
            " ".join(draw.choices(ENGLISH.split(), k=8)),
        )


def write_texts(first="c.fr", second="c.en", number=300):
    for side, name in enumerate((first, second)):
        Path(name).write_text("".join(f"{pair[side]}\n" for pair in pairs(number)))


def start(*arguments, status=0, answers=None):
    given = ["init", "mine", "--validation", "20", "--test", "30", *map(str, arguments)]
    result = CliRunner().invoke(cli.main, given, input=answers)
    assert result.exit_code == status, result.output
    return result.stderr


def test_the_recipe_of_two_texts_is_short_and_right(measured):
    write_texts()
    stderr = start("c.fr", "c.en", "--yes")
    text = Path("mine.yaml").read_text()
    assert len(text.splitlines()) <= 25
    recipe = read_recipe("./mine.yaml").recipe
    data = recipe.data
    assert (data.source_language, data.target_language) == ("fr", "en")
    assert data.train[0].text_files == (Path("data/mine/train.fr"), Path("data/mine/train.en"))
    assert data.validation_sets[0].text_files[1] == Path("data/mine/validation.en")
    assert data.test_sets[0].text_files[0] == Path("data/mine/test.fr")
    assert len(Path("data/mine/test.fr").read_text().splitlines()) == 30
    assert recipe.tokenizer.shared
    assert recipe.model == read_recipe("small").recipe.model
    assert "nmt-cli run ./mine.yaml\n" in stderr
    result = CliRunner().invoke(cli.main, ["recipes", "check", "./mine.yaml"])
    assert "vocabulary_size" in result.stderr  # the trial, which would lower it, is not made here


def test_a_trial_finds_the_rate_and_a_vocabulary_that_the_text_can_fill(monkeypatch):
    write_texts()
    Path("tiny.yaml").write_text(TINY)
    monkeypatch.setattr(init, "parents_for", lambda _: [str(Path("tiny.yaml").resolve())])
    monkeypatch.setattr(init, "vocabulary_size", lambda _: 1200)
    monkeypatch.setattr(trial, "FEWEST_PIECES", 260)
    start("c.fr", "c.en", "--yes")
    recipe = read_recipe("./mine.yaml").recipe
    assert recipe.tokenizer.vocabulary_size in {300, 600}
    result = CliRunner().invoke(cli.main, ["recipes", "check", "./mine.yaml"])
    assert (result.exit_code, result.stdout) == (0, "recipe ok\n"), result.stderr
    result = CliRunner().invoke(cli.main, ["preprocess", "./mine.yaml", "--quiet"])
    assert result.exit_code == 0, result.stderr


def test_the_epochs_of_a_text_sorted_by_length_are_those_of_its_training(monkeypatch):
    texts = sorted(pairs(300), key=lambda pair: len(pair[0]))
    for side, name in enumerate(("c.fr", "c.en")):
        lines = [pair[side].split() for pair in texts]
        short = [" ".join(line[: 2 + place // 50]) for place, line in enumerate(lines)]
        Path(name).write_text("".join(f"{line}\n" for line in short))
    Path("tiny.yaml").write_text(TINY)
    monkeypatch.setattr(init, "parents_for", lambda _: [str(Path("tiny.yaml").resolve())])
    monkeypatch.setattr(init, "vocabulary_size", lambda _: 290)
    monkeypatch.setattr(trial, "MOST_PAIRS", 100)
    start("c.fr", "c.en", "--yes", "--source-language", "fr", "--target-language", "en")
    arguments = ["preprocess", "./mine.yaml", "--quiet", "--prepared", "prepared"]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0, result.stderr
    recipe = read_recipe("./mine.yaml").recipe
    planned = planned_work(recipe, open_prepared(Path("prepared"), recipe, ""))
    assert planned is not None
    comment = Path("mine.yaml").read_text().partition("training: # ")[2]
    epochs = float(comment.partition(" epochs")[0])
    assert epochs == pytest.approx(planned.epochs, rel=0.1)


def test_languages_of_other_scripts_get_vocabularies_of_their_own(measured):
    write_texts()
    lines = (
        f"Ο αγρότης {'πέρασε ' * (number % 60)}την παλιά γέφυρα {'ξανά ' * (number // 60)}\n"
        for number in range(300)
    )
    Path("c.el").write_text("".join(lines))
    start("c.en", "c.el", "--yes")
    recipe = read_recipe("./mine.yaml").recipe
    assert (recipe.data.target_language, recipe.tokenizer.shared) == ("el", False)


def test_the_text_decides_against_a_wrong_name(measured):
    write_texts("c.en", "c.fr")  # the names are exchanged
    start("c.en", "c.fr", "--yes")
    data = read_recipe("./mine.yaml").recipe.data
    assert (data.source_language, data.target_language) == ("fr", "en")


def test_languages_are_found_behind_short_lines_at_the_begin(measured):
    rows = "".join(f"{source}\t{target}\n" for source, target in pairs(12_000))
    Path("c.tsv").write_text("".join(f"Ha {n} !\tHa {n}!\n" for n in range(600)) + rows)
    start("c.tsv", "--yes")
    data = read_recipe("./mine.yaml").recipe.data
    assert (data.source_language, data.target_language) == ("fr", "en")


def test_keys_that_are_codes_of_languages_are_found(measured):
    rows = (json.dumps({"id": "7", "en": target, "fr": source}) for source, target in pairs(300))
    Path("c.jsonl").write_text("\n".join(rows))
    assert "Taking the keys en and fr of c.jsonl." in start("c.jsonl", "--yes")
    data = read_recipe("./mine.yaml").recipe.data
    assert data.train[0].columns == ("en", "fr")
    assert (data.source_language, data.target_language) == ("en", "fr")


def test_one_language_on_both_sides_is_warned_of(measured):
    write_texts()
    lines = Path("c.fr").read_text().splitlines()
    Path("c.txt").write_text("".join(f"Puis {line}\n" for line in lines))
    assert "Warning: both sides are French; if that is wrong" in start("c.fr", "c.txt", "--yes")


def test_a_csv_in_utf_16_comes_with_the_command_that_converts_it(measured):
    Path("c.csv").write_text("fr,en\nUn chien,A dog\n", encoding="utf-16")
    stderr = start("c.csv", "--yes", status=1)
    assert "iconv -f UTF-16 -t UTF-8 c.csv > utf8-c.csv" in stderr
    assert stderr.count("\n") == 1


def test_entities_are_warned_of_once_and_before_the_split(measured):
    rows = "".join(
        f"{source} &amp; {n}\t{target}\n" for n, (source, target) in enumerate(pairs(300))
    )
    Path("c.tsv").write_text(rows)
    stderr = start("c.tsv", "--yes")
    assert stderr.count("HTML entities such as &amp;") == 1
    assert "< c.tsv > unescaped-c.tsv" in stderr
    assert stderr.index("HTML entities") < stderr.index("training, ")


def test_what_is_given_is_taken(measured):
    write_texts()
    start("c.fr", "c.en", "--yes", "--source-language=fr-CA", "--target-language=en-GB")
    data = read_recipe("./mine.yaml").recipe.data
    assert (data.source_language, data.target_language) == ("fr-CA", "en-GB")


def test_a_table_with_a_header_gives_its_columns(measured):
    rows = "".join(f"{target}\t{source}\n" for source, target in pairs(300))
    Path("c.tsv").write_text(f"English\tFrench\n{rows}")
    stderr = start("c.tsv", "--yes")
    corpus = read_recipe("./mine.yaml").recipe.data.train[0]
    assert (corpus.tsv, corpus.columns) == (Path("data/mine/train.tsv"), ("English", "French"))
    assert Path("data/mine/train.tsv").read_text().startswith("English\tFrench\n")
    assert "The first row of c.tsv names its columns." in stderr


def test_json_lines_keep_their_keys(measured):
    rows = (json.dumps({"t": {"fr": source, "en": target}}) for source, target in pairs(300))
    Path("c.jsonl").write_text("\n".join(rows))
    start("c.jsonl", "--yes", "--columns", "t.fr,t.en")
    data = read_recipe("./mine.yaml").recipe.data
    assert data.train[0].columns == ("t.fr", "t.en")
    assert (data.source_language, data.target_language) == ("fr", "en")


def test_a_memory_names_its_languages(measured):
    def variant(language, text):
        return f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>'

    def write(*languages):
        units = "".join(
            "<tu>" + "".join(map(variant, languages, (*pair, pair[0]))) + "</tu>"
            for pair in pairs(300)
        )
        Path("c.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>')

    write("fr", "en-GB")
    start("c.tmx", "--yes")
    data = read_recipe("./mine.yaml").recipe.data
    assert data.train[0].tsv == Path("data/mine/train.tsv")
    assert (data.source_language, data.target_language) == ("fr", "en-GB")
    start("c.tmx", "--yes", "--force", "--source-language", "en")
    data = read_recipe("./mine.yaml").recipe.data
    assert (data.source_language, data.target_language) == ("en", "fr")
    first = Path("data/mine/train.tsv").read_text().splitlines()[0].split("\t")
    assert set(first[0].split()) <= set(ENGLISH.split())
    assert set(first[1].split()) <= set(FRENCH.split())
    write("fr", "en", "es")
    stderr = start("c.tmx", "--yes", "--force", status=1)
    assert "c.tmx has the languages fr, en and es; add --source-language" in stderr


@pytest.mark.parametrize("options", [(), ("--target-language", "en")])
def test_the_language_of_the_sources_of_po_is_found_by_their_text(measured, options):
    entries = (f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in pairs(300))
    header = 'msgid ""\nmsgstr "Language: en\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
    Path("c.po").write_text(header + "".join(entries))
    start("c.po", "--yes", *options)
    data = read_recipe("./mine.yaml").recipe.data
    assert (data.source_language, data.target_language) == ("fr", "en")


def test_a_terminal_is_asked(measured, monkeypatch):
    write_texts()
    monkeypatch.setattr(training, "is_terminal", lambda: True)
    stderr = start("c.fr", "c.en", answers="\nen-US\n0.1\n")
    data = read_recipe("./mine.yaml").recipe.data
    assert (data.source_language, data.target_language) == ("fr", "en-US")
    assert "Code of the source language [fr]:" in stderr
    assert "Hours of training" in stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("c.fr", "c.en"), 2, "stdin is no terminal; add --yes to take what is found."),
        (("c.fr", "digits", "--yes"), 1, "the language of the target in c.fr and digits is not"),
        (("c.fr", "c.en", "--yes", "--source-language", "xx"), 1, "--source-language: xx is no"),
        (("c.fr", "none", "--yes"), 1, "none not found"),
        (("c.fr", "c.en", "--yes", "--hours", "nan"), 2, "more than 0, but are nan."),
        (("c.fr", "c.en", "--source-lang", "fr"), 2, "Did you mean --source-language fr?"),
        (("c.fr", "c.en", "short", "--yes"), 2, "give the two texts of a corpus, or one file"),
        (("c.fr", "short", "--yes"), 1, "c.fr has 300 lines but short has 1; line n of one must"),
    ],
)
def test_wrong_use_is_one_line_and_leaves_nothing(measured, arguments, status, message):
    write_texts()
    Path("digits").write_text("".join(f"{n}\n" for n in range(300)))
    Path("short").write_text("one\n")
    before = sorted(Path().rglob("*"))
    stderr = start(*arguments, status=status)
    assert message in stderr
    assert "Traceback" not in stderr
    assert sorted(Path().rglob("*")) == before


def test_what_exists_is_replaced_only_by_force(measured):
    write_texts()
    start("c.fr", "c.en", "--yes")
    assert "mine.yaml already exists; add --force" in start("c.fr", "c.en", "--yes", status=1)
    start("c.fr", "c.en", "--yes", "--force")
    Path("mine.yaml").unlink()
    Path("data/mine/manifest.json").unlink()
    stderr = start("c.fr", "c.en", "--yes", status=1)
    assert "data set of data split; choose another NAME." in stderr


def test_endings_of_any_letters(measured):
    write_texts("c.\U0001f41c", "c.\u00e9 b")
    given = ("--yes", "--source-language", "fr", "--target-language", "en")
    start("c.\U0001f41c", "c.\u00e9 b", *given)
    found = read_recipe("./mine.yaml").recipe.data.train[0].text_files
    assert found == (Path("data/mine/train.\U0001f41c"), Path("data/mine/train.\u00e9 b"))
    assert all(path.is_file() for path in found)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, UserError("no room")])
def test_what_is_interrupted_leaves_nothing(monkeypatch, failure):
    def fail(*_, **__):
        raise failure

    write_texts()
    monkeypatch.setattr(init, "try_out", fail)
    before = sorted(Path().rglob("*"))
    start("c.fr", "c.en", "--yes", status=130 if failure is KeyboardInterrupt else 1)
    assert [path for path in sorted(Path().rglob("*")) if path not in before] == [Path("data")]


@pytest.mark.parametrize("name", ["c.fr", "c.csv"])
def test_text_in_another_encoding_is_refused_by_the_name_of_its_file(measured, name):
    write_texts()
    french = [f"Le fermier déjà fatigué a traversé la forêt près du café, {n}" for n in range(300)]
    english = Path("c.en").read_text().splitlines()
    given = ("c.fr", "c.en") if name == "c.fr" else (name, "--columns", "1,2")
    rows = french if name == "c.fr" else map(";".join, zip(french, english, strict=True))
    Path(name).write_text("\n".join(rows), encoding="latin-1")
    languages = ("--source-language", "fr", "--target-language", "en")
    stderr = start(*given, *languages, "--yes", status=1)
    assert f"Error: {name} is ISO-8859-1 text. Convert it to UTF-8: iconv -f ISO-8859-1" in stderr
    assert not Path("data/mine").exists()


def test_a_forgotten_name_is_proposed_with_the_files():
    write_texts()
    result = CliRunner().invoke(cli.main, ["init", "c.fr", "c.en", "--yes"])
    assert result.exit_code == 2
    assert "but it is c.fr. For example: nmt-cli init mine c.fr c.en" in result.stderr
    result = CliRunner().invoke(cli.main, ["init", "mine.yaml", "c.fr", "c.en", "--yes"])
    assert "but it is mine.yaml. For example: nmt-cli init mine c.fr c.en" in result.stderr
    Path("own.yaml").write_text("extends: small")
    result = CliRunner().invoke(cli.main, ["init", "own.yaml", "c.fr", "c.en", "--yes"])
    assert "but it is own.yaml. For example: nmt-cli init own c.fr c.en" in result.stderr


def test_messages_about_a_csv_have_its_name(measured):
    Path("c.csv").write_text("".join(f"{french},{english}\n" for french, english in pairs(40)))
    stderr = start("c.csv", "--yes", status=1)
    assert "Error: 40 pairs in c.csv, 40 of them with sentences of their own, but 50" in stderr


def test_the_line_ends_of_old_macs_are_named(measured):
    write_texts()
    Path("c.fr").write_text(Path("c.fr").read_text().replace("\n", "\r"), newline="")
    assert start("c.fr", "c.en", "--yes", status=1).startswith(
        "Error: c.fr has the line ends of old Macs (CR alone)"
    )


def test_few_pairs_for_training_are_warned_of(measured):
    write_texts(number=300)
    assert "fewer pairs are left for training" not in start("c.fr", "c.en", "--yes")
    stderr = start("c.fr", "c.en", "--yes", "--force", "--test", "140")
    assert "Warning: fewer pairs are left for training than are held out" in stderr


def test_hours_that_cannot_be_kept_are_warned_of(measured):
    write_texts(number=3000)
    stderr = start("c.fr", "c.en", "--yes", "--hours", "0.001")
    assert "Warning: 0.001 h are too few: a training has 200 steps at least" in stderr
    assert "are too few" not in start("c.fr", "c.en", "--yes", "--force", "--hours", "2")


def test_larger_texts_get_larger_models():
    assert [parents_for(number)[0] for number in (1, 200_000, 200_001, 2_000_001)] == [
        *("small", "small", "medium", "base")
    ]
    assert parents_for(3_000_000) == ["base", "medium", "small"]
    sizes = [vocabulary_size(number) for number in (10_000, 100_000, 1_000_000, 10_000_000)]
    assert sizes == [4000, 8000, 16_000, 32_000]


def test_a_plan_fits_the_text_and_the_hours():
    measured = Measured(target_tokens_per_second=1000, source_pieces=10, target_pieces=12)
    free = plan_training("small", 30_000, measured, None)
    assert free.epochs == pytest.approx(40, rel=0.01)
    assert free.max_steps * 4096 == pytest.approx(40 * 30_000 * 12, rel=0.01)
    assert free.hours_of_text == pytest.approx(14.4e6 / 1000 / 3600 / 0.8)
    assert free.hours == pytest.approx(free.hours_of_text, rel=0.01)
    half = plan_training("small", 30_000, measured, free.hours / 2)
    assert half.hours == pytest.approx(free.hours / 2, rel=0.01)
    assert half.tokens_per_step == 2048  # else there were fewer than 2,000 steps
    assert half.epochs == pytest.approx(20, rel=0.01)
    longer_source = plan_training("small", 30_000, Measured(1000, 24, 12), None)
    assert longer_source.max_steps * 2048 == pytest.approx(40 * 30_000 * 12, rel=0.01)
    assert plan_training("small", 30_000, measured, 0.001).max_steps == 200
    epochs = [plan_training("small", n, measured, None).epochs for n in (5000, 30_000, 200_000)]
    assert epochs[0] == pytest.approx(epochs[1], rel=0.01)
    assert 15 < epochs[2] < 25
