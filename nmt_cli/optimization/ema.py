"""The exponential moving average of the weights, an alternative to averaging checkpoints."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt_cli.errors import DamagedError


def decay_at(step: int, decay: float) -> float:
    """Return the share that the average keeps at ``step``, counted from 1.

    It rises to ``decay`` as (1 + step) / (10 + step), because the first average is the random
    weights of the start, which should soon be forgotten.
    """
    return min(decay, (1 + step) / (10 + step))


class MovingAverage:
    """One average for each parameter of a model, of its type and on its device.

    It depends only on the weights after each step: two trainings with the same weights have the
    same averages to the last bit, also if one of them was resumed from saved averages.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._averages = {name: weight.clone() for name, weight in _weights(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Move the averages towards the weights of ``model`` after optimizer step ``step``."""
        weights = list(_weights(model).values())
        torch._foreach_lerp_(
            list(self._averages.values()), weights, 1 - decay_at(step, self._decay)
        )

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[dict[str, Tensor]]:
        """Let ``model`` hold the averages during the block; yield copies of its trained weights.

        The averages are copied into the memory of the parameters, because compiled graphs and the
        optimizer keep its address. ``model`` must not be trained during the block.
        """
        trained = {name: weight.clone() for name, weight in _weights(model).items()}
        try:
            _copy(self._averages, model)
            yield trained
        finally:
            _copy(trained, model)

    def weights(self) -> dict[str, Tensor]:
        """Return the averages by name; they are not copies, so ``update`` changes them."""
        return dict(self._averages)

    @torch.no_grad()
    def restore(self, averages: Mapping[str, Tensor], path: Path) -> None:
        """Copy ``averages``, read from ``path``. Raises DamagedError if they do not fit."""
        if different := sorted(self._averages.keys() ^ averages.keys()):
            raise DamagedError(
                f"{path} does not hold the averages of this model: {', '.join(different[:3])} "
                "is in one and not in the other."
            )
        for name, average in self._averages.items():
            saved = averages[name]
            if saved.shape != average.shape or saved.dtype != average.dtype:
                raise DamagedError(
                    f"{path} does not hold the averages of this model: {name} is {saved.dtype} "
                    f"{list(saved.shape)}, not {average.dtype} {list(average.shape)}."
                )
            if not saved.isfinite().all():
                raise DamagedError(f"{path} is damaged: the average of {name} is not finite.")
        for name, average in self._averages.items():
            average.copy_(averages[name])


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@torch.no_grad()
def _copy(weights: Mapping[str, Tensor], model: nn.Module) -> None:
    torch._foreach_copy_(list(_weights(model).values()), list(weights.values()))
