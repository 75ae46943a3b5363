"""The training loop: step, report, validate, save, until the recipe's end (section 5)."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NoReturn

import torch

from nmt_cli.corpus.augmenter import changes_of
from nmt_cli.corpus.change_pool import ChangePool, num_useful_processes
from nmt_cli.corpus.loader import Batch, SentencePairs, load_batches
from nmt_cli.files.file_names import METRICS
from nmt_cli.hardware.cpu import threads_of_each
from nmt_cli.hardware.device import Mark, Sender, mark_of_work, use_new_stream
from nmt_cli.hardware.memory import FullMemoryError
from nmt_cli.hardware.ranks import TIMEOUT_SECONDS, PeerLostError
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.launch.worker import this_worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError
from nmt_cli.optimization import learning_rate
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.metrics_log import MetricsLog
from nmt_cli.saved.training_state import CheckpointKind, TrainingState
from nmt_cli.training.batch_cut import gradient_within_memory, own_pairs, ready_ahead
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.gradient_sum import SummedGradient
from nmt_cli.training.saving import Saver
from nmt_cli.training.step_report import LaunchedStep, StepReport, flop_utilization
from nmt_cli.training.training import Training
from nmt_cli.training.validation import Validator
from nmt_cli.training.validation_outputs import judged_before, keep_translations

GRACE_SECONDS = 8.0  # torchrun ends a worker 30 seconds after its signal


class Trainer:
    """Trains one model in one run directory, on one rank of those that train it together.

    A new trainer is ready for ``train``, which is called once and changes the state of the
    training. Everything happens in the calling thread, except that batches are read ahead in
    another, and that on a GPU a third writes checkpoints. Only the stop request may be set from
    elsewhere, such as a signal handler.
    """

    def __init__(self, training: Training) -> None:
        self.training, self.state = training, training.state
        progress = self.state.progress
        self._first_step = progress.step  # of this session
        self._validator = Validator(
            training.recipe, training.corpus, training.engine, progress.script
        )
        self._saver = Saver(training)
        self._metrics: MetricsLog | None = None  # the main rank's
        # Its figures are read while the next gradient is computed. Until then it counts as done.
        self._launched: LaunchedStep | None = None
        self._again: list[Batch] = []  # to compute again, because the memory of a rank was full
        self._last_end = 0.0  # of a step, in monotonic time
        self._last_update: Mark | None = None  # of the weights and their average
        self._stop, self._longest_step = StopRequest(), 0.0  # seconds

    def train(self, stop: StopRequest) -> None:
        """Train until the recipe's end, which is measured and saved.

        Raises InterruptedTrainingError after a stop request, once a checkpoint is saved, and
        UserError if training cannot go on: too many batches without a finite gradient, a full
        memory, a full disk, a lost rank, ranks whose weights differ, or a line of the validation
        text that cannot be translated.
        """
        self._stop = stop
        training, step = self.training, self.state.progress.step
        if training.machine.ranks.is_main:
            self._metrics = MetricsLog(training.run_dir / METRICS, keep_until_step=step)
        try:
            self._train(stop)
        finally:
            self._record_unread()
            self._saver.close()

    def _record_unread(self) -> None:
        """Record the step that was launched before an error, if its figures are known."""
        with suppress(Exception):  # the error that ended training matters more
            if self._launched is not None and self._launched.gradient.has_arrived():
                self._read(self._grace)

    def _train(self, stop: StopRequest) -> None:
        training, step = self.training, self.state.progress.step
        self.state.model.train()
        self.state.optimizer.make_moments()
        if stop.deadline is not None:
            stop.note_seconds("save", self._saver.estimated_seconds())
        last, deadline = training.recipe.training.last_step, stop.deadline
        with logs.progress("train", "steps", last, step, deadline=deadline) as bar:
            if step == 0 and training.recipe.data.stages:
                training.log_stage()
            self._validate_and_save_if_due(stop)  # what a stop of the last session left undone
            batches, stage = self._batches(), self.state.progress.stage
            while not training.is_finished():
                if self.state.progress.stage != stage:
                    batches.close()  # what was read ahead is of the stage before
                    batches, stage = self._batches(), self.state.progress.stage
                for report in self._step(batches):
                    stop.note_seconds("step", report.seconds)
                    self._longest_step = max(self._longest_step, report.seconds)
                    bar.advance(1, report.as_notes())
                self._validate_and_save_if_due(stop)
                self._leave_if_asked(stop)
        if not training.is_complete():  # the last validation was interrupted
            self._leave(stop.why)
        training.machine.ranks.wait_for_main()  # none ends as finished before the main one saved
        log = logs.info if training.divergence() is None else logs.warning
        log(training.summary())
        if missed := training.stages_that_never_began():
            logs.warning(missed)

    def _batches(self) -> Generator[Batch, None, None]:
        """Yield the batches of a stage; for one that is skipped, one more is read at the end."""
        while True:
            yield from self._batches_to_come()

    def _batches_to_come(self) -> Generator[Batch, None, None]:
        training, corpus, engine = self.training, self.training.corpus, self.training.engine
        device = training.machine.device
        sender = Sender(device) if device.type == "cuda" else None

        def prepare(batch: Batch) -> Batch:
            return ready_ahead(batch, training.cut, engine, sender)

        def own(batch: Batch) -> Iterator[SentencePairs]:
            return own_pairs(training.cut.of(batch), training.machine.ranks)

        numbers = training.batches_to_come()
        change = changes_of(training.recipe, corpus, training.glossaries)
        links = corpus.links if engine.guidance is not None else None
        texts = [corpus.source, corpus.target, *([links] if links is not None else [])]
        pool, worker = None, this_worker()
        sharing = (worker.local_size, worker.cores) if worker is not None else (1, None)
        number = num_useful_processes(threads_of_each(*sharing))
        if change is not None and device.type == "cuda" and number > 0:  # a CPU needs its cores
            has_links = links is not None
            of_training = training.recipe, corpus, training.glossaries
            pool = ChangePool(*of_training, number, with_links=has_links)
        return load_batches(training.plan, texts, numbers, change, prepare, own, pool)

    def _step(self, batches: Iterator[Batch]) -> list[StepReport]:
        """Take a step with the next batch; return the reports of the steps that were read.

        This step is read while the gradient of the next one is computed, or at once if something is
        due after it. A batch whose gradient is not finite changes no weight, and has no report.
        """
        started, is_again = time.monotonic(), bool(self._again)
        batch = self._again.pop(0) if is_again else next(batches)
        waited = time.monotonic() - started
        engine = self.training.engine.after(self.state.progress.step)
        self._launch(engine, batch, is_again=is_again)
        reports = self._read_launched()  # while a GPU computes the gradient
        if self._again and not is_again:  # the step before has not changed the weights
            with self._saving_before_failure("while the ranks exchanged gradients"):
                engine.sum_over_ranks()  # the other ranks wait for it
            self._again.append(batch)
            return reports
        before = self.state.validation
        gradient, rate = self._update(engine, batch)
        end = time.monotonic() if gradient.has_arrived() else None
        self._launched = LaunchedStep(batch, gradient, rate, started, waited, before, end)
        return reports + self._read_launched() if self._is_anything_due() else reports

    def _is_anything_due(self) -> bool:
        """Return whether this step has to be read before the gradient of the next is computed."""
        training = self.training
        is_measured_or_saved = training.is_validation_due() or training.is_checkpoint_due()
        return is_measured_or_saved or training.is_stage_over() or training.is_finished()

    def _read_launched(self) -> list[StepReport]:
        """Wait for the step that was launched, if there is one; record and return its report.

        If its gradient was not finite, it is no longer counted as done, and there is no report. If
        the memory of a rank was full, neither: no rank has updated its weights, and all ranks note
        that the batch is to be computed again.
        """
        with self._saving_before_failure("while the figures of a step were read"):
            return self._read(lambda: self._grace() if self._stop.reason else TIMEOUT_SECONDS)

    def _grace(self) -> float:
        """Return how long a step may still take once a rank is lost, or training is to stop.

        Another rank that dies lets torchrun send a signal to this one, and end it soon after.
        """
        return GRACE_SECONDS + 2 * self._longest_step

    def _read(self, timeout: Callable[[], float]) -> list[StepReport]:
        """Read the step that was launched. Raises PeerLostError after ``timeout()`` seconds."""
        if self._launched is None:
            return []
        step, self._launched = self._launched, None
        batch, state = step.batch, self.state
        try:
            figures = step.gradient.read(timeout)
        except (FullMemoryError, PeerLostError) as error:
            self._take_back(step)
            state.progress.batch_index = batch.number
            if isinstance(error, PeerLostError):
                raise
            self._again = [batch]
            return []
        if not figures.is_finite:
            self._take_back(step)
            self.training.count_skipped(batch, figures)
            return []
        if state.average is not None:
            state.average.update(state.model, state.progress.step)
        training, end = self.training, step.end or time.monotonic()
        self._last_update = mark_of_work(training.machine.device)
        seconds, self._last_end = end - max(step.started, self._last_end), end
        utilization = flop_utilization(batch, seconds, training.engine)
        stage = state.progress.stage + 1 if training.recipe.data.stages else None
        report = StepReport(state.progress.step, step, figures, seconds, utilization, stage)
        self._record(report.as_record())
        return [report]

    def _take_back(self, step: LaunchedStep) -> None:
        """Count a step that was launched as not done; it has changed no weight."""
        state = self.state
        state.progress.step -= 1
        state.progress.target_tokens -= step.gradient.num_tokens
        state.validation = step.validation

    @contextmanager
    def _saving_before_failure(self, where: str) -> Iterator[None]:
        """Save a checkpoint if the block runs out of memory or loses a rank.

        If a rank is lost, a GPU waits for it forever in the exchange of gradients, and all later
        work with it. The last step that was exchanged is saved beside that.
        """
        with self._saver.saving_before_failure(where):
            try:
                yield
            except PeerLostError:
                use_new_stream(self.training.machine.device, self._last_update)
                with suppress(PeerLostError):
                    self._read(self._grace)
                    use_new_stream(self.training.machine.device, self._last_update)
                raise

    def _launch(self, engine: GradientEngine, batch: Batch, *, is_again: bool) -> None:
        """Begin to compute a gradient; if it ``is_again``, wait until all ranks have done it."""
        training, ranks = self.training, self.training.machine.ranks
        compute = engine.compute if is_again else engine.launch
        with self._saving_before_failure(f"in {batch}, even with one sentence pair at a time"):
            try:
                training.cut = gradient_within_memory(
                    batch, training.cut, compute, training.corpus.longest, ranks.size
                )
            except FullMemoryError:
                self._read_launched()  # so that it can be saved
                raise

    def _update(self, engine: GradientEngine, batch: Batch) -> tuple[SummedGradient, float]:
        """Update the weights, and count the step; return the gradient and the learning rate."""
        progress = self.state.progress
        where = f"while the gradient of batch {batch.number:,} was applied"
        with self._saving_before_failure(where):
            gradient = engine.sum_over_ranks()
            rate = update_weights(self.state, gradient, self.training.recipe)
        progress.batch_index = batch.number + 1
        progress.target_tokens += gradient.num_tokens
        return gradient, rate

    def _validate_and_save_if_due(self, stop: StopRequest) -> None:
        """Do what the recipe asks for at this step; the last step is always measured and saved."""
        training = self.training
        training.begin_stage_if_due()
        if self.state.progress.step == 0:
            return
        self._note_saved(stop)
        improved = False
        if training.is_validation_due():
            if not training.machine.ranks.from_main(stop.has_time_to_validate()):
                # Then a validation that takes too long loses nothing.
                self._save("regular" if training.is_checkpoint_due() else "safety", stop)
            improved = self._validate(stop)
            training.begin_stage_if_due()
        ended = training.is_finished()  # validation may have used up the patience
        if training.is_checkpoint_due():
            self._save("regular", stop, forgiving=not ended)
        elif ended:
            self._save("final", stop, forgiving=False)
        elif improved:
            self._save("safety", stop)

    def _save(self, kind: CheckpointKind, stop: StopRequest, *, forgiving: bool = True) -> None:
        with self._saving_before_failure(f"while step {self.state.progress.step:,} was saved"):
            seconds = self._saver.save(kind, forgiving=forgiving)
        stop.note_seconds("save", seconds)

    def _note_saved(self, stop: StopRequest) -> None:
        """Note a checkpoint that a thread has written, if there is one."""
        with self._saving_before_failure("while a checkpoint was written"):
            stop.note_seconds("save", self._saver.finish(wait=False))

    def _validate(self, stop: StopRequest) -> bool:
        """Measure on the validation text; return whether it was the best so far."""
        training, progress = self.training, self.state.progress
        model, average = self.state.model, self.state.average
        started, judged = time.monotonic(), {}
        if progress.script is not None and progress.step == self._first_step:
            judged = judged_before(training.run_dir, progress.step, progress.script)
        with self._saving_before_failure(f"while step {progress.step:,} was validated"):
            with average.in_place_of(model) if average is not None else nullcontext():
                validation = self._validator.validate(training.cut.max_tokens, stop, judged)
            model.train()
            if validation is None:
                return False
            self._saver.require_same_weights()
        stop.note_seconds("validation", time.monotonic() - started)
        is_judged = validation.why_no_number is None
        divergence = training.divergence_at(validation.nll)
        if divergence is not None:
            validation = validation._replace(quality=None)
        record = validation.as_record()
        self.state.validation = {**record, "quality_since": progress.quality_since}
        beside = {"script": progress.script, "divergence": divergence}
        given = {name: each for name, each in beside.items() if each is not None}
        self._record({"step": progress.step, "validation": record, **given})
        if training.keep_validations and training.machine.ranks.is_main:
            texts = {each.name: each.translations for each in validation.sets or (validation,)}
            keep_translations(training.run_dir, progress.step, texts, training.keep_validations)
        progress.validated_step = progress.step
        improved = is_judged and training.count_validation(validation.quality, validation.nll)
        validation.log(progress.step, is_best=improved)
        if divergence is not None:
            logs.warning(
                f"step {progress.step:,}: {divergence}; "
                "training diverges, or has learned nothing yet."
            )
        return improved

    def _record(self, record: Mapping[str, Any]) -> None:
        if self._metrics is not None:
            self._metrics.append(record)

    def _leave_if_asked(self, stop: StopRequest) -> None:
        """Exchange the requests to stop with the other ranks; save and leave if there is one."""
        with self._saving_before_failure("while the ranks agreed on stopping"):
            stop.agree(self.training.machine.ranks.sum(stop.flags()))
        if stop.agreed:
            self._read_launched()
            if not self.training.is_complete():
                self._leave(stop.why)

    def _leave(self, reason: str) -> NoReturn:
        training, step = self.training, self.state.progress.step
        self._saver.finish()
        if step > 0 and self.state.saved.step != step:
            self._saver.save("safety", forgiving=False)
        training.machine.ranks.wait_for_main()  # the message is true only once it has saved
        saved = (
            f"it was saved in {training.run_dir}" if step > 0 else "there was nothing to save yet"
        )
        raise InterruptedTrainingError(
            f"{reason} stopped training at step {step:,}; {saved}. "
            "Run the same command with --resume to continue."
        )


def update_weights(state: TrainingState, gradient: SummedGradient, recipe: Recipe) -> float:
    """Move the weights by the gradient that they hold, count the step, return the learning rate.

    The weights stay as they are if the gradient is not finite. The caller updates the moving
    average once it knows.
    """
    model, step = state.model, state.progress.step + 1
    if recipe.training.clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(
            model.parameters(), recipe.training.clip_norm, gradient.norm
        )
    rate = learning_rate(step, recipe.training, recipe.model.d_model)
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    state.optimizer.found_inf = gradient.is_infinite
    state.optimizer.step()
    state.progress.step, state.validation = step, None
    return rate
