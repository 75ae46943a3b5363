"""What is reported of each step, and how much of the device it used."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.loader import Batch
from nmt_cli.costs.flops import training_flops
from nmt_cli.hardware.device import training_products
from nmt_cli.hardware.flops import peak_flops
from nmt_cli.messages.figures import perplexity_of, short_number
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.gradient_sum import GradientFigures, SummedGradient


class LaunchedStep(NamedTuple):
    """A step that was launched; the device may still be computing it, so figures are read later."""

    batch: Batch
    gradient: SummedGradient
    learning_rate: float
    started: float
    data_wait_seconds: float
    validation: Mapping[str, Any] | None  # that of the step before, if this one is skipped
    end: float | None  # None if the device still computes it: then it ends when it is read


class StepReport(NamedTuple):
    """What one step did, and how long it took."""

    step: int
    launched: LaunchedStep
    figures: GradientFigures
    seconds: float
    utilization: float | None  # of the devices' peak FLOPs; None if that is not known
    stage: int | None  # the number of the stage, from 1; None if the recipe has none

    def as_record(self) -> dict[str, Any]:
        """Return the line of ``metrics.jsonl``."""
        alignment = self.figures.alignment
        return {
            "step": self.step,
            "batch_index": self.launched.batch.number,
            **({} if self.stage is None else {"stage": self.stage}),
            "loss": self.figures.loss,
            "nll": self.figures.nll,
            **({} if alignment is None else {"alignment_loss": alignment}),
            "gradient_norm": self.figures.norm,
            "learning_rate": self.launched.learning_rate,
            "target_tokens": self.figures.num_tokens,
            "source_tokens": self.launched.batch.num_source_tokens,
            "seconds": round(self.seconds, 4),
            "data_wait_seconds": round(self.launched.data_wait_seconds, 4),
            "flop_utilization": self.utilization,
        }

    def as_notes(self) -> str:
        """Return the text beside the progress bar."""
        figures = self.figures
        notes = [
            f"loss {short_number(figures.loss, 3)}, "
            f"perplexity {short_number(perplexity_of(figures.nll), 2)}",
            f"lr {self.launched.learning_rate:.2e}, norm {short_number(figures.norm, 2)}",
            f"{figures.num_tokens / self.seconds:,.0f} target tokens/s",
        ]
        if self.utilization is not None:
            notes.append(f"MFU {self.utilization:.1%}")
        notes.append(f"data wait {self.launched.data_wait_seconds / self.seconds:.1%}")
        return ", ".join(notes)


def flop_utilization(batch: Batch, seconds: float, engine: GradientEngine) -> float | None:
    """Return the share of the ranks' peak FLOPs that the model used; None if it is not known."""
    machine, model = engine.machine, engine.model
    peak = peak_flops(machine.device, training_products(machine.device, machine.precision))
    if peak is None:
        return None
    sides = zip(*(pairs.sides for pairs in batch.micro_batches), strict=True)
    source, target = (np.concatenate([part.lengths for part in side]) for side in sides)
    flops = training_flops(model.config, len(model.output_weight), source, target)
    return flops / (seconds * peak * machine.ranks.size)
