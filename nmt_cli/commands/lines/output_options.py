"""Turns the options of the command line about the output into those of a ``Translator``."""

from collections.abc import Mapping
from typing import Any

from nmt_cli.messages.errors import UserError
from nmt_cli.search.sampling import Sampling
from nmt_cli.translating.request import Constraints

# Option of the command line: field of Sampling.
SAMPLING = {
    "temperature": "temperature",
    "sample_top_k": "top_k",
    "sample_top_p": "top_p",
    "seed": "seed",
}
# Option of the command line: field of Constraints.
CONSTRAINTS = {
    "min_length": "min_length",
    "max_length": "max_length",
    "no_repeat_ngram": "no_repeat_ngram",
    "target_prefix": "prefix",
    "required": "required",
    "banned": "banned",
}


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """Return ``options`` with those that belong together in one value.

    Raises UserError if one of them has no effect.
    """
    grouped = dict(options)
    is_sampled = grouped.pop("sample")
    given = _given(grouped, SAMPLING)
    if is_sampled:
        grouped["sampling"] = Sampling(**given)
    elif given:
        field = next(iter(given))
        option = next(name for name, own in SAMPLING.items() if own == field).replace("_", "-")
        raise UserError(f"--{option} has an effect only with --sample; add --sample or omit it.")
    grouped["constraints"] = Constraints(**_given(grouped, CONSTRAINTS))
    return grouped


def _given(options: dict[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Remove the options that ``fields`` names; return those given, by their field."""
    values = {field: options.pop(name) for name, field in fields.items()}
    return {field: value for field, value in values.items() if value is not None}
