"""Messages about the problems of a recipe, with the file, line and key of each."""

import re
from collections.abc import Callable, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nmt_cli.messages.other_toolkits import missing_here, names_of_keys
from nmt_cli.messages.proposals import plain
from nmt_cli.recipe.keys import accepts_null, key_at, keys_called, keys_meant, last_name, section_at
from nmt_cli.recipe.problem import Problem
from nmt_cli.recipe.reading.yaml_tree import MAX_SHOWN, Finding, KeyPath, Place, shortened
from nmt_cli.recipe.sections.corpora import ONE_SET, SEVERAL_SETS

OF_LEAST = ("greater_than", "greater_than_equal")  # where other programs write 0 for none
FORMS = (ONE_SET, SEVERAL_SETS)  # pydantic adds to a path which of the two it is
PLAIN_WORD = re.compile(r"[\w.+-]+")
RULES = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must be a language code such as en",
    "tuple_type": "must be a list",
    "dict_type": "must be a section of names with numbers",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
}


def findings_of(
    error: ValidationError,
    places: Mapping[KeyPath, Place],
    text_of: Callable[[ErrorDetails], str] | None = None,
) -> list[Finding]:
    """Return every problem of a file, each with the file and line of its value.

    ``text_of`` returns what is wrong; by default, in words about recipes.
    """
    findings: list[Finding] = []
    errors = error.errors(include_url=False)
    for details in errors:
        details["loc"] = tuple(step for step in details["loc"] if step not in FORMS)
    holders = {
        details["loc"][:length] for details in errors for length in range(len(details["loc"]))
    }
    for details in errors:
        path = details["loc"]
        if details["type"] == "too_short" and path in holders:
            continue  # pydantic does not count entries that are wrong themselves
        if len(findings) >= MAX_SHOWN:  # proposing names for thousands of keys takes long
            findings.append(Finding(place_of(path, places), dotted(path), details["type"]))
        elif details["type"] == "combination":
            findings += [_finding_of(p, path, places) for p in details["ctx"]["problems"]]
        else:
            findings.append(
                Finding(place_of(path, places), dotted(path), (text_of or _text)(details))
            )
    return findings


def _finding_of(problem: Problem, section: KeyPath, places: Mapping[KeyPath, Place]) -> Finding:
    """Return the finding for a problem of two keys, with the other key's place if it differs."""
    path, beside = (*section, *_steps(problem.key)), (*section, *_steps(problem.beside))
    place, other = place_of(path, places), places.get(beside)
    text = problem.text
    if problem.beside and other is not None and other.file != place.file:
        text += f" ({dotted(beside)} comes from {other})"
    return Finding(place, dotted(path), text)


def place_of(path: KeyPath, places: Mapping[KeyPath, Place]) -> Place:
    """Return the place where ``path`` is written, or else the place of its section."""
    for length in range(len(path), -1, -1):
        if path[:length] in places:
            return places[path[:length]]
    return Place("recipe", None)


def dotted(path: KeyPath) -> str:
    """Return the path with dots: ``data.train.0.source``."""
    return ".".join(map(str, path))


def shown(value: object) -> str:
    """Return a value as short, printable text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = shortened(str(value), 60)
    return text if PLAIN_WORD.fullmatch(text) else f"'{text}'"


def _text(details: ErrorDetails) -> str:
    path, kind = details["loc"], details["type"]
    if kind == "extra_forbidden":
        return f"is not a key of a recipe; {_proposal(path)}"
    if kind == "missing":
        return _text_of_missing(path)
    found = f", but is {shown(details['input'])}"
    if kind in ("too_short", "too_long"):
        found = f", but has {details['ctx']['actual_length']:,}"
    if kind == "model_type":
        section = section_at(path)
        keys = ", ".join(section.model_fields) if section else "keys"
        return f"must be a section with keys of {keys}{found}"
    return (
        rule_of(details) + (", or null" if kind in OF_LEAST and accepts_null(path) else "") + found
    )


def rule_of(details: ErrorDetails) -> str:
    """Return what is allowed in place of a wrong value, in pydantic's words where we have none."""
    if details["type"] not in RULES:
        return details["msg"]
    limits = {name: _number(limit) for name, limit in details.get("ctx", {}).items()}
    return RULES[details["type"]].format(**limits).replace("'", "")


def _text_of_missing(path: KeyPath) -> str:
    if isinstance(path[-1], int) or (key := key_at(path)) is None:
        return "is missing; the list has too few entries"
    return f"is missing, a required key: {key.description}"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value}"


def _proposal(path: KeyPath) -> str:
    section = section_at(path[:-1])
    own = tuple(section.model_fields) if section else ()
    here = ".".join(str(step) for step in path[:-1] if isinstance(step, str))
    name = plain(str(path[-1]))
    if name in own:
        return f"did you mean {name}?"
    name = last_name(name)
    homes = [key.rpartition(".")[0] for key in keys_called(name) if "." in key]
    if homes:
        return f"{name} belongs under {' or '.join(homes)}"
    meant = keys_meant(name, here)
    if meant:
        is_slip = name not in names_of_keys()  # another toolkit's name gets the full key
        proposed = [last_name(key) if is_slip and last_name(key) in own else key for key in meant]
        return f"did you mean {' or '.join(proposed)}?"
    missing = missing_here(name)
    if missing:
        return missing
    return f"known keys here: {', '.join(own)}" if own else "this key has no keys below it"


def _steps(key: str) -> KeyPath:
    return tuple(int(step) if step.isdigit() else step for step in key.split("."))
