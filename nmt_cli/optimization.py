"""Optimizers, the learning rate (section 5.3 and others), and the moving average of the weights."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.model.attention import Projection
from nmt_cli.recipe.sections.training import TrainingConfig


class Adam(torch.optim.Adam):
    """torch's Adam without the wrappers that exclude it from ``torch.compile``.

    Those wrappers import the compiler at their first call. That costs every process that trains
    1.5 s and 70 MB, and the optimizer is never compiled here.
    """

    # torch reads this attribute: if it holds 1, a step changes nothing. The CPU does not wait for
    # the number.
    found_inf: Tensor | None = None

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that a step changes."""
        for group in self.param_groups:
            yield from group["params"]

    def moments_of(self, parameter: nn.Parameter) -> tuple[str, ...]:
        """Return the names of the moments of ``parameter``, tensors of its shape."""
        return ("exp_avg", "exp_avg_sq")

    def make_moments(self) -> None:
        """Create the moments now, as zeros, so that no step has to allocate memory for them."""
        for parameter in self.parameters():
            if not self.state[parameter]:
                self.state[parameter].update(
                    step=torch.zeros((), dtype=torch.float32, device=parameter.device),
                    **{name: torch.zeros_like(parameter) for name in self.moments_of(parameter)},
                )

    def has_completed(self, num_steps: int) -> bool:
        """Return whether ``num_steps`` steps updated every weight; False if one was interrupted."""
        return all(state["step"].item() == num_steps for state in self.state.values())


class Muon(Adam):
    """Muon for matrices, and Adam for all other parameters; both have the same learning rate.

    A matrix moves by its momentum after a Newton-Schulz iteration, which makes its singular values
    about equal. Projections that are one layer, such as those of queries, keys and values, are
    matrices of their own, with which Muon works better (https://kellerjordan.github.io/posts/muon).
    The update is scaled to the size of Adam's ("Muon is Scalable for LLM Training", 2025), so one
    learning rate suits both. Unlike torch's Muon, this one changes nothing if ``found_inf`` holds
    1, and updates all matrices of one shape together.
    """

    MOMENTUM = 0.95  # this and the next are those of torch.optim.Muon
    COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of s, s^3 and s^5 for a singular value s
    ITERATIONS = 5

    def __init__(
        self,
        others: list[dict[str, Any]],
        matrices: Mapping[nn.Parameter, Sequence[int]],
        *,
        weight_decay: float = 0.0,
        **settings: Any,
    ) -> None:
        """Take the groups of other parameters, the matrices, and the ``settings`` of Adam.

        A parameter may hold several matrices, one below the other, of so many rows each.
        """
        super().__init__(others, **settings)
        self._weight_decay = weight_decay
        self._matrices = dict(matrices)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that a step changes."""
        yield from super().parameters()
        yield from self._matrices

    def moments_of(self, parameter: nn.Parameter) -> tuple[str, ...]:
        """Return the names of the moments of ``parameter``, tensors of its shape."""
        return (
            ("momentum_buffer",) if parameter in self._matrices else super().moments_of(parameter)
        )

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # it takes no closure
        """Change all weights; none is changed if there is no memory for the matrices' updates."""
        self.make_moments()
        matrices: list[Tensor] = list(self._matrices)
        buffers = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
        gradients = [_gradient_of(matrix) for matrix in matrices]
        counted = torch.ones((), device=buffers[0].device)  # 0 if this step changes nothing
        if self.found_inf is not None:
            counted -= self.found_inf
            for buffer, gradient in zip(buffers, gradients, strict=True):
                torch.where(counted > 0, gradient, buffer, out=gradient)
        rate = self.param_groups[0]["lr"] * counted
        updates = self._updates(self._cut(buffers), self._cut(gradients), rate)
        super().step()
        torch._foreach_lerp_(buffers, gradients, 1 - self.MOMENTUM)
        if self._weight_decay > 0:
            torch._foreach_mul_(matrices, 1 - rate * self._weight_decay)
        torch._foreach_add_(self._cut(matrices), updates)
        steps = [self.state[matrix]["step"] for matrix in matrices]
        torch._foreach_add_(steps, [counted] * len(steps))

    def _cut(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return views of the matrices in ``tensors``, which have the shapes of the parameters."""
        of_each = zip(tensors, self._matrices.values(), strict=True)
        return [part for tensor, rows in of_each for part in tensor.split(list(rows))]

    def _updates(
        self, buffers: Sequence[Tensor], gradients: Sequence[Tensor], rate: Tensor
    ) -> list[Tensor]:
        """Return what is added to each matrix."""
        of_shapes: dict[torch.Size, list[int]] = {}
        for number, gradient in enumerate(gradients):
            of_shapes.setdefault(gradient.shape, []).append(number)
        updates = list(gradients)
        for shape, numbers in of_shapes.items():
            momenta, moved = (
                torch.stack([each[number] for number in numbers]) for each in (buffers, gradients)
            )
            # Nesterov's momentum: the gradient, moved towards the buffer as it is after this step.
            directions = orthogonalized(
                torch.lerp(moved, momenta, self.MOMENTUM**2), self.COEFFICIENTS, self.ITERATIONS
            )
            # The root mean square of an update becomes 0.2 times the rate, about that of Adam's.
            scale = -0.2 * math.sqrt(max(shape))
            of_shape = (directions.float() * (scale * rate)).unbind()
            for number, update in zip(numbers, of_shape, strict=True):
                updates[number] = update
        return updates


def _gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def orthogonalized(
    matrices: Tensor, coefficients: tuple[float, float, float], iterations: int
) -> Tensor:
    """Return ``matrices`` [N, R, C] with other singular values, by Newton-Schulz iterations.

    A singular value s, as a share of the norm of its matrix, becomes a s + b s^3 + c s^5 in each
    iteration. A GPU computes it in bf16, as torch's Muon does; most CPUs are slow at bf16.
    """
    a, b, c = coefficients
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    if matrices.device.type == "cuda":
        matrices = matrices.bfloat16()
    found = matrices.mT if is_tall else matrices
    found = found / found.flatten(1).norm(dim=1)[:, None, None].clamp(min=1e-7)
    for _ in range(iterations):
        squares = found @ found.mT
        found = torch.baddbmm(
            found, torch.baddbmm(squares, squares, squares, beta=b, alpha=c), found, beta=a
        )
    return found.mT if is_tall else found


def new_optimizer(model: nn.Module, training: TrainingConfig) -> Adam:
    """Return the optimizer of the recipe for all parameters of ``model``."""
    settings: dict[str, Any] = {
        "betas": training.adam_betas,
        "eps": training.adam_epsilon,
        "fused": True,
        "decoupled_weight_decay": training.optimizer != "adam",
    }
    matrices: dict[nn.Parameter, Sequence[int]] = {}
    for layer in model.modules() if training.optimizer == "muon" else ():
        if isinstance(layer, nn.Linear):
            assert isinstance(layer.weight, nn.Parameter)
            rows = layer.parts if isinstance(layer, Projection) else (layer.out_features,)
            matrices[layer.weight] = rows
    others = [each for each in model.parameters() if each not in matrices]
    decay = training.weight_decay
    groups: list[dict[str, Any]] = [{"params": others}]
    if decay > 0:
        vectors = [each for each in others if each.ndim < 2]  # norms and biases
        decaying = [each for each in others if each.ndim >= 2]
        groups = [{"params": decaying, "weight_decay": decay}, {"params": vectors}]
    if training.optimizer == "muon":
        return Muon(groups, matrices, weight_decay=decay, **settings)
    return Adam(groups, **settings)


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
    peak, warmup = training.peak_learning_rate, training.warmup_steps
    if peak is None:
        return training.learning_rate_factor * inverse_sqrt(step, d_model, warmup)
    if step < warmup or training.schedule in ("noam", "inverse_sqrt"):
        return peaked_inverse_sqrt(step, peak, warmup, training.warmup_start)
    if training.decay_steps is None:
        return peak
    share = (step - warmup - (training.stable_steps or 0)) / training.decay_steps
    share = min(1.0, max(0.0, share))  # of the decay that is done
    left = (1 + math.cos(math.pi * share)) / 2 if training.schedule == "cosine" else 1 - share
    final = training.final_learning_rate
    return final + (peak - final) * left


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
