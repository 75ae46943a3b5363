"""The figures that ``nmt-cli inspect`` prints of a recipe or a model."""

from collections.abc import Iterator
from typing import NamedTuple

from nmt_cli.commands.inspection.inspect_subject import Subject
from nmt_cli.costs.flops import BACKWARD_AND_FORWARD, ForwardFlops, forward_flops
from nmt_cli.costs.parameters import (
    Parameters,
    TrainingMemory,
    count_parameters,
    training_memory,
)
from nmt_cli.costs.training_time import (
    PAPER_GPUS,
    Training,
    papers_estimate_of_flops,
    papers_flops_per_second,
    planned_training,
    published_step_seconds,
)
from nmt_cli.hardware.flops import peak_flops_of
from nmt_cli.messages.figures import with_prefix
from nmt_cli.recipe.schema import TrainingConfig

# Assumed, not measured: NVIDIA's fastest entry of this model in MLPerf 0.7 reached 41 % of 8 A100.
UTILIZATION = 0.4
GPU, PRECISION = "H200", "bf16"  # an H100 SXM has the same peak
GPU_COUNTS = (1, 8)
THIS_MACHINE = "this machine"


class Time(NamedTuple):
    """The time of a training on a machine, and what it is based on."""

    machine: str
    seconds: float
    basis: str


class TrainingCosts(NamedTuple):
    """What a training computes, and how long that takes."""

    training: Training
    times: list[Time]
    papers_estimate: float  # FLOPs as the paper would count them, from the time on its GPUs


class Figures(NamedTuple):
    """All figures of a subject."""

    subject: Subject
    parameters: Parameters
    flops: ForwardFlops  # of all sentence pairs of the subject's lengths
    max_tokens: int | None = None  # of a side in a micro-batch; None if no training is known
    memory: TrainingMemory | None = None  # likewise
    costs: TrainingCosts | None = None  # None also if the number of steps is not known

    @property
    def training_flops_per_token(self) -> float:
        """The operations of forward and backward for a target token."""
        return BACKWARD_AND_FORWARD * self.per_token(self.flops.total)

    def per_token(self, flops: float) -> float:
        """Return the share of a target token in ``flops``, which are of all pairs."""
        return flops / self.subject.lengths.sums.target


def figures_of(
    subject: Subject,
    max_tokens_per_device: int | None = None,
    target_tokens_per_second: float | None = None,
) -> Figures:
    """Return the figures of ``subject``.

    ``max_tokens_per_device`` is the largest micro-batch, by default a whole step;
    ``target_tokens_per_second`` is the speed that was measured on this machine.
    """
    config, lengths, training = subject.architecture, subject.lengths, subject.training
    parameters = count_parameters(config, subject.vocabulary_size)
    flops = forward_flops(config, subject.vocabulary_size, lengths.sums)
    figures = Figures(subject, parameters, flops)
    if training is None:
        return figures
    limit = min(max_tokens_per_device or training.tokens_per_step, training.tokens_per_step)
    memory = training_memory(
        config,
        parameters.total,
        limit,
        round(max(lengths.mean_source, lengths.mean_target)),
        has_moving_average=training.ema_decay is not None,
    )
    costs = _costs(subject, training, target_tokens_per_second)
    return figures._replace(max_tokens=limit, memory=memory, costs=costs)


def _costs(
    subject: Subject, config: TrainingConfig, target_tokens_per_second: float | None
) -> TrainingCosts | None:
    training = planned_training(
        subject.architecture, subject.vocabulary_size, config, subject.lengths
    )
    if training is None:
        return None
    on_papers_gpus = _time_on_papers_gpus(subject, config, training)
    times = [on_papers_gpus, *_times_on_gpus(training)]
    if target_tokens_per_second is not None:
        seconds = training.target_tokens / target_tokens_per_second
        basis = f"at the {target_tokens_per_second:,.0f} target tokens/s that you gave"
        times.append(Time(THIS_MACHINE, seconds, basis))
    return TrainingCosts(training, times, papers_estimate_of_flops(on_papers_gpus.seconds))


def _time_on_papers_gpus(subject: Subject, config: TrainingConfig, training: Training) -> Time:
    machine = f"{PAPER_GPUS} P100"
    step_seconds = published_step_seconds(subject.architecture, config.tokens_per_step)
    if step_seconds is not None:
        basis = f"the paper's {step_seconds:.1f} s a step"
        return Time(machine, training.steps * step_seconds, basis)
    rate = papers_flops_per_second()
    basis = f"estimated: the paper trained base at {with_prefix(rate, 'FLOP/s')}"
    return Time(machine, training.flops / rate, basis)


def _times_on_gpus(training: Training) -> Iterator[Time]:
    peak = peak_flops_of(GPU, PRECISION)
    assert peak is not None
    basis = f"assumed: {UTILIZATION:.0%} of {with_prefix(peak, 'FLOP/s')} each in {PRECISION}"
    for count in GPU_COUNTS:
        seconds = training.flops / (count * peak * UTILIZATION)
        yield Time(f"{count} H100 or {GPU}", seconds, basis)
