"""Lines that are submitted one by one: the translations of ``translate``, in any company."""

import gc
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError, as_completed
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.search.sentences import NO_MEMORY, Sampling
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import AnyOf, Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.scheduling import submitted_lines as service_module
from nmt_cli.translating.translator import Translator
from tests import fake_models
from tests.fake_models import ByteTokenizer, copying, tiny_recipe

FORMATS = Path(__file__).parents[1] / "formats"
WHITESPACE = FORMATS / "format_2/whitespace/run/average"
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lark"]
SMALL = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
SECONDS = 100  # a test that needs them has failed


def untrained(**options):
    recipe = tiny_recipe(data={"max_length": 9}, model=SMALL)
    return fake_models.untrained(WORDS, recipe, **options)


def texts_of(sources):
    return [ByteTokenizer().decode(source) for source in sources]


def submitted(translator, lines):
    """Return what becomes of each line: its translation, or its exception.

    All lines are submitted before the first is translated.
    """
    with translator._submitted.paused():
        futures = [translator.submit(line) for line in lines]
    return [future.exception(SECONDS) or future.result() for future in futures]


class Gate:
    """Holds a model before each step until it is opened."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, sources):
        self.reached.set()
        assert self.opened.wait(SECONDS)


def random_lines(count, longest):
    chance = random.Random(count)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(longest))) for _ in range(count)]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert [each.text for each in one.ranked] == [each.text for each in other.ranked]
        for each, again in zip(one.ranked, other.ranked, strict=True):
            assert each.score == pytest.approx(again.score, abs=1e-4)
            assert each.token_scores == pytest.approx(again.token_scores, abs=1e-4)
            assert (each.tokens, each.alignment) == (again.tokens, again.alignment)
        assert (one.error, one.num_parts) == (other.error, other.num_parts)
        assert (one.truncated, one.repairs) == (other.truncated, other.repairs)


@pytest.mark.parametrize(
    "options",
    [
        {"n_best": 3, "token_scores": True, "max_tokens_per_device": 500},
        {"sampling": Sampling(), "n_best": 3},
        {"alignments": True, "replace_unknown": True, "max_tokens_per_device": 1},
        {"too_long": "error"},
        {"too_long": "error", "constraints": Constraints(required=[AnyOf(["dog eel", "hen"])])},
    ],
)
def test_the_translations_are_those_of_translate(options):
    lines: list[Any] = random_lines(14, longest=22)
    lines[4:4] = ["", " \u200b", "\ud800", "zebra ant", Request("cat", prefix="dog eel", n_best=2)]
    lines[9:9] = [Request("fox", banned=["hen"]), Request("gnu", error="a reason"), "cat " * 25]
    expected = list(untrained(**options).translate(lines))
    assert max(each.num_parts for each in expected) > 1 or options.get("too_long") == "error"
    with untrained(**options) as translator:
        assert_same(submitted(translator, lines), expected)


def test_ensembles_and_models_that_parse_translate_as_ever():
    lines = (FORMATS / "text/train.en").read_text().splitlines()[:6]
    options: dict[str, Any] = {"device": "cpu", "precision": "fp32"}
    step = FORMATS / "format_2/whitespace/run/checkpoints/step-00001200"
    for path, ensemble in [(WHITESPACE, [step]), (FORMATS / "format_3/treebank/run", [])]:
        translator = Translator.load(path, ensemble=ensemble, **options)
        expected = list(translator.translate(lines))
        assert_same(submitted(translator, lines), expected)
        translator.close()


def test_a_line_joins_while_another_one_is_translated(monkeypatch):
    gate = Gate()
    translator, model = copying(monkeypatch, gate)
    done = []
    with translator:
        long = translator.submit("a line that is long")
        long.add_done_callback(lambda _: done.append("long"))
        assert gate.reached.wait(SECONDS)
        short = translator.submit("b")
        short.add_done_callback(lambda _: done.append("short"))
        gate.opened.set()
    assert done == ["short", "long"]
    assert (long.result().text, short.result().text) == ("a line that is long", "b")
    assert model.max_slots == 1  # the search began with one, and was not begun anew


def test_a_line_is_answered_while_later_ones_are_translated(monkeypatch):
    gate = Gate()
    is_second = lambda sources: "second" in texts_of(sources) and gate(sources)  # noqa: E731
    translator, _ = copying(monkeypatch, is_second, max_tokens_per_device=1)
    with translator:
        first, second = translator.submit("first"), translator.submit("second")
        assert first.result(SECONDS).text == "first"
        assert gate.reached.wait(SECONDS)
        assert not second.done()
        gate.opened.set()
        assert second.result(SECONDS).text == "second"


def test_a_cancelled_line_is_not_translated(monkeypatch):
    gate = Gate()
    translator, model = copying(monkeypatch, gate, max_tokens_per_device=1)
    first = translator.submit("first")
    assert gate.reached.wait(SECONDS)
    futures = [translator.submit(text) for text in ("second", "third", "fourth")]
    assert futures[1].cancel()
    gate.opened.set()
    assert first.result(SECONDS).text == "first"
    assert [future.result(SECONDS).text for future in futures[::2]] == ["second", "fourth"]
    assert model.num_sentences == 3
    translator.close()


@pytest.mark.parametrize(
    ("max_tokens", "sentences_in_steps"), [(1, [1, 1, 1, 0, 0]), (1000, [3, 3, 3])]
)
def test_a_cancelled_line_leaves_the_search_after_the_step(
    monkeypatch, max_tokens, sentences_in_steps
):
    sentences, others, steps = ["It goes on.", "Another sentence.", "A third."], ["b", "c"], []

    def fails(sources):
        steps.append(len({*sentences} & {*texts_of(sources)}))
        if len(steps) == 3:
            assert future.cancel()

    options = {"split_sentences": True, "max_tokens_per_device": max_tokens}
    translator, _ = copying(monkeypatch, fails, **options)
    with translator:
        with translator._submitted.paused():
            future = translator.submit(" ".join(sentences))
            futures = [translator.submit(text) for text in others]
        assert [each.result(SECONDS).text for each in futures] == others
        assert [*as_completed([future], timeout=SECONDS)] == [future]
    assert future.cancelled()
    assert steps == sentences_in_steps


def test_a_cancelled_line_leaves_its_room_to_other_divided_lines(monkeypatch):
    steps, other = [], "One more. And more."

    def fails(sources):
        steps.append(sources)
        if len(steps) == 3:
            assert future.cancel()

    translator, _ = copying(monkeypatch, fails, split_sentences=True, max_tokens_per_device=1)
    with translator:
        with translator._submitted.paused():
            future = translator.submit("It goes on. Another sentence.")
            later = translator.submit(other)
        assert later.result(SECONDS).text == other


def test_a_line_that_is_cancelled_while_others_are_searched_again_leaves_too(monkeypatch):
    lines, steps = [f"a long line, number {number}" for number in range(4)], []

    def fails(sources):
        if len(inside := {*lines} & {*texts_of(sources)}) > 2:
            raise ValueError("too many")
        steps.append(inside)
        if len(steps) == 2:
            assert futures[3].cancel()

    translator, _ = copying(monkeypatch, fails)
    with translator:
        with translator._submitted.paused():
            futures = [translator.submit(line) for line in lines]
        assert [future.result(SECONDS).text for future in futures[:3]] == lines[:3]
    assert not any(lines[3] in inside for inside in steps)


def test_a_line_of_many_sentences_does_not_stop_those_after_it(monkeypatch):
    translator, _ = copying(monkeypatch, split_sentences=True, max_tokens_per_device=1)
    sentences, done = [f"Sentence {number}." for number in range(20)], []
    with translator:
        with translator._submitted.paused():
            texts = [" ".join(sentences), " ".join(sentences[::-1]), "b", "c", "d"]
            futures = [translator.submit(text) for text in texts]
            for future, text in zip(futures, texts, strict=True):
                future.add_done_callback(lambda _, text=text: done.append(text))
        assert [future.result(SECONDS).text for future in futures] == texts
    assert done[:3] == ["b", "c", "d"]


def test_a_line_that_comes_need_not_wait_for_a_sentence_of_divided_lines(monkeypatch):
    sentences, steps, later = [f"{'A long' + 'er' * n} sentence." for n in range(5)], [], []
    texts = [" ".join(sentences * 4), " ".join(sentences[::-1] * 4)]

    def fails(sources):
        steps.append(texts_of(sources))
        if len(steps) == 3:
            later.append(translator.submit("b"))

    options = {"split_sentences": True, "beam_size": 2, "max_tokens_per_device": 2 * 8 * 32}
    translator, _ = copying(monkeypatch, fails, **options)
    with translator:
        assert [each.text for each in submitted(translator, texts)] == texts
        assert later[0].result(SECONDS).text == "b"
    joined = next(number for number, inside in enumerate(steps) if "b" in inside)
    assert joined < len(sentences[0])  # before any sentence was done
    assert sum(text in sentences for text in steps[joined]) == 6


def test_close_waits_or_cancels_and_then_no_line_is_taken(monkeypatch):
    gate = Gate()
    translator, _ = copying(monkeypatch, gate, max_tokens_per_device=1)
    futures = [translator.submit(f"line {number}") for number in range(5)]
    assert gate.reached.wait(SECONDS)
    closing = threading.Thread(target=translator.close, kwargs={"cancel_futures": True})
    closing.start()
    for future in futures[2:]:  # the second may have been taken already
        with pytest.raises(CancelledError):
            future.result(SECONDS)
    assert closing.is_alive()
    gate.opened.set()
    closing.join(SECONDS)
    assert futures[0].result().text == "line 0"
    translator.close()
    with pytest.raises(RuntimeError, match="submitted to a translator that is closed"):
        translator.submit("too late")
    assert next(translator.translate(["but this works"])).text == "but this works"


def test_an_error_in_the_block_cancels_the_lines_that_wait(monkeypatch):
    gate = Gate()
    translator, _ = copying(monkeypatch, gate, max_tokens_per_device=1)
    futures = [translator.submit(f"line {number}") for number in range(5)]
    futures[-1].add_done_callback(lambda _: gate.opened.set())
    assert gate.reached.wait(SECONDS)
    with pytest.raises(KeyError), translator:
        raise KeyError
    assert futures[0].result().text == "line 0"
    assert futures[-1].cancelled()


def test_only_the_line_with_a_bug_gets_its_exception(monkeypatch):
    bug = TypeError("a bug of ours")

    def fails(sources):
        if {"line 7", "line 11"} & {*texts_of(sources)}:
            raise bug

    translator, _ = copying(monkeypatch, fails)
    lines = [f"line {number}" for number in range(30)]
    with translator:
        for line, found in zip(lines, submitted(translator, lines), strict=True):
            assert found is bug if line in {"line 7", "line 11"} else found.text == line
        assert submitted(translator, ["line 3"])[0].text == "line 3"


def test_a_bug_that_no_line_meets_alone_harms_none(monkeypatch):
    def fails(sources):
        if {"line 2", "line 9"} <= {*texts_of(sources)}:
            raise ValueError("these two")

    translator, _ = copying(monkeypatch, fails)
    lines = [f"line {number}" for number in range(12)]
    with translator:
        assert [found.text for found in submitted(translator, lines)] == lines


@pytest.mark.parametrize("method", ["encode", "decode"])
def test_a_bug_in_the_tokenizer_is_that_of_its_line(monkeypatch, method):
    original = getattr(ByteTokenizer, method)
    bad = ByteTokenizer().encode("line 5")

    def broken(self, texts_or_ids, **options):
        if "line 5" in texts_or_ids or [*texts_or_ids] == bad:
            raise TypeError("a bug of ours")
        return original(self, texts_or_ids, **options)

    translator, _ = copying(monkeypatch)
    monkeypatch.setattr(ByteTokenizer, method, broken)
    lines = [f"line {number}" for number in range(9)]
    with translator:
        found = submitted(translator, lines)
    assert isinstance(found.pop(5), TypeError)
    assert [each.text for each in found] == lines[:5] + lines[6:]


def test_a_line_fails_alone_by_its_own_fault(monkeypatch):
    def fails(sources):
        if "too big" in texts_of(sources):
            raise MemoryError

    translator, model = copying(monkeypatch, fails, max_tokens_per_device=20 * 4 * 32)
    lines = [*[f"line {number}" for number in range(30)], "too big", "last"]
    with translator:
        *found, failed, last = submitted(translator, lines)
        assert [each.text for each in found] == lines[:30]
        assert (failed.error, last.text) == (NO_MEMORY.reason, "last")
        sizes = record_slots(model)
        submitted(translator, [f"line {number}" for number in range(90)])
        assert max(sizes) == 20  # one line that is too big does not slow the others


def record_slots(model):
    """Return a list that will hold the number of slots at each step."""
    sizes, before = [], model.fails

    def fails(sources):
        sizes.append(len(sources))
        before(sources)

    model.fails = fails
    return sizes


def test_full_memory_halves_the_slots(monkeypatch):
    def fails(sources):
        if len(sources) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")

    translator, model = copying(monkeypatch, fails)
    lines = [f"line {number}" for number in range(50)]
    with translator:
        assert [found.text for found in submitted(translator, lines)] == lines
        sizes = record_slots(model)
        assert [found.text for found in submitted(translator, lines)] == lines
    assert 1 < max(sizes) <= 3


@pytest.mark.parametrize("method", ["start", "step"])
def test_full_memory_that_does_not_come_back_halves_the_slots_too(monkeypatch, method):
    translator, model = copying(monkeypatch, max_tokens_per_device=8 * 4 * 32)
    original = getattr(model, method)
    failed: list[bool] = []

    def fails_once(*arguments):
        if len(model.sources) == 8 and not failed:
            failed.append(True)
            raise MemoryError
        return original(*arguments)

    monkeypatch.setattr(model, method, fails_once)
    lines = [f"line {number}" for number in range(40)]
    with translator:
        assert [found.text for found in submitted(translator, lines)] == lines
        sizes = record_slots(model)
        submitted(translator, lines)
    assert failed
    assert max(sizes) == 4


def test_many_threads_may_submit_and_translate_at_once():
    lines = random_lines(60, longest=8)
    translator = untrained()
    expected = list(translator.translate(lines))
    answers: dict[int, list[Any]] = {}

    def work(number):
        mine = lines[number::6]
        if number:
            futures = [translator.submit(line) for line in mine]
            answers[number] = [future.result(SECONDS) for future in futures]
        else:
            answers[number] = list(translator.translate(mine))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    translator.close()
    for number, found in answers.items():
        assert_same(found, expected[number::6])
    assert len(answers) == 6


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("is_submitted", [False, True])
def test_a_process_that_is_forked_while_a_thread_translates_has_a_search_of_its_own(
    monkeypatch, caplog, is_submitted
):
    gate, searched = Gate(), set[str]()

    def before_step(sources):
        searched.update(texts_of(sources))
        gate(sources)

    translator, _ = copying(monkeypatch, before_step)

    def translate():
        if is_submitted:
            translator.submit("of the parent").result(SECONDS)
        else:
            translator.translate_window(["of the parent"])

    thread = threading.Thread(target=translate)
    thread.start()
    assert gate.reached.wait(SECONDS)
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            gate.opened.set()
            searched.clear()
            translations = [translator.submit("one").result(SECONDS)]
            translations += translator.translate_window(["two"])
            is_well = [each.text for each in translations] == ["one", "two"]
            os._exit(not (is_well and searched == {"one", "two"} and not caplog.records))
        finally:
            os._exit(2)
    gate.opened.set()
    thread.join(SECONDS)
    translator.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_callback_of_a_line_may_submit_another_but_not_translate(monkeypatch):
    gate, called = Gate(), threading.Event()
    translator, _ = copying(monkeypatch, gate)
    later, errors = [], []

    def callback(future):
        later.append(translator.submit(f"after {future.result().text}"))
        try:
            translator.translate_window(["no"])
        except RuntimeError as error:
            errors.append(str(error))
        called.set()

    with translator:
        translator.submit("one").add_done_callback(callback)
        gate.opened.set()
        assert called.wait(SECONDS)
    assert later[0].result().text == "after one"
    assert "cannot translate lines itself" in errors[0]


def test_the_thread_ends_when_it_is_idle_and_another_one_takes_its_place(monkeypatch):
    monkeypatch.setattr(service_module, "IDLE_SECONDS", 0.0)
    translator, _ = copying(monkeypatch)
    futures = []  # which a caller keeps
    for text in ("first", "second"):
        futures.append(translator.submit(text))
        assert futures[-1].result(SECONDS).text == text
        for thread in threading.enumerate():
            if thread.name == "nmt-cli service":
                thread.join(SECONDS)
    left = weakref.ref(translator), weakref.ref(translator._engine)
    del translator
    gc.collect()
    assert [each() for each in left] == [None, None]


def test_at_the_exit_of_the_interpreter_no_line_is_waited_for(monkeypatch):
    def fails(sources):
        translator._submitted._stop()

    translator, _ = copying(monkeypatch, fails, max_tokens_per_device=1)
    with translator._submitted.paused():  # nothing starts yet
        futures = [translator.submit(text) for text in ("a line", "b", "c")]
    assert [*as_completed(futures, timeout=SECONDS)]
    assert all(each.cancelled() for each in futures)


@pytest.mark.slow
def test_a_program_that_forgets_its_lines_ends():
    code = (
        "from nmt_cli.translating.translator import Translator\n"
        f"translator = Translator.load({str(WHITESPACE)!r}, device='cpu', beam_size=50)\n"
        "futures = [translator.submit('ant bee cat ' * 8) for _ in range(20_000)]\n"
        "print(futures[0].result().error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "None\n", "")


def test_no_more_lines_wait_than_the_caller_allows():
    with untrained() as translator:
        with translator._submitted.paused():
            futures = [translator.submit(word, most_waiting=2) for word in WORDS[:2]]
            with pytest.raises(queue.Full, match="2 lines wait to be translated"):
                translator.submit("fox", most_waiting=2)
            futures.append(translator.submit("fox", most_waiting=3))
        assert [future.result(SECONDS).error for future in futures] == [None] * 3


def test_a_line_that_waits_longer_than_its_timeout_gets_an_error_and_others_do_not():
    with untrained() as translator:
        answered = threading.Event()

        def submit_and_note():
            translator.submit("cat")
            answered.set()

        with translator._submitted.paused():
            late = translator.submit("ant", timeout=0.0)
            late.add_done_callback(lambda _: submit_and_note())
            early, patient = translator.submit("bee", timeout=SECONDS), translator.submit("cat")
        assert late.result(SECONDS) == Translation(error=service_module.TOO_LATE)
        assert answered.wait(SECONDS)
        assert early.result(SECONDS).error is None
        assert patient.result(SECONDS).error is None
