"""What preprocess and train warn of in the text of a recipe, a line for each thing."""

import bz2
import gzip
import io
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import recipes
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions

WHITESPACE = "tokenizer={type: whitespace}"
ONE_CORPUS = "data.train=[{source: data/a.en, target: data/a.de}]"
VALIDATION = "data.validation={{source: data/{}.en, target: data/{}.de}}".format


@pytest.fixture
def warnings(corpus, capsys):
    """Run preprocess; return the warnings."""
    logs.configure(quiet=False)

    def prepare(*overrides):
        corpus.prepare(*overrides, force=True)
        lines = capsys.readouterr().err.splitlines()
        return [line.removeprefix("Warning: ") for line in lines if line.startswith("Warning: ")]

    return prepare


def test_plain_text_gives_no_warning(warnings):
    assert warnings() == []


def test_unknown_pieces_of_the_validation_text_are_reported(corpus, warnings, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logs, "info", said.append)
    corpus.write("data/val.en", ["this is new"] * 10 + corpus.sentences(10, 4))
    num_known = sum(len(sentence.split()) for sentence in corpus.sentences(10, 4))
    expected = 30 / (30 + num_known + 20)  # with the ends of the sentences
    (warning,) = warnings(WHITESPACE)
    assert said[-1].endswith(f" for the loss, {expected:.2%} of source and 0.00% of target unknown")
    assert warning == (
        f"{expected:.0%} of the pieces of data/val.en are unknown, 0% of those of the training "
        "text; were both tokenized and normalized in the same way?"
    )


def test_each_validation_set_is_reported_by_its_name(corpus, warnings, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logs, "info", said.append)
    corpus.write("data/new.en", ["this is new"] * 10 + [""] * 11)
    corpus.write("data/new.de", corpus.sentences(21, 5))
    files = ", ".join(
        f"{{name: {name}, source: data/{name}.en, target: data/{name}.de}}"
        for name in ("val", "new")
    )
    sets = f"data.validation=[{files}]"
    found = warnings(WHITESPACE, sets)
    known, new = (line for line in said if line.startswith("  validation"))
    assert known.startswith("  validation  val: 20 pairs, 20 of them for the loss, 0.00% of source")
    assert new.startswith("  validation  new: 21 pairs, 10 of them for the loss, 75.00% of source")
    assert found == [
        "11 of 21 new validation pairs were dropped (11 with an empty side); correct the text if "
        "that is too many.",
        "75% of the pieces of data/new.en are unknown, 0% of those of the training text; were both "
        "tokenized and normalized in the same way?",
    ]


def test_one_file_for_source_and_target_is_reported(warnings):
    Path("data/link.en").symlink_to("a.en")
    for target in ("a.en", "link.en"):
        assert warnings(f"data.train=[{{source: data/a.en, target: data/{target}}}]") == [
            "data/a.en is given as source and as target; correct one of the two paths."
        ]


def test_equal_sides_are_reported(corpus, warnings):
    corpus.write("data/b.de", ["", *corpus.sentences(30, 2)[1:]])
    assert warnings() == [
        "data/b,c.en and data/b.de are equal in every line; correct one of the two paths."
    ]


@pytest.mark.parametrize(("num_pairs", "is_reported"), [(1, True), (9, True), (10, False)])
def test_a_validation_text_of_a_few_lines_is_reported(corpus, warnings, num_pairs, is_reported):
    for code, seed in (("en", 7), ("de", 8)):
        corpus.write(f"data/val.{code}", [*corpus.sentences(num_pairs, seed), ""])
    reported = (
        f"the validation text data/val.en and data/val.de has only {counted(num_pairs, 'pair')} "
        "with text, whose figures depend on chance; give some hundred."
    )
    assert warnings(WHITESPACE) == [reported] * is_reported


def test_validation_on_the_training_text_is_reported(corpus, warnings):
    expected = (
        "every pair of the validation text {} is in the training text too, so validation measures "
        "only what the model has memorized; give other files as data.validation."
    )
    assert warnings(VALIDATION("a", "a")) == [expected.format("data/a.en and data/a.de")]
    corpus.write("data/val.en", ["", *corpus.sentences(80, 0)[40:60]])
    corpus.write("data/val.de", ["", *corpus.sentences(80, 1)[40:60]])
    assert warnings() == [expected.format("data/val.en and data/val.de")]
    corpus.write("data/val.en", ["not there", *corpus.sentences(80, 0)[41:60]])
    corpus.write("data/val.de", corpus.sentences(80, 1)[40:60])
    pairs, sentences = warnings()
    assert pairs == "the validation set holds 19 pairs of data/a.en and data/a.de too."
    assert sentences.startswith("20 of 20 validation targets are targets of the training text too,")


def test_pieces_in_text_for_sentencepiece_are_reported(corpus, warnings):
    corpus.write("data/a.de", [f"a@@ b {sentence}" for sentence in corpus.sentences(80, 1)])
    (warning,) = warnings()
    assert warning.startswith(
        '80 of 80 pairs of data/a.en and data/a.de hold "@@ ", so the text is already in pieces, '
    )
    assert warnings('tokenizer={type: whitespace, joiner: "@@"}') == []
    sed = shlex.split(warning.rpartition("join the pieces first: ")[2])
    joined = subprocess.run(
        sed, input="x@@ y@@ z w@@\n", capture_output=True, text=True, check=True
    )
    assert joined.stdout == "xyz w\n"


@pytest.mark.parametrize(
    ("override", "rule", "key"),
    [
        ("data.max_length=4", "too long", "data.max_length"),
        ("data.filters.min_length=7", "too short", "data.filters.min_length"),
        ("data.filters.max_length_ratio=1.1", "too unequal", "data.filters.max_length_ratio"),
    ],
)
def test_a_filter_that_drops_most_pairs_is_named(warnings, override, rule, key):
    found = warnings(WHITESPACE, override)
    (warning,) = (line for line in found if "training pairs were dropped" in line)
    assert rule in warning
    assert warning.endswith(f"; correct the text or {key} if that is too many.")


def test_few_dropped_pairs_are_no_warning(warnings):
    assert warnings(WHITESPACE, "data.filters.min_length=3") == []


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16LE"), ("utf-32", "UTF-32")]
)
def test_utf_16_is_named_with_the_command_that_converts_it(corpus, capsys, encoding, name):
    text = "".join(f"{sentence} ü\n" for sentence in corpus.sentences(80, 1))
    Path("data/it's a.en.gz").write_bytes(gzip.compress(text.encode(encoding)))
    Path("data/a.de").write_bytes(text.encode(encoding))
    paths = ("data/it's a.en.gz", "data/a.de")
    train = 'data.train=[{{source: "{}", target: "{}"}}]'.format(*paths)
    with pytest.raises(UserError) as caught:
        corpus.prepare(train)
    for path, problem in zip(paths, str(caught.value).split("\n"), strict=True):
        assert problem.startswith(f"{path} is {name} text. Convert it to UTF-8: ")
        subprocess.run(problem.partition("UTF-8: ")[2], shell=True, check=True)
    converted = Path("data/utf8-a.de").read_bytes()
    assert converted == gzip.decompress(Path("data/utf8-it's a.en.gz").read_bytes())
    assert converted.decode() == text
    assert capsys.readouterr().err == ""  # nothing but the cause
    assert not Path("prepared/small").exists()


def test_the_proposed_conversion_overwrites_nothing(corpus):
    text = "".join(f"{sentence}\n" for sentence in corpus.sentences(80, 1))
    Path("data/a.de").write_bytes(text.encode("utf-16-be"))
    Path("data/utf8-a.de").write_bytes(b"precious")
    with pytest.raises(UserError, match=r"-t UTF-8 data/a\.de > data/utf8-a-2\.de$"):
        corpus.prepare(ONE_CORPUS, WHITESPACE)


@pytest.mark.parametrize("key", ["data.train.0", "data.validation", "data.test"])
def test_text_of_another_form_is_refused_by_preprocess_and_check_alike(corpus, key):
    """The cause is named, and not the vocabulary or the number of lines that follow from it."""
    Path("data/x.en").write_text("\r".join(corpus.sentences(20, 1)))
    test = "data.test={source: data/val.en, target: data/val.de}"
    files = "{source: data/x.en, target: data/val.de}"
    overrides = [ONE_CORPUS, test, f"data.train=[{files}]" if "train" in key else f"{key}={files}"]
    with pytest.raises(UserError) as caught:
        corpus.prepare(*overrides)
    assert re.fullmatch(
        r"data/x\.en has the line ends of old Macs .* > data/lines-x\.en", str(caught.value)
    )
    with pytest.raises(
        RecipeError, match=rf"^small\.yaml: {key}\.source: data/x\.en has the line "
    ):
        recipes.check("./small.yaml", overrides)


def test_rows_are_refused_as_one_side(corpus):
    rows = zip(corpus.sentences(80, 0), corpus.sentences(80, 1), strict=True)
    corpus.write("data/a.tsv", list(map("\t".join, rows)))
    for target in ("data/a.tsv", "data/a.de"):
        with pytest.raises(UserError, match=r"^data/a\.tsv holds 2 columns with tabs[^\n]*$"):
            corpus.prepare(f"data.train=[{{source: data/a.tsv, target: {target}}}]")


CHINESE = ["我们有一只狗", "他在那里", "今天天气很好", "IBM 公司"]


def test_text_in_another_script_than_its_language_is_reported(corpus, warnings):
    corpus.write("data/a.en", CHINESE * 20)
    assert warnings(ONE_CORPUS, WHITESPACE) == [
        "86% of the letters in the source of data/a.en and data/a.de are Chinese, but en is "
        "written in Latin; correct the file or data.source_language"
    ]
    exchanged = ["data.source_language=de-AT", "data.target_language=zh"]
    (warning, *_) = warnings(ONE_CORPUS, WHITESPACE, *exchanged)
    assert warning.endswith("but de-AT is written in Latin; are source and target exchanged?")
    ours = ["data.source_language=zh-Hant", "data.target_language=nb"]
    validation = VALIDATION("a", "a")
    assert not [w for w in warnings(ONE_CORPUS, WHITESPACE, validation, *ours) if "letters" in w]
    unknown = "data.source_language=qaa"
    assert warnings(ONE_CORPUS, WHITESPACE, unknown) == []


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("chinese", "did you mean zh?"),
        ("Norwegain", "did you mean no?"),
        ("cn", "did you mean zh?"),
        ("zh_CN", "did you mean zh or zh-CN?"),
        ("xx", "write one of ISO 639, such as en or ckb."),
    ],
)
def test_what_is_no_code_of_a_language_is_reported(corpus, warnings, capsys, code, meant):
    target = f"data.target_language={code}"
    (warning, *_) = warnings(target)
    assert warning == f"data.target_language: {code} is no code of a language; {meant}"
    recipes.check("./small.yaml", [target], text=True)
    output, messages = capsys.readouterr()
    assert (output, messages.splitlines()[0]) == ("recipe ok\n", f"Warning: {warning}")


@pytest.mark.parametrize("code", ["nb", "zh-Hans", "ckb", "zho_Hans", "ZH"])
def test_codes_of_languages_are_no_warning(corpus, warnings, code):
    del corpus
    assert [each for each in warnings(f"data.target_language={code}") if "no code" in each] == []


def zipped(data):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("text", data)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("compress", "suffix", "program", "message"),
    [
        (zipped, ".zip", "unzip", "is a zip archive; unpack it: unzip -p "),
        (zipped, "", "unzip", "is a zip archive; unpack it: unzip -p "),
        (bz2.compress, ".bz2", "bzip2", "is compressed by bzip2; unpack it: bzip2 -dc "),
        (bz2.compress, ".gz", "bzip2", "is compressed by bzip2; unpack it: bzip2 -dc "),
    ],
)
def test_zip_and_bz2_are_named_with_the_command_that_unpacks_them(
    corpus, compress, suffix, program, message
):
    path, text = Path(f"data/new text.de{suffix}"), b"ein Satz\n" * 80
    path.write_bytes(compress(text))
    with pytest.raises(UserError) as caught:
        corpus.prepare(f'data.train=[{{source: data/a.en, target: "{path}"}}]')
    assert str(caught.value).startswith(f"{path} {message}")
    command = str(caught.value).partition("unpack it: ")[2]
    if shutil.which(program):
        subprocess.run(command, shell=True, check=True)
        assert Path(shlex.split(command)[-1]).read_bytes() == text


def test_training_pairs_in_the_test_text_are_counted(corpus, warnings):
    corpus.write("data/test.en", [*corpus.sentences(80, 0)[:3], "other", ""])
    corpus.write("data/test.de", [*corpus.sentences(80, 1)[:3], "text", ""])
    test = "data.test={source: data/test.en, target: data/test.de}"
    assert warnings(test) == [
        "the test text data/test.en and data/test.de holds 3 pairs of data/a.en and data/a.de "
        "too, so its score will be too high; data.filters.remove_held_out: "
        "true leaves these pairs out."
    ]
    assert corpus.opened(test).manifest["train"][0]["found"]["also_in_test"] == 3


def test_pairs_of_all_sets_are_looked_for(corpus, warnings):
    sets = []
    for name, sentences in (("one", slice(0, 12)), ("two", slice(20, 30))):
        corpus.write(f"data/{name}.en", corpus.sentences(80, 0)[sentences])
        corpus.write(f"data/{name}.de", corpus.sentences(80, 1)[sentences])
        sets.append(f"{{name: {name}, source: data/{name}.en, target: data/{name}.de}}")
    missing = "{name: x, source: data/none.en, target: data/none.de}"
    both = ", ".join(sets)
    (warning,) = warnings(f"data.test=[{missing}, {both}]")
    assert "data/one.en and data/one.de, data/two.en and data/two.de holds 22 pairs of" in warning
    (warning,) = warnings(f"data.validation=[{both}]")
    assert "text data/one.en and data/one.de, data/two.en and data/two.de is in the" in warning
    known = "{name: val, source: data/val.en, target: data/val.de}"
    (warning,) = warnings(f"data.validation=[{both}, {known}]")
    assert warning == "the validation set holds 22 pairs of data/a.en and data/a.de too."


def test_a_test_text_that_is_not_there_yet_does_not_stop_preprocess(corpus, warnings, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logs, "info", said.append)
    assert warnings("data.test={source: data/none.en, target: data/none.de}") == []
    reason = f"data/none.en not found; the path is relative to {Path.cwd()}."
    assert f"The training text was not compared with data.test: {reason}" in said


def opened_by_train(capsys, **options: Any):
    """Open the prepared text as train does; return what it writes to stderr."""
    file = read_recipe("./small.yaml", options.get("overrides", ()))
    Experiment.of("./small.yaml", file, TrainOptions(**options)).open_corpus()
    return capsys.readouterr().err


def rewrite(path, data):
    """Write other bytes, younger than the prepared text."""
    Path(path).write_bytes(data)
    soon = Path("prepared/small/manifest.json").stat().st_mtime + 10
    os.utime(path, (soon, soon))


@pytest.mark.parametrize("change", [lambda text: text + b"\nx", lambda text: text.swapcase()])
def test_train_warns_of_text_that_changed_since_it_was_prepared(corpus, capsys, change):
    corpus.prepare()
    capsys.readouterr()
    assert opened_by_train(capsys) == ""
    rewrite("data/a.de", change(Path("data/a.de").read_bytes()))
    assert opened_by_train(capsys) == (
        "Warning: data/a.de has changed since prepared/small was made, and training uses what was "
        "prepared. To use the new text: nmt-cli preprocess ./small.yaml --force\n"
    )
    rewrite("data/val.en", b"new\n")
    assert "data/a.de and 1 more file have changed since" in opened_by_train(capsys)
    rewrite("data/val.de", b"new\n")
    assert "data/a.de and 2 more files have changed since" in opened_by_train(capsys)


@pytest.mark.parametrize(
    ("changed", "then"), [("data/val.de", ""), ("data/a.de", ", then train into another --run-dir")]
)
def test_only_changed_training_text_needs_another_run(corpus, capsys, changed, then):
    corpus.prepare()
    Path("runs/small/checkpoints/step-00000001").mkdir(parents=True)
    capsys.readouterr()
    rewrite(changed, b"new\n")
    command = "nmt-cli preprocess ./small.yaml --force"
    assert opened_by_train(capsys).endswith(f"To use the new text: {command}{then}\n")


def test_the_command_for_changed_text_repeats_the_users_options(corpus, capsys):
    size = "tokenizer.vocabulary_size=310"
    options: Any = {"overrides": [size], "prepared": Path("-my prepared")}
    arguments = ["./small.yaml", "--set", size, "--prepared=-my prepared"]
    assert CliRunner().invoke(cli.main, ["preprocess", *arguments]).exit_code == 0
    Path("data/a.de").write_bytes(Path("data/a.de").read_bytes().swapcase() + b"\n")
    Path("data/a.en").write_bytes(Path("data/a.en").read_bytes() + b"\n")
    warning = opened_by_train(capsys, **options)
    command = shlex.split(warning.partition("To use the new text: ")[2])
    assert command[:-1] == ["nmt-cli", "preprocess", *arguments[:3], "--prepared", "./-my prepared"]
    assert CliRunner().invoke(cli.main, command[1:]).exit_code == 0
    capsys.readouterr()
    assert opened_by_train(capsys, **options) == ""


def test_text_that_is_only_younger_or_gone_has_not_changed(corpus, capsys):
    corpus.prepare()
    capsys.readouterr()
    rewrite("data/a.de", Path("data/a.de").read_bytes())
    Path("data/a.en").unlink()
    assert opened_by_train(capsys) == ""
