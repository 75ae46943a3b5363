"""The commands import and export."""

import re
from pathlib import Path
from typing import Any

import click

from nmt_cli.command_line import completion, options
from nmt_cli.command_line.options import PATH, TEXT


@options.cli_command()
@click.argument("model", type=PATH, shell_complete=completion.runs)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["ctranslate2", "huggingface"]),
    required=True,
    help="The program that the model is for.",
)
@click.option("--output", type=PATH, required=True, help="Folder to write.")
@click.option(
    "--quantization",
    type=click.Choice(
        [
            *("float32", "float16", "bfloat16"),
            *("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"),
        ]
    ),
    default="float32",
    help="Type of the weights; those of huggingface are the first three.",
)
@click.option(
    "--verify",
    type=click.IntRange(0, 10_000),
    default=16,
    help="Sentences to compare with the other program before the folder appears; 0 for none.",
)
@click.option(
    "--sentences",
    type=TEXT,
    help="Text to take these sentences from.  [default: drawn from the vocabulary]",
)
@options.force
@options.threads
@options.quiet
def export(model: Path, **given: Any) -> None:
    """Write MODEL for another program, and verify that it computes the same there.

    MODEL is a model directory, a checkpoint or a run directory. The folder has a README.md that
    says how to use it and what differs. Needs the other program: the Python
    package ctranslate2 or transformers.
    """
    if given["sentences"] is not None and not given["verify"]:
        raise click.UsageError("--sentences is for a check, and --verify 0 leaves it out.")
    from nmt_cli.commands import export as command

    command.run(model, **given)


def language(text: str) -> str:
    """Return the code of a language. Raises ValueError if recipes do not allow it."""
    from nmt_cli.recipe.values import LANGUAGE, LONGEST_LANGUAGE

    if not re.fullmatch(LANGUAGE, text) or len(text) > LONGEST_LANGUAGE:
        raise ValueError(f"{text!r} is not the code of a language, such as en or zh-Hans.")
    return text


@options.cli_command("import")
@click.argument("path", type=PATH)
@click.option(
    "--from",
    "program",
    type=click.Choice(
        ["auto", "ctranslate2", "eole", "fairseq", "huggingface", "marian", "opennmt-py"]
    ),
    default="auto",
    help="Program that made the model; auto recognizes it by its files.",
)
@click.option("--output", type=PATH, required=True, help="Model directory to write.")
@click.option(
    "--source-language",
    type=options.Parsed("TEXT", language),
    help="Code of the language translated from, such as en; und means unknown.  [default: that of "
    "the model's files, or und]",
)
@click.option(
    "--target-language",
    type=options.Parsed("TEXT", language),
    help="Code of the language translated into.  [default: likewise]",
)
@click.option(
    "--source-vocabulary", type=PATH, help="Vocabulary of the source, if it is not beside PATH."
)
@click.option(
    "--target-vocabulary", type=PATH, help="Vocabulary of the target; the source's if left out."
)
@click.option("--sentencepiece", type=PATH, help="SentencePiece model of both languages.")
@click.option("--target-sentencepiece", type=PATH, help="The target's, if it has its own.")
@options.force
@options.quiet
def import_model(path: Path, **given: Any) -> None:
    """Convert the model of another program at PATH to a model directory.

    The result translates, and computes what the other program computes. All reasons why a model
    cannot be imported are listed at once.
    """
    from nmt_cli.commands import import_model as command
    from nmt_cli.interchange.files import TextFiles

    files = TextFiles(*(given.pop(name) for name in TextFiles._fields))
    command.run(path, files=files, **given)
