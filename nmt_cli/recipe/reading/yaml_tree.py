"""YAML without its surprises: plain text in, nested values and the line of each key out.

Every scalar stays text (an unquoted ``null``, ``~`` or nothing is None); the recipe converts by
declared type. What YAML can do beyond sections, lists and text is refused before it is built.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import yaml
from yaml.composer import ComposerError

from nmt_cli.messages.errors import RecipeError
from nmt_cli.messages.figures import counted

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_VALUES = 20_000  # about half a second of parsing
MAX_SHOWN = 100
SURROGATE = re.compile("[\ud800-\udfff]")
OTHER_LINE_BREAKS = "\x85\u2028\u2029"

KeyPath: TypeAlias = tuple[str | int, ...]


class Place(NamedTuple):
    """Where a value was written: a file and line, or a flag of the command line."""

    file: str
    line: int | None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Finding(NamedTuple):
    """One thing that is wrong with a file, and where."""

    place: Place
    key: str
    text: str

    def __str__(self) -> str:
        named = f"{self.place}: {shortened(self.key)}" if self.key else str(self.place)
        return f"{named}: {self.text}"


class YamlTree(NamedTuple):
    """Nested dicts, lists, text and None, and where each of them was written."""

    value: Any
    places: dict[KeyPath, Place]
    findings: list[Finding]
    readable: bool = True  # False: the findings say why there is no value


def parse_yaml(text: str, file: str) -> YamlTree:
    """Return the values in ``text``, or a finding with the reason why it cannot be read."""
    try:
        root = _composed(text)
    except _RefusedError as error:
        finding = Finding(Place(file, error.line), "", str(error))
    except yaml.YAMLError as error:
        finding = _syntax_finding(error, text, file)
    else:
        place = Place(file, 1) if root is None else _place(root, file)
        tree = YamlTree(None, {(): place}, [])
        return tree if root is None else tree._replace(value=_value(root, (), file, tree))
    return YamlTree(None, {}, [finding], readable=False)


def write_yaml(value: object) -> str:
    """Return ``value`` as YAML that any reader takes for the same, YAML 1.1 or 1.2."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def error_of(findings: list[Finding]) -> RecipeError:
    """Return the error that states the findings, one on each line, in the order of the files."""
    ordered = sorted(findings, key=lambda finding: (finding.place.file, finding.place.line or 0))
    lines = list(dict.fromkeys(str(finding) for finding in ordered[:MAX_SHOWN]))
    if len(findings) > MAX_SHOWN:
        lines.append(f"and {counted(len(findings) - MAX_SHOWN, 'more problem')}")
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


class _RefusedError(Exception):
    """The text holds something that is not read."""

    def __init__(self, mark: yaml.Mark | None, text: str) -> None:
        super().__init__(text)
        self.line = _line_of(mark)


class _Loader(yaml.BaseLoader):
    """Composes nodes; raises _RefusedError for what is not read.

    Each node is checked before it is composed: composing is recursive, so a deeply nested text
    would exhaust the stack, and values that use aliases can grow exponentially.
    """

    _depth = _num_values = 0

    def get_single_node(self) -> yaml.Node | None:
        """Return the root of the document, None for an empty text."""
        try:
            return super().get_single_node()
        except ComposerError as error:  # its other reasons, anchors and aliases, are refused below
            text = "a second document (---) begins; only one is read"
            raise _RefusedError(error.problem_mark, text) from None

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node and what is in it."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        self._num_values += not is_key
        refusal = self._refusal(event, is_key)
        if refusal is not None:
            raise _RefusedError(event.start_mark, refusal)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _refusal(self, event: Any, is_key: bool) -> str | None:
        if event.anchor is not None:  # an alias has one too
            return "anchors and aliases (&, *) are not read; write the value out"
        if event.tag is not None:
            return f"tags ({shortened(event.tag)}) are not read; write the plain value"
        if self._num_values > MAX_VALUES:
            return f"more than {MAX_VALUES:,} values, the most that are read"
        if not isinstance(event, yaml.ScalarEvent):
            if is_key:
                return "a key must be text, but is a list or a section"
            if self._depth == MAX_DEPTH:
                return f"more than {MAX_DEPTH} levels of nesting"
        elif is_key and event.value == "<<" and event.style is None:
            return "merge keys (<<) are not read; write the values out (a recipe may use extends)"
        elif SURROGATE.search(event.value):
            return "half of a surrogate pair stands in the text; write the character itself"
        return None


@lru_cache(maxsize=8)  # a command reads the files of a recipe again and again
def _composed(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF"
        raise _RefusedError(loader.get_mark(), "not YAML: an escape names no character") from None


def _value(node: yaml.Node, path: KeyPath, file: str, tree: YamlTree) -> Any:
    """Return the value of a node; add the places and repeated keys in it to ``tree``."""
    if isinstance(node, yaml.ScalarNode):
        return scalar(node.value) if node.style is None else node.value
    if isinstance(node, yaml.SequenceNode):
        items = [((*path, index), item) for index, item in enumerate(node.value)]
        tree.places.update((item_path, _place(item, file)) for item_path, item in items)
        return [_value(item, item_path, file, tree) for item_path, item in items]
    section: dict[str, Any] = {}
    for key, value in node.value:
        key_path, place = (*path, key.value), _place(key, file)
        if key.value in section:
            text = f"is given twice, first on line {tree.places[key_path].line}"
            tree.findings.append(Finding(place, ".".join(map(str, key_path)), text))
        tree.places[key_path] = place
        section[key.value] = _value(value, key_path, file, tree)
    return section


def _place(node: yaml.Node, file: str) -> Place:
    return Place(file, _line_of(node.start_mark))


def _line_of(mark: yaml.Mark | None) -> int:
    return 1 if mark is None else mark.line + 1


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
        if "found character '\\t'" in said:
            said = "a tab stands where YAML has only spaces; write spaces"
        return Finding(Place(file, _line_of(mark)), "", f"not YAML: {shortened(said)}")
    position = getattr(error, "position", 0)
    character = text[position : position + 1] or "\0"
    line = text.count("\n", 0, position) + 1
    said = f"not YAML: the character U+{ord(character):04X} may not stand in it"
    return Finding(Place(file, line), "", said)
