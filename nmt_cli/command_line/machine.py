"""The command that describes this machine."""

import click

from nmt_cli import logs
from nmt_cli.command_line.options import cli_command


@cli_command()
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
def doctor(output_format: str) -> None:
    """Print versions, devices, cores, memory and disks, and what would be slow.

    For bug reports: one "name: value" per line, then a line of advice for each problem.
    """
    logs.configure(quiet=False)
    from nmt_cli.commands import doctor as command

    command.run(output_format=output_format)
