"""The command that scores given translations with a model."""

import sys
from pathlib import Path
from typing import Any

import click

from nmt_cli.command_line import completion
from nmt_cli.command_line.options import (
    PATH,
    cli_command,
    decoding_precision_option,
    device_option,
    ensemble_option,
    force_option,
    fp32_products_option,
    number,
    quiet_option,
    threads_option,
)
from nmt_cli.messages import logs
from nmt_cli.recipe.search_ranges import RESCORING_PENALTY


@cli_command()
@click.argument("model", type=PATH, shell_complete=completion.runs)
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@ensemble_option
@click.option("--output", "output_path", type=PATH, help="File to write.  [default: stdout]")
@force_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "tsv", "jsonl"]),
    default="text",
    show_default=True,
    help="text is one number per line; the others hold pieces and the log-probability of each.",
)
@click.option(
    "--length-penalty",
    type=number(RESCORING_PENALTY),
    default=RESCORING_PENALTY.default,
    show_default=True,
    help="Divide by the length penalty of a search, such as the recipe's 0.6.",
)
@device_option
@decoding_precision_option
@fp32_products_option
@threads_option
@click.option(
    "--max-tokens-per-device",
    type=click.IntRange(min=1),
    help="Most tokens of the pairs that are computed together.  [default: what keeps the device "
    "busy]",
)
@quiet_option
def rescore(model: Path, source: Path, target: Path, quiet: bool, **options: Any) -> None:
    """Print the log-probability that MODEL gives each line of TARGET as translation of SOURCE.

    Line n of TARGET translates line n of SOURCE; one of them may be -, stdin. The last line on
    stderr is the perplexity. Of a model that parses, TARGET holds trees in brackets, one a line.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import rescore as command

    sys.exit(command.run(model, source, target, **options))
