"""What shells complete: recipes, runs and keys; and the scripts that make shells do so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nmt_cli.command_line.usage import HelpfulCommand
from nmt_cli.messages.proposals import NAMES, OPUS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

KEYS = Path(__file__).with_name("recipe_keys.txt")  # made by: python -m tests.reference_pages
VARIABLE = "_NMT_CLI_COMPLETE"  # click's name for it, made of the program's


def keys(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the keys of a recipe, as --set takes them."""
    known = KEYS.read_text(encoding="utf-8").splitlines()
    return [f"{key}=" for key in known if key.startswith(incomplete)]


def datasets(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the data sets of data get, and how the name of a corpus of OPUS begins."""
    return [name for name in (*NAMES, OPUS) if name.startswith(incomplete)]


def _shipped_recipes() -> list[str]:
    from nmt_cli.recipe.reading.shipped import (
        shipped_recipes,  # no other command waits for this import
    )

    return shipped_recipes()


def _run_directories() -> list[str]:
    return [str(path) for path in sorted(Path("runs").glob("*/"))]


def _names_and_files(
    *sources: Callable[[], list[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what completes the names from all ``sources``, and lets the shell complete files."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # commands that run need none

        names = (name for source in sources for name in source())
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file"), *found]

    return complete


recipes = _names_and_files(_shipped_recipes)
runs = _names_and_files(_run_directories)
recipes_and_runs = _names_and_files(_shipped_recipes, _run_directories)


@click.command(cls=HelpfulCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete commands, options, recipes, keys and runs.

    bash, in ~/.bashrc: eval "$(nmt-cli completion bash)"; zsh, in ~/.zshrc: eval "$(nmt-cli
    completion zsh)"; fish: nmt-cli completion fish > ~/.config/fish/completions/nmt-cli.fish
    """
    from click.shell_completion import get_completion_class

    program = context.find_root()
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(program.command, {}, "nmt-cli", VARIABLE).source())
