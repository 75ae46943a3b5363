"""The command that describes this machine."""

from nmt_cli import logs
from nmt_cli.command_line.options import cli_command, format_option


@cli_command()
@format_option
def doctor(output_format: str) -> None:
    """Print versions, devices, cores, memory and disks, and what would be slow.

    For bug reports: one "name: value" per line, then a line of advice for each problem.
    """
    logs.configure(quiet=False)
    from nmt_cli.commands import doctor as command

    command.run(output_format=output_format)
