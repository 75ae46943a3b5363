"""Commands and groups that answer wrong use with a proposal, and what commands ask of click.

What makes proposals is imported when there is something to propose: commands start sooner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nmt_cli.command_line.help_pages import CommandWithHelp, GroupWithHelp
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.extras import LEFT_OUT, naming_missing_package
from nmt_cli.messages.proposals import any_of, command

WORDS = "nmt_cli.words"  # in the meta data of a context
# Packages that these commands need, but do not import first: run and compare score and train.
NEEDED_LATER = {"run": LEFT_OUT, "compare": LEFT_OUT, "get": ("requests",)}


class HelpfulCommand(CommandWithHelp):
    """A command whose usage errors propose the option, key or argument that was meant."""

    allow_extra_args = True  # parse_args refuses them, with a proposal

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises UsageError with a proposal for what is not an option here."""
        given = ctx.meta[WORDS] = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from nmt_cli.command_line.meant import UnknownOption

            raise click.UsageError(UnknownOption.found(ctx, given, error).message(), ctx) from None
        if rest and not ctx.resilient_parsing:
            from nmt_cli.command_line.meant import unexpected

            raise click.UsageError(unexpected(ctx, rest), ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises UserError if it needs a package that is missing."""
        _refuse_stdin_twice(ctx)
        try:
            with naming_missing_package(ctx.command_path, *NEEDED_LATER.get(self.name or "", ())):
                return super().invoke(ctx)
        except UserError as error:
            if commands := _commands_meant(ctx, error):
                error.args = (f"{error} Run: {any_of(commands)}",)
            raise


class HelpfulGroup(GroupWithHelp):
    """A group of HelpfulCommands, which proposes a command for an unknown name."""

    command_class = HelpfulCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises UsageError for an option before the name of its command."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            raise click.UsageError(
                f"No such option {name}. Options come after their command: "
                f"{ctx.command_path} COMMAND {name}.",
                ctx,
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does. Raises UsageError with a proposal for an unknown name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from nmt_cli.command_line.meant import command_meant

            text = f"No such command {args[0]}"
            raise click.UsageError(f"{text}{command_meant(self, args[0])}", ctx) from None


def _commands_meant(ctx: click.Context, error: UserError) -> list[str]:
    """Return the user's command with each word that the error proposes for a wrong one.

    There is none if the wrong word is not on the command line, or twice.
    """
    words = ctx.meta[WORDS]
    is_wrong = [Path(word.rpartition("=")[2]) == Path(error.given) for word in words]
    if not error.meant or sum(is_wrong) != 1:
        return []
    position = is_wrong.index(True)
    name, equals, _ = words[position].rpartition("=")
    return [
        command(
            "nmt-cli",
            *ctx.command_path.split()[1:],
            *words[:position],
            f"{name}={meant}" if equals else Path(meant),
            *words[position + 1 :],
        )
        for meant in error.meant
    ]


def words_of_this_command() -> list[str]:
    """Return the words of the command being run, behind the name of the program."""
    ctx = click.get_current_context()
    return [str(ctx.info_name), *ctx.meta[WORDS]]


def refuse_options_except(*allowed: str, choice: str) -> None:
    """Raise UsageError if the user gave an option that is not ``allowed`` with ``choice``."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        name = option.name or ""
        is_given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and is_given and name not in allowed:
            raise click.UsageError(f"{option.opts[0]} has no meaning with {choice}.", ctx)


def _refuse_stdin_twice(ctx: click.Context) -> None:
    """Raise WrongUsageError if more than one input is stdin."""
    names = list[str]()
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        values = value if isinstance(value, tuple) else (value,)
        name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        names += [name] * values.count(STANDARD_INPUT)
    if len(names) > 1:
        raise WrongUsageError(
            f"- (standard input) is given for {any_of(list(dict.fromkeys(names)), 'and')}, but can "
            "be read once only; give the name of the other file."
        )
