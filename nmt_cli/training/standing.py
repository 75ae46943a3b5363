"""Where a training stands by its recipe: what is due, whether it ends, whether it diverged."""

import math

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.figures import counted
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.smaller_sections import CheckpointsConfig, ValidationConfig
from nmt_cli.runs.checkpoint import TrainingState
from nmt_cli.runs.saving import Saved
from nmt_cli.training.divergence import advice_after_divergence, worse_than_guessing


class Standing:
    """Compares the state of a training, as it changes, with what the recipe asks for."""

    def __init__(
        self, recipe: Recipe, vocabulary_size: int, plan: BatchPlan, state: TrainingState
    ) -> None:
        self._recipe, self._vocabulary_size = recipe, vocabulary_size
        self._plan, self._state = plan, state

    def is_validation_due(self) -> bool:
        """Return whether the model of this step has to be measured, and was not yet."""
        is_asked_for = self._is_due(self._recipe.validation) or self.is_finished()
        return is_asked_for and self._state.progress.validated_step != self._state.progress.step

    def is_checkpoint_due(self) -> bool:
        """Return whether the recipe asks for a regular checkpoint of this step."""
        return self._is_due(self._recipe.checkpoints)

    def is_finished(self) -> bool:
        """Return whether the recipe asks for no further step."""
        return bool(self._reasons_to_end())

    def is_complete(self, saved: Saved) -> bool:
        """Return whether the recipe's last step is ``saved`` with its validation."""
        is_whole = saved.kind != "safety" and saved.is_measured
        return self.is_finished() and is_whole and saved.step == self._state.progress.step

    def divergence(self) -> str | None:
        """Return why the model of this step counts as diverged; None if it does not."""
        if self._state.validation is None:
            return None
        nll = self._state.validation["nll"]
        return self.divergence_at(math.nan if nll is None else nll)

    def divergence_at(self, nll: float) -> str | None:
        """Return why a model with this validation ``nll`` counts as diverged; None if not."""
        step = self._state.progress.step
        return worse_than_guessing(nll, step, self._recipe.training, self._vocabulary_size)

    def summary(self) -> str:
        """Return how a finished training ended, and why, in one line."""
        progress, divergence = self._state.progress, self.divergence()
        end = (
            f"at step {progress.step:,} after {progress.target_tokens:,} target tokens, "
            f"because {' and '.join(self._reasons_to_end())}."
        )
        if divergence is None:
            return f"Finished {end}"
        advice = advice_after_divergence(self._recipe.training)
        return f"Training diverged: {divergence}. It ended {end} {advice}"

    def _reasons_to_end(self) -> list[str]:
        """Return the reasons why training ends, one for each key; an empty list if it goes on."""
        training, patience = self._recipe.training, self._recipe.validation.patience
        progress = self._state.progress
        epoch, _ = self._plan.locate(progress.batch_index)
        unimproved = progress.validations_without_improvement
        reasons = []
        if training.max_steps is not None and progress.step >= training.max_steps:
            reasons.append(f"training.max_steps {training.max_steps:,} was reached")
        if training.max_epochs is not None and epoch >= training.max_epochs:
            reasons.append(f"training.max_epochs {training.max_epochs:,} was reached")
        if patience is not None and unimproved >= patience:
            reasons.append(
                f"{counted(unimproved, 'validation')} in a row brought no improvement "
                f"(validation.patience {patience:,})"
            )
        return reasons

    def _is_due(self, interval: CheckpointsConfig | ValidationConfig) -> bool:
        if interval.every_steps is not None:
            return self._state.progress.step % interval.every_steps == 0
        assert interval.every_epochs is not None  # the recipe has one or the other
        epoch, index = self._plan.locate(self._state.progress.batch_index)
        return index == 0 and epoch % interval.every_epochs == 0
