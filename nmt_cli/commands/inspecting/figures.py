"""The figures of ``nmt-cli inspect``; no weights are read."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.commands.inspecting.subject import InspectedModel
from nmt_cli.costs import flops as costs
from nmt_cli.costs.parameters import Parameters, TrainingMemory, count_parameters, training_memory
from nmt_cli.costs.this_machine import seconds_here
from nmt_cli.messages.figures import with_prefix
from nmt_cli.recipe.sections.training import TrainingConfig

THIS_MACHINE = "this machine"


class TrainingTime(NamedTuple):
    """The time of a training on a machine, and what it is based on."""

    machine: str
    seconds: float
    basis: str


class ModelFigures(NamedTuple):
    """All figures of a subject."""

    subject: InspectedModel
    parameters: Parameters
    flops: costs.ForwardFlops  # of all sentence pairs of the subject's lengths
    max_tokens: int | None = None  # of a side in a micro-batch; None if no training is known
    memory: TrainingMemory | None = None  # None if no training is known
    work: costs.PlannedWork | None = None  # None also if the number of steps is not known
    times: Sequence[TrainingTime] = ()  # of that work; the first is on the paper's GPUs

    @property
    def papers_estimate(self) -> float:
        """The FLOPs of the training as the paper counts them, from the time on its GPUs."""
        return self.times[0].seconds * costs.PAPER_GPUS * costs.PAPER_SUSTAINED_FLOPS

    def per_token(self, flops: float) -> float:
        """Return the share of a target token in ``flops``, which are of all pairs."""
        return flops / self.subject.lengths.sums.target


def figures_of(
    subject: InspectedModel,
    max_tokens_per_device: int | None,
    target_tokens_per_second: float | None,
) -> ModelFigures:
    """Return the figures of ``subject``.

    ``max_tokens_per_device`` is the largest micro-batch, by default a whole step;
    ``target_tokens_per_second`` is the speed that was measured on this machine.
    """
    config, lengths, training = subject.architecture, subject.lengths, subject.training
    parameters = count_parameters(config, subject.vocabulary_size)
    flops = costs.forward_flops(config, subject.vocabulary_size, lengths.sums)
    figures = ModelFigures(subject, parameters, flops)
    if training is None:
        return figures
    limit = min(max_tokens_per_device or training.tokens_per_step, training.tokens_per_step)
    memory = training_memory(
        config,
        parameters.total,
        limit,
        round(max(lengths.mean_source, lengths.mean_target)),
        has_moving_average=training.ema_decay is not None,
        optimizer=training.optimizer,
    )
    figures = figures._replace(max_tokens=limit, memory=memory)
    work = costs.planned_training(config, subject.vocabulary_size, training, lengths)
    if work is None:
        return figures
    times = [_time_on(machine, subject, training, work) for machine in (costs.P100S, costs.H100)]
    if target_tokens_per_second is not None:
        seconds = work.target_tokens / target_tokens_per_second
        basis = f"at the {target_tokens_per_second:,.0f} target tokens/s that you gave"
        times.append(TrainingTime(THIS_MACHINE, seconds, basis))
    elif (here := seconds_here(work)) is not None:
        times.append(TrainingTime(THIS_MACHINE, *here))
    return figures._replace(work=work, times=times)


def _time_on(
    machine: costs.MeasuredMachine,
    subject: InspectedModel,
    config: TrainingConfig,
    work: costs.PlannedWork,
) -> TrainingTime:
    step_seconds = machine.step_seconds(subject.architecture, config.tokens_per_step)
    if step_seconds is not None:
        basis = f"{step_seconds:.2f} s a step, {machine.origin}"
        return TrainingTime(machine.name, work.steps * step_seconds, basis)
    rate = machine.flops_per_second
    basis = f"estimated: base trains at {with_prefix(rate, 'FLOP/s')}, {machine.origin}"
    return TrainingTime(machine.name, work.flops / rate, basis)
