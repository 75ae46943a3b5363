"""Adam, its learning rate (section 5.3), and the moving average of the weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import unwrap

import torch
from torch import Tensor, nn

from nmt_cli.recipe.training_config import TrainingConfig


class Adam(torch.optim.Adam):
    """torch's Adam without the wrappers that exclude it from ``torch.compile``.

    Those wrappers import the compiler at their first call. That costs every process that trains
    1.5 s and 70 MB, and the optimizer is never compiled here.
    """

    # torch reads this attribute: if it holds 1, a step changes nothing. The CPU does not wait for
    # the number.
    found_inf: Tensor | None = None

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))

    def make_moments(self) -> None:
        """Create the moments now, as zeros, so that no step has to allocate memory for them."""
        for parameter in self.param_groups[0]["params"]:
            if not self.state[parameter]:
                self.state[parameter].update(
                    step=torch.zeros((), dtype=torch.float32, device=parameter.device),
                    exp_avg=torch.zeros_like(parameter),
                    exp_avg_sq=torch.zeros_like(parameter),
                )

    def has_completed(self, num_steps: int) -> bool:
        """Return whether ``num_steps`` steps updated every weight; False if one was interrupted."""
        return all(state["step"].item() == num_steps for state in self.state.values())


def inverse_sqrt(step: int, d_model: int, warmup_steps: int) -> float:
    """Return the paper's rate: linear warm-up, then falling with 1/sqrt(step); steps from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def peaked_inverse_sqrt(step: int, peak: float, warmup_steps: int, start: float = 0.0) -> float:
    """Return the same shape by its height: from ``start`` to ``peak``, then falling."""
    if step < warmup_steps:
        return start + (peak - start) * step / warmup_steps
    return peak * (warmup_steps / step) ** 0.5


def learning_rate(step: int, training: TrainingConfig, d_model: int) -> float:
    """Return the rate that the recipe gives to ``step``, counted from 1."""
    if training.peak_learning_rate is None:
        return training.learning_rate_factor * inverse_sqrt(step, d_model, training.warmup_steps)
    return peaked_inverse_sqrt(
        step, training.peak_learning_rate, training.warmup_steps, training.warmup_start
    )


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

    def restore(self, averages: Mapping[str, Tensor]) -> None:
        """Copy ``averages``, which have the names, shapes and types of the model's weights."""
        for name, average in self._averages.items():
            average.copy_(averages[name])


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@torch.no_grad()
def _copy(weights: Mapping[str, Tensor], model: nn.Module) -> None:
    torch._foreach_copy_(list(_weights(model).values()), list(weights.values()))
