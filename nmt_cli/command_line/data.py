"""Commands that get data."""

from typing import Any

import click

from nmt_cli import logs
from nmt_cli.command_line.options import PATH, cli_group, force_option, quiet_option


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

    If a download breaks off, the same command continues it. Downloads need pooch: pip install
    'nmt-cli[data]'. wsj downloads nothing; it is made of the .mrg files below --treebank.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import data_get as command

    command.run(name, **options)
