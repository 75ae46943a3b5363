"""Sentences join and leave a search that goes on; it has as many slots as they need."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.search.driver import Driver
from nmt_cli.search.search import Search
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import Sentence
from tests.fake_models import EOS, TableModel
from tests.table_search import random_table, search, settings

BEAM = 3


class Counted(TableModel):
    def __init__(self, logits):
        super().__init__(logits)
        self.num_slots = list[int]()  # that took part in each step

    def step(self, state):
        self.num_slots.append(int(np.count_nonzero(state.positions)))
        return super().step(state)


class Line:
    """Sentences that wait for a search, which a test lets arrive, and the outcomes so far."""

    def __init__(self, logits, *, max_tokens=1000, chosen=None, finish=None):
        self.model, chosen = Counted(logits), chosen or settings(BEAM)
        self.driver = Driver[Any](
            lambda items, most: Search(self.model, len(items), chosen),
            SearchSize(max_tokens),
            lambda sentence: len(sentence.tokens),
            finish=finish,
        )
        self.waiting: deque[tuple[Any, Sentence]] = deque()
        self.outcomes: dict[Any, Any] = {}
        self.inside: list[Any] = []  # after the last step
        self.leaving: list[Any] = []  # without an outcome, after the next step
        self.is_urgent: Callable[[Any], bool] = lambda ticket: False

    def run(self, after_step=lambda: None):
        """Search until no sentence is left; ``after_step`` may add some."""

        def watch(inside):
            self.inside = list(inside)
            after_step()
            return self.leaving

        def take():
            return self.waiting.popleft() if self.waiting else None

        self.outcomes.update(self.driver.run(take, watch, is_urgent=self.is_urgent))


def counts_down(source, prefix):
    """Make an output of as many tokens as the first token of the source says."""
    row = torch.zeros(5)
    row[EOS if len(prefix) >= source[0] else 3] = 50.0
    return row


def lasting(num_tokens, length=1):
    """Return a sentence of ``length`` tokens whose output has ``num_tokens``."""
    return Sentence((num_tokens,) * length, 60)


@pytest.mark.parametrize("max_tokens", [1, 4, 11, 1000])
def test_sentences_find_the_same_whenever_they_join(max_tokens):
    chance = random.Random(max_tokens)
    table = random_table(7, end_bias=-1.0)
    chosen = settings(BEAM, n_best=2)._replace(token_scores=True)
    sentences = [
        Sentence(tuple(chance.choices(range(9), k=chance.choice([1, 1, 2, 5]))), 3 + n % 20)
        for n in range(40)
    ]
    line = Line(table, max_tokens=max_tokens, chosen=chosen)
    coming = deque(enumerate(sentences))

    def arrive():
        for _ in range(min(len(coming), chance.choice([0, 0, 1, 2, 9]))):
            line.waiting.append(coming.popleft())

    while coming:
        arrive()
        line.run(arrive)
    assert [line.outcomes[number] for number in range(40)] == search(table, sentences, chosen)


def test_the_slots_follow_the_number_of_sentences():
    line, steps = Line(counts_down), []
    line.waiting.append(("first", lasting(40)))

    def after_step():
        steps.append(list(line.inside))
        if len(steps) == 1:
            line.waiting.extend((number, lasting(3)) for number in range(10))

    line.run(after_step)
    assert line.model.num_rows[:2] == [BEAM, 12 * BEAM]  # one of four steps from 8 to 16
    assert line.model.num_started == [1, 10]  # encoded together
    assert [len(inside) for inside in steps[:6]] == [1, 11, 11, 1, 1, 1]
    assert line.model.num_rows[5] == BEAM
    assert list(line.outcomes) == [*range(10), "first"]


@pytest.mark.parametrize(("num_inside", "together"), [(1, 1), (4, 1), (5, 2), (12, 2), (100, 2)])
def test_newcomers_wait_for_each_other_the_longer_the_more_they_stop(num_inside, together):
    line, joined = Line(counts_down), list[int]()
    line.waiting.extend((number, lasting(40)) for number in range(num_inside))

    def after_step():  # one comes after each of the first steps
        joined.append(len(line.inside) - num_inside)
        if len(joined) <= together:
            line.waiting.append((f"newcomer {len(joined)}", lasting(5)))

    line.run(after_step)
    assert joined[: together + 1] == [0] * together + [together]
    assert line.model.num_started == [num_inside, together]
    assert len(line.outcomes) == num_inside + together


@pytest.mark.usefixtures("searched_by")
@pytest.mark.parametrize(("num_urgent", "num_ahead"), [(1, 8), (6, 3), (23, 0)])
def test_urgent_sentences_take_steps_between_those_of_all(num_urgent, num_ahead):
    line = Line(counts_down)
    line.is_urgent = lambda ticket: isinstance(ticket, str)
    line.waiting.extend((number, lasting(40)) for number in range(24))

    def after_step():
        if len(line.model.num_slots) == 2:  # joins at once, although steps of 24 are long
            line.waiting.extend((f"urgent {number}", lasting(12)) for number in range(num_urgent))

    line.run(after_step)
    num_all = 24 + num_urgent
    if line.model.c_library is None:  # torch computes all slots
        assert line.model.num_slots[2:14] == [num_all] * 12
        return
    steps = [*[num_urgent] * num_ahead, num_all]
    assert line.model.num_slots[:14] == [24, 24, *(12 * steps)[:12]]
    assert sum(number >= 24 for number in line.model.num_slots) == 40  # as without urgent ones
    assert list(line.outcomes)[:num_urgent] == [f"urgent {n}" for n in range(num_urgent)]


@pytest.mark.parametrize("num_others", [0, 24])
def test_urgent_sentences_wait_for_each_other_alone(num_others):
    line, joined = Line(counts_down), list[int]()
    line.is_urgent = lambda ticket: isinstance(ticket, str)
    line.waiting.extend((number, lasting(40)) for number in range(num_others))
    line.waiting.extend((f"urgent {number}", lasting(30)) for number in range(8))

    def after_step():  # one comes after each of the first steps
        joined.append(len(line.inside))
        if len(joined) <= 4:
            line.waiting.append((f"newcomer {len(joined)}", lasting(30)))

    line.run(after_step)
    first = num_others + 8
    assert joined[:5] == [first, first, first + 2, first + 2, first + 4]


class Completing:
    """Notes the sentences that are completed together, and after how many steps of ``line``."""

    def __init__(self):
        self.line: Any = None
        self.calls = list[tuple[int, list[int]]]()

    def needs(self, sentence):
        return len(sentence.tokens) > 1

    def complete(self, results, sentences):
        numbers = [len(sentence.tokens) for sentence in sentences]
        self.calls.append((len(self.line.model.num_slots), numbers))
        return results


def completing():
    finish = Completing()
    finish.line = Line(counts_down, max_tokens=10_000, finish=finish)
    return finish.line, finish.calls


def test_sentences_that_somebody_waits_for_are_completed_few_at_a_time():
    line, calls = completing()
    lengths = [100, 100, 100, 300, 2, 2, 2]
    line.waiting.extend((number, lasting(3, each)) for number, each in enumerate(lengths))
    line.waiting.append(("long", lasting(20)))
    line.run()
    assert [numbers for _, numbers in calls] == [[100, 100], [100], [300], [2, 2, 2]]
    assert [number for number, _ in calls] == [3, 4, 5, 6]  # a step of "long" before each
    assert list(line.outcomes) == [*range(7), "long"]


def test_sentences_are_completed_when_no_other_is_left(monkeypatch):
    line, calls = completing()
    drop = Search.drop_free_slots

    def checked(search):
        assert line.driver._inside, "it needs a slot that is not free"
        return drop(search)

    monkeypatch.setattr(Search, "drop_free_slots", checked)
    line.waiting.extend((number, lasting(3, 200)) for number in range(3))
    line.run()
    assert [numbers for _, numbers in calls] == [[200], [200], [200]]
    assert list(line.outcomes) == [0, 1, 2]
    assert {number for number, _ in calls} == {3}
    assert 0 not in line.model.num_rows


def test_urgent_sentences_are_completed_first_and_others_seldom_beside_them():
    line, calls = completing()
    line.is_urgent = lambda ticket: isinstance(ticket, str)
    line.waiting.extend((number, lasting(3, 200)) for number in range(3))
    line.waiting.append(("needing", lasting(3, 9)))
    line.waiting.append(("other", lasting(20)))
    line.run()
    assert calls == [(3, [9]), (8, [200]), (16, [200]), (20, [200])]
    assert next(iter(line.outcomes)) == "needing"


def test_a_sentence_that_leaves_is_not_completed():
    line, calls = completing()
    line.waiting.extend((number, lasting(3, 200)) for number in range(3))
    line.waiting.append(("long", lasting(20)))

    def after_step():
        line.leaving = [1] if calls else []

    line.run(after_step)
    assert len(calls) == 2
    assert list(line.outcomes) == [0, 2, "long"]


def test_newcomers_that_fill_the_room_wait_for_no_others():
    line, steps = Line(counts_down, max_tokens=40), list[int]()
    line.waiting.extend((number, lasting(40 if number < 37 else 2)) for number in range(60))
    line.run(lambda: steps.append(len(line.inside)))
    # Three slots of 40 are free after each second step, and are filled before the next one.
    assert steps[:6] == [40, 37, 40, 37, 40, 37]


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_the_sentences_of_a_text_that_wait_are_prepared_together(monkeypatch, share):
    line, encoded = Line(counts_down, max_tokens=32), list[int]()
    monkeypatch.setattr(line.driver, "_prepared_share", share)
    encode = line.model.encode

    def counting(sentences, start_mark):
        encoded.append(len(sentences))
        return encode(sentences, start_mark)

    monkeypatch.setattr(line.model, "encode", counting)
    waiting = deque((number, Sentence((5 + number % 7, number), 60)) for number in range(100))
    take = lambda: waiting.popleft() if waiting else None  # noqa: E731
    assert len(dict(line.driver.run(take, is_text=True))) == 100
    assert sum(encoded) == 100
    assert max(encoded) >= 16  # as many as the search has slots
    if share == 1.0:
        assert len(encoded) < 10 < len(line.model.num_started)
    else:
        assert sorted(encoded)[-2] <= 2 * share * 16  # all but those that begin the search


def test_a_slot_is_kept_for_a_newcomer_that_waits():
    line, left = Line(counts_down), list[int]()
    line.waiting.extend((number, lasting(20 if number else 1)) for number in range(8))

    def after_step():
        left.append(len(line.inside))
        if left.count(7) == 1 and left[-1] == 7:
            line.waiting.append(("newcomer", lasting(9)))

    line.run(after_step)
    assert left[:4] == [7, 7, 8, 8]
    assert line.model.num_rows[:10] == [8 * BEAM] * 10


def test_a_newcomer_that_leaves_while_it_waits_stops_nobody():
    line, steps = Line(counts_down), []
    line.waiting.extend((number, lasting(3 + 20 * (number < 2))) for number in range(8))

    def after_step():
        steps.append(list(line.inside))
        if len(steps) == 1:
            line.waiting.append(("newcomer", lasting(9)))
        line.leaving = ["newcomer"] if len(steps) == 2 else []

    line.run(after_step)
    assert line.model.num_started == [8]
    assert line.model.num_rows[-1] == 2 * BEAM  # the slots of the others were dropped


def test_a_long_sentence_waits_until_few_enough_are_left():
    line = Line(counts_down, max_tokens=100)
    line.waiting.extend((number, lasting(3 + number, length=5)) for number in range(8))
    line.waiting.append(("long", lasting(2, length=50)))
    together: list[list[Any]] = []
    line.run(lambda: together.append(line.inside))
    joined = next(step for step, inside in enumerate(together) if "long" in inside)
    assert [len(inside) for inside in together[joined - 2 : joined]] == [2, 1]
    assert all(len(inside) <= 2 for inside in together[joined:])  # only two fit with it
    assert 2 * BEAM in line.model.num_rows
    assert len(line.outcomes) == 9


def test_a_long_sentence_that_has_left_does_not_limit_the_others_for_ever():
    line, together = Line(counts_down, max_tokens=100), []
    line.waiting.extend([("long", lasting(1, length=50)), (0, lasting(4, length=5))])
    line.waiting.append((1, lasting(9, length=5)))
    line.waiting.extend((number, lasting(1, length=5)) for number in range(2, 23))
    line.run(lambda: together.append(set(line.inside)))
    for inside in together:
        assert not inside & {"long", 0, 1} or not inside & set(range(2, 23))
    assert max(line.model.num_rows) == 20 * BEAM  # the next search begins with empty caches
    assert len(line.outcomes) == 24


def test_a_full_search_is_refilled_by_several_at_a_time():
    line = Line(counts_down, max_tokens=64)
    line.waiting.extend((number, lasting(5 + number % 13)) for number in range(300))
    line.run()
    model = line.model
    assert max(model.num_rows) == 64 * BEAM
    assert 300 / len(model.num_started) > 3
    needed = sum(BEAM * (6 + number % 13) for number in range(300))
    assert needed / sum(model.num_rows) > 0.85


def test_a_run_that_is_stopped_leaves_nothing_for_the_next_one():
    line = Line(counts_down)
    line.waiting.append(("lost", lasting(9)))
    take = lambda: line.waiting.popleft() if line.waiting else None  # noqa: E731
    assert list(line.driver.run(take, list)) == []
    line.waiting.append(("kept", lasting(0)))
    line.run()
    assert list(line.outcomes) == ["kept"]


def test_a_sentence_that_leaves_frees_its_slot_for_the_next_step():
    line, steps = Line(counts_down, max_tokens=2), []
    line.waiting.extend((name, lasting(20)) for name in ("first", "second", "third"))

    def after_step():
        steps.append(list(line.inside))
        line.leaving = ["second"] if len(steps) == 3 else []

    line.run(after_step)
    assert steps[:3] == [["first", "second"]] * 3
    assert steps[3:5] == [["first", "third"]] * 2
    assert list(line.outcomes) == ["first", "third"]
    assert sum(line.model.num_rows) == BEAM * (20 + 3 + 20)  # the first token needs no step


def test_sentences_leave_without_being_shown():
    """To show the ticket of a line of 24,900 sentences took half a second."""
    shown = list[str]()

    class Ticket(str):
        def __repr__(self):
            shown.append(self)
            return ""

    line, names = Line(counts_down, max_tokens=2), list(map(Ticket, "abcd"))
    line.waiting.extend((name, lasting(9)) for name in names)
    line.leaving = names[1:3]
    line.run()
    assert (list(map(str, line.outcomes)), len(shown)) == (["a", "d"], 0)


def test_a_sentence_may_leave_while_it_waits_for_room():
    line = Line(counts_down, max_tokens=1)
    line.waiting.extend((name, lasting(3)) for name in ("first", "second", "third"))
    line.leaving = ["second"]
    line.run()
    assert list(line.outcomes) == ["first", "third"]
    assert line.model.num_started == [1, 1]


def test_a_sentence_that_the_search_does_not_accept_waits_for_the_next_search():
    class Without(Search):
        def accepts(self, sentence):
            return not sentence.rule_data

    line, starts = Line(counts_down), list[int]()
    later = [(1, lasting(2)._replace(rule_data={"no_rule": None})), (2, lasting(3))]

    def arrive():
        line.waiting.extend(later)
        later.clear()

    def start(items, most):
        kind = Search if starts else Without
        starts.append(len(items))
        return kind(line.model, len(items), settings(BEAM))

    line.driver._start = start
    line.waiting.append((0, lasting(4)))
    line.run(arrive)
    assert starts == [1, 2]
    assert list(line.outcomes) == [0, 1, 2]
