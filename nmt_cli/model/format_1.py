"""Converts weights that were saved in format 1.

In format 1 each attention had one input matrix: the rows of the queries, keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

INPUTS, OUTPUT = ".input_weight", "_attention.output_weight"
Moments = Mapping[int, dict[str, "Tensor"]]  # Adam's state of each parameter, by its number


class Place(NamedTuple):
    """Where a weight of today is stored."""

    name: str
    rows: range | None = None  # None: all


def places_of_today(shapes: Mapping[str, Sequence[int]]) -> dict[str, Place]:
    """Return the places, by today's names, of all weights that are stored in these ``shapes``.

    Raises KeyError or ValueError if a weight of format 1 lacks what belongs to it.
    """
    today: dict[str, Place] = {}
    for name, shape in shapes.items():
        attention = name.removesuffix(INPUTS)
        if name.endswith(OUTPUT):
            today[f"{name.removesuffix('_weight')}.weight"] = Place(name)
        elif not name.endswith(INPUTS):
            today[name] = Place(name)
        elif attention.endswith("self_attention"):
            today[f"{attention}.queries_keys_values.weight"] = Place(name)
        else:
            _, value_width = shapes[f"{attention}.output_weight"]
            key_width = (shape[0] - value_width) // 2
            today[f"{attention}.queries.weight"] = Place(name, range(key_width))
            today[f"{attention}.keys_values.weight"] = Place(name, range(key_width, shape[0]))
    return today


def weights_of_today(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``weights`` of any format with today's names and shapes."""
    places = places_of_today({name: weight.shape for name, weight in weights.items()})
    return {
        name: weights[stored] if rows is None else weights[stored][rows.start : rows.stop]
        for name, (stored, rows) in places.items()
    }


def moments_of_today(moments: Moments, names: Sequence[str]) -> Moments:
    """Return Adam's ``moments`` of any format as those of today's parameters, called ``names``."""
    names_then = list(dict.fromkeys(map(_name_then, names)))
    if len(moments) != len(names_then):
        return moments
    today: dict[int, dict[str, Tensor]] = {number: {} for number in range(len(names))}
    for key in ("exp_avg", "exp_avg_sq"):
        then = {name: moments[number][key] for number, name in enumerate(names_then)}
        for name, moment in weights_of_today(then).items():
            today[names.index(name)][key] = moment.contiguous()
    for number, name in enumerate(names):
        today[number]["step"] = moments[names_then.index(_name_then(name))]["step"].clone()
    return today


def _name_then(name: str) -> str:
    attention, _, projection = name.removesuffix(".weight").rpartition(".")
    if not attention.endswith("_attention"):
        return name
    return f"{attention}.output_weight" if projection == "output" else f"{attention}{INPUTS}"
