"""Writes what is made from the program: pages of docs/reference/, the keys that shells complete.

python -m tests.reference_pages
"""

from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from nmt_cli.cli import main
from nmt_cli.recipe.documentation import described_keys

ROOT = Path(__file__).parents[1]
WIDTH = 100


def recipe_keys() -> str:
    """Return the page of the keys of a recipe."""
    rows = [
        f"| `{key.name}` | {key.allowed} | {_code(key.default)} | {key.description} |".replace(
            "<", "&lt;"
        )
        for key in described_keys()
    ]
    return "\n".join(
        [
            "# The keys of a recipe",
            "",
            "`nmt-cli recipes keys` prints this list. A key without a default has to be given.",
            "",
            "| key | allowed | default | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def commands() -> str:
    """Return the page of all commands, with what --help prints."""
    lines = ["# The commands", ""]
    for path in _paths(main, ()):
        shown = CliRunner().invoke(
            main, [*path, "--help"], terminal_width=WIDTH, prog_name="nmt-cli"
        )
        lines += [f"## {' '.join(('nmt-cli', *path))}", "", "```text", shown.stdout, "```", ""]
    return "\n".join(lines)


def _paths(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, found in sorted(command.commands.items()):
            if not found.hidden:
                yield from _paths(found, (*path, name))


def _code(default: str | None) -> str:
    return "" if default is None else f"`{default}`"


def completed_keys() -> str:
    """Return the keys that shells complete, one a line: the schema needs pydantic."""
    return "".join(f"{key.name}\n" for key in described_keys() if key.allowed)


PAGES = {
    "docs/reference/recipe-keys.md": recipe_keys,
    "docs/reference/commands.md": commands,
    "nmt_cli/command_line/recipe_keys.txt": completed_keys,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
