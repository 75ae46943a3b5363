"""What the user of an unknown option, command or argument may have meant.

Modules that need the recipe's keys are imported in functions: most proposals need none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from nmt_cli.files.file_names import RECIPE_SUFFIXES
from nmt_cli.messages.other_toolkits import Renamed, missing_here, names_of_keys, renamed, renames
from nmt_cli.messages.proposals import (
    MOST_PROPOSED,
    any_of,
    as_argument,
    command,
    nearest,
    plain,
    slips,
    unused_name,
)

TOOLKIT_PREFIX = re.compile(r"^(fairseq|onmt|sockeye|marian)_")
LIST_SEPARATOR = re.compile(r"[\s,:]+")
# What other programs call the languages of a text; these options may also name a file.
LANGUAGES = {
    "--source-language": {"source", "src", "from", "lang"},
    "--target-language": {"target", "tgt", "trg", "to", "lang"},
}
NAMES_OF_LANGUAGES = {"language_pair", "langpair", "l", "source_language", "target_language"}.union(
    *LANGUAGES.values()
)
LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4})*")
# A learning rate as large as LEAST_FACTOR is a factor of the paper's, as in recipes of OpenNMT-py.
RATE, FACTOR, LEAST_FACTOR = "training.peak_learning_rate", "training.learning_rate_factor", 0.1
# With weight decay, the adam of fairseq is our adamw.
DECAYED, DECAYED_ADAM = ("training.optimizer", "training.weight_decay"), "adamw"


class UnknownOption:
    """An option that the command does not have, as the user wrote it."""

    def __init__(
        self, ctx: click.Context, words: Sequence[str], name: str, value: str | None
    ) -> None:
        """``words`` are those behind the name of the command."""
        self._ctx, self._words, self._name, self._value = ctx, words, name, value
        self._own = _options_of(ctx.command)
        self._command = ctx.command_path.partition(" ")[2]
        # What other toolkits call by this name: the command here, and its option or argument.
        self._places = [
            (row, *place.partition(" ")[::2]) for row in renamed(name) for place in row.places()
        ]

    @classmethod
    def found(
        cls, ctx: click.Context, given: Sequence[str], error: click.NoSuchOption
    ) -> UnknownOption:
        """Return the whole option that click refused; its error reports -beam_size as -b."""
        wanted = error.option_name
        for argument, following in zip(given, [*given[1:], "-"], strict=False):
            name, equals, value = argument.partition("=")
            is_short = not wanted.startswith("--") and re.match("-[^-]", name) is not None
            if name == wanted or (is_short and wanted[1] in name[1:]):
                if not equals and following[:1] != "-":
                    return cls(ctx, given, name, following)
                return cls(ctx, given, name, value if equals else None)
        return cls(ctx, given, wanted, None)

    def message(self) -> str:
        """Return the message with the likeliest proposal."""
        return f"No such option {self._name}{next(filter(None, self._proposals()), '.')}"

    def _proposals(self) -> Iterator[str]:
        """Yield what may have been meant, the likeliest first; some are empty."""
        why = missing_here(self._name)
        explained = f": {why}." if why else ""
        key, equals, value = (self._value or "").partition("=")
        if self._name == "--set" and equals:
            yield UnknownOption(self._ctx, self._words, key.rpartition(".")[2], value)._called_so()
        yield self._called_so()
        yield self._language()
        if self._command in {"score", "check"} and plain(self._name) == "glossary":  # no key here
            yield self._option(["--terms"])
        yield from self._by_table()
        keys = _keys_of(self._name, also_near=False)
        yield self._option([o for o in self._own if plain(o) in map(_last_part, keys)])
        in_table = plain(self._name) in names_of_keys()
        fits = in_table or self._value is None or any(_accepts(key, self._value) for key in keys)
        if "--set" not in self._own or not fits:
            yield explained
        yield self._keys(keys)
        yield explained
        yield self._of_another_command()
        yield from (self._option([o], row) for row, _, o in self._places if o in self._own)
        yield from (f". Here it is {c} {o}." for _, c, o in self._places if o.startswith("--"))
        yield self._option(nearest(self._name, [o for o in self._own if o != "--set"]))
        if "--set" in self._own:
            yield self._keys(_keys_of(self._name, also_near=True))

    def _called_so(self) -> str:
        return self._option([o for o in self._own if plain(o) == plain(self._name)])

    def _language(self) -> str:
        value, name = self._value or "", plain(self._name)
        if not LANGUAGE_CODE.fullmatch(value) or Path(value).exists():
            return ""
        if self._command == "score" and name in NAMES_OF_LANGUAGES:
            return ". score finds the tokenizer by the references; leave the language out."
        return self._option(
            [o for o, names in LANGUAGES.items() if o in self._own and name in names]
        )

    def _by_table(self) -> Iterator[str]:
        for row, of, thing in self._places:
            if of != self._command or not thing:
                continue
            if thing.startswith("--"):
                yield self._option([thing], row)
            else:
                words = self._arguments() or _with_value(self._ctx, thing, self._value)
                whole = f"{self._ctx.command_path} {words}"
                yield f". {thing} is an argument without a name: {whole}"

    def _arguments(self) -> str:
        """Return the user's words with all arguments in their places; "" if one is not known."""
        named, kept, others = dict[str, str](), list[str](), list[str]()
        words = list(self._words)
        while words:
            word = words.pop(0)
            name, equals, value = word.partition("=")
            if not word.startswith("-") or word == "-":
                others.append(word)
                continue
            own = self._own.get(name)
            has_value = own is None or not own.is_flag
            following = [words.pop(0)] if has_value and not equals and words else []
            if own is not None:
                kept += [word, *following]
                continue
            thing = self._argument_called(name)
            if not thing or thing in named or not (equals or following):
                return ""
            named[thing] = value if equals else following[0]
        found = list[str]()
        for argument in _arguments_of(self._ctx):
            name = argument.human_readable_name.rstrip(".")
            if name in named:
                given = named[name]
                found.append(given if given == "-" else as_argument(given))
            elif others and argument.nargs == 1:
                found.append(others.pop(0))
            elif not others:
                found.append(name)
        return shlex.join([*found, *others, *kept])

    def _argument_called(self, name: str) -> str:
        """Return the argument of this command that another toolkit calls ``name``, or ""."""
        places = (place.partition(" ")[::2] for row in renamed(name) for place in row.places())
        things = (thing for command, thing in places if command == self._command)
        return next((thing for thing in things if thing and not thing.startswith("-")), "")

    def _option(self, names: Sequence[str], row: Renamed | None = None) -> str:
        """Return a proposal of the options ``names`` of this command, with the user's value."""
        if not names:
            return ""
        value = self._value_for(names[0])
        if row is not None and row.example:
            value = row.value_here(self._value or "") or row.example
        proposed = [f"{o} {value}" if value and not self._own[o].is_flag else o for o in names]
        note = f" ({row.note})" if row is not None and row.note else ""
        return f". Did you mean {' or '.join(proposed)}{note}?"

    def _value_for(self, name: str) -> str:
        """Return the user's value if the option takes it."""
        if self._value is None or self._own[name].is_flag:
            return ""
        try:
            self._own[name].type.convert(self._value, self._own[name], self._ctx)
        except click.BadParameter:
            return ""
        return shlex.quote(self._value)

    def _keys(self, keys: Sequence[str]) -> str:
        """Return a proposal to set one of ``keys``, if possible to the user's value."""
        if not keys:
            return ""
        in_table = plain(self._name) in names_of_keys()
        if in_table and list(keys) == [RATE] and _number(self._value) >= LEAST_FACTOR:
            keys = [FACTOR]
        rows = [row for row in renames() if keys[0] in row.places()] or [Renamed(keys[0])]
        by_name = [row for row in rows if plain(self._name) in row.names]
        near = [row for row in rows if slips(self._name, row.names)]
        row, own = [*by_name, *near, *rows][0], keys[0].rpartition(".")[2]
        is_ours = plain(self._name) == own or bool(not by_name and slips(self._name, [own]))
        value, is_noted = self._value, not is_ours
        if keys[0] in DECAYED and _has_weight_decay(self._words):
            is_noted = True
            value = DECAYED_ADAM if value == "adam" else value
        settings = " or ".join(
            f"--set {_setting(key, value, row, is_ours=is_ours)}" for key in keys
        )
        note = f" ({row.note})" if row.note and is_noted else ""
        if "--set" in self._own:
            return f". It is a key of the recipe; write {settings}{note}."
        which = "preprocess and train" if keys[0].startswith(("data.", "tokenizer.")) else "train"
        return (
            f". It is a key of the recipe, which {self._command} does not change; "
            f"give it to {which}: nmt-cli train RECIPE {settings}{note}."
        )

    def _of_another_command(self) -> str:
        meant = {plain(self._name), *(plain(thing) for _, _, thing in self._places)}
        if self._command == "train" and "force" in meant:
            return ": train never replaces a run. Choose another --run-dir, or delete the old one"
        root: Any = self._ctx.find_root().command
        having = [
            name
            for name, command in root.commands.items()
            if any(plain(option) == plain(self._name) for option in _options_of(command))
        ]
        return f". It is an option of {any_of(having, 'and')}." if having else ""


def _last_part(key: str) -> str:
    return key.rpartition(".")[2]


def _arguments_of(ctx: click.Context) -> list[click.Argument]:
    return [param for param in ctx.command.params if isinstance(param, click.Argument)]


def _with_value(ctx: click.Context, thing: str, value: str | None) -> str:
    """Return the arguments of a command, with the user's ``value`` in the place of ``thing``."""
    names = [argument.human_readable_name for argument in _arguments_of(ctx)]
    given = value if value in (None, "-") else shlex.quote(as_argument(value))
    return " ".join(given or name if name.rstrip(".") == thing else name for name in names)


def _setting(key: str, value: str | None, row: Renamed, *, is_ours: bool) -> str:
    """Return ``key=value`` quoted for a shell, with the user's value if the key accepts it.

    ``row.example`` stands for a value of another unit or form, not for another of some choices.
    """
    from nmt_cli.recipe.keys import choices_of

    path = key.replace("data.train.", "data.train.0.")  # of the first corpus
    choices = choices_of(key)
    forms: list[str | None] = []
    if value is not None:
        own = value if is_ours or choices or not row.example else None
        forms = [row.value_here(value), own, *_of_both_sides(value)]
    for form in filter(None, forms):
        if _accepts(key, form):
            return shlex.quote(f"{path}={form}")
    if choices and value is not None and value[:1].isalpha():
        return f"{path}=VALUE, where VALUE is {any_of(choices)}"
    return shlex.quote(f"{path}={row.example}") if row.example else f"{path}=VALUE"


def _accepts(key: str, value: str) -> bool:
    """Return whether ``--set`` accepts ``key=value``; other keys are not considered."""
    from nmt_cli.recipe.keys import is_value_of
    from nmt_cli.recipe.reading.reader import parse_value

    parsed = parse_value(value)
    return parsed.readable and not parsed.findings and is_value_of(key, parsed.value)


def _of_both_sides(value: str) -> list[str]:
    """Return our forms of what another toolkit writes as (a, b) or a:b: a list, or one for both."""
    items = LIST_SEPARATOR.split(value.strip("()[] '\""))
    if len(items) == 1:
        return []
    return [f"[{', '.join(items)}]", *(items[:1] if len(set(items)) == 1 else [])]


def _has_weight_decay(words: Sequence[str]) -> bool:
    """Return whether an option of another toolkit on the command line makes weights decay."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.removeprefix("training.").partition("=")
        if plain(name) == "weight_decay" and _number(value if equals else following) > 0:
            return True
    return False


def _number(text: str | None) -> float:
    """Return the number that ``text`` is; 0 for other text."""
    with suppress(ValueError):
        return float(text or "")
    return 0.0


def _keys_of(name: str, *, also_near: bool) -> list[str]:
    """Return the one or two keys with this name, here or in another toolkit; no sections."""
    from nmt_cli.recipe.keys import keys_called, keys_meant, section_at

    others = names_of_keys()
    if len(plain(name)) == 1:
        return []  # -b, -m and -v mean something else in each toolkit
    if plain(name) in others:
        return [others[plain(name)]]
    found = keys_meant(name) if also_near else keys_called(name)
    keys = [key for key in found if section_at(tuple(key.split("."))) is None]
    return keys if len(keys) <= MOST_PROPOSED else []


def command_meant(group: click.Group, name: str) -> str:
    """Return the end of a message about an unknown command: what is proposed in its place."""
    if missing_here(name):
        return f": {missing_here(name)}."
    written = TOOLKIT_PREFIX.sub("", plain(name))
    rows = [*renamed(name), *renamed(written)]
    meant = [place for row in rows for place in row.places() if place in group.commands]
    meant = meant[:1] or nearest(written, group.commands)
    return f". Did you mean {' or '.join(meant)}?" if meant else "."


def _options_of(command: click.Command) -> dict[str, click.Option]:
    options = (p for p in command.params if isinstance(p, click.Option) and not p.hidden)
    return {name: option for option in options for name in option.opts}


def unexpected(ctx: click.Context, rest: Sequence[str]) -> str:
    """Return a message about arguments that the command does not take, with a proposal."""
    text = f"Unexpected argument {' '.join(rest)}"
    if "--set" in _options_of(ctx.command):
        texts = [str(ctx.params.get("recipe")), *rest]
        if all(Path(text).is_file() and not text.endswith(RECIPE_SUFFIXES) for text in texts):
            name = unused_name(Path("mine.yaml")).stem
            init = command("nmt-cli", "init", name, *map(Path, texts))
            return f"{text}. A recipe names its texts; this command writes one for yours: {init}"
        proposed = _settings_meant(ctx, rest)
        return f"{text}. Did you mean {proposed}?" if proposed else f"{text}."
    if ctx.info_name == "translate" and len(rest) <= 2:
        if len(rest) == 1 and Path(rest[0]).is_dir():  # a model behind the name of a text
            words = Path(rest[0]), "--input", Path(ctx.params["model"])
            return f"{text}. Did you mean {command(*ctx.command_path.split(), *words)}?"
        options = zip(("--input", "--output"), map(shlex.quote, rest), strict=False)
        files = " ".join(map(" ".join, options))
        return f"{text}. Did you mean {files}? Otherwise text comes from stdin, and goes to stdout."
    if ctx.info_name == "average-checkpoints":
        is_count = len(rest) == 1 and rest[0].isdecimal()
        named = " ".join(f"--checkpoints {shlex.quote(path)}" for path in rest)
        return f"{text}. Did you mean {f'--last {rest[0]}' if is_count else named}?"
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
