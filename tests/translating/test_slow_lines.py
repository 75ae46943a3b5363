"""A line that takes long by itself is named while it does."""

from types import SimpleNamespace
from typing import Any

from nmt_cli.messages import logs
from nmt_cli.search.search import Sentence
from nmt_cli.translating.slow_lines import SlowLines


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def reports(monkeypatch, sentences_of, inside_at):
    """Return {second: message}; ``inside_at(second)`` are the sentences in the search."""
    found, clock = dict[int, str](), Clock()
    monkeypatch.setattr(logs, "info", lambda text: found.setdefault(round(clock.now - 100), text))
    slow = SlowLines(sentences_of, clock)
    for second in range(60):
        clock.now = 100.0 + second
        search: Any = SimpleNamespace(inside=lambda second=second: inside_at(second))
        slow.look(search)
    return found


def test_a_line_in_parts_is_named_after_10_seconds_by_itself_and_then_less_and_less_often(
    monkeypatch,
):
    own = [Sentence(range(5), 9), Sentence(range(7), 9), Sentence(range(3), 9)]
    other = Sentence(range(4), 9)
    found = reports(
        monkeypatch,
        {1_207: own, 1_208: [other]},
        lambda second: [*own[second // 20 :], *([other] if second < 5 else [])],
    )
    assert found == {
        15: "line 1,207 with 15 pieces in 3 parts takes long, 10 s by itself so far.",
        25: "line 1,207 with 15 pieces in 3 parts takes long, 20 s by itself so far.",
        45: "line 1,207 with 15 pieces in 3 parts takes long, 40 s by itself so far.",
    }


def test_lines_that_are_searched_together_are_not_named(monkeypatch):
    two = [Sentence(range(5), 9), Sentence(range(7), 9)]
    assert reports(monkeypatch, {1: two[:1], 2: two[1:]}, lambda second: two) == {}


def test_each_line_has_its_own_time_and_samples_are_no_parts(monkeypatch):
    first = Sentence(range(5), 9)
    samples = [Sentence(range(6), 9), Sentence(range(6), 9)]
    found = reports(
        monkeypatch,
        {3: [first], 4: samples},
        lambda second: [first] if second < 9 else samples if second < 30 else [],
    )
    assert found[19] == "line 4 with 6 pieces takes long, 10 s by itself so far."
    assert list(found) == [19, 29]
