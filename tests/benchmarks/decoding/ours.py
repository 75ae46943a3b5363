"""nmt-cli: a turn translates the whole sample with the engine of the command.

A variant is "fp32 2x1 16384": precision, processes x threads of each, tokens of all hypotheses in
the search of each, or "usual" for those that it chooses. With "alone" in place of them, it
translates a few lines one after the other.
"ceiling fp32 2" does the matrix products alone, on two threads.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.commands.lines.translation_processes import Processes, opened_engine
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.hardware.device import DTYPES
from nmt_cli.hardware.fp32_products import choose_fp32_products, use_fp32_products
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from tests.benchmarks.decoding.sample import (
    ALONE,
    BEAM_SIZE,
    EXTRA_LENGTH,
    LENGTH_PENALTY,
    LINES_ALONE,
    USUAL,
    Tokens,
    read_outputs,
    read_pieces,
    read_sample,
    write_outputs,
)
from tests.benchmarks.shapes import Setup, Shape
from tests.benchmarks.worker import Step, serve

CEILING_ROWS = 512  # of a step


# Of windows of lines, in order.
Translate = Callable[[Iterator[list[Request]]], Iterator[Sequence[Translation]]]


class TranslatorLoop:
    """What translates, for each variant; it is kept between turns."""

    name = "nmt-cli"

    def __init__(self, setup: Setup) -> None:
        self._folder, self._shape = Path(setup.folder), setup.shape
        self._sample = read_sample(self._folder)
        self._ids = {piece: number for number, piece in enumerate(read_pieces(self._folder))}
        self._opened: dict[str, Translate] = {}
        self._stack = ExitStack()
        self.facts = {"version": f"this checkout, torch {torch.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Translate the sample; of lines that are translated alone, lines are counted."""
        if variant.startswith("ceiling"):
            return self._multiply(variant)
        precision, processes, size = variant.split()
        number, threads = map(int, processes.split("x"))
        translate = self._translate(variant)
        set_num_threads(threads)
        if size == ALONE:
            list(translate([Request(line)] for line in self._sample.lines[:LINES_ALONE]))
            return Step(LINES_ALONE, 0.0)
        outputs = self._outputs(translate, number)
        write_outputs(self._folder, f"{self.name} {precision}", outputs)
        return Step(write_outputs(self._folder, f"{self.name} {variant}", outputs), 0.0)

    def _outputs(self, translate: Translate, number: int) -> list[Tokens]:
        lines, windows = self._sample.lines, _windows(self._sample.tokens, number)
        outputs: list[Tokens] = [()] * len(lines)
        of_windows = translate([Request(lines[line]) for line in each] for each in windows)
        for window, translations in zip(windows, of_windows, strict=True):
            for line, each in zip(window, translations, strict=True):
                outputs[line] = [self._ids[piece] for piece in each.tokens]
        return outputs

    def _translate(self, variant: str) -> Translate:
        if variant not in self._opened:
            precision, processes, size = variant.split()
            options = {
                "beam_size": BEAM_SIZE,
                "length_penalty": LENGTH_PENALTY,
                "max_extra_length": EXTRA_LENGTH,
                "max_tokens_per_device": None if size in {ALONE, USUAL} else int(size),
                "precision": precision,
            }
            number, threads = map(int, processes.split("x"))
            self._opened[variant] = self._open(number, threads, options)
        return self._opened[variant]

    def _open(self, number: int, threads: int, options: dict[str, Any]) -> Translate:
        shared = Processes(number)
        opened = opened_engine(self._folder / "model", shared, "cpu", threads, options)
        return self._stack.enter_context(opened).translate

    def _multiply(self, variant: str) -> Step:
        """Do the products of the translations of ``precision``, at CEILING_ROWS rows a time."""
        _, precision, threads = variant.split()
        set_num_threads(int(threads))
        outputs = read_outputs(self._folder, f"{self.name} {precision}")
        num_tokens = sum(len(tokens) + 1 for tokens in outputs)
        num_source = sum(len(tokens) + 1 for tokens in self._sample.tokens)
        decoder, encoder = _products(self._shape)
        dtype = DTYPES[precision]
        of_step, of_source = (
            [
                (torch.randn(CEILING_ROWS, k, dtype=dtype), torch.randn(n, k, dtype=dtype))
                for k, n in each
            ]
            for each in (decoder, encoder)
        )
        products = choose_fp32_products(torch.device("cpu"), precision)
        with torch.no_grad(), use_fp32_products(products):
            _multiply_all(of_step)
            _multiply_all(of_source)
            started = time.perf_counter()
            for _ in range(round(num_tokens * BEAM_SIZE / CEILING_ROWS)):
                _multiply_all(of_step)
            for _ in range(round(num_source / CEILING_ROWS)):
                _multiply_all(of_source)
            return Step(num_tokens, 0.0, 0.0, time.perf_counter() - started)


def _windows(sentences: Sequence[Tokens], number: int) -> list[list[int]]:
    """Return the lines of each process: equally many of each length, so that all end together.

    The command gives processes windows of a long file as they become free.
    """
    by_length = sorted(range(len(sentences)), key=lambda line: len(sentences[line]))
    return [sorted(by_length[first::number]) for first in range(number)]


def _multiply_all(products: Sequence[tuple[Tensor, Tensor]]) -> None:
    for rows, weight in products:
        torch.nn.functional.linear(rows, weight)


def _products(shape: Shape) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return widths in and out of the products of a row of the decoder, and of the encoder."""
    d, d_ff, layers = shape.d_model, shape.d_ff, shape.num_layers
    within, feed_forward = [(d, 3 * d), (d, d)], [(d, d_ff), (d_ff, d)]
    to_memory = [(d, d), (d, d)]
    decoder = layers * [*within, *to_memory, *feed_forward] + [(d, shape.vocabulary_size)]
    encoder = layers * [*within, *feed_forward] + layers * [(d, 2 * d)]
    return decoder, encoder


if __name__ == "__main__":
    serve(TranslatorLoop)
