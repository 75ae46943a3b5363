"""Turns the options of the command line about the output into those of a ``Translator``."""

from typing import Any

from nmt_cli.decoding.sampling import Sampling
from nmt_cli.errors import UserError

# Option of the command line: field of Sampling.
SAMPLING = {
    "temperature": "temperature",
    "sample_top_k": "top_k",
    "sample_top_p": "top_p",
    "seed": "seed",
}


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """Return ``options`` with those that belong together in one value.

    Raises UserError if one of them has no effect.
    """
    grouped = dict(options)
    is_sampled = grouped.pop("sample")
    given = {name: grouped.pop(name) for name in SAMPLING}
    given = {name: value for name, value in given.items() if value is not None}
    if is_sampled:
        fields = {SAMPLING[name]: value for name, value in given.items()}
        grouped["sampling"] = Sampling(**fields)
    elif given:
        option = "--" + next(iter(given)).replace("_", "-")
        raise UserError(f"{option} has an effect only with --sample; add --sample or omit it.")
    return grouped
