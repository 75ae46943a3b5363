"""Converts weights that were saved in format 1.

In format 1 each attention had one input matrix: the rows of the queries, keys and values.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

INPUTS, OUTPUT = ".input_weight", "_attention.output_weight"
Moments = Mapping[int, dict[str, Tensor]]  # Adam's state of each parameter, by its number


def weights_of_today(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``weights`` of any format with today's names and shapes."""
    today: dict[str, Tensor] = {}
    for name, weight in weights.items():
        attention = name.removesuffix(INPUTS)
        if name.endswith(OUTPUT):
            today[f"{name.removesuffix('_weight')}.weight"] = weight
        elif not name.endswith(INPUTS):
            today[name] = weight
        elif attention.endswith("self_attention"):
            today[f"{attention}.queries_keys_values.weight"] = weight
        else:
            value_width = weights[f"{attention}.output_weight"].shape[1]
            key_width = (len(weight) - value_width) // 2
            today[f"{attention}.queries.weight"] = weight[:key_width]
            today[f"{attention}.keys_values.weight"] = weight[key_width:]
    return today


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
