"""Commands that do a whole experiment."""

from pathlib import Path
from typing import Any

import click

from nmt_cli.command_line import completion, options
from nmt_cli.command_line.options import PATH
from nmt_cli.command_line.usage import words_of_this_command
from nmt_cli.commands.experiments.pipeline import STAGES_OF_DISTIL, STAGES_OF_RUN
from nmt_cli.messages.figures import parse_number_list


@options.cli_command()
@click.argument("recipe", shell_complete=completion.recipes)
@options.overrides
@options.stages(STAGES_OF_RUN)
@click.option("--prepared", type=PATH, help="What preprocess writes.  [default: prepared/NAME]")
@options.run_dir
@options.needless_resume("run")
@options.allow_change
@options.workers
@options.training_machine
@options.init_from
@options.validation_script
@options.keep_validations
@options.max_time
@options.quiet
def run(recipe: str, **given: Any) -> None:
    """Run the experiment of RECIPE: preprocess, train, average, translate, score, report.

    A stage whose inputs and settings have not changed is skipped, and an interrupted training goes
    on. Ends with one line on stdout: the scores of the test text.
    """
    from nmt_cli.commands import run as command

    command.run(recipe, **given)


@options.cli_command()
@click.argument("teacher", type=PATH, shell_complete=completion.runs)
@click.argument("recipe", shell_complete=completion.recipes)
@options.ensemble
@click.option(
    "--reverse-model",
    type=PATH,
    metavar="MODEL",
    help="A model of the other direction: leave out the pairs whose source it finds least likely.",
)
@options.overrides
@click.option(
    "--n-best",
    type=click.IntRange(1, 64),
    help="Short for --set distillation.n_best=N: translations of each line to choose from.",
)
@click.option(
    "--taught",
    type=PATH,
    help="Folder of what TEACHER translates; students of one teacher and text can share it.  "
    "[default: distillation in the run directory]",
)
@options.stages(STAGES_OF_DISTIL)
@options.run_dir
@options.needless_resume("distil", "Messages")
@options.allow_change
@options.workers
@options.training_machine
@options.max_time
@options.output_format
@options.quiet
def distil(teacher: Path, recipe: str, **given: Any) -> None:
    """Train a small student, of RECIPE, on what the large model TEACHER translates.

    TEACHER translates the source of the recipe's training text, and the best translation of each
    line is chosen; then the student is trained and averaged as by run, rounded to int8 and
    measured beside its teacher. A stage whose inputs and settings have not changed is skipped, and
    one that was interrupted goes on. Ends with a table on stdout. The student is in
    runs/NAME/student.
    """
    from nmt_cli.commands import distil as command

    teachers, n_best = [teacher, *given.pop("ensemble")], given.pop("n_best")
    if n_best is not None:
        given["overrides"] += (f"distillation.n_best={n_best}",)
    command.run(teachers, recipe, arguments=words_of_this_command(), **given)


@options.cli_command()
@click.argument(
    "recipes", metavar="RECIPE...", nargs=-1, required=True, shell_complete=completion.recipes
)
@options.overrides
@click.option(
    "--seeds",
    type=options.Parsed("LIST", parse_number_list),
    help="Train each recipe with each of these seeds, such as 1,2.  [default: the recipe's]",
)
@click.option("--prepared", type=PATH, help="What preprocess writes.  [default: prepared/NAME]")
@click.option("--runs", type=PATH, help="Folder of the run directories.  [default: runs]")
@click.option(
    "--devices",
    type=click.IntRange(1, 1024),
    help="How many trainings at the same time.  [default: one for each GPU, or one]",
)
@options.device
@options.precision
@options.threads
@options.needless_resume("compare")
@options.max_time
@options.output_format
@options.quiet
def compare(recipes: tuple[str, ...], seeds: tuple[range, ...] | None, **given: Any) -> None:
    """Train each RECIPE as run does; print a table of perplexity and BLEU beside the paper's.

    Behind it is a test of whether the BLEU of each run differs from that of the first one.

    A folder of recipes, yours or a shipped one such as table3, stands for all of them. What is
    finished is skipped, and what was interrupted goes on. --max-time is for each training. A run of
    a seed is in NAME/seed-N, unless NAME is a finished run of the same recipe and seed. The paper's
    figures are those of its Table 3, for recipes with the names of its rows.
    """
    from nmt_cli.commands import compare as command

    listed = [seed for part in seeds or () for seed in part]
    command.run(recipes, seeds=listed, **given)
