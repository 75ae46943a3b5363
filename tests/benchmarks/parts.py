"""The parts of a run, and the steps of each: what is measured and recorded at a time."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.hardware.device import choose_device
from nmt_cli.hardware.fp32_products import choose_fp32_products
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.hardware.torch_private import onednn_computes_fp32
from nmt_cli.messages import logs
from tests.benchmarks import commands, memory_of_a_step, speed, waiting
from tests.benchmarks.data import (
    CAPTIONS,
    NEWS,
    Corpus,
    Text,
    parallel_text,
    prepared_corpus,
    random_corpus,
    write_batches,
)
from tests.benchmarks.decoding import part as decoding
from tests.benchmarks.decoding.sample import EXPORTED
from tests.benchmarks.hardware import this_machine
from tests.benchmarks.large_corpus import PAIRS
from tests.benchmarks.padding import measure_padding
from tests.benchmarks.processes import HUGGING_FACE, OURS, PEERS, Toolkit, Worker
from tests.benchmarks.serving import part as serving
from tests.benchmarks.shapes import PRECISIONS, SEED, SHAPES, Setup, Shape

BUILD = Path("build/benchmark")
ROUNDS = {
    "S": speed.Rounds(warm_up=4, counted=4, max_rounds=7, seconds=200),
    "base": speed.Rounds(warm_up=1, counted=2, max_rounds=5, seconds=400),
    "base-25k": speed.Rounds(warm_up=5, counted=10, max_rounds=5, seconds=120),
    "big-25k": speed.Rounds(warm_up=5, counted=10, max_rounds=5, seconds=120),
}
LOSS_STEPS = {"S": 300, "base": 60}
LOSS_TAIL = 0.1  # of the steps, whose mean loss is compared
QUICK_TOKENS, QUICK_LOSS_STEPS, QUICK_PAIRS = 512, 10, 100_000

Record = dict[str, Any]


class Step(NamedTuple):
    """What is measured at a time: a part, or one shape or text of it."""

    part: str
    of: str | None  # the key of its figures in those of the part; None: they are the part's own
    measure: Callable[[Record], Record]  # gets the record so far, returns the figures

    @property
    def name(self) -> str:
        """Its name in messages and records."""
        return self.part if self.of is None else f"{self.part}: {self.of}"


class Benchmark:
    """Lists the steps of each part; ``report`` shows their figures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self._started = options, time.monotonic()
        self.hardware = this_machine()
        self._precisions = PRECISIONS if self.hardware.has_fast_bf16 else PRECISIONS[:1]
        self._fp32_products = choose_fp32_products(choose_device(AUTO), "fp32")
        shared = os.environ.get("NMT_CLI_SHARED")
        self._shared = Path(shared) if shared else None

    def steps(self, parts: Sequence[str]) -> list[Step]:
        """Return what is to be measured, in this order."""
        return [step for part in parts for step in getattr(self, f"_{part}")()]

    def _data(self) -> Iterator[Step]:
        yield Step("data", None, self._measure_data)

    def _kernels(self) -> Iterator[Step]:
        if not self.hardware.gpu:
            yield Step("kernels", None, lambda _: _run_module("kernels"))

    def _memory(self) -> Iterator[Step]:
        yield Step("memory", None, self._measure_memory)

    def _speed(self) -> Iterator[Step]:
        for name in self._options.shapes:
            yield Step("speed", name, partial(self._speed_at, name))

    def _commands(self) -> Iterator[Step]:
        if self.hardware.gpu:
            return
        for name in self._options.shapes:
            if name in commands.LINES:
                yield Step("commands", name, partial(self._commands_of, name))

    def _decoding(self) -> Iterator[Step]:
        if self.hardware.gpu:
            return
        for name in self._options.shapes:
            if name in decoding.TRAININGS:
                for kind in self._options.texts:
                    yield Step("decoding", f"{name} {kind}", partial(self._decoding_of, name, kind))

    def _serving(self) -> Iterator[Step]:
        if self.hardware.gpu:
            return
        for name in self._options.shapes:
            if name in decoding.TRAININGS:
                yield Step("serving", name, partial(self._serving_of, name))

    def _waiting(self) -> Iterator[Step]:
        if not self.hardware.gpu:
            yield Step("waiting", None, self._measure_waiting)

    def _loss(self) -> Iterator[Step]:
        if len(self._precisions) < len(PRECISIONS):
            skipped = {"skipped": "bf16 is slow on this CPU and never chosen"}
            yield Step("loss", None, lambda _: skipped)
            return
        for name in self._options.shapes:
            if name in LOSS_STEPS:
                yield Step("loss", name, partial(self._loss_at, name))

    def _measure_data(self, _: Record) -> Record:
        """Measure the batch planner, preprocessing and the padding of our batches."""
        text = parallel_text(BUILD, self._shared)
        corpus = prepared_corpus(BUILD / "text", text)
        sides = [
            BinarizedText.open(corpus.folder, f"train.{side}").lengths
            for side in ("source", "target")
        ]
        plan = BatchPlan(sides[0], sides[1], SHAPES["S"].tokens, SEED)
        return {
            "text": text.name,
            "planner": _run_module("planner"),
            "preprocessing": _run_module("preprocessing", corpus.folder, text.folder),
            "workers": _run_module("large_corpus", QUICK_PAIRS if self._options.quick else PAIRS),
            "padding": measure_padding(plan, *sides)._asdict(),
        }

    def _measure_waiting(self, _: Record) -> Record:
        """Measure training beside other programs, by how threads wait."""
        corpus, precision = self._corpus("S"), self._precisions[-1]
        write_batches(corpus, self._shape("S").tokens)
        setup = Setup(self._shape("S"), str(corpus.folder), self._options.threads)
        logs.info(f"S in {precision}")

        def open_worker(variables: Mapping[str, str]) -> Worker:
            return self._start(OURS, setup, "waiting", variables)

        return {"precision": precision, "rates": waiting.measure(open_worker, precision)}

    def _measure_memory(self, _: Record) -> Record:
        """Measure the peak of one step at 25,000 tokens, or as many as there is memory for."""
        if self.hardware.gpu:
            return {"skipped": "only the memory of CPUs is measured"}
        tokens = 4 * QUICK_TOKENS if self._options.quick else SHAPES["base-25k"].tokens
        peaks: dict[str, Any] = {}
        for toolkit in (OURS, HUGGING_FACE):
            for precision in self._precisions:
                logs.info(f"{toolkit.name} in {precision}")
                open_sized = partial(self._open_sized, toolkit)
                peaks.setdefault(toolkit.name, {})[precision] = memory_of_a_step.largest_step(
                    open_sized, precision, tokens
                )
        return {"tokens": tokens, "peaks": peaks}

    def _speed_at(self, name: str, _: Record) -> Record:
        """Measure tokens a second of every toolkit and of the ceiling, in turns."""
        corpus, shape = self._corpus(name), self._shape(name)
        padding = write_batches(corpus, shape.tokens)
        peers = () if self.hardware.gpu else PEERS
        rows = [
            *(speed.Row(OURS, precision) for precision in self._precisions),
            *(speed.Row(peer, precision) for precision in self._precisions for peer in peers),
            *(speed.Row(OURS, f"ceiling {precision}") for precision in self._precisions),
        ]
        others = {"mkl", "onednn"} if onednn_computes_fp32() and not self.hardware.gpu else {"mkl"}
        for library in others - {self._fp32_products}:
            rows += [speed.Row(OURS, f"{kind}{library} fp32") for kind in ("", "ceiling ")]
        rounds = ROUNDS[name]
        if self._options.quick:
            rounds = speed.Rounds(warm_up=1, counted=1, max_rounds=1, seconds=0)
        logs.info(f"{len(rows)} rows on {corpus.description}")
        measured = speed.measure(rows, lambda toolkit: self._open(toolkit, name, corpus), rounds)
        return {**measured, "data": corpus.description, "padding_of_peers": padding}

    def _commands_of(self, name: str, _: Record) -> Record:
        """Measure whole commands that translate captions."""
        text, is_quick = parallel_text(BUILD, self._shared), self._options.quick
        folder, _sample = self._test_text(name, "captions", text)
        number = 100 if is_quick else commands.LINES[name]
        source = folder / "commands"
        lines = [
            line
            for part in (text.validation, "train")
            for line in (text.folder / f"{part}.en").read_bytes().splitlines(keepends=True)
        ]
        source.write_bytes(b"".join(lines[:number]))
        rounds = 1 if is_quick else commands.ROUNDS
        export = folder / EXPORTED
        precisions = [*self._precisions, "int8"]
        return commands.measure(folder / "model", export, source, precisions, rounds)

    def _decoding_of(self, name: str, kind: str, _: Record) -> Record:
        """Measure translating: every engine with the same weights, on one kind of text."""
        text = parallel_text(BUILD, self._shared)
        shape = SHAPES[name]._replace(vocabulary_size=text.pieces)
        folder, sample = self._test_text(name, kind, text)
        setup = Setup(shape, str(folder), self._options.threads)
        logs.info(f"{len(sample.references):,} lines")

        def open_worker(toolkit: Toolkit) -> Worker:
            return self._start(toolkit, setup, f"decoding-{name}-{kind}")

        precisions = [*self._precisions, "int8"]
        threads = self._options.threads
        with_generate = not self._options.no_generate
        measured = decoding.measure(
            folder, sample, precisions, threads, open_worker, with_generate=with_generate
        )
        return {**measured, "text": text.name, "lines": len(sample.references)}

    def _serving_of(self, name: str, _: Record) -> Record:
        """Measure the service with captions, and CTranslate2 behind Starlette."""
        text, is_quick = parallel_text(BUILD, self._shared), self._options.quick
        folder, sample = self._test_text(name, "captions", text)
        lines = sample.sample.lines[: 128 if is_quick else None]
        rounds = 1 if is_quick else serving.ROUNDS
        threads = self._options.threads
        measured = serving.measure(folder / "model", folder, lines, threads, rounds)
        return {**measured, "text": text.name, "lines": len(lines)}

    def _test_text(self, name: str, kind: str, text: Text) -> tuple[Path, decoding.TestText]:
        """Return the folder with a model of ``text``, and lines to translate by it."""
        shape = SHAPES[name]._replace(vocabulary_size=text.pieces)
        trained = BUILD / f"decoding-{name}-{text.folder.name}"  # a model of each text
        model = decoding.trained_model(trained, name, shape, text)
        folder = BUILD / f"{trained.name}-{kind}"
        sample = decoding.write_test_text(folder, model, text, name, as_news=kind == "news")
        return folder, sample

    def _loss_at(self, name: str, record: Record) -> Record:
        """Compare the loss in bf16 with the loss in fp32: same seed, same batches."""
        steps = QUICK_LOSS_STEPS if self._options.quick else LOSS_STEPS[name]
        expected = _expected_seconds(record, name, steps)
        left = self._options.minutes * 60 - (time.monotonic() - self._started)
        if expected > left:
            return {
                "skipped": f"about {expected / 60:.0f} minutes were needed and {left / 60:.0f} "
                f'left; run make benchmark ARGS="--only loss --shapes {name}"'
            }
        logs.info(f"{steps} steps in each precision")
        corpus = self._corpus(name)
        write_batches(corpus, self._shape(name).tokens)
        losses = {}
        for precision in PRECISIONS:
            with self._open(OURS, name, corpus) as worker:
                answer = worker.turn(precision, 0, steps)
            tail = answer["steps"][-max(1, int(LOSS_TAIL * steps)) :]
            losses[precision] = mean(step["loss"] for step in tail)
        return {"steps": steps, "losses": losses, "data": corpus.description}

    def _corpus(self, name: str) -> Corpus:
        folder, shape = BUILD / f"corpus-{name}", SHAPES[name]
        if "25k" in name:
            return random_corpus(folder, 30_000, shape.vocabulary_size, NEWS)
        if self._shared is None:
            return random_corpus(folder, 30_000, shape.vocabulary_size, CAPTIONS)
        return prepared_corpus(folder, parallel_text(BUILD, self._shared))

    def _shape(self, name: str) -> Shape:
        shape = SHAPES[name]
        return shape._replace(tokens=QUICK_TOKENS) if self._options.quick else shape

    def _open(self, toolkit: Toolkit, name: str, corpus: Corpus) -> Worker:
        setup = Setup(self._shape(name), str(corpus.folder), self._options.threads)
        return self._start(toolkit, setup, name)

    def _open_sized(self, toolkit: Toolkit, tokens: int, limit: int) -> Worker:
        shape = SHAPES["base-25k"]._replace(tokens=tokens)
        corpus = random_corpus(BUILD / "memory", 4_000, shape.vocabulary_size, NEWS)
        write_batches(corpus, tokens)
        setup = Setup(shape, str(corpus.folder), self._options.threads, memory_limit=limit)
        return self._start(toolkit, setup, "memory")

    def _start(
        self,
        toolkit: Toolkit,
        setup: Setup,
        name: str,
        variables: Mapping[str, str] | None = None,
    ) -> Worker:
        setup = setup._replace(fp32_products=self._fp32_products)
        log = BUILD / "logs" / f"{name}-{toolkit.name.replace(' ', '-')}.log"
        return Worker(toolkit, setup, self._options.peers, log, variables)


def _expected_seconds(record: Record, name: str, steps: int) -> float:
    """Return how long the loss takes, by the rates in the record; 0 if it has none."""
    rows = record.get("speed", {}).get(name, {}).get("rows", {}).get(OURS.name, {})
    tokens = SHAPES[name].tokens * steps
    return sum(tokens / rows[precision]["rate"] for precision in PRECISIONS if precision in rows)


def _run_module(name: str, *arguments: Path | int) -> dict[str, Any]:
    logs.info(f"{name} ...")
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
