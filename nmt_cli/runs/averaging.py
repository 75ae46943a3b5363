"""The mean of several checkpoints' weights (section 6.1)."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from nmt_cli.files.file_names import WEIGHTS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model_directory import read_weights


def mean_weights(directories: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean weights of verified models, in any order.

    They are summed in fp64, so the order does not change the rounded result. Raises UserError if
    the models do not have the same weights.
    """
    first = read_weights(directories[0])
    sums = {name: weight.double() for name, weight in first.items()}
    with logs.progress("average", "checkpoints", len(directories), 1) as bar:
        for directory in directories[1:]:
            weights = read_weights(directory)
            for name in sorted(first.keys() | weights.keys()):
                if (
                    name not in first
                    or name not in weights
                    or weights[name].shape != sums[name].shape
                ):
                    raise UserError(
                        f"{directory / WEIGHTS} does not fit {directories[0] / WEIGHTS}: "
                        f"{name} is not the same in both."
                    )
                sums[name] += weights[name]
            bar.advance()
    return {name: (total / len(directories)).to(first[name].dtype) for name, total in sums.items()}
