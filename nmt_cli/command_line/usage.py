"""Messages about wrong use of the command line, which propose what the user may have meant.

Modules that need the recipe's keys are imported in functions, to keep ``--help`` fast.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from nmt_cli.messages.other_toolkits import RENAMED, Renamed, missing_here, names_of_keys, renamed
from nmt_cli.messages.proposals import MOST_PROPOSED, as_argument, nearest, plain, slips

TOOLKIT_PREFIX = re.compile(r"^(fairseq|onmt|sockeye|marian)_")
WORDS = "nmt_cli.words"  # in the meta data of a context
KEYS_OF_PREPROCESS = ("data.", "tokenizer.")


class HelpfulCommand(click.Command):
    """A command whose usage errors propose the option, key or argument that was meant."""

    allow_extra_args = True  # parse_args refuses them, with a proposal

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises UsageError with a proposal for what is not an option here."""
        given = ctx.meta[WORDS] = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(_no_such_option(ctx, _find(given, error)), ctx) from None
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(_unexpected(ctx, rest), ctx)
        return rest


class HelpfulGroup(click.Group):
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
            text = f"No such command {args[0]}"
            raise click.UsageError(f"{text}{_command_meant(self, args[0])}", ctx) from None


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


class _Written(NamedTuple):
    """An option as the user wrote it."""

    name: str
    value: str | None


def _find(given: Sequence[str], error: click.NoSuchOption) -> _Written:
    """Return the whole option that click refused; its error reports -beam_size as -b."""
    wanted = error.option_name
    for place, argument in enumerate(given):
        name, equals, value = argument.partition("=")
        is_short = not wanted.startswith("--") and re.match("-[^-]", name) is not None
        if name != wanted and not (is_short and wanted[1] in name[1:]):
            continue
        if equals:
            return _Written(name, value)
        following = given[place + 1 : place + 2]
        return _Written(name, following[0] if following and following[0][:1] != "-" else None)
    return _Written(wanted, None)


def _command_meant(group: click.Group, name: str) -> str:
    if missing_here(name):
        return f": {missing_here(name)}."
    written = TOOLKIT_PREFIX.sub("", plain(name))
    rows = [*renamed(name), *renamed(written)]
    meant = [place for row in rows for place in row.places() if place in group.commands]
    meant = meant[:1] or nearest(written, group.commands)
    return f". Did you mean {' or '.join(meant)}?" if meant else "."


def _no_such_option(ctx: click.Context, written: _Written) -> str:
    proposal = next((text for text in _proposals(ctx, written) if text), "")
    return f"No such option {written.name}{proposal or '.'}"


def _proposals(ctx: click.Context, written: _Written) -> Iterator[str]:
    """Yield proposals of what may have been meant, the likeliest first; some are empty."""
    own = _options_of(ctx.command)
    missing = missing_here(written.name)
    key, equals, value = (written.value or "").partition("=")
    if written.name == "--set" and equals:
        yield next(_proposals(ctx, _Written(key.rpartition(".")[2], value)))
    yield _own_option(ctx, written, [o for o in own if plain(o) == plain(written.name)])
    for row in renamed(written.name):
        yield _by_table(ctx, written, row)
    if "--set" not in own and missing:
        yield f": {missing}."
    yield _keys(ctx, written, _keys_called(written.name))
    yield f": {missing}." if missing else ""
    yield _of_another_command(ctx, written)
    yield _own_option(ctx, written, nearest(written.name, [o for o in own if o != "--set"]))
    if "--set" in own:
        yield _keys(ctx, written, _keys_near(written.name))


def _by_table(ctx: click.Context, written: _Written, row: Renamed) -> str:
    for place in row.places():
        command, _, thing = place.partition(" ")
        if command == _name_of(ctx) and thing.startswith("--"):
            return _own_option(ctx, written, [thing], row)
        if command == _name_of(ctx) and thing:
            words = _arguments(ctx, thing, written.value)
            return f". {thing} is an argument without a name: {ctx.command_path} {words}."
    return ""


def _arguments(ctx: click.Context, thing: str, value: str | None) -> str:
    """Return the arguments of a command, with the user's ``value`` in the place of ``thing``."""
    arguments = [p for p in ctx.command.params if isinstance(p, click.Argument)]
    names = [argument.human_readable_name for argument in arguments]
    given = value if value in (None, "-") else shlex.quote(as_argument(value))
    return " ".join(given or name if name.rstrip(".") == thing else name for name in names)


def _own_option(
    ctx: click.Context, written: _Written, names: Sequence[str], row: Renamed | None = None
) -> str:
    if not names:
        return ""
    options = _options_of(ctx.command)
    value = row.example if row is not None and row.example else _value_for(ctx, written, names[0])
    proposed = [
        f"{name} {value}" if value and not options[name].is_flag else name for name in names
    ]
    note = f" ({row.note})" if row is not None and row.note else ""
    return f". Did you mean {' or '.join(proposed)}{note}?"


def _value_for(ctx: click.Context, written: _Written, name: str) -> str:
    """Return the user's value if the option takes it."""
    option = _options_of(ctx.command)[name]
    if written.value is None or option.is_flag:
        return ""
    try:
        option.type.convert(written.value, option, ctx)
    except click.BadParameter:
        return ""
    return shlex.quote(written.value)


def _keys(ctx: click.Context, written: _Written, keys: Sequence[str]) -> str:
    if not keys:
        return ""
    row = _row_of(keys[0], written.name)
    is_ours = bool(slips(written.name, [keys[0].rpartition(".")[2]]))
    value = written.value if is_ours or not row.example else None
    settings = " or ".join(f"--set {_setting(key, value, row.example)}" for key in keys)
    note = "" if is_ours else row.note
    note = f" ({note})" if note else ""
    if "--set" in _options_of(ctx.command):
        return f". It is a key of the recipe; write {settings}{note}."
    which = "preprocess and train" if keys[0].startswith(KEYS_OF_PREPROCESS) else "train"
    return (
        f". It is a key of the recipe, which {_name_of(ctx)} does not change; "
        f"give it to {which}: nmt-cli train RECIPE {settings}{note}."
    )


def _row_of(key: str, name: str) -> Renamed:
    """Return the row of ``key`` that has ``name``, perhaps misspelled; else its first row."""
    rows = [row for row in RENAMED if key in row.places()]
    return next(
        (row for row in rows if slips(name, row.names())), rows[0] if rows else Renamed(key)
    )


def _setting(key: str, value: str | None, example: str) -> str:
    """Return ``key=value`` quoted for a shell, with the user's value if the key accepts it."""
    from nmt_cli.recipe.keys import is_value_of
    from nmt_cli.recipe.layers import parse_value

    path = key.replace("data.train.", "data.train.0.")  # of the first corpus
    if value is not None:
        parsed = parse_value(value)
        if parsed.readable and not parsed.findings and is_value_of(key, parsed.value):
            return shlex.quote(f"{path}={value}")
    return shlex.quote(f"{path}={example}") if example else f"{path}=VALUE"


def _keys_called(name: str) -> list[str]:
    """Return the keys with this name, here or in another toolkit; sections are left out."""
    from nmt_cli.recipe.keys import keys_called, section_at

    others = names_of_keys()
    if len(plain(name)) == 1:
        return []  # -b, -m and -v mean something else in each toolkit
    if plain(name) in others:
        return [others[plain(name)]]
    keys = [key for key in keys_called(name) if section_at(tuple(key.split("."))) is None]
    return keys if len(keys) <= MOST_PROPOSED else []


def _keys_near(name: str) -> list[str]:
    from nmt_cli.recipe.keys import keys_meant, section_at

    if len(plain(name)) == 1:
        return []
    return [key for key in keys_meant(name) if section_at(tuple(key.split("."))) is None]


def _of_another_command(ctx: click.Context, written: _Written) -> str:
    means_force = any("--force" in place for row in renamed(written.name) for place in row.places())
    if _name_of(ctx) == "train" and (means_force or plain(written.name) == "force"):
        return ": train never replaces a run. Choose another --run-dir, or delete the old one"
    root: Any = ctx.find_root().command
    having = [
        name
        for name, command in root.commands.items()
        if any(plain(option) == plain(written.name) for option in _options_of(command))
    ]
    if having:
        return f". It is an option of {' and '.join(having)}."
    found = [(row, place) for row in renamed(written.name) for place in row.places()]
    for row, place in found:
        if (option := place.partition(" ")[2]) in _options_of(ctx.command):
            return _own_option(ctx, written, [option], row)
    return next((f". Here it is {place}." for _, place in found if " --" in place), "")


def _options_of(command: click.Command) -> dict[str, click.Option]:
    options = (p for p in command.params if isinstance(p, click.Option) and not p.hidden)
    return {name: option for option in options for name in option.opts}


def _name_of(ctx: click.Context) -> str:
    return ctx.command_path.partition(" ")[2]


def _unexpected(ctx: click.Context, rest: Sequence[str]) -> str:
    """Return a message about arguments that the command does not take, with a proposal."""
    text = f"Unexpected argument {' '.join(rest)}"
    options, command = _options_of(ctx.command), _name_of(ctx)
    if "--set" in options:
        proposed = _settings_meant(ctx, rest)
        return f"{text}. Did you mean {proposed}?" if proposed else f"{text}."
    quoted = [shlex.quote(argument) for argument in rest]
    if command == "translate" and len(rest) <= 2:
        files = " ".join(f"{o} {p}" for o, p in zip(("--input", "--output"), quoted, strict=False))
        return f"{text}. Did you mean {files}? Otherwise text comes from stdin, and goes to stdout."
    if command == "average-checkpoints":
        is_count = len(rest) == 1 and rest[0].isdecimal()
        proposed = (
            f"--last {rest[0]}" if is_count else " ".join(f"--checkpoints {p}" for p in quoted)
        )
        return f"{text}. Did you mean {proposed}?"
    return f"{text}."


def _settings_meant(ctx: click.Context, rest: Sequence[str]) -> str:
    """Return the --set options for stray ``key=value`` arguments, or for ``--set key value``."""
    from nmt_cli.recipe.keys import keys_meant

    pairs = [argument.partition("=")[::2] for argument in rest]
    unfinished = [key for key in ctx.params["overrides"] if "=" not in key]
    if len(unfinished) == len(rest) == 1:
        pairs = [(unfinished[0].rstrip(":"), rest[0])]
    meant = [(keys_meant(key), value) for key, value in pairs]
    if not all(len(keys) == 1 and value for keys, value in meant):
        return ""
    return " ".join(f"--set {shlex.quote(f'{keys[0]}={value}')}" for keys, value in meant)
