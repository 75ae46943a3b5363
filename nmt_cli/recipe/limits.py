"""The limits of ``nmt-cli check``: what a model may not pass to be used."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from nmt_cli.messages.proposals import any_of, nearest
from nmt_cli.recipe.reading.problem_messages import findings_of, rule_of, shown
from nmt_cli.recipe.reading.recipe_files import read_text
from nmt_cli.recipe.reading.yaml_tree import error_of, parse_yaml, shortened
from nmt_cli.recipe.values import Flag, Number, Section

Share = Annotated[Number, Field(ge=0, le=1)] | None  # of lines that may fail
Score = Annotated[Number, Field(ge=0, le=100)]
# The keys that are not of single checks: their types and defaults.
SECTIONS: dict[str, dict[str, Any]] = {
    "quality": dict.fromkeys(
        ("min_bleu", "min_chrf", "max_bleu_loss", "max_chrf_loss"), (Score | None, None)
    ),
    "invariance": {"min_chrf": (Score, 50.0)},
}

Checks = Mapping[str, Mapping[str, float | None]]  # the default limits, by section and check


def read_limits(path: Path | None, checks: Checks) -> dict[str, Any]:
    """Return the limits by section and key: those of a YAML file, and default ones for the others.

    None is no limit. Raises RecipeError, which lists all problems of the file by line.
    """
    section = _all_limits(checks)
    if path is None:
        return section().model_dump()
    tree = parse_yaml(read_text(path, "limits"), shortened(str(path), 1000))
    problems, limits = [*tree.findings], section()
    if tree.readable:
        try:
            limits = section.model_validate({} if tree.value is None else tree.value)
        except ValidationError as error:
            text_of = partial(text_of_problem, section)
            problems += findings_of(error, tree.places, text_of)
    if problems:
        raise error_of(problems)
    return limits.model_dump()


def _all_limits(checks: Checks) -> type[Section]:
    """Return the type of a file of limits."""
    keys: dict[str, Any] = {"may_be_worse": (Flag, False)}
    for name, shares in {"quality": {}, **checks}.items():
        own: dict[str, Any] = {check: (Share, default) for check, default in shares.items()}
        below = create_model(name, __base__=Section, **own, **SECTIONS.get(name, {}))
        keys[name] = (below, Field(default_factory=below))
    return create_model("limits", __base__=Section, **keys, suites=(Share, None))


def text_of_problem(section: type[Section], details: ErrorDetails) -> str:
    """Return what is wrong with a value below ``section``, and what is allowed."""
    kind = details["type"]
    if kind == "extra_forbidden":
        for step in details["loc"][:-1]:
            section = section.model_fields[str(step)].annotation  # type: ignore[assignment]
        known = list(section.model_fields)
        if meant := nearest(str(details["loc"][-1]), known):
            return f"is not a key here; did you mean {any_of(meant)}?"
        return f"is not a key here; those are {', '.join(known)}"
    if kind == "missing":
        return "is missing"
    rule = "must have keys and values" if kind == "model_type" else rule_of(details)
    return f"{rule}, but is {shown(details['input'])}"
