"""Commands that carry models to other programs."""

from pathlib import Path
from typing import Any

import click

from nmt_cli import logs
from nmt_cli.command_line.options import (
    PATH,
    cli_command,
    force_option,
    quiet_option,
    threads_option,
)


@cli_command()
@click.argument("model", type=PATH)
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
    show_default=True,
    help="Type of the weights; those of huggingface are the first three.",
)
@click.option(
    "--verify",
    type=click.IntRange(0, 10_000),
    default=16,
    show_default=True,
    help="Sentences to compare with the other program before the folder appears; 0 for none.",
)
@click.option(
    "--sentences",
    type=PATH,
    help="Text to take these sentences from.  [default: drawn from the vocabulary]",
)
@force_option
@threads_option
@quiet_option
def export(model: Path, quiet: bool, **options: Any) -> None:
    """Write MODEL for another program, and verify that it computes the same there.

    MODEL is a model directory, a checkpoint or a run directory. The folder has a README.md that
    says how to use it and what differs. Needs the other program: pip install
    'nmt-cli[ctranslate2]' or 'nmt-cli[huggingface]'.
    """
    logs.configure(quiet=quiet)
    if options["sentences"] is not None and not options["verify"]:
        raise click.UsageError("--sentences is for a check, and --verify 0 leaves it out.")
    from nmt_cli.commands import export as command

    command.run(model, **options)
