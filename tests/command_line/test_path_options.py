"""The options of all commands: what - means as the name of a file."""

import errno
import io
import os
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.command_line.options import OUTPUT, PATH, TEXT
from nmt_cli.commands import report, serve
from nmt_cli.files.atomic_files import file_appearing_whole
from nmt_cli.files.output_streams import STANDARD_INPUT, is_stream

FORMATS = Path(__file__).parents[1] / "formats"
MODEL = FORMATS / "format_2/whitespace/run/average"
TEXTS = {
    language: b"".join((FORMATS / f"text/train.{language}").read_bytes().splitlines(True)[:20])
    for language in ("en", "de")
}
READ_FROM_STDIN = {
    *("align source", "align target", "lexicon source", "lexicon target"),
    *("rescore source", "rescore target", "score hypotheses", "score references"),
    *("score compared", "score source", "score documents", "score terms", "score parameters"),
    *("translate input_path", "translate glossary", "translate soft_glossary"),
    *("export sentences", "serve api_keys"),
}
WRITTEN_TO_STDOUT = {
    *("align output_path", "rescore output_path", "translate output_path"),
    *("attention output", "report output"),
}


def run(*words, text=b"", status=0):
    result = CliRunner().invoke(cli.main, list(map(str, words)), input=text)
    assert result.exit_code == status, result.output
    return result


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with two texts, in which no file may be called -."""
    monkeypatch.chdir(tmp_path)
    for language, text in TEXTS.items():
        Path(language).write_bytes(text)
    yield tmp_path
    assert not Path("-").exists()


def paths_in(command, name=""):
    """Yield the types of all paths by the command and the parameter."""
    if isinstance(command, click.Group):
        for inner, each in command.commands.items():
            yield from paths_in(each, f"{name} {inner}")
        return
    for param in command.params:
        if isinstance(param.type, click.Path):
            yield f"{name} {param.name}".strip(), param.type


def test_each_path_of_a_text_is_stdin_and_of_an_output_stdout_or_is_refused():
    types = dict(paths_in(cli.main))
    assert {name for name, kind in types.items() if kind is TEXT} == READ_FROM_STDIN
    assert {name for name, kind in types.items() if kind is OUTPUT} == WRITTEN_TO_STDOUT
    assert all(kind in (PATH, TEXT, OUTPUT) for kind in types.values())


@pytest.mark.parametrize(
    "words",
    [
        ["align", "en", "de"],
        ["rescore", MODEL, "en", "de", "--device", "cpu"],
        ["score", "en", "de"],
        ["score", "en", "de", "--source", "de", "--terms", "terms"],
        ["score", "en", "de", "--documents", "en"],
        ["translate", MODEL, "--device", "cpu", "--input", "en"],
        ["translate", MODEL, "--device", "cpu", "--input", "en", "--glossary", "terms"],
    ],
)
def test_any_text_may_come_from_stdin(words):
    terms = "".join(f"{word}\then\n" for word in TEXTS["en"].decode().split()[:3])
    Path("terms").write_text(terms)
    plain = run(*words, "--quiet").stdout
    assert plain
    for place, word in enumerate(words):
        if word in {"en", "de", "terms"}:
            given = [*words[:place], "-", *words[place + 1 :]]
            assert run(*given, "--quiet", text=Path(word).read_bytes()).stdout == plain


def test_a_lexicon_may_be_made_of_stdin(folder):
    models = [shutil.copytree(MODEL, folder / name) for name in ("one", "two")]
    run("lexicon", models[0], "en", "de")
    run("lexicon", models[1], "en", "-", text=TEXTS["de"])
    lexicons = [(model / "lexicon").read_bytes() for model in models]
    assert lexicons[0] == lexicons[1]


def test_the_keys_of_a_service_may_come_from_stdin(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"# ours\n\nsecret\n")))
    assert serve._keys_in(STANDARD_INPUT) == ["secret"]


@pytest.mark.parametrize(
    "words",
    [
        ["align", "en", "de"],
        ["rescore", MODEL, "en", "de", "--device", "cpu"],
        ["translate", MODEL, "--device", "cpu", "--input", "en"],
        ["attention", MODEL, "ant", "--device", "cpu", "--format", "html"],
    ],
)
def test_any_output_may_be_stdout(words):
    run(*words, "--output", "file", "--quiet")
    assert run(*words, "--output", "-", "--quiet").stdout_bytes == Path("file").read_bytes()


def test_a_report_may_be_written_to_stdout(capfdbinary, monkeypatch):
    pytest.importorskip("matplotlib")
    outputs = list[Path]()
    monkeypatch.setattr(report, "run", lambda runs, *, output, force: outputs.append(output))
    run("report", MODEL, "--output", "-")
    assert is_stream(outputs[0])  # so it is a page
    with file_appearing_whole(outputs[0]) as stream:
        stream.write(b"page")
    assert capfdbinary.readouterr().out == b"page"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["rescore", MODEL, "-", "-"], "SOURCE and TARGET"),
        (["score", "en", "-", "-"], "REFERENCES"),
        (["score", "-", "de", "--source", "en", "--terms", "-"], "HYPOTHESES and --terms"),
        (["translate", MODEL, "--glossary", "-", "--input", "-"], "--input and --glossary"),
    ],
)
def test_stdin_is_read_once(words, names):
    assert run(*words, status=2).stderr == (
        f"Error: - (standard input) is given for {names}, but can be read once only; give the "
        "name of the other file.\n"
    )


@pytest.mark.parametrize(
    "words",
    [["translate", "-"], ["train", "base", "--run-dir", "-"], ["import", "x", "--output", "-"]],
)
def test_what_is_no_stream_is_no_dash(words):
    error = run(*words, status=2).stderr
    assert "- is standard input or output, which this cannot be; give a name." in error


def test_a_format_that_no_name_shows_is_asked_for():
    error = run("attention", MODEL, "ant", "--output", "-", status=2).stderr
    assert error == "Error: --output - needs --format, which no name shows.\n"


def test_a_file_of_this_name_is_given_with_its_folder(folder):
    Path("-").write_bytes(TEXTS["en"])
    plain = run("translate", MODEL, "--device", "cpu", "--input", "en", "--quiet").stdout
    words = "translate", MODEL, "--device", "cpu", "--quiet", "--input", "./-"
    assert run(*words).stdout == plain
    Path("-").unlink()


def test_reading_decides_what_is_readable(tmp_path, monkeypatch):
    """The status of a file that may not be read is that of wrong files, not of wrong use."""
    text = tmp_path / "text"
    text.write_text("a b c d\n")
    opened = Path.open

    def refused(path, *arguments, **options):
        if path == text:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(Path, "open", refused)
    result = CliRunner().invoke(cli.main, ["score", str(text), str(text)])
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {text} cannot be read: Permission denied.\n",
    )


def test_a_home_that_no_shell_expanded_is_not_made_a_folder(tmp_path, monkeypatch):
    """A shell leaves the ~ of --output=~/x as it is."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    words = ["average-checkpoints", str(MODEL.parent), "--last", "1", "--output=~/x"]
    result = CliRunner().invoke(cli.main, words)
    assert result.exit_code == 2
    assert "~/x; ~ is not expanded, write /home/me/x." in result.stderr
    assert not Path("~").exists()
    Path("~").mkdir()  # the user's own
    assert CliRunner().invoke(cli.main, words).exit_code == 0
