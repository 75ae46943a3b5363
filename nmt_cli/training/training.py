"""A training: its recipe, its data, its model, its progress, and what is due at a step."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.loader import Batch
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.hardware.machine import Machine
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted, short_number
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.mixing import Until
from nmt_cli.recipe.sections.training import CheckpointsConfig, TrainingConfig, ValidationConfig
from nmt_cli.saved.training_state import Progress, TrainingState
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.gradient_sum import GradientFigures

FIGURES = {"loss": "the loss", "bleu": "BLEU", "parseval": "F1"}  # of validation.best_by
MAX_SKIPPED_IN_A_ROW = 10
SKIP_WINDOW = 1_000  # batches
MAX_SKIPPED_IN_WINDOW = 10


@dataclass
class Training:
    """One training, as this rank holds it; all ranks hold the same.

    Only ``state``, ``cut`` and the stage of ``plan`` change. The methods compare the state, as it
    is now, with what the recipe asks for.
    """

    run_dir: Path
    recipe: Recipe
    corpus: PreparedCorpus
    plan: BatchPlan
    engine: GradientEngine  # with the model, and the machine of this rank
    state: TrainingState
    cut: BatchCut  # becomes smaller when memory is full
    glossaries: Mapping[Path, Glossary]  # of data.train.augment
    keep_validations: int = 0  # validations whose translations stay in the run directory

    @property
    def machine(self) -> Machine:
        """The device of this rank, and the ranks that train together."""
        return self.engine.machine

    def is_validation_due(self) -> bool:
        """Return whether the model of this step has to be measured, and was not yet."""
        is_asked_for = self._is_due(self.recipe.validation) or self.is_finished()
        return is_asked_for and self.state.progress.validated_step != self.state.progress.step

    def is_checkpoint_due(self) -> bool:
        """Return whether the recipe asks for a regular checkpoint of this step."""
        return self._is_due(self.recipe.checkpoints)

    def is_finished(self) -> bool:
        """Return whether the recipe asks for no further step."""
        return bool(self._reasons_to_end())

    def is_complete(self) -> bool:
        """Return whether the recipe's last step is saved with its validation."""
        saved = self.state.saved
        is_whole = saved.kind != "safety" and saved.is_measured
        return self.is_finished() and is_whole and saved.step == self.state.progress.step

    def is_stage_over(self) -> bool:
        """Return whether the stage of data.stages that is trained ends at this step."""
        progress, until = self.state.progress, self._until()
        if until is None:
            return False
        if until.steps is not None:
            return progress.step - progress.stage_step >= until.steps
        if until.epochs is not None:
            epoch, _ = self.plan.locate(progress.batch_index)
            return epoch - progress.stage_epoch >= until.epochs
        return progress.validations_without_improvement >= (until.patience or 0)

    def batches_to_come(self) -> Iterator[int]:
        """Return the numbers of the batches up to the end of the stage, if none of them is skipped.

        So no epoch is planned that is not trained. Patience may end the stage earlier.
        """
        progress, training = self.state.progress, self.recipe.training
        first, num_steps, end_epoch = progress.batch_index, math.inf, training.max_epochs
        if training.last_step is not None:
            num_steps = training.last_step - progress.step
        until = self._until()
        if until is not None and until.steps is not None:
            num_steps = min(num_steps, progress.stage_step + until.steps - progress.step)
        if until is not None and until.epochs is not None:
            end_of_stage = progress.stage_epoch + until.epochs
            end_epoch = end_of_stage if end_epoch is None else min(end_epoch, end_of_stage)

        def is_wanted(number: int) -> bool:
            is_in_time = number - first < num_steps
            return is_in_time and (end_epoch is None or self.plan.is_before(number, end_epoch))

        return takewhile(is_wanted, count(first))

    def begin_stage_if_due(self) -> None:
        """Begin the next stage if the present one is over; what is left of its epoch is not used.

        Validations without improvement are counted anew; the best quality so far stays.
        """
        if not self.is_stage_over():
            return
        progress = self.state.progress
        epoch, used = self.plan.locate(progress.batch_index)
        progress.stage += 1
        progress.stage_step, progress.stage_batch = progress.step, progress.batch_index
        progress.stage_epoch = epoch + (used > 0)
        progress.validations_without_improvement = 0
        enter_stage(self.plan, self.recipe, self.corpus, progress)
        self.log_stage()

    def log_stage(self) -> None:
        """Log that the stage of data.stages begins at this step."""
        progress = self.state.progress
        mixture = mixture_in_words(self.recipe, self.corpus, progress.stage)
        logs.info(
            f"step {progress.step:,}: stage {progress.stage + 1} of "
            f"{len(self.recipe.data.stages)} begins with {mixture}."
        )

    def stages_that_never_began(self) -> str | None:
        """Return which stages of data.stages never began; None if the last one did."""
        num_begun, num_all = self.state.progress.stage + 1, len(self.recipe.data.stages)
        if num_begun >= num_all:
            return None
        return (
            f"training ended in stage {num_begun} of {num_all}, before data.stages.{num_begun}; "
            "shorten the stages before it, or resume with more steps."
        )

    def divergence(self) -> str | None:
        """Return why the model of this step counts as diverged; None if it does not."""
        if self.state.validation is None:
            return None
        nll = self.state.validation["nll"]
        return self.divergence_at(math.nan if nll is None else nll)

    def divergence_at(self, nll: float) -> str | None:
        """Return why a model with this validation ``nll`` counts as diverged; None if not."""
        step, vocabulary_size = self.state.progress.step, self.corpus.tokenizer.size
        return worse_than_guessing(nll, step, self.recipe.training, vocabulary_size)

    def summary(self) -> str:
        """Return how a finished training ended, and why, in one line."""
        progress, divergence = self.state.progress, self.divergence()
        end = (
            f"at step {progress.step:,} after {progress.target_tokens:,} target tokens, "
            f"because {' and '.join(self._reasons_to_end())}."
        )
        if divergence is None:
            return f"Finished {end}"
        advice = advice_after_divergence(self.recipe.training)
        return f"Training diverged: {divergence}. It ended {end} {advice}"

    def count_validation(self, quality: float | None, nll: float) -> bool:
        """Count a validation of this step; return whether it is the best so far.

        Of equal qualities, the lower ``nll`` is better. A validation without a quality is never the
        best.
        """
        progress = self.state.progress
        progress.validated_step = progress.step
        is_best = quality is not None and self._is_better(quality, nll)
        if is_best:
            progress.best_quality = quality
            progress.best_nll = nll if math.isfinite(nll) else None
            progress.validations_without_improvement = 0
        else:
            progress.validations_without_improvement += 1
        return is_best

    def _is_better(self, quality: float, nll: float) -> bool:
        best, best_nll = self.state.progress.best_quality, self.state.progress.best_nll
        if best is not None and quality == best and best_nll is not None:
            return nll < best_nll
        return math.isfinite(quality) and (best is None or quality > best)

    def count_skipped(self, batch: Batch, figures: GradientFigures) -> None:
        """Count a batch that was skipped. Raises UserError if such batches show divergence."""
        progress, number = self.state.progress, batch.number
        skipped = progress.skipped
        skipped[:] = [i for i in skipped if i > number - SKIP_WINDOW] + [number]
        progress.num_skipped += 1
        logs.warning(
            f"batch {number:,} gave loss {figures.loss:g} and gradient norm "
            f"{figures.norm:g}; it was skipped and the weights left as they were."
        )
        last = range(number - MAX_SKIPPED_IN_A_ROW + 1, number + 1)
        if len(skipped) > MAX_SKIPPED_IN_WINDOW or set(last) <= set(skipped):
            raise UserError(
                f"training diverged: {len(skipped)} of the last {SKIP_WINDOW:,} batches gave no "
                f"finite gradient, the last at step {progress.step:,}. Lower the learning "
                "rate or set training.clip_norm, and continue from the last checkpoint with "
                "--resume --allow-change KEY."
            )

    def _until(self) -> Until | None:
        """Return the end of the present stage; None if it ends with the training."""
        stages = self.recipe.data.stages
        return stages[self.state.progress.stage].until if stages else None

    def _reasons_to_end(self) -> list[str]:
        """Return the reasons why training ends, one for each key; an empty list if it goes on."""
        training, patience = self.recipe.training, self.recipe.validation.patience
        progress = self.state.progress
        unimproved = progress.validations_without_improvement
        reasons = []
        if training.last_step is not None and progress.step >= training.last_step:
            by_rate = f"the learning rate became 0 (training.{training.parts_of_schedule})"
            by_key = f"training.max_steps {training.last_step:,} was reached"
            reasons.append(by_rate if training.max_steps is None else by_key)
        # To locate the batch, its epoch may have to be planned.
        if training.max_epochs is not None and (
            self.plan.locate(progress.batch_index)[0] >= training.max_epochs
        ):
            reasons.append(f"training.max_epochs {training.max_epochs:,} was reached")
        if patience is not None and unimproved >= patience:
            reasons.append(
                f"{counted(unimproved, 'validation')} in a row brought no improvement "
                f"(validation.patience {patience:,})"
            )
        return reasons

    def _is_due(self, interval: CheckpointsConfig | ValidationConfig) -> bool:
        if interval.every_steps is not None:
            return self.state.progress.step % interval.every_steps == 0
        assert interval.every_epochs is not None  # the recipe has one or the other
        epoch, index = self.plan.locate(self.state.progress.batch_index)
        return index == 0 and epoch % interval.every_epochs == 0


def enter_stage(
    plan: BatchPlan, recipe: Recipe, corpus: PreparedCorpus, progress: Progress
) -> None:
    """Make ``plan`` that of the stage of ``progress``, from the stage's first batch on."""
    corpora = sizes_and_weights(recipe, corpus, progress.stage)
    plan.begin_stage(progress.stage, corpora, progress.stage_epoch, progress.stage_batch)


def sizes_and_weights(
    recipe: Recipe, corpus: PreparedCorpus, stage: int = 0
) -> list[tuple[int, float]]:
    """Return the pairs and the weight of each corpus in a stage."""
    weights = recipe.data.weights(corpus.corpus_sizes, stage)
    return list(zip(corpus.corpus_sizes, weights, strict=True))


def mixture_in_words(recipe: Recipe, corpus: PreparedCorpus, stage: int) -> str:
    """Return the share of each corpus in the pairs of a stage: ``60.0% original, 40.0% back``."""
    pairs = [size * weight for size, weight in sizes_and_weights(recipe, corpus, stage)]
    names = [each.name or f"data.train.{n}" for n, each in enumerate(recipe.data.train)]
    shares = zip(names, pairs, strict=True)
    return ", ".join(f"{num / sum(pairs):.1%} {name}" for name, num in shares if num)


def worse_than_guessing(
    nll: float, step: int, training: TrainingConfig, vocabulary_size: int
) -> str | None:
    """Return why training counts as diverged; None if it does not, or during warm-up.

    A model that gives every piece of the vocabulary the same probability has nll ln(size).
    """
    limit = math.log(vocabulary_size)
    if step < training.warmup_steps or nll <= limit:
        return None
    digits = 5 if abs(nll - limit) < 0.01 else 2  # so that the two numbers differ
    found = f"{short_number(nll, digits)} is above" if math.isfinite(nll) else f"{nll} is not below"
    guessing = f"ln({vocabulary_size:,}) = {limit:.{digits}f}, the nll of guessing"
    return f"the validation nll {found} {guessing}"


def advice_after_divergence(
    training: TrainingConfig, how: str = "Start again in another --run-dir"
) -> str:
    """Return advice on which keys to change, with their current values."""
    rate = "learning_rate_factor" if training.peak_learning_rate is None else "peak_learning_rate"
    now = getattr(training, rate)
    return (
        f"{how} with a lower training.{rate} ({now:g} now) "
        f"or more training.warmup_steps ({training.warmup_steps:,} now)."
    )
