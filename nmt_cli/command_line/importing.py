"""The command that brings models of other programs here."""

import re
from pathlib import Path
from typing import Any

import click

from nmt_cli import logs
from nmt_cli.command_line.options import (
    PATH,
    cli_command,
    force_option,
    parsed_by,
    quiet_option,
)


def language(text: str) -> str:
    """Return the code of a language. Raises ValueError if recipes do not allow it."""
    from nmt_cli.recipe.values import LANGUAGE, LONGEST_LANGUAGE

    if not re.fullmatch(LANGUAGE, text) or len(text) > LONGEST_LANGUAGE:
        raise ValueError(f"{text!r} is not the code of a language, such as en or zh-Hans.")
    return text


@cli_command("import")
@click.argument("path", type=PATH)
@click.option(
    "--from",
    "program",
    type=click.Choice(
        ["auto", "ctranslate2", "eole", "fairseq", "huggingface", "marian", "opennmt-py"]
    ),
    default="auto",
    show_default=True,
    help="The program that the model is of; auto recognizes it by its files.",
)
@click.option("--output", type=PATH, required=True, help="Model directory to write.")
@click.option(
    "--source-language",
    default="und",
    show_default=True,
    callback=parsed_by(language),
    help="Code of the language translated from, such as en; und means unknown.",
)
@click.option(
    "--target-language",
    default="und",
    show_default=True,
    callback=parsed_by(language),
    help="Code of the language translated into.",
)
@click.option(
    "--source-vocabulary", type=PATH, help="Vocabulary of the source, if it is not beside PATH."
)
@click.option(
    "--target-vocabulary", type=PATH, help="Vocabulary of the target; the source's if left out."
)
@click.option("--sentencepiece", type=PATH, help="SentencePiece model of both languages.")
@click.option("--target-sentencepiece", type=PATH, help="The target's, if it has its own.")
@force_option
@quiet_option
def import_model(path: Path, quiet: bool, **options: Any) -> None:
    """Make a model directory of a model of another program, at PATH.

    The result can be translated with, and computes what the other program computes. All reasons
    why a model cannot be imported are listed at once.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import import_model as command
    from nmt_cli.interchange.files import TextFiles

    files = TextFiles(*(options.pop(name) for name in TextFiles._fields))
    command.run(path, files=files, **options)
