"""A worker of a service: its lines join one search, and are answered after each step."""

import gc
import random
import threading
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing import Pipe
from typing import Any

import pytest
import torch

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.search.sentences import Sentence
from nmt_cli.translating.encoding.sentence_builder import MOST_KEPT
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.outputs.line_job import LineJob
from nmt_cli.translating.scheduling import continuous_search
from nmt_cli.translating.scheduling.continuous_search import _Order
from nmt_cli.translating.scheduling.line_processor import LineProcessor
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers import worker_main
from nmt_cli.translating.workers.messages import (
    NO_LINE,
    AttentionOf,
    OneOfMany,
    Ready,
    Shared,
    TextOf,
    WorkerBugError,
)
from nmt_cli.translating.workers.worker_main import WorkerLines, attention_page, work
from tests.fake_models import copying
from tests.serving.conftest import REVERSING
from tests.translating.test_submitted_lines import SECONDS, Gate, texts_of

PAGE = AttentionOf("a", "b", "model", "en", "de")


@contextmanager
def worker_of(translator):
    """Run a worker in a thread; the value is the command's end of the connection to it."""
    ours, theirs = Pipe()
    run = partial(work, theirs, lambda: translator, of_service=True)
    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        assert isinstance(ours.recv(), Ready)
        yield ours
    finally:
        ours.close()
    worker.join(SECONDS)
    assert not worker.is_alive()


def message_from(connection):
    assert connection.poll(SECONDS)
    return connection.recv()


def answers_from(connection, number):
    """Return so many answers, in their order."""
    found = list[Any]()
    while len(found) < number:
        found += message_from(connection)
    return found


def gated(monkeypatch, step):
    """Return a translator that waits in a step, its gate, and the texts in each step so far."""
    gate, steps = Gate(), []

    def fails(sources):
        steps.append(texts_of(sources))
        if len(steps) == step:
            gate(sources)

    return copying(monkeypatch, fails)[0], gate, steps


def test_a_line_joins_while_another_one_is_translated(monkeypatch):
    translator, gate, _ = gated(monkeypatch, step=3)
    with worker_of(translator) as connection:
        connection.send([(1, Request("a line of many pieces"))])
        assert gate.reached.wait(SECONDS)
        connection.send([(2, Request("b"))])
        gate.opened.set()
        found = answers_from(connection, 2)
    assert [(n, each.text) for n, each in found] == [(2, "b"), (1, "a line of many pieces")]


def test_the_lines_that_a_step_ends_are_answered_together(monkeypatch):
    with worker_of(copying(monkeypatch)[0]) as connection:
        connection.send([(1, Request("a")), (2, Request("b")), (3, Request("longer"))])
        messages = [message_from(connection) for _ in range(2)]
    found = [[(n, each.text) for n, each in message] for message in messages]
    assert found == [[(1, "a"), (2, "b")], [(3, "longer")]]


def test_a_blank_line_is_answered(monkeypatch):
    with worker_of(copying(monkeypatch)[0]) as connection:
        connection.send([(7, Request(" "))])
        assert answers_from(connection, 1) == [(7, Translation())]


def test_a_withdrawn_line_leaves_the_search(monkeypatch):
    translator, gate, steps = gated(monkeypatch, step=3)
    with worker_of(translator) as connection:
        connection.send([(1, Request("a line of many pieces"))])
        assert gate.reached.wait(SECONDS)
        connection.send([(1, None), (2, Request("never")), (3, Request("b")), (2, None)])
        gate.opened.set()
        *confirmed, (number, translation) = answers_from(connection, 3)
        assert confirmed == [(1, None), (2, None)]
        assert (number, translation.text) == (3, "b")
        assert not connection.poll()
    assert len(steps) == 4


def test_a_line_is_known_to_be_one_of_many_until_it_is_answered_or_withdrawn(monkeypatch):
    ours, theirs = Pipe()
    lines = WorkerLines(theirs, copying(monkeypatch)[0], is_text=False)
    numbers = range(1, 6)
    shared = (-2, Shared(Request("", banned=["x"])))
    ours.send([shared, *((n, OneOfMany(Request("a"))) for n in (1, 3)), (4, Request("a"))])
    ours.send([(2, OneOfMany(TextOf(-2, "a"))), (5, TextOf(-2, "a"))])
    assert lines.wait()
    assert [n for n in numbers if lines.is_one_of_many(n)] == [1, 2, 3]
    assert [lines.take() is not None for _ in (1, 2)] == [True, True]
    lines.answer(1, Translation("a"))
    ours.send([(2, None), (3, None)])
    lines.take_withdrawn([1, 3])
    assert not any(map(lines.is_one_of_many, numbers))


def test_what_lines_share_is_not_kept_when_it_is_withdrawn(monkeypatch):
    def glossaries():
        gc.collect()
        return [each for each in gc.get_objects() if isinstance(each, Glossary)]

    before = len(glossaries())
    with worker_of(copying(monkeypatch)[0]) as connection:
        for number in range(1, 4 * MOST_KEPT):
            shared = Request("", glossary={f"word {number}": ["a"], "b": ["a"]})
            connection.send([(-number, Shared(shared)), (number, TextOf(-number, "b"))])
            ((_, translation),) = answers_from(connection, 1)
            assert "a" in translation.text
            connection.send([(-number, None)])
            assert answers_from(connection, 1) == [(-number, None)]
        assert len(glossaries()) <= before + MOST_KEPT


def test_a_page_neither_waits_for_lines_nor_keeps_them_from_the_search(monkeypatch):
    translator, gate, _ = gated(monkeypatch, step=1)
    monkeypatch.setattr(worker_main, "attention_page", lambda _, wanted: Translation(wanted.model))
    with worker_of(translator) as connection:
        connection.send([(1, Request("a line of many pieces"))])
        assert gate.reached.wait(SECONDS)
        connection.send([(2, PAGE), (3, Request("c")), (4, PAGE), (5, PAGE), (5, None)])
        gate.opened.set()
        found = answers_from(connection, 5)
        found.remove((5, None))
        texts = {2: "model", 3: "c", 4: "model", 1: "a line of many pieces"}
        assert {n: each.text for n, each in found} == texts
        assert (found[0][0], found[-1][0]) == (2, 1)
        connection.send([(6, PAGE)])
        assert [(n, each.text) for n, each in answers_from(connection, 1)] == [(6, "model")]


def test_pages_of_the_library_are_drawn_beside_the_search(monkeypatch):
    """They are those that are drawn while nothing is searched."""
    translator = Translator.load(REVERSING, device="cpu", precision="fp32")
    translator.may_be_shared or pytest.skip("the library could not be built")
    alone = attention_page(translator, PAGE)
    driver, beside = translator._engine.driver, list[int]()

    def watched(each, wanted):
        until = time.monotonic() + 5  # on a busy machine all lines may be searched before this
        while not (driver._inside or beside) and time.monotonic() < until:
            time.sleep(0)  # until the first line is searched
        beside.append(len(driver._inside))
        return attention_page(each, wanted)

    monkeypatch.setattr(worker_main, "attention_page", watched)
    line = " ".join(["ant bee cat dog eel fox gnu hen"] * 4)
    with worker_of(translator) as connection:
        connection.send([(1, Request(line))])
        assert answers_from(connection, 1)[0][1].text
        connection.send([(number, PAGE) for number in range(9, 13)])
        connection.send([(number, Request(line)) for number in range(1, 9)])
        found = dict(answers_from(connection, 12))
    assert [found[number] for number in range(9, 13)] == [alone] * 4
    assert len({found[number].text for number in range(1, 9)}) == 1


def test_a_withdrawal_is_confirmed_while_lines_are_translated(monkeypatch):
    translator, gate, _ = gated(monkeypatch, step=2)
    with worker_of(translator) as connection:
        connection.send([(1, Request("a line of many pieces"))])
        assert gate.reached.wait(SECONDS)
        connection.send([(NO_LINE, None)])
        gate.opened.set()
        found = answers_from(connection, 2)
    assert (found[0], found[1][0]) == ((NO_LINE, None), 1)


def test_a_bug_is_the_answer_of_the_line_or_the_page_that_meets_it(monkeypatch):
    def fails(sources):
        if "bad" in texts_of(sources):
            raise TypeError("a bug of ours")

    def attention_page(translator, wanted):
        raise ValueError("another bug")

    monkeypatch.setattr(worker_main, "attention_page", attention_page)
    with worker_of(copying(monkeypatch, fails)[0]) as connection:
        connection.send([(1, Request("bad")), (2, Request("good")), (3, PAGE)])
        found = dict(answers_from(connection, 3))
    assert found[2].text == "good"
    for number, error in ((1, "TypeError: a bug of ours"), (3, "ValueError: another bug")):
        assert isinstance(found[number], WorkerBugError)
        assert error in str(found[number])


def test_a_worker_whose_device_has_failed_ends_without_an_answer(monkeypatch):
    def fails(sources):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    ours, theirs = Pipe()
    ours.send([(1, Request("a line"))])
    with pytest.raises(torch.AcceleratorError):
        work(theirs, lambda: copying(monkeypatch, fails)[0], of_service=True)
    theirs.close()
    assert isinstance(ours.recv(), Ready)
    with pytest.raises(EOFError):
        ours.recv()


def test_an_idle_worker_frees_its_caches_and_goes_on(monkeypatch):
    monkeypatch.setattr(worker_main, "IDLE_SECONDS", 0.0)
    translator, _ = copying(monkeypatch)
    freed = threading.Event()
    monkeypatch.setattr(translator._engine, "is_compiled", True)  # else each search frees them
    monkeypatch.setattr(translator._engine, "free_caches", freed.set)
    with worker_of(translator) as connection:
        for text in ("a line", "another one"):
            assert freed.wait(SECONDS)
            freed.clear()
            connection.send([(1, Request(text))])
            assert answers_from(connection, 1)[0][1].text == text


def test_a_worker_whose_command_has_ended_ends_after_the_step(monkeypatch):
    translator, gate, steps = gated(monkeypatch, step=2)
    pages: list[Any] = []
    monkeypatch.setattr(worker_main, "attention_page", lambda *asked: pages.append(asked))
    with worker_of(translator) as connection:
        connection.send([(1, Request("a line of many pieces")), (3, Request("c"))])
        assert gate.reached.wait(SECONDS)
        connection.send([(2, PAGE)])
        connection.close()
        gate.opened.set()
    assert (len(steps), pages) == (2, [])


LARGE = Request("a large line")


def held(monkeypatch, name):
    """Let a method of LineProcessor wait with large lines; return what was begun, and the gate."""
    monkeypatch.setattr(continuous_search, "MOST_BETWEEN_STEPS", 10)
    whole, begun, gate = getattr(LineProcessor, name), list[str](), Gate()

    def holding(jobs, line):
        text = line.text if isinstance(line, Request) else "".join(p.text for p in line.parts)
        if "large" in text:
            begun.append(text.strip())
            gate(text)
        return whole(jobs, line)

    monkeypatch.setattr(LineProcessor, name, holding)
    return begun, gate


@pytest.mark.parametrize("name", ["prepare", "answer"])
def test_short_lines_are_answered_while_a_large_one_is_prepared_or_answered(monkeypatch, name):
    _, gate = held(monkeypatch, name)
    with worker_of(copying(monkeypatch)[0]) as connection:
        connection.send([(1, LARGE)])
        assert gate.reached.wait(SECONDS)
        for number in (2, 3):
            connection.send([(number, Request("a"))])
            assert [(n, each.text) for n, each in answers_from(connection, 1)] == [(number, "a")]
        gate.opened.set()
        ((number, found),) = answers_from(connection, 1)
    assert (number, found.text, found.error) == (1, LARGE.text, None)


def test_a_large_line_that_is_withdrawn_costs_no_further_work(monkeypatch):
    begun, gate = held(monkeypatch, "prepare")
    with worker_of(copying(monkeypatch)[0]) as connection:
        others = [(n, LARGE._replace(text=f"{n} {LARGE.text}")) for n in (2, 3)]
        connection.send([(1, LARGE), *others])
        assert gate.reached.wait(SECONDS)
        connection.send([(1, None), (2, None)])
        assert sorted(answers_from(connection, 2)) == [(1, None), (2, None)]
        time.sleep(0.2)  # the search notices it after the worker has confirmed it
        gate.opened.set()
        ((number, found),) = answers_from(connection, 1)
        assert (number, found.text) == (3, f"3 {LARGE.text}")
        assert not connection.poll()
    assert [text[:3] for text in begun] == ["a l", "3 a"]


def test_a_bug_while_a_large_line_is_prepared_is_its_answer(monkeypatch):
    monkeypatch.setattr(continuous_search, "MOST_BETWEEN_STEPS", 10)
    monkeypatch.setattr(LineProcessor, "prepare", lambda _, line: 1 / 0)
    with worker_of(copying(monkeypatch)[0]) as connection:
        connection.send([(1, LARGE)])
        ((_, found),) = answers_from(connection, 1)
    assert isinstance(found, WorkerBugError)
    assert "ZeroDivisionError" in str(found)


def test_large_lines_have_the_translations_of_a_text(monkeypatch):
    monkeypatch.setattr(continuous_search, "MOST_BETWEEN_STEPS", 100)
    words = ["ant {bee}", "cat", "dog.", "<b>eel</b> fox", "<br>", "gnu &amp; hen", "</p><p>"]
    chance = random.Random(1)
    texts = [" ".join(chance.choices(words, k=40)) for _ in range(4)]
    plain, *others = [Request(text, n_best=2, protect=["placeholders"]) for text in texts]
    page, xml, other = (each._replace(markup="html") for each in others)
    lines = [page, plain, xml._replace(markup="xml"), other]
    assert min(line.size for line in lines) > 100
    lines = [line._replace(line=number) for number, line in enumerate(lines, 1)]
    translator = Translator.load(REVERSING, device="cpu", precision="fp32")
    expected = dict(enumerate(translator.translate(lines), 1))
    with worker_of(translator) as connection:
        connection.send(list(enumerate(lines, 1)))
        found = dict(answers_from(connection, len(lines)))
    assert found == expected
    assert expected[1].text
    assert "it is not XML" in (expected[3].error or "")


def test_a_line_of_many_sentences_leaves_at_once():
    """Each of its sentences was looked for in a list of them: 20,000 took 10 seconds."""
    jobs = [LineJob(sentences=[Sentence([1], 1)] * 20_000) for _ in range(3)]
    lines = deque(job.ticketed() for job in jobs)
    order = _Order(lambda: lines.popleft() if lines else [], lambda _: 8, 8)
    taken = list(islice(iter(order.take, None), 6))
    assert {ticket[0] for ticket, _ in taken} == set(jobs)
    before = time.process_time()
    order.remove({jobs[0], jobs[2]})
    assert time.process_time() - before < 2
    assert {ticket[0] for ticket, _ in iter(order.take, None)} == {jobs[1]}
