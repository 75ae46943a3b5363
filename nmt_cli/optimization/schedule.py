"""The learning rate of each step (section 5.3)."""

from nmt_cli.recipe.schema import TrainingConfig


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
