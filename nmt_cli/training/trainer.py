"""The training loop: step, report, validate, save, until the recipe says enough (section 5)."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from nmt_cli import logs
from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.corpus.loader import Batch, ParallelTokens, load_batches
from nmt_cli.errors import InterruptedTrainingError, UserError
from nmt_cli.folders import METRICS
from nmt_cli.hardware.flops import peak_flops, training_flops
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import MEMORY_ERRORS, give_up_memory_of, is_out_of_memory
from nmt_cli.hardware.ranks import ALONE, PeerLostError
from nmt_cli.model.transformer import Transformer
from nmt_cli.model_settings import RECIPE
from nmt_cli.recipe.reader import read_recipe, section_hash
from nmt_cli.recipe.schema import CheckpointsConfig, Recipe, ValidationConfig
from nmt_cli.runs.checkpoint import Progress, TrainingState, load_newest
from nmt_cli.runs.metrics_log import MetricsLog
from nmt_cli.runs.saving import CheckpointKind, Saved, Saver
from nmt_cli.training.adam import Adam
from nmt_cli.training.agreement import require_same_training, require_same_weights
from nmt_cli.training.best import begin_anew_after_changes, count_validation
from nmt_cli.training.divergence import (
    advice_after_divergence,
    count_skipped,
    worse_than_guessing,
)
from nmt_cli.training.ema import MovingAverage
from nmt_cli.training.ending import reasons_to_end
from nmt_cli.training.full_memory import (
    fit_to_memory,
    gradient_within_memory,
    room_to_leave,
    update_within_memory,
)
from nmt_cli.training.planning import move_to_plan, plan_batches, plan_settings
from nmt_cli.training.restoring import copy_tensors_from_main, refuse_other_text
from nmt_cli.training.schedule import learning_rate
from nmt_cli.training.step_report import StepReport
from nmt_cli.training.stop_signals import StopRequest
from nmt_cli.training.training_step import FullMemoryError, Gradient, compute_gradient
from nmt_cli.training.validation import Validator


class Trainer:
    """Trains one model in one run directory, on one rank of those that train it together."""

    def __init__(
        self, recipe: Recipe, corpus: PreparedCorpus, run_dir: Path, machine: Machine
    ) -> None:
        self.recipe, self.corpus, self.run_dir, self.machine = recipe, corpus, run_dir, machine
        training = recipe.training
        torch.manual_seed(training.seed)
        self.model = Transformer(recipe.model, corpus.tokenizer.size).to(machine.device)
        self.optimizer = Adam(
            self.model.parameters(),
            betas=training.adam_betas,
            eps=training.adam_epsilon,
            fused=True,
        )
        self.plan = plan_batches(plan_settings(recipe), corpus)
        self._longest = corpus.longest
        self.progress = Progress()
        self.validator = Validator(recipe, corpus)
        self.saver = Saver(run_dir, recipe, corpus.tokenizer, writes=machine.ranks.is_main)
        self.origin: Mapping[str, Any] | None = None  # of weights that came from another model
        self._peak_flops = peak_flops(machine.device, machine.precision)
        self._validation: Mapping[str, Any] | None = None  # of the current step, if measured
        self._metrics: MetricsLog | None = None  # the main process's
        self.start_average()

    def start_average(self) -> None:
        """Begin the moving average, where the recipe has one, at the weights of now."""
        decay = self.recipe.training.ema_decay
        self.average = MovingAverage(self.model, decay) if decay is not None else None

    def fit_to_memory(self) -> None:
        """Make the micro-batches fit the memory of every rank. Raises UserError if they cannot."""
        self.machine = fit_to_memory(self.machine, self.corpus, self._try_micro_batch)

    def _try_micro_batch(self, tokens: ParallelTokens) -> None:
        """Compute and discard the gradient of a micro-batch while later allocations are held."""
        self.model.train()
        room = room_to_leave(self._state(), self.machine)
        self._compute_gradient(Batch(0, (tokens,)), self.machine._replace(ranks=ALONE))
        self.model.zero_grad(set_to_none=True)
        del room

    def resume(self) -> Mapping[str, Any]:
        """Continue from the newest undamaged checkpoint; return its manifest."""
        checkpoint = load_newest(self.run_dir, self._state())
        manifest = checkpoint.manifest
        refuse_other_text(self.run_dir, self.corpus, manifest["prepared_files"])
        self.saver.last = Saved(
            checkpoint.step, manifest["kind"], manifest["validation"] is not None
        )
        self.origin = manifest.get("initialized_from")
        self._validation = manifest["validation"]
        logs.info(f"Resuming from {checkpoint.path}, batch {self.progress.batch_index:,}.")
        self._follow_changes(read_recipe(str(checkpoint.path / RECIPE)).recipe)
        return manifest

    def _follow_changes(self, before: Recipe) -> None:
        """Adapt the progress to what changed since ``before``, the recipe of the checkpoint."""
        settings = plan_settings(before)
        if settings != plan_settings(self.recipe):
            move_to_plan(self.progress, plan_batches(settings, self.corpus), self.plan)
        begin_anew_after_changes(self.progress, before, self.recipe)

    def take_over_state(self) -> None:
        """Give every rank the state of the main process, which alone has read the disk."""
        ranks = self.machine.ranks
        if ranks.size == 1:
            return
        require_same_training(self.recipe, self.corpus, self.machine)
        self.progress = Progress(**ranks.from_main(asdict(self.progress)))
        self.saver.last = ranks.from_main(self.saver.last)
        self._validation = ranks.from_main(self._validation)
        copy_tensors_from_main(ranks, self._state())

    def train(self, stop: StopRequest) -> None:
        """Train until the recipe's end. A stop request saves and raises InterruptedTrainingError.

        Raises UserError when training cannot go on: too many batches without a finite gradient.
        """
        if self.machine.ranks.is_main:
            path = self.run_dir / METRICS
            self._metrics = MetricsLog(path, keep_until_step=self.progress.step)
        batches = load_batches(
            self.plan,
            self.corpus.source,
            self.corpus.target,
            self.machine.max_tokens,
            self.progress.batch_index,
            self.machine.multiple_of,
        )
        self.model.train()
        self.optimizer.make_moments()
        with logs.progress(
            "train", "steps", self.recipe.training.max_steps, self.progress.step
        ) as bar:
            self._validate_and_save_if_due(stop)
            while not self.is_finished():
                report = self._step(batches, stop)
                if report is not None:
                    self._record(report.as_record())
                    bar.advance(1, report.as_notes())
                self._validate_and_save_if_due(stop)
                if self.machine.ranks.size == 1:
                    stop.agree(stop.flags())  # several ranks learn of a late one at the next step
                if stop.agreed and not self.is_complete():
                    self._leave(stop.why)
        if not self.is_complete():
            self._leave(stop.why)
        self.machine.ranks.from_main("saved")  # nobody ends well before the main process has
        if self.divergence() is None:
            logs.info(self.summary())
        else:
            logs.warning(self.summary())

    def _step(self, batches: Iterator[Batch], stop: StopRequest) -> StepReport | None:
        """Use one batch; return None where its gradient was not finite and it was skipped."""
        started = time.monotonic()
        batch = next(batches)
        waited = time.monotonic() - started
        with self._saved_before_failing(f"in {batch}, even with one sentence pair at a time"):
            gradient, self.machine = gradient_within_memory(
                batch,
                self.machine,
                self._longest,
                lambda batch: self._compute_gradient(batch, self.machine, stop),
            )
        if not gradient.is_finite:
            self.progress.batch_index = batch.number + 1
            count_skipped(self.progress, batch.number, gradient)
            return None
        with self._saved_before_failing(
            f"while the gradient of batch {batch.number:,} was applied"
        ):
            rate = self._update(gradient)
        self.progress.batch_index = batch.number + 1
        self.progress.target_tokens += gradient.num_tokens
        seconds = time.monotonic() - started
        stop.note_seconds("step", seconds)
        return StepReport(
            self.progress.step,
            batch.number,
            gradient,
            batch.num_source_tokens,
            rate,
            seconds,
            waited,
            self._utilization(batch, seconds),
        )

    def _compute_gradient(
        self, batch: Batch, machine: Machine, stop: StopRequest | None = None
    ) -> Gradient:
        training = self.recipe.training
        bos_id = self.corpus.tokenizer.bos_id
        return compute_gradient(
            self.model, batch, bos_id, training.label_smoothing, training.seed, machine, stop
        )

    def _update(self, gradient: Gradient) -> float:
        """Move the parameters by the gradient they hold; return the learning rate."""
        step = self.progress.step + 1
        clip_norm = self.recipe.training.clip_norm
        if clip_norm is not None:
            norm = torch.tensor(gradient.norm, device=self.machine.device)
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), clip_norm, norm)
        rate = learning_rate(step, self.recipe.training, self.recipe.model.d_model)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        if self.average is not None:
            update_within_memory(self.average, self.model, step)
        self.progress.step, self._validation = step, None
        return rate

    def _utilization(self, batch: Batch, seconds: float) -> float | None:
        if self._peak_flops is None:
            return None
        lengths = [(m.source_lengths, m.target_lengths) for m in batch.micro_batches]
        source, target = (np.concatenate(side) for side in zip(*lengths, strict=True))
        flops = training_flops(self.recipe.model, self.corpus.tokenizer.size, source, target)
        return flops / (seconds * self._peak_flops * self.machine.ranks.size)

    @contextmanager
    def _saved_before_failing(self, where: str) -> Iterator[None]:
        """Save a checkpoint if the block runs out of memory or loses a rank, then raise the error.

        ``where`` follows "out of memory" in the message. Nothing is saved if a step was cut short
        while it updated the weights.
        """
        try:
            yield
        except PeerLostError:
            self._save_for_safety()
            raise
        except MEMORY_ERRORS as error:
            if not is_out_of_memory(error):
                raise
            self.model.zero_grad(set_to_none=True)
            give_up_memory_of(error)  # saving needs some
            self._save_for_safety()
            saved = self.saver.last.step
            kept = f"step {saved:,} is saved in {self.run_dir}" if saved else "nothing is saved yet"
            if not (self.machine.ranks.is_main or isinstance(error, FullMemoryError)):
                kept = f"{self.run_dir} keeps its checkpoints"  # others may have saved later
            raise UserError(
                f"out of memory {where}; {kept}. Free memory that other programs hold, or take "
                "a machine with more, and continue with --resume."
            ) from error

    def _save_for_safety(self) -> None:
        step = self.progress.step
        if step <= self.saver.last.step or not self.optimizer.has_completed(step):
            return
        try:
            self._save_once("safety")
        except MEMORY_ERRORS as error:
            if not is_out_of_memory(error):
                raise
            logs.warning(f"memory was too full to save step {step:,}.")

    def _validate_and_save_if_due(self, stop: StopRequest) -> None:
        """Do what the intervals ask for at this step; the last is always measured and saved."""
        step = self.progress.step
        if step == 0:
            return
        improved = False
        is_due = self._is_due(self.recipe.validation) or self.is_finished()
        if is_due and self.progress.validated_step != step:
            improved = self._validate(stop)
        ended = self.is_finished()  # validation may have used up the patience
        with self._saved_before_failing(f"while step {step:,} was saved"):
            if self._is_due(self.recipe.checkpoints):
                seconds = self._save_once("regular", forgiving=not ended)
            elif ended:
                seconds = self._save_once("final", forgiving=False)
            else:
                seconds = self._save_once("safety") if improved else None
        stop.note_seconds("save", seconds or 0.0)

    def _validate(self, stop: StopRequest) -> bool:
        """Measure on the validation text; return whether it was the best so far."""
        average = self.average
        progress = self.progress
        with self._saved_before_failing(f"while step {progress.step:,} was validated"):
            with average.in_place_of(self.model) if average is not None else nullcontext():
                validation = self.validator.validate(self.model, self.machine, stop)
            self.model.train()
            if validation is None:
                return False
            require_same_weights(self.model, self.machine.ranks, progress.step)
        divergence = self._divergence_at(validation.nll)
        if divergence is not None:
            validation = validation._replace(quality=None)
        record = validation.as_record()
        self._validation = {**record, "quality_since": progress.quality_since}
        self._record({"step": progress.step, "validation": record})
        improved = count_validation(progress, validation.quality)
        logs.info(f"step {progress.step:,}: {validation}{' (best)' if improved else ''}")
        if divergence is not None:
            logs.warning(
                f"step {progress.step:,}: {divergence}; "
                "training diverges, or has learned nothing yet."
            )
        return improved

    def _divergence_at(self, nll: float) -> str | None:
        training, size = self.recipe.training, self.corpus.tokenizer.size
        return worse_than_guessing(nll, self.progress.step, training, size)

    def divergence(self) -> str | None:
        """Return why the model of the last step counts as diverged; None if it does not."""
        if self._validation is None:
            return None
        nll = self._validation["nll"]
        return self._divergence_at(math.nan if nll is None else nll)

    def summary(self) -> str:
        """Return how training ended, and why, in one line."""
        progress, divergence = self.progress, self.divergence()
        end = (
            f"at step {progress.step:,} after {progress.target_tokens:,} target tokens, "
            f"because {' and '.join(self._reasons_to_end())}."
        )
        if divergence is None:
            return f"Finished {end}"
        advice = advice_after_divergence(self.recipe.training)
        return f"Training diverged: {divergence}. It ended {end} {advice}"

    def _record(self, record: Mapping[str, Any]) -> None:
        if self._metrics is not None:
            self._metrics.append(record)

    def _save_once(self, kind: CheckpointKind, *, forgiving: bool = True) -> float | None:
        step = self.progress.step
        new = Saved(step, kind, is_measured=self.progress.validated_step == step)
        return self.saver.save_once(new, self._state(), self._facts(kind), forgiving=forgiving)

    def _leave(self, reason: str) -> NoReturn:
        step = self.progress.step
        if step > 0 and self.saver.last.step != step:
            self._save_once("safety", forgiving=False)
        self.machine.ranks.from_main("saved")
        saved = f"it was saved in {self.run_dir}" if step > 0 else "there was nothing to save yet"
        raise InterruptedTrainingError(
            f"{reason} stopped training at step {step:,}; {saved}. "
            "Run the same command with --resume to continue."
        )

    def is_complete(self) -> bool:
        """Return whether the recipe's end was reached, measured and saved."""
        last = self.saver.last
        is_whole = last.step == self.progress.step and last.kind != "safety" and last.is_measured
        return self.is_finished() and is_whole

    def is_finished(self) -> bool:
        """Return whether the recipe asks for no further step."""
        return bool(self._reasons_to_end())

    def _reasons_to_end(self) -> list[str]:
        epoch, _ = self.plan.locate(self.progress.batch_index)
        return reasons_to_end(self.recipe, self.progress, epoch)

    def _is_due(self, interval: CheckpointsConfig | ValidationConfig) -> bool:
        if interval.every_steps is not None:
            return self.progress.step % interval.every_steps == 0
        assert interval.every_epochs is not None  # the recipe has one or the other
        epoch, index = self.plan.locate(self.progress.batch_index)
        return index == 0 and epoch % interval.every_epochs == 0

    def _state(self) -> TrainingState:
        return TrainingState(self.model, self.optimizer, self.progress, self.average)

    def _facts(self, kind: CheckpointKind) -> dict[str, Any]:
        return {
            "kind": kind,
            "step": self.progress.step,
            "batch_index": self.progress.batch_index,
            "validation": self._validation,
            "recipe_sha256": section_hash(self.recipe, *type(self.recipe).model_fields),
            "prepared_files": self.corpus.manifest["files"],
            "initialized_from": self.origin,
            **self.machine.facts(),
        }
