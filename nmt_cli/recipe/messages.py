"""What is wrong with a recipe, in the words of the person who wrote it."""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.values import Section
from nmt_cli.recipe.yaml_tree import MAX_SHOWN, Finding, KeyPath, Place, shortened

SURE_ENOUGH = 0.6  # likeness from which a name is proposed
FOR_BEING_NEAR = 0.1  # likeness added to names of the section the key stands in
LONGEST_NAME = 40
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
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
}
# What the users of other toolkits type.
OTHER_NAMES = {
    "batch_size": "training.tokens_per_step",
    "beam": "decoding.beam_size",
    "dropout_rate": "model.dropout",
    "encoder_embed_dim": "model.d_model",
    "encoder_ffn_embed_dim": "model.d_ff",
    "encoder_layers": "model.num_layers",
    "heads": "model.num_heads",
    "hidden_size": "model.d_model",
    "layers": "model.num_layers",
    "learning_rate": "training.peak_learning_rate",
    "lenpen": "decoding.length_penalty",
    "lr": "training.peak_learning_rate",
    "max_tokens": "training.tokens_per_step",
    "max_update": "training.max_steps",
    "save_checkpoint_steps": "checkpoints.every_steps",
    "save_interval_updates": "checkpoints.every_steps",
    "src": "data.source_language",
    "tgt": "data.target_language",
    "train_steps": "training.max_steps",
    "transformer_ff": "model.d_ff",
    "valid_steps": "validation.every_steps",
    "vocab_size": "tokenizer.vocabulary_size",
    "warmup_updates": "training.warmup_steps",
}


def findings_of(error: ValidationError, places: Mapping[KeyPath, Place]) -> list[Finding]:
    """Return every problem of the recipe, each at the file and line its value stands in."""
    findings: list[Finding] = []
    errors = error.errors(include_url=False)
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
            for problem in details["ctx"]["problems"]:
                full = (*path, *_steps(problem.key))
                findings.append(Finding(place_of(full, places), dotted(full), problem.text))
        else:
            findings.append(Finding(place_of(path, places), dotted(path), _text(details)))
    return findings


def place_of(path: KeyPath, places: Mapping[KeyPath, Place]) -> Place:
    """Return where ``path`` was written, or else the section that holds it."""
    for length in range(len(path), -1, -1):
        if path[:length] in places:
            return places[path[:length]]
    return Place("recipe", None)


def dotted(path: KeyPath) -> str:
    """Return the path as people write it: ``data.train.0.source``."""
    return ".".join(map(str, path))


def shown(value: object) -> str:
    """Return a value that was found, short and printable."""
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = shortened(str(value), 60)
    return text if PLAIN_WORD.fullmatch(text) else f"'{text}'"


def key_paths(section: type[Section] = Recipe, prefix: str = "") -> Iterator[str]:
    """Yield every key that a recipe may hold, as ``section.key``; list entries have no index."""
    for name, field in section.model_fields.items():
        yield prefix + name
        inner = _section_in(field.annotation)
        if inner is not None:
            yield from key_paths(inner, f"{prefix}{name}.")


def section_at(path: KeyPath) -> type[Section] | None:
    """Return the section that stands at ``path`` of a recipe, or in the list that does."""
    section: type[Section] | None = Recipe
    for step in path:
        if isinstance(step, str) and section is not None:
            field = section.model_fields.get(step)
            section = _section_in(field.annotation) if field is not None else None
    return section


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
    if kind in RULES:
        limits = {name: _number(limit) for name, limit in details.get("ctx", {}).items()}
        return RULES[kind].format(**limits).replace("'", "") + found
    return details["msg"] + found


def _text_of_missing(path: KeyPath) -> str:
    section = section_at(path[:-1])
    if section is None or path[-1] not in section.model_fields:
        return "is missing; the list has too few entries"
    description = section.model_fields[str(path[-1])].description or ""
    return f"is missing, a required key: {description}"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value}"


def _proposal(path: KeyPath) -> str:
    section = section_at(path[:-1])
    own = tuple(section.model_fields) if section else ()
    here = ".".join(str(step) for step in path[:-1] if isinstance(step, str))
    name = str(path[-1]).lower().replace("-", "_").replace(" ", "_")
    if name in own:
        return f"did you mean {name}?"
    name = name.rsplit(".", 1)[-1]
    homes = [known.rpartition(".")[0] for known in _all_keys() if _last(known) == name]
    if any(homes):
        return f"{name} belongs under {' or '.join(home for home in homes if home)}"
    best = OTHER_NAMES.get(name) or _nearest(name, own, here)
    if best is not None:
        return f"did you mean {best}?"
    return f"known keys here: {', '.join(own)}" if own else "nothing stands below this key"


def _nearest(name: str, own: tuple[str, ...], here: str) -> str | None:
    if len(name) > LONGEST_NAME:
        return None
    scores: dict[str, float] = {}
    for known in _all_keys():
        likeness = SequenceMatcher(None, _last(known), name).ratio()
        is_own = known in own if not here else known == f"{here}.{_last(known)}"
        shown_as = _last(known) if is_own else known
        scores[shown_as] = max(scores.get(shown_as, 0), likeness + FOR_BEING_NEAR * is_own)
    best = max(scores, key=lambda known: scores[known])
    return best if scores[best] >= SURE_ENOUGH + FOR_BEING_NEAR else None


@cache
def _all_keys() -> tuple[str, ...]:
    return tuple(key_paths())


def _last(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _steps(key: str) -> KeyPath:
    return tuple(int(step) if step.isdigit() else step for step in key.split("."))


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    inner = (_section_in(argument) for argument in get_args(annotation))
    return next((section for section in inner if section is not None), None)
