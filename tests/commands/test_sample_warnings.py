"""What preprocess and recipes check --text warn of after a look at a sample of each corpus."""

import gzip
import html
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import recipes
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError
from tests.plain_sentences import sentences, tokenized
from tests.real_text import real_file

RECIPE = """\
description: real sentences
data:
  source_language: en
  target_language: de
  train: [{source: data/a.en, target: data/a.de}]
  validation: {source: data/val.en, target: data/val.de}
tokenizer: {vocabulary_size: 320}
"""


@pytest.fixture
def messages(corpus, capsys, monkeypatch):
    """Write real sentences; return a function that returns what check says of them."""
    logs.configure(quiet=False)
    monkeypatch.setattr(recipes, "_forecast", lambda *_: None)
    Path("small.yaml").write_text(RECIPE)
    for language in ("en", "de", "fr"):
        corpus.write(f"data/a.{language}", sentences(language))
        corpus.write(f"data/val.{language}", sentences(language)[::-1])
    pairs = list(zip(sentences("en"), sentences("de"), strict=True))
    corpus.write("data/a.tsv", list(map("\t".join, pairs)))

    def call(*overrides, recipe="./small.yaml"):
        capsys.readouterr()
        recipes.check(recipe, overrides, text=True)
        output, lines = capsys.readouterr()
        assert output == "recipe ok\n"
        return lines.splitlines()

    return call


def test_right_text_gives_no_message(messages):
    assert messages() == []
    assert messages("data.train=[{tsv: data/a.tsv}]") == []
    unknown = ["data.source_language=nds", "data.target_language=gsw"]
    assert messages(*unknown) == []


def test_each_corpus_is_judged_by_its_own_languages(messages):
    tag = "data.validation.tag=<2en>"
    french = "source: data/a.fr, target: data/a.en, tag: <2en>"
    assert messages(tag, f"data.train=[{{{french}, languages: [fr, en]}}]") == []
    (swapped,) = messages(tag, f"data.train=[{{{french}, languages: [en, fr]}}]")
    assert swapped.endswith("looks like French, target like English; exchange source and target")
    (other,) = messages(tag, f"data.train=[{{{french}, languages: [de, en]}}]")
    assert other.endswith("source looks like French, not German; correct the file or its languages")
    (script,) = messages(tag, f"data.train=[{{{french}, languages: [ru, en]}}]")
    assert script.endswith("but ru is written in Cyrillic; correct the file or its languages")


def test_a_set_without_the_tag_that_all_training_text_has(corpus, messages):
    train = "data.train=[{source: data/a.en, target: data/a.de, tag: <2de>}]"
    assert messages(train) == [
        "Warning: data/val.en and data/val.de: no tag, but all training text has one, and the "
        "model refuses lines without; write tag: <2de> beside it"
    ]
    assert messages(train, "data.validation.tag=<2de>") == []
    assert messages(train.replace(", tag", "}, {source: data/a.en, target: data/a.de, tag")) == []
    corpus.write("data/val.en", [f"<2de> {line}" for line in sentences("en")[::-1]])
    assert messages(train) == []


def test_preprocess_warns_as_check_does(corpus, messages, capsys):
    swapped = "data.train=[{source: data/a.de, target: data/a.en}]"
    (warning,) = messages(swapped)
    corpus.prepare(swapped)
    assert warning in capsys.readouterr().err.splitlines()
    corpus.prepare(force=True)
    assert "looks like" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("corpus_in_recipe", "advice"),
    [
        ("{source: data/a.de, target: data/a.en}", "exchange source and target"),
        ("{tsv: data/a.tsv, columns: ['2', '1']}", "write columns: [1, 2]"),
        ("{jsonl: data/x.jsonl}", "write columns: [target, source]"),
        ("{jsonl: data/x.jsonl, columns: [source, target]}", "write columns: [target, source]"),
    ],
)
def test_exchanged_sides_are_named(corpus, messages, corpus_in_recipe, advice):
    rows = zip(sentences("de"), sentences("en"), strict=True)
    corpus.write("data/x.jsonl", [json.dumps({"source": de, "target": en}) for de, en in rows])
    (warning,) = messages(f"data.train=[{corpus_in_recipe}]")
    names = corpus_in_recipe.strip("{}").replace(", target: ", " and ").split(": ", 1)[1]
    assert warning == (
        f"Warning: {names.partition(',')[0]}: source looks like German, target like English; "
        f"{advice}"
    )


def test_sides_are_exchanged_if_one_is_certain_and_the_other_probable(corpus, messages):
    numbers = [f"{number:016d} {number**9:075d}" for number in range(5)]
    commands = [*sentences("en")[:9], *numbers]
    corpus.write("data/x.en", commands)
    corpus.write("data/x.de", sentences("de")[: len(commands)])
    assert messages("data.train=[{source: data/x.de, target: data/x.en}]") == [
        "Warning: data/x.de and data/x.en: source looks like German, target like English; exchange "
        "source and target"
    ]
    assert messages("data.train=[{source: data/x.en, target: data/x.de}]") == []


def test_text_in_another_language_is_named_once(messages):
    french = "data.train=[{source: data/a.en, target: data/a.fr}]"
    assert messages(french) == [
        "Warning: data/a.fr: target looks like French, not German; correct the file or "
        "data.target_language"
    ]
    # Of a model of several languages.
    tag = "data.validation.tag=<2de>"
    assert messages(tag, french.replace("a.fr", "a.fr, tag: <2fr>")) == [
        "Warning: <2fr>: tags of other languages than en and de; write languages: [SOURCE, TARGET] "
        "beside each, so that translate and serve know its pair"
    ]
    assert messages(tag, french.replace("a.fr", "a.fr, tag: <2fr>, languages: [en, fr]")) == []
    assert len(messages(tag, french.replace("a.fr", "a.fr, tag: <bt>"))) == 1


def test_names_of_columns_are_no_pair(corpus, messages):
    pairs = zip(sentences("de"), sentences("en"), strict=True)
    corpus.write("data/a.tsv", ["German\tEnglish", *map("\t".join, pairs)])
    assert messages("data.train=[{tsv: data/a.tsv}]") == [
        "Warning: data/a.tsv: the first row, English and German, is read as a pair; write columns: "
        "[English, German]"
    ]
    assert messages("data.train=[{tsv: data/a.tsv, columns: [English, German]}]") == []


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_entities_come_with_the_command_that_replaces_them(corpus, messages, suffix):
    lines = [html.escape(f"\"{line}\" & 'x'") for line in sentences("de")]
    odd = ["a&#10;b\u2028c\x85&nbsp;d\re", "R&D; \u00a0&copy;", "x &amp;lt; y"]
    path = f"data/it's.de{suffix}"
    corpus.write(path, [*lines, *odd])
    corpus.write("data/a.en", [*sentences("en"), "one", "two", "three"])
    train = f'data.train=[{{source: data/a.en, target: "{path}"}}]'
    assert messages(train, "tokenizer={type: whitespace}") == []  # text of other programs
    (warning,) = messages(train)
    assert warning.startswith(f"Warning: {path}: 67 of 67 lines of the target that were looked at ")
    subprocess.run(warning.partition("replace them: ")[2], shell=True, check=True)
    data = Path(f"data/unescaped-it's.de{suffix}").read_bytes()
    unescaped = (gzip.decompress(data) if suffix else data).decode().removesuffix("\n").split("\n")
    assert unescaped[:-3] == [f"\"{line}\" & 'x'" for line in sentences("de")]
    assert unescaped[-3:] == ["a b\u2028c\x85 d\re", "R&D; \u00a0©", "x &lt; y"]


@pytest.mark.parametrize("name", ["data/x.de", "data/x.de.gz"])
def test_text_of_8_bits_comes_with_the_command_that_converts_it(corpus, messages, capsys, name):
    text = "".join(f"{line}\n" for line in sentences("de"))
    encoded = text.encode("latin-1")
    Path(name).write_bytes(gzip.compress(encoded) if name.endswith(".gz") else encoded)
    train = f"data.train=[{{source: data/a.en, target: {name}}}]"
    (warning,) = messages(train)
    assert warning.startswith(f"Warning: {name} is ISO-8859-1 text. Convert it to UTF-8: ")
    subprocess.run(warning.partition("UTF-8: ")[2], shell=True, check=True)
    converted = Path(name).with_name(f"utf8-{Path(name).name}")
    assert messages(f"data.train=[{{source: data/a.en, target: {converted}}}]") == []
    corpus.prepare(train)
    said = capsys.readouterr().err
    assert f"Warning: {name} is ISO-8859-1 text." in said
    assert "is not UTF-8" not in said  # the same once more


def test_a_form_that_only_some_sets_have_is_a_warning_and_else_a_note(corpus, messages):
    for name in ("a", "val"):
        corpus.write(f"data/{name}.de", [line.lower() for line in sentences("de")])
    lower = "the target is in lower case. What is translated must be like that, and translations "
    assert messages() == [f"Note: in all sets, {lower}will be."]
    assert messages("tokenizer={type: whitespace}") == []
    corpus.write("data/a.en", list(map(tokenized, sentences("en"))))
    tests = ", ".join(
        f"{{name: {number}, source: data/{number}.en, target: data/a.de}}" for number in range(5)
    )
    for number in range(5):
        corpus.write(f"data/{number}.en", sentences("en"))
    unlike, note = messages(f"data.test=[{tests}]")
    assert note == f"Note: in all sets, {lower}will be."
    assert unlike == (
        "Warning: the source is tokenized in data/a.en, but not in data/val.en, data/0.en, "
        "data/1.en and 3 more; give all of them one form"
    )


def test_check_reads_the_text_only_with_its_option(corpus, messages):
    assert messages() == []
    corpus.write("data/a.de", sentences("de")[1:])
    unequal = "data.train.0: data/a.en has 64 lines but data/a.de has 63; line n of one must "
    with pytest.raises(RecipeError, match=unequal):
        messages()
    plain = CliRunner().invoke(cli.main, ["recipes", "check", "small.yaml"])
    assert plain.output == "recipe ok\nWhat the texts hold was not checked: add --text.\n"
    text = CliRunner().invoke(cli.main, ["recipes", "check", "small.yaml", "--text"])
    assert text.exit_code == 1


def test_equal_sides_are_found_by_check(corpus, messages):
    same = "data.train=[{source: data/a.en, target: data/a.en}]"
    assert messages(same) == [
        "Warning: data/a.en is given as source and as target; correct one of the two paths."
    ]
    corpus.write("data/a.de", sentences("en"))
    assert messages() == [
        "Warning: data/a.en and data/a.de are equal in every line; correct one of the two paths."
    ]


def test_text_that_is_tokenized_on_both_sides_is_noted(messages):
    files = [f"{{source: {real_file('enja', name)}.en.gz, target: {real_file('enja', name)}.ja.gz}}"
             for name in ("train", "dev")]  # fmt: skip
    train, validation = files
    assert messages(
        f"data.train=[{train}]", f"data.validation={validation}", "data.target_language=ja"
    ) == [
        "Note: in all sets, the source is tokenized and in lower case and the target is tokenized. "
        "What is translated must be like that, and translations will be."
    ]


@pytest.mark.parametrize("pair", ["en-de", "en-fr"])
def test_real_text_gives_no_message(messages, pair):
    language = pair[3:]
    for folder, train, validation in (
        ("multi30k", "train", "val"),
        (f"tatoeba/{pair}", "train", "dev"),
        ("newstest", f"newstest2014.{pair}", f"newstest2013.{pair}"),
    ):
        suffix = ".gz" if "tatoeba" in folder else ""
        texts = [
            f"{{source: {stem}.en{suffix}, target: {stem}.{language}{suffix}}}"
            for stem in (real_file(folder, train), real_file(folder, validation))
        ]
        data = [f"data.train=[{texts[0]}]", f"data.validation={texts[1]}"]
        assert messages(*data, f"data.target_language={language}") == []
