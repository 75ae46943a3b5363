"""Commands that do a whole experiment."""

import os
import re
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nmt_cli.command_line import completion, options
from nmt_cli.command_line.options import PATH
from nmt_cli.command_line.usage import words_of_this_command
from nmt_cli.commands.experiments.pipeline import STAGES_OF_DISTIL, STAGES_OF_RUN
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.figures import NUMBER, counted, parse_number_list

PRICES, KEY_VARIABLE = "price_per_million", "teacher_key_variable"


def _parse_prices(text: str) -> tuple[float, float]:
    match = re.fullmatch(rf"({NUMBER}),({NUMBER})", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not two prices such as 0.15,0.60.")
    return float(match[1]), float(match[2])


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
@click.argument(
    "teachers", metavar="[TEACHER]", nargs=-1, type=PATH, shell_complete=completion.runs
)
@click.argument("recipe", shell_complete=completion.recipes)
@options.ensemble
@click.option(
    "--teacher-url",
    metavar="URL",
    help="In place of TEACHER: a server with OpenAI's chat completions, such as "
    "http://localhost:8000/v1, whose model distillation.teacher of the recipe names.",
)
@click.option(
    "--teacher-concurrency",
    type=click.IntRange(1, 1024),
    default=8,
    help="Most requests to it at the same time.",
)
@click.option(
    "--teacher-key-variable",
    metavar="NAME",
    default="OPENAI_API_KEY",
    help="Environment variable that holds its key, if it needs one.",
)
@click.option(
    "--price-per-million",
    type=options.Parsed("IN,OUT", _parse_prices),
    help="What a million tokens of prompts and of answers cost, such as 0.15,0.60.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop before the answers cost more than this, by --price-per-million.",
)
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
def distil(teachers: tuple[Path, ...], recipe: str, **given: Any) -> None:
    """Train a small student, of RECIPE, on what the large model TEACHER translates.

    TEACHER translates the source of the recipe's training text, and the best translation of each
    line is chosen; then the student is trained and averaged as by run, rounded to int8 and
    measured beside its teacher. A stage whose inputs and settings have not changed is skipped, and
    one that was interrupted goes on. Ends with a table on stdout. The student is in
    runs/NAME/student.

    With --teacher-url, a language model translates in place of TEACHER.
    """
    server = _server_in(given)
    ensemble, n_best = given.pop("ensemble"), given.pop("n_best")
    if server is not None and (teachers or ensemble):
        raise WrongUsageError(
            "--teacher-url takes the place of TEACHER and --ensemble; leave out one."
        )
    if server is None and len(teachers) != 1:
        raise WrongUsageError(
            "distil takes TEACHER and RECIPE, or --teacher-url URL and RECIPE, but was given "
            f"{counted(len(teachers) + 1, 'argument')}."
        )
    from nmt_cli.commands import distil as command

    if n_best is not None:
        given["overrides"] += (f"distillation.n_best={n_best}",)
    teacher = server or [*teachers, *ensemble]
    command.run(teacher, recipe, arguments=words_of_this_command(), **given)


def _server_in(given: dict[str, Any]) -> Any:
    """Take the options of a language model out of ``given``; return its server, or None."""
    url, prices, most = given.pop("teacher_url"), given.pop(PRICES), given.pop("max_cost")
    concurrency, variable = given.pop("teacher_concurrency"), given.pop(KEY_VARIABLE)
    source_of = click.get_current_context().get_parameter_source
    if url is None:
        for name in ("teacher_concurrency", KEY_VARIABLE, PRICES, "max_cost"):
            if source_of(name) is ParameterSource.COMMANDLINE:
                raise WrongUsageError(f"--{name.replace('_', '-')} needs --teacher-url URL.")
        return None
    if most is not None and prices is None:
        raise WrongUsageError("--max-cost needs the prices; add --price-per-million IN,OUT.")
    if source_of(KEY_VARIABLE) is ParameterSource.COMMANDLINE and not os.environ.get(variable):
        raise WrongUsageError(f"--teacher-key-variable {variable}: that variable is not set.")
    from nmt_cli.commands.distilling.distillation import TeacherServer

    return TeacherServer(url, concurrency, variable, prices, most)


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
