import errno
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nmt_cli import __version__, cli
from nmt_cli.commands import doctor
from nmt_cli.commands.score import ScoreOptions
from nmt_cli.messages.errors import (
    EndedAtOnceError,
    InterruptedTrainingError,
    OutputError,
    UserError,
)
from nmt_cli.model.compiled import c_library
from nmt_cli.training.options import TrainOptions
from nmt_cli.translating.interface.options import TranslatorOptions

HEAVY = (
    *("torch", "yaml", "pydantic", "numpy", "sentencepiece", "sacrebleu", "safetensors"),
    *("matplotlib", "tensorboard", "requests", "ctranslate2", "transformers"),
)
RECIPE_OPTIONS = {"--set"}
DECODING_OPTIONS = {
    "--device",
    "--precision",
    "--threads",
    "--max-tokens-per-device",
    "--quiet",
}
OPTIONS = {
    "preprocess": RECIPE_OPTIONS | {"--prepared", "--workers", "--force", "--quiet"},
    "train": RECIPE_OPTIONS
    | DECODING_OPTIONS
    | {"--prepared", "--run-dir", "--resume", "--allow-change", "--init-from", "--max-time"}
    | {
        "--kernels",
        "--no-cuda-graphs",
        "--deterministic",
        "--devices",
        "--exchange",
        "--nnodes",
        "--rdzv-endpoint",
        "--rdzv-id",
    }
    | {"--validation-script", "--keep-validations"}
    | {"--in-run"},  # hidden
    "compare": RECIPE_OPTIONS
    | (DECODING_OPTIONS - {"--max-tokens-per-device"})
    | {"--seeds", "--prepared", "--runs", "--devices", "--format", "--resume"}
    | {"--max-time"},
    "run": RECIPE_OPTIONS
    | DECODING_OPTIONS
    | {"--prepared", "--run-dir", "--resume", "--max-time", "--workers", "--until", "--force-from"}
    | {"--kernels", "--no-cuda-graphs"}
    | {
        "--allow-change",
        "--kernels",
        "--no-cuda-graphs",
        "--deterministic",
        "--devices",
        "--exchange",
        "--init-from",
    }
    | {"--validation-script", "--keep-validations"},
    "distil": RECIPE_OPTIONS
    | DECODING_OPTIONS
    | {"--ensemble", "--reverse-model", "--taught", "--n-best", "--format"}
    | {"--teacher-url", "--teacher-concurrency", "--teacher-key-variable"}
    | {"--price-per-million", "--max-cost"}
    | {"--run-dir", "--resume", "--max-time", "--workers", "--until", "--force-from"}
    | {"--kernels", "--no-cuda-graphs"}
    | {
        "--allow-change",
        "--kernels",
        "--no-cuda-graphs",
        "--deterministic",
        "--devices",
        "--exchange",
    },
    "align": {"--symmetrization", "--iterations", "--lowercase", "--output", "--workers", "--force"}
    | {"--quiet"},
    "average-checkpoints": {"--last", "--checkpoints", "--output", "--precision", "--force"}
    | {"--quiet"},
    "translate": DECODING_OPTIONS
    | {"--input", "--output", "--force", "--format", "--beam-size", "--length-penalty"}
    | {"--retranslate"}
    | {"--n-best", "--too-long", "--tokenize", "--keep-pieces", "--well-formed-trees"}
    | {"--token-scores", "--alignments", "--replace-unknown", "--resume", "--shard", "--ensemble"}
    | {"--sample", "--temperature", "--sample-top-k", "--sample-top-p", "--seed"}
    | {"--min-length", "--max-length", "--no-repeat-ngram", "--target-prefix"}
    | {
        "--required",
        "--banned",
        "--glossary",
        "--soft-glossary",
        "--term-tags",
        "--memory",
        "--memory-languages",
        "--memory-similarity",
        "--protect",
        "--protect-strict",
        "--input-format",
        "--workers",
        "--devices",
        "--tag",
    }
    | {"--no-cuda-graphs", "--choose", "--shortlist"}
    | {
        "--split-sentences",
        "--source-language",
        "--target-language",
        "--markup",
        "--translate-everything",
    },
    "serve": DECODING_OPTIONS
    | {"--host", "--port", "--beam-size", "--length-penalty", "--workers", "--glossary"}
    | {
        "--api-keys",
        "--open",
        "--allow-origin",
        "--log-text",
        "--drain-seconds",
        "--no-pivot",
        "--max-seconds",
    }
    | {
        "--max-document-bytes",
        "--max-body-bytes",
        "--max-characters",
        "--max-lines",
        "--max-waiting-lines",
    }
    | {"--protect", "--translate-everything", "--shortlist", "--memory", "--memory-similarity"},
    "check": (DECODING_OPTIONS - {"--max-tokens-per-device"})
    | {"--against", "--test", "--suite", "--terms", "--limits", "--format", "--tag", "--no-cost"}
    | {"--output", "--force"},
    "lexicon": {"--frequent", "--targets", "--by-default", "--workers", "--force", "--quiet"},
    "rescore": DECODING_OPTIONS
    | {"--ensemble", "--output", "--force", "--format", "--length-penalty"}
    | {"--tag", "--source-language", "--target-language"},
    "score": {"--metric", "--parameters", "--tokenize", "--lowercase", "--format", "--quiet"}
    | {"--terms", "--source", "--paper", "--ter", "--compare", "--test", "--samples", "--seed"}
    | {"--chrf-word-order", "--num-refs", "--documents", "--by-line", "--worst"},
    "export": {"--format", "--output", "--quantization", "--verify", "--sentences", "--force"}
    | {"--threads", "--quiet"},
    "import": {"--from", "--output", "--source-language", "--target-language"}
    | {"--source-vocabulary", "--target-vocabulary", "--sentencepiece", "--target-sentencepiece"}
    | {"--force", "--quiet"},
    "report": {"--output", "--force", "--quiet"},
    "doctor": {"--format"},
    "completion": set(),
    "inspect": RECIPE_OPTIONS
    | {"--vocabulary-size", "--lengths", "--max-tokens-per-device", "--target-tokens-per-second"}
    | {"--format"},
    "attention": {"--output", "--format", "--kind", "--layers", "--heads", "--force"}
    | {"--device", "--threads", "--quiet"},
    "data get": {"--output", "--downloads", "--treebank", "--force", "--quiet"},
    "init": {"--source-language", "--target-language", "--columns", "--hours", "--validation"}
    | {"--test", "--seed", "--yes", "--force", "--quiet"},
    "data split": {"--validation", "--test", "--seed", "--columns", "--output", "--force"}
    | {"--quiet"},
    "recipes list": set(),
    "recipes show": RECIPE_OPTIONS | {"--comments"},
    "recipes keys": set(),
    "recipes schema": set(),
    "recipes check": RECIPE_OPTIONS | {"--text"},
}


def commands(group=cli.main, prefix=""):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def test_the_set_of_options_is_this():
    found = {
        name: {o for p in command.params if isinstance(p, click.Option) for o in p.opts}
        for name, command in commands()
    }
    assert found == OPTIONS


@pytest.mark.parametrize("name", ["", *OPTIONS])
def test_every_command_and_option_is_documented(name):
    result = CliRunner().invoke(cli.main, [*name.split(), "--help"])
    assert result.exit_code == 0
    command = dict(commands()).get(name, cli.main)
    assert command.help
    assert all(
        parameter.help for parameter in command.params if isinstance(parameter, click.Option)
    )


MODULES = {"average-checkpoints": "average_checkpoints", "import": "import_model"}


@pytest.mark.parametrize("name", sorted(set(OPTIONS) & set(cli.main.commands)))
def test_calls_without_an_option_do_what_the_command_line_does(name):
    """Where a command gives an option a default of its own, it is that of --help."""
    command = cli.main.commands[name]
    if isinstance(command, click.Group) or name == "completion":
        return
    run = importlib.import_module(f"nmt_cli.commands.{MODULES.get(name, name)}").run
    defaults = {each.name: each.default for each in inspect.signature(run).parameters.values()}
    if "keywords" in defaults:
        records = {"translate": TranslatorOptions, "score": ScoreOptions}
        record = records.get(name, TrainOptions)
        defaults |= {each.name: each.default for each in fields(record)}
    for option in command.params:
        default = defaults.get(option.name, inspect.Parameter.empty)
        if default is not inspect.Parameter.empty:
            given = option.default if isinstance(option.default, str | int | float) else None
            assert (given or None) == (default or None), option.name


@pytest.mark.parametrize(
    ("calls", "allowed"), [([["--help"], ["train", "--help"]], set()), ([["--version"]], {"numpy"})]
)
def test_help_imports_nothing_heavy(calls, allowed):
    code = (
        "import sys\nfrom nmt_cli.cli import main\n"
        f"for arguments in {calls}:\n"
        "    try:\n        main(arguments)\n"
        "    except SystemExit as end:\n        assert end.code == 0\n"
        f"sys.exit(','.join(sorted(set(sys.modules) & {set(HEAVY) - allowed})) or 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stderr == ""


def test_the_version_names_the_library_and_torch(monkeypatch, tmp_path):
    run = CliRunner().invoke(cli.main, ["--version"])
    words = re.fullmatch(r"nmt-cli, version (\S+) \(library: (\w+), torch: (\S+)\)\n", run.output)
    assert words
    assert words[1] == __version__
    assert words[2] == c_library.load_library().level
    assert words[3] == version("torch")
    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    monkeypatch.setattr(c_library, "LIBRARY", tmp_path / "none")
    c_library.load_library.cache_clear()
    run = CliRunner().invoke(cli.main, ["--version"])
    c_library.load_library.cache_clear()
    assert run.output == f"nmt-cli, version {words[1]} (library: none, torch: none)\n"


def run_raising(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("nmt_cli.commands.recipes.list_recipes", fail)
    return CliRunner().invoke(cli.main, ["recipes", "list"])


MORE_MEMORY = "free some, or raise the limit (that of the container, or of ulimit -v)."


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (UserError("a.en has 2 lines."), 1, "Error: a.en has 2 lines.\n"),
        (OutputError("out could not be written."), 74, "Error: out could not be written.\n"),
        (InterruptedTrainingError("saved."), 75, "saved.\n"),
        (EndedAtOnceError("not saved."), 130, "not saved.\n"),
        (KeyboardInterrupt(), 130, "Error: interrupted.\n"),
        (PermissionError(errno.EACCES, "Permission denied", "f"), 1,
         "Error: f: Permission denied.\n"),
        (OSError(errno.ENOSPC, "No space left on device", "f"), 74,
         "Error: f: No space left on device.\n"),
        (MemoryError(), 1, f"Error: there is not enough memory; {MORE_MEMORY}\n"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1,
         f"Error: there is not enough memory ([Errno 12] Cannot allocate memory); {MORE_MEMORY}\n"),
        (RuntimeError("could not create a primitive"), 1,
         f"Error: there is not enough memory (could not create a primitive); {MORE_MEMORY}\n"),
        (RuntimeError("can't allocate memory: you tried to allocate 9 bytes.\nat line 7"), 1,
         "Error: there is not enough memory (can't allocate memory: you tried to allocate 9 bytes.)"
         f"; {MORE_MEMORY}\n"),
        (UserError("line \x1b[31m"), 1, "Error: line \\x1b[31m\n"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_a_status(monkeypatch, error, status, message):
    result = run_raising(monkeypatch, error)
    assert result.exit_code == status
    assert result.stderr == message
    assert result.stdout == ""


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError(),
        RuntimeError("could not create a primitive descriptor for the matmul primitive"),
        OSError(errno.ENOTTY, "Inappropriate ioctl for device"),
    ],
)
def test_our_own_mistakes_keep_their_traceback(monkeypatch, error):
    assert run_raising(monkeypatch, error).exception is error


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["train"], ["train", "base", "--nonsense"], ["translate", "m", "--beam-size=0"],
     ["score", "hyp"], ["average-checkpoints", "r", "--last=2", "--checkpoints=a"]],
)  # fmt: skip
def test_wrong_use_is_status_2(arguments):
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    ["score hyp ref --samples 200", "score hyp ref --paper en-de --lowercase",
     "score hyp ref --compare hyp", "score hyp ref --terms t.tsv", "score hyp ref --source hyp",
     "score - -", "train base --nnodes 2", "run base --until train --force-from score",
     "translate m --resume", "translate m --shard 1/2", "translate m --workers 2 --devices 2",
     "translate m --n-best 2", "translate m --format tsv --token-scores",
     "translate m --temperature 2", "attention m text --output a.svg",
     "data get wsj", "data get wsj --treebank a --downloads b", "data get wmt14-en-de --treebank a",
     "export m --format huggingface --output o --quantization int8"],
)  # fmt: skip
def test_options_that_do_not_go_together_are_status_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("hyp", "ref"):
        Path(name).write_text("one line\n")
    result = CliRunner().invoke(cli.main, arguments.split())
    assert result.exit_code == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hyp", "ref"]


def test_an_unknown_recipe_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("preprocess", "train"):
        result = CliRunner().invoke(cli.main, [command, "bas"])
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")
        assert "base" in result.stderr
        assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["recipes", "list"]])
def test_output_that_cannot_be_written_is_status_74(words, is_closed):
    redirection = ">&-" if is_closed else "> /dev/full"
    command = f"{shlex.join([f'{Path(sys.executable).parent}/nmt-cli', *words])} {redirection}"
    result = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (74, "Error: No space left on device.\n")


def test_a_reader_that_goes_away_is_status_141():
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [Path(sys.executable).parent / "nmt-cli", "recipes", "show", "base"],
        stdout=writing, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (result.returncode, result.stderr) == (141, b"")
