"""YAML without its surprises: plain text in, nested values and the line of each key out.

Every scalar stays text (an unquoted ``null``, ``~`` or nothing is None); the recipe converts by
declared type. What YAML can do beyond sections, lists and text is refused before it is built.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import yaml

from nmt_cli.errors import RecipeError

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_VALUES = 20_000  # about half a second of parsing
MAX_SHOWN = 100
OTHER_LINE_BREAKS = "\x85\u2028\u2029"

KeyPath: TypeAlias = tuple[str | int, ...]


class Place(NamedTuple):
    """Where a value was written: a file and line, or a flag of the command line."""

    file: str
    line: int | None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Finding(NamedTuple):
    """One thing that is wrong with a recipe, and where."""

    place: Place
    key: str
    text: str

    def __str__(self) -> str:
        named = f"{self.place}: {shortened(self.key)}" if self.key else str(self.place)
        return f"{named}: {self.text}"


class Tree(NamedTuple):
    """Nested dicts, lists, text and None, and where each of them was written."""

    value: Any
    places: dict[KeyPath, Place]
    findings: list[Finding]
    readable: bool = True  # False: the findings say why there is no value


class _Stop(Exception):  # noqa: N818  (control flow: nothing after it can be read)
    """The text cannot be read any further."""


@dataclass
class _Open:
    """A mapping or list that is being filled."""

    value: dict[str, Any] | list[Any]
    path: KeyPath
    key: str | None = None


def parse_yaml(text: str, file: str) -> Tree:
    """Return what ``text`` says, or the findings that say why it cannot be read."""
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.take(event)
    except _Stop:
        return Tree(None, {}, builder.findings, readable=False)
    except yaml.YAMLError as error:
        builder.findings.append(_syntax_finding(error, text, file))
        return Tree(None, {}, builder.findings, readable=False)
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF"
        builder.find(builder.line, "not YAML: an escape names no character")
        return Tree(None, {}, builder.findings, readable=False)
    return Tree(builder.result, builder.places, builder.findings)


def write_yaml(value: object) -> str:
    """Return ``value`` as YAML that any reader takes for the same, YAML 1.1 or 1.2."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def error_of(findings: list[Finding]) -> RecipeError:
    """Return the error that states the findings, one on each line, in the order of the files."""
    ordered = sorted(findings, key=lambda finding: (finding.place.file, finding.place.line or 0))
    lines = list(dict.fromkeys(str(finding) for finding in ordered[:MAX_SHOWN]))
    if len(findings) > MAX_SHOWN:
        lines.append(f"and {len(findings) - MAX_SHOWN:,} more problems")
    return RecipeError("\n".join(lines))


def scalar(text: str) -> str | None:
    """Return what an unquoted scalar means before its type is known."""
    return None if text in ("", "~", "null") else text


def shortened(text: str, longest: int = 80) -> str:
    """Return ``text`` so that it can stand in a message: one line, printable, not too long."""
    printable = "".join(
        character if character.isprintable() else ascii(character)[1:-1]
        for character in text[: longest + 1]
    )
    return printable if len(printable) <= longest else printable[: longest - 3] + "..."


class _Builder:
    """Builds the values from YAML's events, without recursion."""

    def __init__(self, file: str) -> None:
        self.result: Any = None
        self.places: dict[KeyPath, Place] = {(): Place(file, 1)}
        self.findings: list[Finding] = []
        self.line = 1
        self._file = file
        self._open: list[_Open] = []
        self._num_documents = 0
        self._num_values = 0

    def find(self, line: int, text: str, path: KeyPath = ()) -> None:
        """Note a problem at a line."""
        key = ".".join(map(str, path))
        self.findings.append(Finding(Place(self._file, line), key, text))

    def take(self, event: yaml.Event) -> None:
        """Build one event into the result, or stop at what a recipe may not hold."""
        if event.start_mark is not None:
            self.line = event.start_mark.line + 1
        self._refuse_features(event)
        if isinstance(event, yaml.ScalarEvent):
            self._take_scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._descend([])
        elif isinstance(event, yaml.MappingStartEvent):
            self._descend({})
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()

    def _refuse_features(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._num_documents += 1
            if self._num_documents > 1:
                self._stop("a second document (---) begins; a recipe is one")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            self._stop("anchors and aliases (&, *) are not read; write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._stop(f"tags ({shortened(tag)}) are not read; write the plain value")

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        text: str = event.value
        plain = event.implicit[0] and event.style is None
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._stop("half of a surrogate pair stands in the text; write the character itself")
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self._take_key(parent, text, plain)
        else:
            self._add(scalar(text) if plain else text)

    def _take_key(self, parent: _Open, key: str, plain: bool) -> None:
        if plain and key == "<<":
            self._stop("merge keys (<<) are not read; use extends or write the values out")
        path = (*parent.path, key)
        if key in parent.value:
            self.find(self.line, f"is given twice, first on line {self.places[path].line}", path)
        self.places[path] = Place(self._file, self.line)
        parent.key = key

    def _descend(self, value: dict[str, Any] | list[Any]) -> None:
        if len(self._open) == MAX_DEPTH:
            self._stop(f"more than {MAX_DEPTH} levels of nesting")
        self._open.append(_Open(value, self._add(value)))

    def _add(self, value: Any) -> KeyPath:
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            self._stop(f"more than {MAX_VALUES:,} values; a recipe has about fifty")
        if not self._open:
            self.result = value
            self.places[()] = Place(self._file, self.line)
            return ()
        parent = self._open[-1]
        if isinstance(parent.value, list):
            path: KeyPath = (*parent.path, len(parent.value))
            self.places[path] = Place(self._file, self.line)
            parent.value.append(value)
        elif parent.key is None:
            self._stop("a key must be text, but is a list or a section")
        else:
            path = (*parent.path, parent.key)
            parent.value[parent.key] = value
            parent.key = None
        return path

    def _stop(self, text: str) -> None:
        self.find(self.line, text)
        raise _Stop


class _Dumper(yaml.SafeDumper):
    """Writes short lists on one line and never an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        flow = not any(isinstance(item, dict | list) for item in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless  # items stand further right than their key, as people write them
        super().increase_indent(flow, False)

    def represent_text(self, data: str) -> yaml.ScalarNode:
        # PyYAML would write these as line breaks, which reading turns into spaces.
        style = '"' if any(character in data for character in OTHER_LINE_BREAKS) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(list, _Dumper.represent_list)
_Dumper.add_representer(str, _Dumper.represent_text)


def _syntax_finding(error: yaml.YAMLError, text: str, file: str) -> Finding:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        said = error.problem or error.context or "it cannot be read"
        line = 1 if mark is None else mark.line + 1
        return Finding(Place(file, line), "", f"not YAML: {shortened(said)}")
    position = getattr(error, "position", 0)
    character = text[position : position + 1] or "\0"
    line = text.count("\n", 0, position) + 1
    said = f"not YAML: the character U+{ord(character):04X} may not stand in it"
    return Finding(Place(file, line), "", said)
