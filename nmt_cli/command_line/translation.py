"""The command that translates."""

import sys
from pathlib import Path
from typing import Any

import click

from nmt_cli import logs
from nmt_cli.command_line.options import (
    PATH,
    cli_command,
    device_option,
    force_option,
    fp32_products_option,
    precision_option,
    quiet_option,
    threads_option,
)


@cli_command()
@click.argument("model", type=PATH)
@click.option("--input", "input_path", type=PATH, help="Text to translate.  [default: stdin]")
@click.option("--output", "output_path", type=PATH, help="File to write.  [default: stdout]")
@force_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "tsv", "jsonl"]),
    default="text",
    show_default=True,
    help="text is one translation per line; the others hold scores and n-best lists.",
)
@click.option("--beam-size", type=click.IntRange(1, 1000), help="[default: the recipe's]")
@click.option("--length-penalty", type=click.FloatRange(0, 10), help="[default: the recipe's]")
@click.option(
    "--n-best", type=click.IntRange(min=1), default=1, show_default=True, help="Needs a --format."
)
@click.option(
    "--too-long",
    type=click.Choice(["split", "truncate", "error"]),
    default="split",
    show_default=True,
    help="What to do with lines of more pieces than the recipe's max_length.",
)
@click.option("--keep-pieces", is_flag=True, help="Print pieces, without joining them to text.")
@device_option
@precision_option
@fp32_products_option
@threads_option
@click.option(
    "--max-tokens-per-device",
    type=click.IntRange(min=1),
    help="Tokens of all hypotheses in the search.  [default: what keeps the device busy]",
)
@quiet_option
def translate(model: Path, quiet: bool, **options: Any) -> None:
    """Translate lines from stdin to stdout with MODEL, one line for each line.

    MODEL is a model directory, a checkpoint or a run directory. Of a run, the average is used, else
    the best checkpoint, else the last.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import translate as command

    sys.exit(command.run(model, **options))
