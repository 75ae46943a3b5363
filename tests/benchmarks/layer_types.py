"""Table 1 of the paper, measured: how the time of three types of layers grows with the length.

python -m tests.benchmarks.layer_types [--picture FILE.png] prints tables in Markdown. Each layer is
the decoder's first sub-layer at the width of base: causal self-attention, a recurrent unit (SSRU),
and self-attention within a window of r rows (restricted, section 4).

Legend: n length, d d_model, r window, K beam.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.hardware.device import choose_device
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.layers import DecoderLayer
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.report.drawing import style_of
from nmt_cli.search.beams import StepInput
from nmt_cli.search.engine import step_model
from nmt_cli.search.torch_models import prepared

LENGTHS = tuple(16 << power for power in range(9))  # 16 to 4,096
TOKENS = 4_096  # of a batch in training, whatever the length of its sentences
BEAM = 4
SAMPLES, SECONDS, FEWEST_STEPS = 5, 0.3, 16


class LayerType(NamedTuple):
    """A row of Table 1; the formulas give operations of one row of a sentence of n rows."""

    name: str
    options: dict[str, Any]  # of the model
    in_words: tuple[str, str, str]  # complexity, sequential operations, maximum path length
    projections: int  # products by a matrix of d x d
    reached: Callable[[int], int]  # rows that a row is compared with

    def flops(self, length: int, d_model: int) -> int:
        """Return the operations of the matrix products of a row, forward."""
        return 2 * self.projections * d_model**2 + 4 * self.reached(length) * d_model


def layer_types(window: int) -> list[LayerType]:
    """Return the rows of Table 1 that are measured."""
    return [
        LayerType("self-attention", {}, ("n² d", "1", "1"), 4, lambda n: n),
        LayerType("recurrent", {"decoder": "ssru"}, ("n d²", "n", "n"), 2, lambda _: 0),
        LayerType(
            f"restricted, r = {window}",
            {"attention_window": window},
            ("r n d", "1", "n / r"),
            4,
            lambda n: min(n, window + 1),
        ),
    ]


def training_seconds(model: ModelConfig, length: int, device: torch.device) -> float:
    """Return the time of a row, forward and backward, in sentences of a length."""
    layer = DecoderLayer(model).to(device)
    lengths = [length] * max(1, TOKENS // length)
    rows = torch.randn(sum(lengths), model.d_model, device=device, requires_grad=True)
    sentences = pack(torch.zeros(len(rows), dtype=torch.int64), lengths, device)
    gradient = torch.randn_like(rows)

    def step() -> None:
        layer.zero_grad(set_to_none=True)
        found = layer._see_past(rows, AttentionLayout(sentences, sentences))
        assert isinstance(found, torch.Tensor), "no kernel of ours computes it"
        found.backward(gradient)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    step()
    samples = list[float]()
    while len(samples) < SAMPLES or sum(samples) < SECONDS:
        begin = time.perf_counter()
        step()
        samples.append(time.perf_counter() - begin)
    return median(samples) / len(rows)


def decoding_seconds(
    model: ModelConfig, lengths: Sequence[int], device: torch.device
) -> list[float]:
    """Return the times of a step of one sentence at positions of ``lengths``, in a whole layer.

    Beside its first sub-layer it has attention to a source of one piece, and hardly a feed-forward.
    """
    ((packed,), _) = prepared([Transformer(model, 8).to(device)], "fp32")
    decoder = step_model(packed)
    decoder.reset(1, BEAM)
    encoded, _ = decoder.encode([[3]], 1)
    decoder.start([0], encoded)
    beam = np.arange(BEAM)[None]
    times = []
    for position in range(1, max(lengths) + 1):
        begin = time.perf_counter()
        decoder.step(StepInput(3 + beam, beam, np.array([position]))).normalizers()
        times.append(time.perf_counter() - begin)
    return [median(times[max(0, length - FEWEST_STEPS) : length]) for length in lengths]


class Measured(NamedTuple):
    """The times of each type, and the operations of what was timed, by length."""

    title: str
    seconds: list[list[float]]
    flops: list[list[int]]

    @property
    def rate(self) -> float:
        """The greatest of all rates, in FLOP/s."""
        return max(
            flops / seconds
            for of_type in zip(self.flops, self.seconds, strict=True)
            for flops, seconds in zip(*of_type, strict=True)
        )


def measure(
    types: Sequence[LayerType], lengths: Sequence[int], device: torch.device, **shape: Any
) -> list[Measured]:
    """Return the times in training and in decoding."""
    models = [
        ModelConfig(num_layers=1, d_ff=8, dropout=0.0, **shape, **each.options) for each in types
    ]
    d_model = models[0].d_model
    training = [[training_seconds(model, length, device) for length in lengths] for model in models]
    decoding = [decoding_seconds(model, lengths, device) for model in models]
    to_memory = 4 * d_model**2  # queries and output of the attention to the source
    flops = [[each.flops(length, d_model) for length in lengths] for each in types]
    return [
        Measured("training, a row", training, [[3 * each for each in row] for row in flops]),
        Measured(
            f"decoding, a step of {BEAM} hypotheses",
            decoding,
            [[BEAM * (each + to_memory) for each in row] for row in flops],
        ),
    ]


def tables(types: Sequence[LayerType], lengths: Sequence[int], measured: Sequence[Measured]) -> str:
    """Return Table 1, and the times in microseconds with their growth beside the formula's."""
    lines = [
        "| layer | complexity | sequential operations | maximum path length |",
        "|---" * 4 + "|",
    ]
    lines += [f"| {each.name} | " + " | ".join(each.in_words) + " |" for each in types]
    for each in measured:
        names = " | ".join(one.name for one in types)
        lines += ["", f"| {each.title}, µs | {names} |", "|---" * (1 + len(types)) + "|"]
        for place, length in enumerate(lengths):
            times = " | ".join(f"{1e6 * row[place]:,.2f}" for row in each.seconds)
            lines.append(f"| {length:,} | {times} |")
        for what, rows in (("measured", each.seconds), ("by formula", each.flops)):
            growth = " | ".join(f"x {row[-1] / row[-2]:.2f}" for row in rows)
            lines.append(f"| last doubling, {what} | {growth} |")
    return "\n".join(lines)


def picture(
    types: Sequence[LayerType], lengths: Sequence[int], measured: Sequence[Measured]
) -> Figure:
    """Return a panel for training and one for decoding, with the formulas dashed."""
    figure = Figure(figsize=(11, 4.6), dpi=150, layout="constrained")
    for number, each in enumerate(measured, 1):
        axes = figure.add_subplot(1, len(measured), number)
        for place, one in enumerate(types):
            colour, _ = style_of(place)
            axes.loglog(
                lengths, [1e6 * s for s in each.seconds[place]], "o-", color=colour, label=one.name
            )
            formula = [1e6 * flops / each.rate for flops in each.flops[place]]
            axes.loglog(lengths, formula, "--", color=colour, linewidth=1)
        axes.set_title(f"{each.title}\ndashed: its products at {each.rate / 1e9:,.0f} GFLOP/s")
        axes.set_xlabel("length n")
        axes.set_ylabel("µs")
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
        axes.minorticks_off()
        axes.grid(color="#DDDDDD")
        axes.legend()
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--d-model", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    options = parser.parse_args(arguments)
    if options.threads is not None:
        set_num_threads(options.threads)
    lengths = [length for length in LENGTHS if length <= options.longest]
    types, device = layer_types(options.window), choose_device(options.device)
    measured = measure(types, lengths, device, d_model=options.d_model, num_heads=options.heads)
    print(tables(types, lengths, measured))  # noqa: T201 - the result of the command
    if options.picture is not None:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            picture(types, lengths, measured).savefig(options.picture)


if __name__ == "__main__":
    main()
