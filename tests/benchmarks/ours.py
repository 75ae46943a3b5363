"""nmt-cli's own training loop, and the ceiling in the same process.

Variants: fp32, bf16, "mkl fp32", "onednn fp32", and each with "ceiling" before it. The library of
the setup computes fp32 products, unless the variant names one.
"""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.epoch_pairs import EpochSlice
from nmt_cli.corpus.loader import Batch, load_batches
from nmt_cli.costs.flops import training_flops
from nmt_cli.hardware.device import choose_device, sent_together
from nmt_cli.hardware.flops import peak_flops
from nmt_cli.hardware.fp32_products import Fp32Products, use_fp32_products
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.model.transformer import Transformer
from nmt_cli.optimization import Adam, learning_rate
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.recipe.sections.training import TrainingConfig
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.gradient_sum import SummedGradient
from tests.benchmarks.ceiling import BareProducts, forward_products
from tests.benchmarks.padded import BOS_ID
from tests.benchmarks.shapes import DROPOUT, PRECISIONS, SEED, Setup, Shape
from tests.benchmarks.worker import Step, serve


class ListedBatches:
    """A plan for the loader: the batches that all toolkits get, over and over."""

    def __init__(self, folder: Path) -> None:
        batches = np.load(folder / "batches.npz")
        self.pairs, self._bounds = batches["pairs"], batches["bounds"]

    def listed(self, batch_index: int) -> EpochSlice:
        """Return the pair numbers of the batch, each of which is the only copy of its pair."""
        index = batch_index % (len(self._bounds) - 1)
        pairs = self.pairs[self._bounds[index] : self._bounds[index + 1]]
        return EpochSlice(pairs, np.zeros_like(pairs))

    def locate(self, batch_index: int) -> tuple[int, int]:
        """Return the epoch of the batch and its number within that epoch: there is one epoch."""
        return 0, batch_index


class OurLoop:
    """What ``nmt_cli.training.trainer`` does between two reports: loader, gradient, fused Adam."""

    def __init__(self, setup: Setup, *, reads_late: bool = False, **of_machine: Any) -> None:
        """Make the loop; if it ``reads_late``, as training does on a GPU, call ``finish``.

        ``of_machine`` are fields of ``Machine``, such as the kernels of a GPU.
        """
        keep_freed_memory()
        self._of_machine = of_machine
        self._reads_late = reads_late
        self._unread: SummedGradient | None = None
        self._engines: dict[Machine, GradientEngine] = {}
        shape = setup.shape
        self._fp32_products = cast(Fp32Products, setup.fp32_products)
        self._tokens, self._vocabulary_size = shape.tokens, shape.vocabulary_size
        self._config = model_config(shape)
        self._training = TrainingConfig(
            tokens_per_step=shape.tokens, warmup_steps=800, peak_learning_rate=2e-3, seed=SEED
        )
        folder = Path(setup.folder)
        self._source = BinarizedText.open(folder, "train.source")
        self._target = BinarizedText.open(folder, "train.target")
        self._plan = ListedBatches(folder)
        self._batches: dict[str, Iterator[Batch]] = {}
        self._bare: dict[str, BareProducts] = {}
        self._device = choose_device("auto")
        torch.manual_seed(SEED)
        self._model = Transformer(self._config, shape.vocabulary_size).to(self._device)
        self._model.train()
        self._optimizer = Adam(
            self._model.parameters(),
            betas=self._training.adam_betas,
            eps=self._training.adam_epsilon,
            fused=True,
        )
        self._num_steps = 0
        self.facts = {
            "version": "this checkout",
            "flops_per_target_token": self._flops_per_target_token(),
            "peak_flops": {p: peak_flops(self._device, p) for p in PRECISIONS},
        }

    def step(self, variant: str, index: int) -> Step:
        """Train on batch ``index``, or do its products alone."""
        kind, _, precision = variant.rpartition(" ")
        products = self._fp32_products if precision == "fp32" else "mkl"
        if named := kind.removeprefix("ceiling").strip():
            products = cast(Fp32Products, named)
        machine = Machine(self._device, precision, fp32_products=products, **self._of_machine)
        started = time.perf_counter()
        batch = self._next_batch(variant, index)
        waited = time.perf_counter() - started
        with use_fp32_products(products):
            if kind.startswith("ceiling"):
                return self._multiply(batch, self._engine(machine))
            loss = self._train(batch, self._engine(machine))
        if not self._reads_late:
            self._wait()
        return Step(batch.num_target_tokens, loss, waited)

    def _engine(self, machine: Machine) -> GradientEngine:
        if machine not in self._engines:
            smoothing, seed = self._training.label_smoothing, self._training.seed
            engine = GradientEngine.of(self._model, BOS_ID, smoothing, seed, machine)
            if self._device.type == "cuda":
                engine = engine.with_kernels(machine.kernels or "torch")
            self._engines[machine] = engine
        return self._engines[machine]

    def engine(self, precision: str) -> GradientEngine:
        """Return the engine of the training."""
        return self._engine(Machine(self._device, precision, **self._of_machine))

    def batches(self, number: int) -> list[Batch]:
        """Return the first batches, each of which is a micro-batch."""
        return [self._next_batch("batches", index) for index in range(number)]

    def _train(self, batch: Batch, engine: GradientEngine) -> float:
        """Train; return the loss, or that of the step before if this reads late."""
        engine.launch(batch)
        loss = self.finish() if self._reads_late else 0.0
        gradient = engine.sum_over_ranks()
        self._unread, self._optimizer.found_inf = gradient, gradient.is_infinite
        self._num_steps += 1
        rate = learning_rate(self._num_steps, self._training, self._config.d_model)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        return loss if self._reads_late else self.finish()

    def finish(self) -> float:
        """Wait for the last step; return its loss, or 0 if there was none."""
        gradient, self._unread = self._unread, None
        return gradient.read().loss if gradient is not None else 0.0

    def _multiply(self, batch: Batch, engine: GradientEngine) -> Step:
        products, precision = [], engine.machine.precision
        for tokens in batch.micro_batches:
            tensors = engine._replace(graphed=None).on_cpu(tokens)  # without spare rows
            source, target_input, *_ = sent_together(self._device, tensors)
            products += forward_products(self._config, self._vocabulary_size, source, target_input)
        bare = self._bare.setdefault(precision, BareProducts(self._device, precision))
        self._wait()
        started = time.perf_counter()
        bare.run(products)
        self._wait()
        return Step(batch.num_target_tokens, 0.0, 0.0, time.perf_counter() - started)

    def _next_batch(self, variant: str, index: int) -> Batch:
        if variant not in self._batches:
            plan = cast(BatchPlan, self._plan)
            self._batches[variant] = load_batches(plan, [self._source, self._target], count(index))
        batch = next(self._batches[variant]).into_micro_batches(self._tokens)
        assert batch.number == index, "turns of a variant follow one another"
        return batch

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _flops_per_target_token(self) -> float:
        pairs = self._plan.pairs
        source, target = self._source.lengths[pairs], self._target.lengths[pairs]
        flops = training_flops(self._config, self._vocabulary_size, source, target)
        return flops / int(target.sum(dtype=np.int64))


def model_config(shape: Shape) -> ModelConfig:
    """Return the paper's Transformer of this shape."""
    return ModelConfig(
        num_layers=shape.num_layers,
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        num_heads=shape.num_heads,
        dropout=DROPOUT,
    )


if __name__ == "__main__":
    serve(OurLoop)
