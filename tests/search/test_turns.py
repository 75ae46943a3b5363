"""Submitted lines and calls of ``translate`` use the model in the order in which they came."""

import threading
import time

from nmt_cli.translating.scheduling import submitted_lines as service_module
from nmt_cli.translating.scheduling.line_processor import LineProcessor
from tests.fake_models import copying
from tests.translating.test_submitted_lines import SECONDS, Gate, texts_of

SOON = 10  # seconds; a call that takes longer waits for ever


def calling(translator, text):
    """Start a thread that translates ``text``; return it."""
    thread = threading.Thread(target=translator.translate_window, args=([text],), daemon=True)
    thread.start()
    return thread


def test_a_call_has_its_turn_while_lines_are_submitted_without_end(monkeypatch):
    translator, _ = copying(monkeypatch)
    is_over = threading.Event()

    def submit(_=None):
        if not is_over.is_set():
            translator.submit("a line").add_done_callback(submit)

    submit()
    call = calling(translator, "b")
    call.join(SOON)
    has_returned = not call.is_alive()
    is_over.set()
    translator.close()
    assert has_returned


def test_a_line_has_its_turn_while_calls_are_made_without_end(monkeypatch):
    translator, _ = copying(monkeypatch)
    is_over = threading.Event()

    def call():
        while not is_over.is_set():
            translator.translate_window(["b"])

    callers = [threading.Thread(target=call, daemon=True) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for text in ("first", "second"):
            assert translator.submit(text).result(SOON).text == text
    finally:
        is_over.set()
    for caller in callers:
        caller.join(SECONDS)
    translator.close()


def test_a_call_comes_before_the_lines_that_are_submitted_after_it(monkeypatch):
    gate, seen = Gate(), []

    def fails(sources):
        gate(sources)
        seen.extend(texts_of(sources))

    translator, _ = copying(monkeypatch, fails)
    with translator:
        translator.submit("first")
        assert gate.reached.wait(SECONDS)
        call = calling(translator, "call")
        while not translator._submitted._waiting:
            time.sleep(0.001)
        translator.submit("second")
        gate.opened.set()
    call.join(SECONDS)
    assert list(dict.fromkeys(seen)) == ["first", "call", "second"]


def test_lines_that_wait_for_a_call_are_translated_after_it(monkeypatch):
    monkeypatch.setattr(service_module, "IDLE_SECONDS", 0.0)
    translator, _ = copying(monkeypatch)
    with translator._submitted.paused():
        future = translator.submit("a line")
        closing = threading.Thread(target=translator.close, daemon=True)
        closing.start()
        closing.join(0.02)
        assert closing.is_alive()
    closing.join(SOON)
    assert future.result(0).text == "a line"


def test_threads_may_share_a_translator(monkeypatch):
    """What is not to be shared between threads is used by one at a time, in any order of calls."""
    translator, _ = copying(monkeypatch)
    using, found = threading.Lock(), list[list[str]]()

    def alone(call):
        def calling_alone(*arguments):
            assert using.acquire(blocking=False), "two threads prepare lines at the same time"
            try:
                time.sleep(0)  # lets another thread go on
                return call(*arguments)
            finally:
                using.release()

        return calling_alone

    for name in ("prepare", "answer", "without_copies"):
        monkeypatch.setattr(LineProcessor, name, alone(getattr(LineProcessor, name)))
    lines = [f"line {number}" for number in range(20)]

    def translate():
        found.append([each.text for each in translator.translate(lines)])

    def submit():
        found.append([each.result(SECONDS).text for each in map(translator.submit, lines)])

    threads = [threading.Thread(target=call, daemon=True) for call in 3 * (translate, submit)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS)
    translator.close()
    assert found == 6 * [lines]
