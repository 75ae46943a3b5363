"""The training loop: step, report, validate, save, until the recipe says enough (section 5)."""

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import torch

from nmt_cli import logs
from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.corpus.loader import Batch, load_batches, micro_batches_of
from nmt_cli.engine.checkpoint import (
    Progress,
    TrainingState,
    load_newest,
    prune,
    save_checkpoint,
)
from nmt_cli.engine.machine import Machine
from nmt_cli.engine.memory import is_out_of_memory, largest_that_runs
from nmt_cli.engine.metrics_log import MetricsLog
from nmt_cli.engine.schedule import learning_rate
from nmt_cli.engine.stop_signals import StopRequest
from nmt_cli.engine.training_step import Gradient, compute_gradient
from nmt_cli.engine.validation import Validation, Validator
from nmt_cli.errors import InterruptedTrainingError, OutputError, UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.reader import section_hash
from nmt_cli.recipe.schema import CheckpointsConfig, Recipe, ValidationConfig

METRICS = "metrics.jsonl"
MAX_SKIPPED_IN_A_ROW = 10
SKIP_WINDOW = 1_000  # batches
MAX_SKIPPED_IN_WINDOW = 10
MAX_FAILED_SAVES = 3

CheckpointKind = Literal["regular", "final", "safety"]


class StepReport(NamedTuple):
    """What one step did, and how long it took."""

    gradient: Gradient
    learning_rate: float
    seconds: float
    data_wait_seconds: float


class Saved(NamedTuple):
    """Which checkpoint was saved last."""

    step: int
    kind: CheckpointKind
    is_measured: bool  # with the figures of its validation


class Trainer:
    """Trains one model in one run directory."""

    def __init__(
        self, recipe: Recipe, corpus: PreparedCorpus, run_dir: Path, machine: Machine
    ) -> None:
        self.recipe, self.corpus, self.run_dir, self.machine = recipe, corpus, run_dir, machine
        training = recipe.training
        torch.manual_seed(training.seed)
        self.model = Transformer(recipe.model, corpus.tokenizer.size).to(machine.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            betas=training.adam_betas,
            eps=training.adam_epsilon,
            fused=True,
        )
        self.plan = BatchPlan(
            corpus.source.lengths,
            corpus.target.lengths,
            training.tokens_per_step,
            training.seed,
            list(zip(corpus.corpus_sizes, (c.weight for c in recipe.data.train), strict=True)),
        )
        self.progress = Progress()
        self.validator = Validator(recipe, corpus)
        self._saved = Saved(0, "safety", is_measured=False)
        self._failed_saves = 0
        self._validation: Validation | None = None  # of the current step

    def fit_to_memory(self) -> None:
        """On a GPU, halve the micro-batches until forward and backward of a full one fit.

        A CPU's limit is an estimate, because a probe there meets the kernel's killer.
        """
        if self.machine.device.type == "cuda":
            max_tokens = largest_that_runs(self.machine.max_tokens, self._try_micro_batch)
            self.machine = self.machine._replace(max_tokens=max_tokens)

    def _try_micro_batch(self, max_tokens: int) -> None:
        """Compute, and discard, the gradient of a full micro-batch of the longest pairs."""
        self.model.train()
        source, target = self.corpus.source, self.corpus.target
        by_length = np.argsort(np.maximum(source.lengths, target.lengths), kind="stable")
        pairs = by_length[-max_tokens:].astype(np.int64)
        micro_batches = micro_batches_of(pairs, source, target, max_tokens)
        largest = max(micro_batches, key=lambda tokens: len(tokens.target_tokens))
        self._compute_gradient(Batch(0, (largest,)))
        self.model.zero_grad(set_to_none=True)

    def resume(self) -> None:
        """Continue from the newest undamaged checkpoint of the run directory."""
        checkpoint = load_newest(self.run_dir, self._state())
        manifest = checkpoint.manifest
        self._refuse_other_text(manifest["prepared_files"])
        self._saved = Saved(checkpoint.step, manifest["kind"], manifest["validation"] is not None)
        logs.info(f"Resuming from {checkpoint.path}, batch {self.progress.batch_index:,}.")

    def _refuse_other_text(self, trained_on: Mapping[str, Any]) -> None:
        found = self.corpus.manifest["files"]
        for name in sorted(found.keys() | trained_on.keys()):
            decides_ids = name.startswith(("train.", "tokenizer", "vocabulary"))
            if decides_ids and found.get(name) != trained_on.get(name):
                raise UserError(
                    f"{self.run_dir} was trained on another {name} than "
                    f"{self.corpus.directory} holds now; prepare the same text again, "
                    "or choose another --run-dir."
                )

    def train(self, stop: StopRequest) -> None:
        """Train until the recipe's end. A stop request saves and raises InterruptedTrainingError.

        Raises UserError when training cannot go on: too many batches without a finite gradient.
        """
        self.metrics = MetricsLog(self.run_dir / METRICS, keep_until_step=self.progress.step)
        batches = load_batches(
            self.plan,
            self.corpus.source,
            self.corpus.target,
            self.machine.max_tokens,
            self.progress.batch_index,
        )
        self.model.train()
        with logs.progress(
            "train", "steps", self.recipe.training.max_steps, self.progress.step
        ) as bar:
            self._validate_and_save_if_due(stop)
            while not self.is_finished():
                report = self._step(batches)
                if report is not None:
                    bar.advance(1, _as_notes(report))
                self._validate_and_save_if_due(stop)
                if stop and not self.is_complete():
                    self._leave(stop)
        if not self.is_complete():
            self._leave(stop)
        logs.info(
            f"Finished at step {self.progress.step:,} "
            f"after {self.progress.target_tokens:,} target tokens."
        )

    def _step(self, batches: Iterator[Batch]) -> StepReport | None:
        """Use one batch; return None where its gradient was not finite and it was skipped."""
        started = time.monotonic()
        batch = next(batches)
        waited = time.monotonic() - started
        try:
            gradient = self._compute_gradient(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if self.progress.step > self._saved.step:
                self._save_once("safety")
            raise UserError(
                f"out of memory in batch {batch.number:,} ({batch.num_source_tokens:,} source and "
                f"{batch.num_target_tokens:,} target tokens); lower --max-tokens-per-device "
                f"{self.machine.max_tokens:,} and continue with --resume."
            ) from error
        self.progress.batch_index = batch.number + 1
        if not gradient.is_finite:
            self._skip(batch, gradient)
            return None
        rate = self._update(gradient)
        self.progress.target_tokens += gradient.num_tokens
        report = StepReport(gradient, rate, time.monotonic() - started, waited)
        self.metrics.append(self._as_record(report, batch))
        return report

    def _compute_gradient(self, batch: Batch) -> Gradient:
        return compute_gradient(
            self.model,
            batch,
            self.corpus.tokenizer.bos_id,
            self.recipe.training.label_smoothing,
            self.recipe.training.seed,
            self.machine,
        )

    def _update(self, gradient: Gradient) -> float:
        """Move the parameters by the gradient they hold; return the learning rate."""
        self.progress.step += 1
        self._validation = None
        clip_norm = self.recipe.training.clip_norm
        if clip_norm is not None:
            norm = torch.tensor(gradient.norm, device=self.machine.device)
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), clip_norm, norm)
        rate = learning_rate(self.progress.step, self.recipe.training, self.recipe.model.d_model)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return rate

    def _skip(self, batch: Batch, gradient: Gradient) -> None:
        """Count a batch without a finite gradient; too many of them end training."""
        skipped = self.progress.skipped
        skipped[:] = [i for i in skipped if i > batch.number - SKIP_WINDOW] + [batch.number]
        self.progress.num_skipped += 1
        logs.warning(
            f"batch {batch.number:,} gave loss {gradient.loss:g} and gradient norm "
            f"{gradient.norm:g}; it was skipped and the weights left as they were."
        )
        last = range(batch.number - MAX_SKIPPED_IN_A_ROW + 1, batch.number + 1)
        if len(skipped) > MAX_SKIPPED_IN_WINDOW or set(last) <= set(skipped):
            raise UserError(
                f"training diverged: {len(skipped)} of the last {SKIP_WINDOW:,} batches gave no "
                f"finite gradient, the last at step {self.progress.step:,}. Lower the learning "
                "rate or set training.clip_norm, and continue from the last checkpoint with "
                "--resume --allow-change KEY."
            )

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
        if self._is_due(self.recipe.checkpoints):
            self._save_once("regular", forgiving=not ended)
        elif ended:
            self._save_once("final", forgiving=False)
        elif improved:
            self._save_once("safety")

    def _validate(self, stop: StopRequest) -> bool:
        """Measure on the validation text; return whether it was the best so far."""
        validation = self.validator.validate(self.model, self.machine, stop)
        self.model.train()
        if validation is None:
            return False
        self._validation = validation
        progress = self.progress
        progress.validated_step = progress.step
        self.metrics.append({"step": progress.step, "validation": validation.as_record()})
        best = progress.best_quality
        improved = math.isfinite(validation.quality) and (best is None or validation.quality > best)
        if improved:
            progress.best_quality = validation.quality
            progress.validations_without_improvement = 0
        else:
            progress.validations_without_improvement += 1
        logs.info(f"step {progress.step:,}: {validation}{' (best)' if improved else ''}")
        return improved

    def _save_once(self, kind: CheckpointKind, *, forgiving: bool = True) -> None:
        """Save a checkpoint unless it would be the one that was saved last.

        A full disk is told and forgiven twice in a row, except where training ends.
        """
        new = Saved(self.progress.step, kind, self.progress.validated_step == self.progress.step)
        if new == self._saved:
            return
        facts = self._facts(kind)
        try:
            save_checkpoint(self.run_dir, self._state(), self.recipe, self.corpus.tokenizer, facts)
            prune(self.run_dir, self.recipe.checkpoints.keep_for_average)
        except OutputError as error:
            self._failed_saves += 1
            if not forgiving or self._failed_saves >= MAX_FAILED_SAVES:
                raise
            logs.warning(f"{error} Training goes on; the next checkpoint tries again.")
            return
        self._failed_saves = 0
        self._saved = new

    def _leave(self, stop: StopRequest) -> NoReturn:
        step = self.progress.step
        if step > 0 and self._saved.step != step:
            self._save_once("safety", forgiving=False)
        saved = f"it was saved in {self.run_dir}" if step > 0 else "there was nothing to save yet"
        raise InterruptedTrainingError(
            f"{stop.signal_name} stopped training at step {step:,}; {saved}. "
            "Run the same command with --resume to continue."
        )

    def is_complete(self) -> bool:
        """Say whether the recipe's end was reached, measured and saved."""
        return (
            self.is_finished()
            and self._saved.step == self.progress.step
            and self._saved.kind != "safety"
            and self._saved.is_measured
        )

    def is_finished(self) -> bool:
        """Say whether the recipe asks for no further step."""
        training, validation = self.recipe.training, self.recipe.validation
        out_of_patience = (
            validation.patience is not None
            and self.progress.validations_without_improvement >= validation.patience
        )
        epoch, _ = self.plan.locate(self.progress.batch_index)
        out_of_epochs = training.max_epochs is not None and epoch >= training.max_epochs
        return self.progress.step >= training.max_steps or out_of_epochs or out_of_patience

    def _is_due(self, interval: CheckpointsConfig | ValidationConfig) -> bool:
        if interval.every_steps is not None:
            return self.progress.step % interval.every_steps == 0
        assert interval.every_epochs is not None  # the recipe has one or the other
        epoch, index = self.plan.locate(self.progress.batch_index)
        return index == 0 and epoch % interval.every_epochs == 0

    def _state(self) -> TrainingState:
        return TrainingState(self.model, self.optimizer, self.progress)

    def _facts(self, kind: CheckpointKind) -> dict[str, Any]:
        return {
            "kind": kind,
            "step": self.progress.step,
            "batch_index": self.progress.batch_index,
            "validation": self._validation.as_record() if self._validation else None,
            "recipe_sha256": section_hash(self.recipe, *type(self.recipe).model_fields),
            "prepared_files": self.corpus.manifest["files"],
            "precision": self.machine.precision,
            "threads": torch.get_num_threads(),
            "max_tokens_per_device": self.machine.max_tokens,
        }

    def _as_record(self, report: StepReport, batch: Batch) -> dict[str, Any]:
        gradient = report.gradient
        return {
            "step": self.progress.step,
            "batch_index": batch.number,
            "loss": gradient.loss,
            "nll": gradient.nll,
            "gradient_norm": gradient.norm,
            "learning_rate": report.learning_rate,
            "target_tokens": gradient.num_tokens,
            "source_tokens": batch.num_source_tokens,
            "seconds": round(report.seconds, 4),
            "data_wait_seconds": round(report.data_wait_seconds, 4),
        }


def _as_notes(report: StepReport) -> str:
    gradient = report.gradient
    return (
        f"loss {gradient.loss:.3f}, perplexity {math.exp(min(gradient.nll, 50)):.2f}, "
        f"lr {report.learning_rate:.2e}, norm {gradient.norm:.2f}, "
        f"{gradient.num_tokens / report.seconds:,.0f} target tokens/s"
    )
