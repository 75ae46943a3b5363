"""The sections of a recipe on training: steps, validation, checkpoints, distillation."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field

from nmt_cli.metrics.tokenization import Tokenization
from nmt_cli.recipe.problem import Problem
from nmt_cli.recipe.values import (
    QUALITY,
    Count,
    DataPath,
    Effect,
    Epochs,
    Flag,
    Interval,
    Number,
    Rate,
    Section,
    SetName,
    Steps,
    Word,
)

LearningRate = Annotated[Number, Field(gt=0, le=100)]
Schedule = Literal["noam", "inverse_sqrt", "cosine", "wsd", "constant"]
# The keys of the steps of a schedule, beside those of the warm-up that all have.
STEPS_OF_SCHEDULE = {"cosine": ("decay_steps",), "wsd": ("stable_steps", "decay_steps")}


class GuidedAlignmentConfig(Section):
    """A head of the decoder that learns the links of data.train.0.alignments."""

    weight: Annotated[Number, Field(gt=0, le=1000)] = 0.1
    """Weight of the head's cross-entropy, beside a weight of 1 of the loss of tokens. Both are sums
    over the target tokens of a step, divided by their number."""
    decay_steps: Steps | None = None
    """Number of steps in which the weight falls linearly to zero; null keeps the weight."""
    layer: Annotated[Count, Field(ge=1, le=1000)] | None = None
    """Layer of the decoder, from 1; null stands for the last but one, or the last if there are
    fewer than 6."""
    head: Annotated[Count, Field(ge=1, le=4096)] = 1
    """Head of the layer's attention to the source, from 1."""


class TrainingConfig(Section):
    """Size, number and learning rate of the optimizer's steps (section 5)."""

    alternatives = (frozenset({"learning_rate_factor", "peak_learning_rate"}),)

    tokens_per_step: Annotated[Count, Field(ge=2, le=10**9), Effect.STEPS] = 25_000
    """Most tokens of either side in one step, over all devices and micro-batches; with
    tokenizer.sampling, counted before the pieces are drawn."""
    max_steps: Annotated[Steps | None, Effect.COURSE] = 100_000
    """Stop after this many steps; null if only max_epochs ends training."""
    max_epochs: Annotated[Epochs | None, Effect.COURSE] = None
    """Stop after this many epochs, if that comes first."""
    optimizer: Annotated[Literal["adam", "adamw", "muon"], Effect.STATE] = "adam"
    """adamw is adam with weight decay that does not enter the moments. muon makes the update of
    each matrix of the layers orthogonal, those of queries, keys and values apart, and uses adamw
    for other weights."""
    weight_decay: Annotated[Number, Field(ge=0, le=1), Effect.STEPS] = 0.0
    """A step reduces each weight by this share times the learning rate; with adam, this share of
    the weight is added to its gradient instead. Not for norms and biases."""
    schedule: Annotated[Schedule, Effect.STEPS] = "noam"
    """How the learning rate falls after warm-up: noam (section 5.3) and inverse_sqrt with
    1/sqrt(step); cosine within decay_steps to final_learning_rate; wsd likewise, but in a straight
    line after stable_steps at the peak; constant not at all. All but noam need peak_learning_rate.
    """
    warmup_steps: Annotated[Steps, Effect.STEPS] = 4000
    """Steps in which the learning rate rises."""
    learning_rate_factor: Annotated[Number, Field(gt=0, le=1_000_000), Effect.STEPS] = 1.0
    """Factor by which the learning rate of section 5.3 is multiplied."""
    peak_learning_rate: Annotated[LearningRate | None, Effect.STEPS] = None
    """Learning rate at the end of warm-up, in place of section 5.3's; the shape of the schedule
    stays."""
    warmup_start: Annotated[Number, Field(ge=0, le=100), Effect.STEPS] = 0.0
    """Learning rate that warm-up to peak_learning_rate starts from."""
    stable_steps: Annotated[Steps | None, Effect.STEPS] = None
    """Schedule wsd: steps at the peak after warm-up."""
    decay_steps: Annotated[Steps | None, Effect.STEPS] = None
    """Schedules cosine and wsd: steps in which the learning rate falls, after those of warm-up and
    stable_steps."""
    final_learning_rate: Annotated[Number, Field(ge=0, le=100), Effect.STEPS] = 0.0
    """Schedules cosine and wsd: learning rate at the end of the decay; training ends if it is 0."""
    label_smoothing: Annotated[Rate, Effect.STEPS | Effect.LOSS] = 0.1
    """Label smoothing (section 5.4)."""
    adam_betas: Annotated[tuple[Rate, Rate], Effect.STEPS] = (0.9, 0.98)
    """Adam's decay rates of the two moments."""
    adam_epsilon: Annotated[Number, Field(gt=0, le=1), Effect.STEPS] = 1e-9
    """Adam's epsilon."""
    clip_norm: Annotated[Annotated[Number, Field(gt=0, le=1_000_000)] | None, Effect.STEPS] = None
    """Largest norm of the gradient; null, as in the paper, does not clip."""
    ema_decay: Annotated[Annotated[Number, Field(gt=0, lt=1)] | None, Effect.STATE] = None
    """Decay of an exponential moving average of the weights: the share that it keeps at each step,
    such as 0.999. The average is then validated and saved instead of the weights. Null keeps no
    average."""
    quantization_aware: Annotated[Literal["int8"] | None, Effect.STEPS | QUALITY] = None
    """int8 rounds weights and activations in training and validation as translate --precision int8
    and models stored in int8 do, so that the weights learn to be rounded; the gradient ignores the
    rounding (straight-through). For the last few hundred steps of a training, or a finished model
    (model.from, --init-from). Null does not round."""
    guided_alignment: Annotated[GuidedAlignmentConfig | None, Effect.STEPS] = None
    """If given, a head of the decoder learns the links of data.train.0.alignments, and translate
    --alignments uses it."""
    seed: Annotated[Count, Field(ge=0, lt=2**63), Effect.STEPS] = 1
    """Decides initial weights, order of the data and dropout."""

    @property
    def step_without_rate(self) -> int | None:
        """The step at which the learning rate becomes 0, and stays so; None if it never does."""
        steps = [getattr(self, key) for key in self._keys_of_parts]
        is_endless = self.schedule not in STEPS_OF_SCHEDULE or None in steps
        return None if is_endless or self.final_learning_rate > 0 else sum(steps)

    @property
    def last_step(self) -> int | None:
        """The step that ends training, unless epochs or patience do; None if only they can."""
        return self.step_without_rate if self.max_steps is None else self.max_steps

    @property
    def parts_of_schedule(self) -> str:
        """The keys whose steps follow each other: warmup_steps + decay_steps."""
        return " + ".join(self._keys_of_parts)

    @property
    def _keys_of_parts(self) -> tuple[str, ...]:
        return ("warmup_steps", *STEPS_OF_SCHEDULE.get(self.schedule, ()))

    def problems(self) -> Iterator[Problem]:
        """Yield a training without an end, and learning rates that contradict each other."""
        if self.max_steps is None and self.max_epochs is None:
            text = "must be a number if max_epochs is null, but both are null"
            yield Problem("max_steps", text, "max_epochs")
        peak, start = self.peak_learning_rate, self.warmup_start
        factor = self.learning_rate_factor
        if peak is None and start > 0:
            text = "needs peak_learning_rate, which is null"
            yield Problem("warmup_start", text, "peak_learning_rate")
        if peak is not None and start > peak:
            text = f"must be at most peak_learning_rate {peak:g}, but is {start:g}"
            yield Problem("warmup_start", text, "peak_learning_rate")
        if peak is not None and factor != 1:
            text = f"must be 1.0 beside peak_learning_rate, but is {factor:g}"
            yield Problem("learning_rate_factor", text, "peak_learning_rate")
        yield from self._problems_of_schedule()

    def _problems_of_schedule(self) -> Iterator[Problem]:
        schedule, peak, final = self.schedule, self.peak_learning_rate, self.final_learning_rate
        if schedule != "noam" and peak is None:
            text = f"is missing; schedule {schedule} needs one, such as 5e-4"
            yield Problem("peak_learning_rate", text, "schedule")
        needed = STEPS_OF_SCHEDULE.get(schedule, ())
        for key in ("stable_steps", "decay_steps"):
            steps = getattr(self, key)
            if steps is None and key in needed:
                yield Problem(key, f"is missing; schedule {schedule} needs a number", "schedule")
            if steps is not None and key not in needed:
                text = f"must be null with schedule {schedule}, but is {steps:,}"
                yield Problem(key, text, "schedule")
        if final > 0 and not needed:
            text = f"must be 0 with schedule {schedule}, but is {final:g}"
            yield Problem("final_learning_rate", text, "schedule")
        if peak is not None and final > peak:
            text = f"must be at most peak_learning_rate {peak:g}, but is {final:g}"
            yield Problem("final_learning_rate", text, "peak_learning_rate")
        end = self.step_without_rate
        if end is not None and self.max_steps is not None and self.max_steps > end:
            text = (
                f"must be at most {end:,} ({self.parts_of_schedule}), where the learning rate "
                f"becomes 0, but is {self.max_steps:,}"
            )
            yield Problem("max_steps", text, "schedule")


ValidationSearch = Literal["beam", "greedy", "off"]
Robustness = Literal["upper_case", "title_case", "typos", "remove_end_punctuation"]


class _NamedSet(Protocol):
    @property
    def name(self) -> str | None: ...


AnySet = TypeVar("AnySet", bound=_NamedSet)


class ValidationConfig(Interval):
    """When and how to validate, which checkpoint is the best, and when to stop early."""

    bleu: Annotated[ValidationSearch, Effect.COURSE | Effect.BLEU] = "beam"
    """How the validation text is translated for BLEU."""
    parseval: Annotated[ValidationSearch, Effect.COURSE | Effect.PARSEVAL] = "off"
    """How the validation text is parsed for F1 (PARSEVAL); needs data.treebank."""
    tokenize: Annotated[Tokenization | None, Effect.BLEU | Effect.USE] = None
    """sacreBLEU's tokenizer for the BLEU of validation and of run. Null takes none for
    tokenizer.type whitespace, else the one that fits the script of the references: zh, ja-mecab,
    ko-mecab, char or 13a."""
    best_by: Annotated[Literal["loss", "bleu", "parseval"], Effect.COURSE | QUALITY] = "loss"
    """Measure that decides which checkpoint is the best; of equal BLEU or F1, the lower perplexity
    does."""
    best_on: Annotated[SetName | None, Effect.COURSE | QUALITY] = None
    """Name of the validation set that decides which checkpoint is the best and when patience is
    used up; by default the first one."""
    best_on_mean: Annotated[Flag, Effect.COURSE | QUALITY] = False
    """Whether the mean over all validation sets decides that, in place of one set."""
    robustness: Annotated[tuple[Robustness, ...], Effect.COURSE] = ()
    """Also measure copies of the validation set that decides, in which the text is changed as
    data.train.augment changes it. A copy has the name of its change."""
    patience: Annotated[Epochs | None, Effect.COURSE] = None
    """Stop after this many validations without improvement."""

    def all_deciding(self, sets: Iterable[AnySet]) -> list[AnySet]:
        """Return the validation sets that decide which checkpoint is the best."""
        found = [each for each in sets if self.best_on in (None, each.name)]
        return found if self.best_on_mean else found[:1]

    def deciding(self, sets: Iterable[AnySet]) -> AnySet:
        """Return the validation set that decides which checkpoint is the best, or the first."""
        return self.all_deciding(sets)[0]

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of the interval, and a best_by that is not measured."""
        yield from super().problems()
        by = self.best_by
        if (by == "bleu" and self.bleu == "off") or (by == "parseval" and self.parseval == "off"):
            text = f"must be loss if {by} is off, but is {by}; give best_by: loss, or {by}: beam"
            yield Problem("best_by", text, by)
        if self.best_on_mean and self.best_on is not None:
            text = f"must be left out beside best_on_mean, but is {self.best_on}"
            yield Problem("best_on", text, "best_on_mean")


class CheckpointsConfig(Interval):
    """When to save a checkpoint, and how many to keep for the average (section 6.1)."""

    keep_for_average: Annotated[Count, Field(ge=1, le=10_000)] = 5
    """How many of the newest checkpoints are kept. run and average-checkpoints average the last
    one, and of the others those after warmup_steps in the last quarter of the training, or in the
    last half if it has 10,000 steps or more; all if it began from a trained model."""


MOST_TRANSLATIONS = 64


class MonolingualText(Section):
    """Text of the source language, which only the teacher translates."""

    source: DataPath
    """Text file, also .gz, .xz or .zst."""
    tag: Word | None = None
    """As that of data.train."""
    weight: Annotated[Number, Field(ge=0, le=1_000_000)] = 1.0
    """As that of data.train."""


NAME_IN_PROMPT = re.compile(r"\{(\w+)\}")
NAMES_IN_PROMPT = ("source_language", "target_language", "domain", "terms", "tag")


class TeacherConfig(Section):
    """A language model as the teacher: what its translations depend on, but not where it is."""

    model: Annotated[str, Field(min_length=1, max_length=1000)]
    """Name of the model, as the server of --teacher-url lists it."""
    prompt: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    """What is asked, in place of nmt-cli's own words; {source_language}, {target_language},
    {domain}, {terms} and {tag} are replaced. The lines and the form of the answer follow it."""
    domain: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    """What the text is about, such as hotel reviews."""
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = 0.0
    """Temperature of its sampling; null leaves it to the server."""
    lines_per_request: Annotated[Count, Field(ge=1, le=1000)] = 10
    """Most lines in one request; long lines are fewer."""
    retries: Annotated[Count, Field(ge=0, le=100)] = 2
    """How often a line is asked again, alone, if its translation fails the checks."""

    def problems(self) -> Iterator[Problem]:
        """Yield a name in the prompt that nothing stands for."""
        for name in NAME_IN_PROMPT.findall(self.prompt or ""):
            if name not in NAMES_IN_PROMPT:
                allowed = ", ".join(f"{{{each}}}" for each in NAMES_IN_PROMPT)
                yield Problem("prompt", f"can have {allowed}, but not {{{name}}}")


class DistillationConfig(Section):
    """How distil makes the training text of a student of a teacher's translations."""

    teacher: TeacherConfig | None = None
    """The language model that --teacher-url asks; null: the teacher is the model TEACHER."""
    monolingual: Annotated[tuple[MonolingualText, ...], Field(max_length=1000)] = ()
    """Further texts that the teacher translates, beside the sources of data.train."""
    n_best: Annotated[Count, Field(ge=1, le=MOST_TRANSLATIONS)] = 8
    """Translations that the teacher gives for each line; its beam is at least as wide."""
    choose: Literal["reference", "score", "mbr"] = "reference"
    """Which of them the student learns from: the one most like the reference by chrF, or for text
    without one that of the best score; always that of the best score; or of n_best samples the one
    that agrees most with the others in chrF (minimum Bayes risk)."""
    targets: Annotated[Count, Field(ge=1, le=MOST_TRANSLATIONS)] = 1
    """How many of them, different and the best first, become pairs of their own."""
    augmented_copies: Annotated[Count, Field(ge=0, le=1000)] = 1
    """How often data.train.augment is drawn for each line. What it changes is translated too,
    beside the unchanged line; only noise stays for the training, because it is its own
    translation."""
    keep_share: Annotated[Number, Field(gt=0, le=1)] = 0.95
    """Share of the pairs that stay, the best by the model of --reverse-model."""
    original_weight: Annotated[Number, Field(ge=0, le=1_000_000)] = 0.0
    """How often the pairs of data.train with their own targets appear in an epoch, too, times the
    weight of their corpus."""
    guided_alignment: Annotated[Number, Field(gt=0, le=1000)] | None = None
    """Weight of training.guided_alignment, for which the translations are aligned; null: its own,
    if that section is given, else no head is guided."""
    tokenizer: Literal["teacher", "own"] = "teacher"
    """teacher takes its tokenizer and normalization, unless tokenizer.model or model.from is given;
    own makes one of the student's text, and so does a language model as the teacher."""
    shortlist: Flag = True
    """Make a lexicon of the student's text, which ships with it; translate then computes only the
    pieces that a sentence may need."""
    int8_steps: Annotated[Count, Field(ge=0, le=10**9)] = 300
    """Steps with training.quantization_aware: int8 after the training. The learning rate rises in
    the first tenth of them, and then falls to 0. Their result ships if its BLEU in int8 on the
    validation set is higher; 0: none."""
    int8_learning_rate: LearningRate = 1e-4
    """Highest learning rate of these steps, at the end of their first tenth."""

    def problems(self) -> Iterator[Problem]:
        """Yield more targets than there are translations."""
        if self.targets > self.n_best:
            text = f"must be at most n_best {self.n_best}, but is {self.targets}"
            yield Problem("targets", text, "n_best")
