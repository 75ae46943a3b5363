"""Commands that do a whole experiment."""

from typing import Any

import click

from nmt_cli import logs
from nmt_cli.command_line.options import (
    PATH,
    cli_command,
    compile_option,
    deterministic_option,
    device_option,
    devices_option,
    fp32_products_option,
    max_time_option,
    micro_batch_option,
    overrides_option,
    precision_option,
    quiet_option,
    run_dir_option,
    threads_option,
    workers_option,
)

STAGE = click.Choice(["preprocess", "train", "average", "translate", "score", "report"])


@cli_command()
@click.argument("recipe")
@overrides_option
@click.option("--until", type=STAGE, default="report", show_default=True, help="The last stage.")
@click.option(
    "--force-from", type=STAGE, help="Make this stage and all after it anew, training included."
)
@click.option("--prepared", type=PATH, help="What preprocess writes.  [default: prepared/NAME]")
@run_dir_option
@click.option(
    "--resume",
    is_flag=True,
    help="Does nothing: run always resumes. Messages about training name this option.",
)
@workers_option
@device_option
@precision_option
@fp32_products_option
@threads_option
@micro_batch_option
@compile_option
@deterministic_option
@devices_option
@max_time_option
@quiet_option
def run(recipe: str, quiet: bool, resume: bool, **options: Any) -> None:
    """Do the experiment of RECIPE: preprocess, train, average, translate, score, report.

    A stage whose inputs and settings have not changed is skipped, and an interrupted training goes
    on. Ends with one line on stdout: the scores of the test text.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import run as command

    command.run(recipe, quiet=quiet, **options)
