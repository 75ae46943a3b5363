"""The command that serves models by HTTP."""

from typing import Any

import click

from nmt_cli.command_line import completion
from nmt_cli.command_line.options import (
    cli_command,
    decoding_precision_option,
    device_option,
    fp32_products_option,
    number,
    quiet_option,
    threads_option,
    whole_number,
)
from nmt_cli.messages import logs
from nmt_cli.recipe.search_ranges import BEAM_SIZE, LENGTH_PENALTY


@cli_command()
@click.argument(
    "models", metavar="MODEL...", nargs=-1, required=True, shell_complete=completion.runs
)
@click.option(
    "--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 is all of this machine."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5000, help="Port; 0 is any free one."
)
@click.option(
    "--beam-size",
    type=whole_number(BEAM_SIZE),
    help="Most hypotheses that a request may ask for, and the default.  [default: the recipe's]",
)
@click.option(
    "--length-penalty",
    type=number(LENGTH_PENALTY),
    help="Exponent of the length penalty; 0 is none.  [default: the recipe's]",
)
@device_option
@decoding_precision_option
@fp32_products_option
@threads_option
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    help="Processes for each model.  [default: one per core, or per GPU]",
)
@click.option(
    "--max-tokens-per-device",
    type=click.IntRange(min=1),
    help="Most tokens of all hypotheses in the search of a process at one time.  [default: what "
    "keeps the device busy]",
)
@quiet_option
def serve(models: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Translate what comes by HTTP, with one or several models.

    MODEL is a model directory, a checkpoint or a run directory; MODEL=en:de names the languages of
    a model that does not name them.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import serve as command

    command.run(models, **options)
