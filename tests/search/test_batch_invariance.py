"""A line has the same translation alone, in batches of any size, and in any order."""

import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.model.compiled import layers
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.engine import SHORTEST_COUNTED, SHORTEST_OF_LIBRARY
from nmt_cli.search.incremental import CachedTransformer
from nmt_cli.translating.interface import request as request_module
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.scheduling.continuous_search import LineSource
from nmt_cli.translating.translator import Translator

FORMATS = Path(__file__).parents[1] / "formats"
BEAM = 4
# How many of the lines each batch size translates: the first ones.
NUM_LINES = {512: 520, 64: 200, 7: 70, 1: 20}
LINES = (FORMATS / "text/train.en").read_text().splitlines()


def lines_of_unlike_length(count):
    chance = random.Random(1)
    return [" ".join(chance.choices(LINES, k=chance.choice([1, 1, 2, 4]))) for _ in range(count)]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8", "fp32 by torch"])
@pytest.mark.parametrize(
    "name", ["whitespace", pytest.param("sentencepiece", marks=pytest.mark.slow)]
)
def test_batches_and_orders_change_no_translation(monkeypatch, request, name, precision):
    """Those of torch may differ in the last bits: its libraries add up rows in various orders."""
    precision, _, by_torch = precision.partition(" ")
    request.getfixturevalue("torch_layers" if by_torch else "library")
    lines = lines_of_unlike_length(max(NUM_LINES.values()))
    sizes: list[int] = []
    kind = CachedTransformer if by_torch else CompiledTransformer
    shortest = SHORTEST_COUNTED if by_torch else SHORTEST_OF_LIBRARY
    reset = kind.reset

    def recorded(self, num_slots, beam_size):
        sizes.append(num_slots)
        reset(self, num_slots, beam_size)

    monkeypatch.setattr(kind, "reset", recorded)
    monkeypatch.setattr(request_module, "WINDOW_LINES", 515)
    options = {"device": "cpu", "precision": precision, "beam_size": BEAM, "n_best": 3}
    found = {}
    for size, count in NUM_LINES.items():
        translator = Translator.load(
            FORMATS / "format_2" / name / "run/average",
            max_tokens_per_device=size * BEAM * shortest,
            **options,
        )
        sizes.clear()
        order = random.Random(size).sample(range(count), count)
        translations = translator.translate(lines[number] for number in order)
        found[size] = dict(zip(order, translations, strict=True))
        assert size / 2 <= max(sizes) <= size  # some lines are longer
    pairs = [
        (found[512][number], other)
        for of_size in found.values()
        for number, other in of_size.items()
    ]
    if not by_torch:  # each row is added up in the same order
        assert all(one == other for one, other in pairs)
        return
    for one, other in pairs:
        assert [each.tokens for each in one.ranked] == [each.tokens for each in other.ranked]
        scores = [each.log_probability for each in other.ranked]
        assert [each.log_probability for each in one.ranked] == pytest.approx(scores, abs=1e-4)


class Arriving(LineSource[int]):
    """Lines that come while others are searched; most belong to many."""

    def __init__(self, lines):
        self.coming, self.here = deque(enumerate(lines)), deque[Any]()
        self.found = dict[int, Any]()
        self.take_withdrawn([])

    def take(self):
        return self.here.popleft() if self.here else None

    def is_one_of_many(self, line):
        return line % 4 != 0

    def take_withdrawn(self, inside):
        for _ in range(min(len(self.coming), 0 if len(inside) > 20 else 4)):
            number, text = self.coming.popleft()
            self.here.append((number, Request(text, line=number + 1)))
        return []

    def answer(self, line, answer):
        self.found[line] = answer


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_steps_between_those_of_all_change_no_translation(monkeypatch, precision):
    lines, num_resting = lines_of_unlike_length(200), list[int]()
    make_steps = CompiledTransformer.make_steps

    def recorded(self, beams, takes_part, *arguments):
        num_resting.append(int(np.count_nonzero(beams.is_busy & ~takes_part)))
        return make_steps(self, beams, takes_part, *arguments)

    monkeypatch.setattr(CompiledTransformer, "make_steps", recorded)
    options = {"device": "cpu", "precision": precision, "beam_size": BEAM, "n_best": 3}
    translator = Translator.load(FORMATS / "format_2/whitespace/run/average", **options)
    expected = list(translator.translate(lines))
    assert not any(num_resting)
    source = Arriving(lines)
    translator.continuous_search(source).run()
    assert [source.found[number] for number in range(len(lines))] == expected
    assert sum(number > 5 for number in num_resting) > 50


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_logits_of_few_rows_at_a_time_change_no_translation(monkeypatch, precision):
    lines = lines_of_unlike_length(60)
    found = []
    for most in (5, 10_000):  # rows of one slot, or of all
        monkeypatch.setattr(layers, "ROWS_AT_ONCE", {precision: most})
        translator = Translator.load(
            FORMATS / "format_2/whitespace/run/average", device="cpu", precision=precision
        )
        found.append(list(translator.translate(lines)))
    assert found[0] == found[1]
