"""Commands that get the data of the shipped recipes, and show what this machine has."""

from typing import Any

import click

from nmt_cli.command_line.options import (
    PATH,
    cli_command,
    cli_group,
    force_option,
    format_option,
    quiet_option,
)
from nmt_cli.messages import logs


@cli_group()
def data() -> None:
    """Get the data that the shipped recipes name."""


@data.command()
@click.argument("name")
@click.option("--output", type=PATH, help="Directory to write.  [default: data/NAME]")
@click.option(
    "--downloads",
    type=PATH,
    help="Directory of the archives.  [default: downloads beside --output]",
)
@click.option("--treebank", type=PATH, help="Your copy of the Penn Treebank; for wsj.")
@force_option
@quiet_option
def get(name: str, quiet: bool, **options: Any) -> None:
    """Get the data set NAME: wmt14-en-de, wmt14-en-fr or wsj.

    If a download breaks off, the same command continues it. Downloads need requests.
    wsj downloads nothing; it is made of the .mrg files below --treebank.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import data_get as command

    command.run(name, **options)


@cli_command()
@format_option
def doctor(output_format: str) -> None:
    """Print versions, devices, cores, memory and disks, and what would be slow.

    For bug reports: one "name: value" per line, then a line of advice for each problem.
    """
    logs.configure(quiet=False)
    from nmt_cli.commands import doctor as command

    command.run(output_format=output_format)
