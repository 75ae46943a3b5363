"""The command that decides whether a model may be used."""

import re
import sys
from pathlib import Path
from typing import Any

import click

from nmt_cli.command_line import completion, options
from nmt_cli.command_line.options import PATH
from nmt_cli.files.file_names import RULE_OF_SET_NAME, SET_NAME

NAMED_SET = re.compile(r"(?P<name>[^=]*)=(?P<source>[^,]+),(?P<target>[^,]+)")


def parse_test(text: str) -> dict[str, str | Path]:
    """Return name, source and target of a test set. Raises ValueError for other text."""
    match = NAMED_SET.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not NAME=SOURCE,REFERENCE, such as news=news.en,news.de.")
    if SET_NAME.fullmatch(match["name"]) is None:
        raise ValueError(f"the name {match['name']!r} {RULE_OF_SET_NAME}.")
    return match.groupdict() | {side: Path(match[side]) for side in ("source", "target")}


@options.cli_command()
@click.argument("model", type=PATH, shell_complete=completion.runs)
@click.option("--against", type=PATH, metavar="OLD", help="The model that MODEL may replace.")
@options.repeated(
    "--test",
    "tests",
    type=options.Parsed("NAME=SOURCE,REFERENCE", parse_test),
    help="A text and its references, in place of those of the recipe of MODEL",
)
@options.repeated(
    "--suite",
    "suites",
    type=PATH,
    metavar="FILE",
    help="JSON lines with what translations must have, and must not have",
)
@click.option(
    "--terms",
    type=PATH,
    metavar="FILE",
    help="Terms of a --glossary, which translations must have.",
)
@click.option(
    "--limits",
    type=PATH,
    metavar="FILE",
    help="Limits in YAML, beside the default ones; see docs/how-to/check-a-model.md.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "junit"]),
    default="text",
    help="json has all figures unrounded; junit is XML for servers of pipelines.",
)
@click.option("--output", type=PATH, metavar="PAGE", help="Also write a page in HTML.")
@options.force
@options.flag("--no-cost", help="Measure neither speed nor memory.")
@options.tag
@options.device
@options.decoding_precision
@options.threads
@options.quiet
def check(model: Path, **given: Any) -> None:
    """Check whether MODEL may be used, or may replace OLD; the exit status is 4 if it may not.

    Translates test sets, and texts made of them, with MODEL and OLD. Prints scores, and how many
    lines fail each check. Without --test, the sets are those of the recipe of MODEL.
    """
    from nmt_cli.commands import check as command

    sys.exit(command.run(model, **given))
