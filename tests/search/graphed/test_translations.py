"""A translator whose searches run ahead translates as one whose searches do not."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.graphed.model import GraphedTransformer, Storage
from nmt_cli.search.incremental import IncrementalTransformer
from nmt_cli.search.sentences import Sampling
from nmt_cli.search.torch_models import without_gradients
from nmt_cli.translating import translator as translator_module
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import AnyOf, Request
from nmt_cli.translating.scheduling.line_processor import LineProcessor
from nmt_cli.translating.translator import Translator

FORMATS = Path(__file__).parents[2] / "formats"
MODEL = FORMATS / "format_2/whitespace/run/average"
LINES = (FORMATS / "text/train.en").read_text().splitlines()
CPU: Any = {"device": "cpu", "precision": "fp32"}


def lines_of_unlike_length(number):
    chance = random.Random(number)
    return [" ".join(chance.choices(LINES, k=chance.choice([1, 1, 2, 4]))) for _ in range(number)]


def running_ahead(**options):
    """Return a translator that searches on a CPU as on a GPU."""
    return searching_ahead(Translator.load(MODEL, **CPU, **options), load_model(MODEL).model)


def searching_ahead(translator: Any, model: Any) -> Any:
    starter = translator._engine
    starter._graphed = GraphedTransformer(model.eval(), starter.settings)
    starter._computing = partial(without_gradients, torch.device("cpu"))
    return translator


def never(*_):
    raise AssertionError("this search is not to be used")


def calls_of(owner, name, monkeypatch, note=lambda *_: None):
    """Return a list that gets what ``note`` returns for the arguments of each call."""
    whole, calls = getattr(owner, name), list[Any]()

    def noting(*arguments):
        calls.append(note(*arguments))
        return whole(*arguments)

    monkeypatch.setattr(owner, name, noting)
    return calls


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert (one.error, one.alignment) == (other.error, other.alignment)
        assert [each.tokens for each in one.ranked] == [each.tokens for each in other.ranked]
        assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 1},
        {"beam_size": 3, "n_best": 3, "token_scores": True},
        {"alignments": True, "max_tokens_per_device": 600},
    ],
)
def test_options_without_rules(options, monkeypatch):
    lines = lines_of_unlike_length(60)
    expected = list(Translator.load(MODEL, **CPU, **options).translate(lines))
    translator = running_ahead(**options)
    monkeypatch.setattr(type(translator._engine._model), "step", never)
    for _ in range(2):
        assert_same(list(translator.translate(lines)), expected)


def test_lines_are_answered_while_the_device_searches_others(monkeypatch):
    lines = lines_of_unlike_length(60)
    options: Any = {"max_tokens_per_device": 600}
    expected = list(Translator.load(MODEL, **CPU, **options).translate(lines))
    translator = running_ahead(**options)

    def is_searching(*_):
        search = translator._engine.driver._search
        return search is not None and len(search._launched) > 0

    answered = calls_of(LineProcessor, "answer", monkeypatch, is_searching)
    assert_same(list(translator.translate(lines)), expected)
    assert len(answered) == 60
    assert sum(answered) > 40


def test_a_bug_in_an_answer_is_raised_for_its_line(monkeypatch):
    lines, answer = lines_of_unlike_length(8), LineProcessor.answer
    translator = running_ahead()
    expected = list(translator.translate(lines))

    def failing(jobs, job):
        if job.wanted.request.line == 3:
            raise ZeroDivisionError
        return answer(jobs, job)

    monkeypatch.setattr(LineProcessor, "answer", failing)
    with pytest.raises(LinesFailedError) as raised:
        translator.translate_window(lines)
    assert (raised.value.first, raised.value.last) == (2, 2)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert_same(raised.value.finished, expected[:2])


def test_the_steps_of_phrases_for_all_lines_are_read_one_by_one(monkeypatch):
    options: Any = {"constraints": Constraints(required=["mole jay", AnyOf(["fox", "gnu"])])}
    lines = lines_of_unlike_length(20)
    expected = list(Translator.load(MODEL, **CPU, **options).translate(lines))
    translator = running_ahead(**options)
    monkeypatch.setattr(GraphedTransformer, "steps", never)
    assert_same(list(translator.translate(lines)), expected)


CONSTRAINTS: list[Any] = [{"banned": ["fox"]}, {"required": ["fox jay", "kite"]}, {"prefix": "gnu"}]


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_lines_with_rules_leave_graphs_to_the_others(constraint, monkeypatch):
    lines: list[Any] = lines_of_unlike_length(40)
    lines[9], lines[30] = Request(lines[9], **constraint), Request(lines[30], **constraint)
    expected = list(Translator.load(MODEL, **CPU).translate(lines))
    translator = running_ahead()
    plain = translator._engine._model
    slots = calls_of(plain, "step", monkeypatch, lambda state: len(state.tokens))
    assert_same(list(translator.translate(lines)), expected)
    assert max(slots) == 2  # only the lines with the rule
    monkeypatch.setattr(plain, "step", never)
    assert_same(list(translator.translate(lines[:9])), expected[:9])


@pytest.mark.parametrize("options", [{"constraints": Constraints(min_length=4)},
                                     {"constraints": Constraints(no_repeat_ngram=2)},
                                     {"sampling": Sampling(seed=3), "n_best": 2}])  # fmt: skip
def test_there_are_no_graphs_where_every_line_has_rules(options, monkeypatch):
    made = calls_of(translator_module, "Computing", monkeypatch, lambda *given: given[2])
    Translator.load(MODEL, **CPU, **options)
    Translator.load(MODEL, **CPU)
    Translator.load(MODEL, **CPU, no_cuda_graphs=True)
    assert made == [False, True, False]


@pytest.mark.parametrize("options", [{}, {"max_tokens_per_device": 700, "alignments": True}])
def test_submitted_lines_run_ahead_too(options, monkeypatch):
    lines = lines_of_unlike_length(60)
    expected = list(Translator.load(MODEL, **CPU, **options).translate(lines))
    translator = running_ahead(**options)
    monkeypatch.setattr(type(translator._engine._model), "step", never)
    with translator:
        futures = [translator.submit(line) for line in lines]
        assert_same([future.result() for future in futures], expected)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_lines_submitted_after_one_with_a_phrase_run_ahead_again(constraint, monkeypatch):
    """Lines come without a pause, so that no search ends because nothing is left to do."""
    lines: list[Any] = lines_of_unlike_length(60)
    lines[9] = Request(lines[9], **constraint)
    expected = list(Translator.load(MODEL, **CPU).translate(lines))
    with running_ahead(max_tokens_per_device=600) as translator:
        engine = translator._engine
        starts = calls_of(engine.driver, "_start", monkeypatch)
        plain_steps = calls_of(engine._model, "step", monkeypatch, lambda *_: len(starts))
        steps_ahead = calls_of(engine._graphed, "steps", monkeypatch, lambda *_: len(starts))
        futures = [translator.submit(line) for line in lines]
        assert_same([future.result() for future in futures], expected)
    assert set(plain_steps) == {2}  # the second search
    assert set(steps_ahead) == {1, 3}


def test_a_call_in_inference_mode_may_be_followed_by_one_outside():
    lines = lines_of_unlike_length(8)
    expected = list(Translator.load(MODEL, **CPU).translate(lines))
    translator = running_ahead()
    with torch.inference_mode():
        assert_same(list(translator.translate(lines)), expected)
    assert_same(list(translator.translate(lines)), expected)


def test_full_memory_halves_the_search(monkeypatch):
    lines = lines_of_unlike_length(60)
    expected = list(Translator.load(MODEL, **CPU).translate(lines))
    translator, grow = running_ahead(), Storage.grow

    def full(storage, num_places):
        if num_places > 1000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        grow(storage, num_places)

    monkeypatch.setattr(Storage, "grow", full)
    before = translator._engine.driver.size.max_tokens
    assert_same(list(translator.translate(lines)), expected)
    assert translator._engine.driver.size.max_tokens < before


def test_memory_kept_from_earlier_calls_is_given_up_when_it_is_needed(monkeypatch):
    lines = lines_of_unlike_length(40)
    expected = list(Translator.load(MODEL, **CPU).translate(lines))
    translator = running_ahead()
    assert_same(list(translator.translate(lines)), expected)
    graphed, encode = translator._engine._graphed, IncrementalTransformer.encode

    def full(model, *arguments):
        if any(storage._layers for storage in graphed._storages):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(model, *arguments)

    monkeypatch.setattr(IncrementalTransformer, "encode", full)
    for number in (40, 1):
        assert_same(list(translator.translate(lines[:number])), expected[:number])
        graphed._storages[0].grow(1)


def test_a_model_may_be_converted_between_calls():
    lines = lines_of_unlike_length(8)
    settings, tokenizer, model, *_ = load_model(MODEL)
    translator = searching_ahead(Translator(settings, tokenizer, model, precision="fp32"), model)
    list(translator.translate(lines))
    model.to(torch.bfloat16)
    found = list(translator.translate(lines))
    assert [translation.error for translation in found] == [None] * len(lines)


def test_a_failure_gives_up_all_graphs(monkeypatch):
    translator = running_ahead()
    expected = list(translator.translate(LINES[:3]))
    graphed = translator._engine._graphed
    assert graphed._steps
    monkeypatch.setattr(GraphedTransformer, "steps", never)
    assert_same(list(translator.translate(LINES[:3])), expected)  # each line without graphs
    assert not graphed._steps


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 5, "n_best": 3}, {"max_tokens_per_device": 600}]
)
def test_cuda_graphs_change_no_translation(options):
    lines = lines_of_unlike_length(500)
    on_gpu: Any = {"device": "cuda", "precision": "fp32", **options}
    expected = list(Translator.load(MODEL, no_cuda_graphs=True, **on_gpu).translate(lines))
    translator = Translator.load(MODEL, **on_gpu)
    for _ in range(2):
        found = list(translator.translate(lines))
        same = [one.tokens == other.tokens for one, other in zip(found, expected, strict=True)]
        assert sum(same) >= 0.999 * len(lines)
