"""Commands that show recipes."""

import click

from nmt_cli import logs
from nmt_cli.command_line.options import cli_group, overrides_option


@cli_group()
def recipes() -> None:
    """List, show, explain and check recipes."""


@recipes.command("list")
def list_recipes() -> None:
    """List the shipped recipes and what each is for."""
    from nmt_cli.commands import recipes as command

    command.list_recipes()


@recipes.command()
@click.argument("recipe")
@overrides_option
@click.option("--comments", is_flag=True, help="Explain each key: meaning, range and default.")
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
@click.argument("recipe")
@overrides_option
def check(recipe: str, overrides: tuple[str, ...]) -> None:
    """Check RECIPE, the files it names and the folders that commands would write."""
    logs.configure(quiet=False)
    from nmt_cli.commands import recipes as command

    command.check(recipe, overrides)
