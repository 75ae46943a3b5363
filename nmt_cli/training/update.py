"""One update of the weights by a gradient: clipping, learning rate, Adam and the average."""

import torch

from nmt_cli.hardware.memory import FullMemoryError, give_up_memory_of, noticing_full_memory
from nmt_cli.model.transformer import Transformer
from nmt_cli.optimization import MovingAverage, learning_rate
from nmt_cli.recipe.schema import Recipe
from nmt_cli.runs.checkpoint import TrainingState
from nmt_cli.training.gradient import Gradient


def update_weights(state: TrainingState, gradient: Gradient, recipe: Recipe) -> float:
    """Move the weights by the gradient that they hold, count the step, return the learning rate."""
    model, step = state.model, state.progress.step + 1
    if recipe.training.clip_norm is not None:
        norm = torch.tensor(gradient.norm, device=next(model.parameters()).device)
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), recipe.training.clip_norm, norm)
    rate = learning_rate(step, recipe.training, recipe.model.d_model)
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    state.optimizer.step()
    if state.average is not None:
        _update_average(state.average, model, step)
    state.progress.step, state.validation = step, None
    return rate


def _update_average(average: MovingAverage, model: Transformer, step: int) -> None:
    """Update ``average``; if memory is full, free the gradients of ``model`` and try again.

    The step has already changed the weights, so nothing can be saved before the average follows.
    """
    try:
        with noticing_full_memory():
            average.update(model, step)
        return
    except FullMemoryError as error:
        give_up_memory_of(error)
    model.zero_grad(set_to_none=True)
    average.update(model, step)
