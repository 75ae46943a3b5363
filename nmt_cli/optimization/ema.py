"""The exponential moving average of the weights, an alternative to averaging checkpoints."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt_cli.errors import DamagedError


def decay_at(step: int, decay: float) -> float:
    """Return the share that the average keeps at ``step``, counted from 1.

    It rises to ``decay`` as (1 + step) / (10 + step), so that the random weights of the start,
    which the first average is, are soon forgotten.
    """
    return min(decay, (1 + step) / (10 + step))


class MovingAverage:
    """One average for each parameter of a model, of its type and on its device.

    A pure function of the weights after each step: two trainings with the same weights have the
    same averages to the last bit, and so has one that continues from saved averages.
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
        """Let ``model`` hold the averages; yield the trained weights, which it gets back.

        They are copied into the parameters' own memory, whose address DDP, compiled graphs and
        the optimizer know. ``model`` must not be trained meanwhile.
        """
        trained = {name: weight.clone() for name, weight in _weights(model).items()}
        try:
            _copy(self._averages, model)
            yield trained
        finally:
            _copy(trained, model)

    def weights(self) -> dict[str, Tensor]:
        """Return the averages by name, as ``restore`` takes them: no copies, they go on moving."""
        return dict(self._averages)

    @torch.no_grad()
    def restore(self, averages: Mapping[str, Tensor], path: Path) -> None:
        """Take over ``averages``, read from ``path``; raise DamagedError where they do not fit."""
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
