"""Commands that show and check recipes, what their models cost, and what this machine has."""

import re
from typing import Any

import click

from nmt_cli.command_line import completion, options

LENGTHS = re.compile(r"(\d{1,9})(?:,(\d{1,9}))?", re.ASCII)
LONGEST = 1_000_000  # tokens; the largest data.max_length


@options.cli_group()
def recipes() -> None:
    """List, show, explain and check recipes."""


@recipes.command("list")
def list_recipes() -> None:
    """List the shipped recipes and what each is for."""
    from nmt_cli.commands import recipes as command

    command.list_recipes()


@recipes.command()
@click.argument("recipe", shell_complete=completion.recipes)
@options.overrides
@options.flag("--comments", help="Explain each key: meaning, range and default.")
def show(recipe: str, overrides: tuple[str, ...], comments: bool) -> None:
    """Print RECIPE resolved: with its parent, overrides and every default."""
    from nmt_cli.commands import recipes as command

    command.show(recipe, overrides, comments=comments)


@recipes.command()
@click.argument("section", required=False)
def keys(section: str | None) -> None:
    """List meaning, allowed values and default of each key, or only of those in SECTION."""
    from nmt_cli.commands import recipes as command

    command.list_keys(section)


@recipes.command()
def schema() -> None:
    """Print the JSON Schema of recipes, for editors."""
    from nmt_cli.commands import recipes as command

    command.write_schema()


@recipes.command()
@click.argument("recipe", shell_complete=completion.recipes)
@options.overrides
@options.flag(
    "--text",
    help="Also read the text: count the lines of each corpus, and look at a sample of them.",
)
def check(recipe: str, overrides: tuple[str, ...], text: bool) -> None:
    """Check RECIPE, the files it names and the folders that commands would write."""
    from nmt_cli.commands import recipes as command

    command.check(recipe, overrides, text=text)


def parse_lengths(text: str) -> tuple[int, int]:
    """Return the two lengths in text such as 27 or 25,28. Raises ValueError for other text."""
    match = LENGTHS.fullmatch(text)
    source, target = match.groups() if match else ("0", None)
    lengths = (int(source), int(target or source))
    if not all(1 <= length <= LONGEST for length in lengths):
        raise ValueError(
            f"{text!r} is not one or two numbers of tokens, from 1 to {LONGEST:,}, such as 25,28."
        )
    return lengths


@options.cli_command()
@click.argument(
    "recipe_or_model", metavar="RECIPE|MODEL", shell_complete=completion.recipes_and_runs
)
@options.overrides
@click.option(
    "--vocabulary-size",
    type=click.IntRange(4, 1_000_000),
    help="Pieces in the vocabulary, for a recipe whose text is not prepared yet.",
)
@click.option(
    "--lengths",
    type=options.Parsed("N[,N]", parse_lengths),
    help="Tokens of a source and a target sentence.  [default: the means of the prepared text, "
    "or an assumption if there is none]",
)
@options.max_tokens_per_device("Tokens of a side in one micro-batch.  [default: a whole step]")
@click.option(
    "--target-tokens-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="Speed of this machine, as train prints it, to estimate the time.",
)
@options.output_format
def inspect(recipe_or_model: str, **given: Any) -> None:
    """Print what a model consists of and what its training costs: parameters, FLOPs, memory, time.

    MODEL is a model directory, a checkpoint or a run directory. Nothing is trained or loaded: all
    figures come from formulas.
    """
    from nmt_cli.commands import inspect as command

    command.run(recipe_or_model, **given)


@options.cli_command()
@options.output_format
def doctor(output_format: str) -> None:
    """Print versions, devices, cores, memory and disks, and what would be slow.

    For bug reports: one "name: value" per line, then a line of advice for each problem.
    """
    from nmt_cli.commands import doctor as command

    command.run(output_format=output_format)
