"""A line that takes long by itself is named while it does."""

from nmt_cli.search.sentences import Sentence
from nmt_cli.translating.answers import LineJob
from nmt_cli.translating.continuous_search import SlowLines
from nmt_cli.translating.over_long import Part
from nmt_cli.translating.wanted_output import Wanted


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def job_of(line, *lengths, samples=1):
    parts = [Part(range(length), "", "") for length in lengths]
    sentences = [Sentence(part.tokens, 9) for part in parts for _ in range(samples)]
    return LineJob(Wanted(line=line), parts=parts, sentences=sentences)


def reports(inside_at):
    """Return {second: message}; ``inside_at(second)`` are the sentences in the search."""
    found, clock = dict[int, str](), Clock()

    def report(job, what):
        found.setdefault(round(clock.now - 100), f"line {job.wanted.line:,} {what}")

    slow = SlowLines(report, clock)
    for second in range(60):
        clock.now = 100.0 + second
        slow.look(ticket for ticket, _ in inside_at(second))
    return found


def test_a_line_in_parts_is_named_after_10_seconds_by_itself_and_then_less_and_less_often():
    own, other = job_of(1_207, 5, 5, 5).ticketed(), job_of(1_208, 4).ticketed()
    outcomes = own[0][0][0].outcomes

    def inside(second):
        if second in (20, 40):  # a part is done, and the next is not in the search yet
            outcomes[second // 20 - 1] = ()
            return []
        return [*own[second // 20 :], *(other if second < 5 else [])]

    start = "line 1,207 with 15 pieces in 3 parts takes long,"
    assert reports(inside) == {
        15: f"{start} 10 s by itself so far; parts done: 0.",
        25: f"{start} 20 s by itself so far; parts done: 1.",
        45: f"{start} 40 s by itself so far; parts done: 2.",
    }


def test_lines_that_are_searched_together_are_not_named():
    two = [*job_of(1, 5).ticketed(), *job_of(2, 7).ticketed()]
    assert reports(lambda second: two) == {}


def test_each_line_has_its_own_time_and_samples_are_no_parts():
    first, samples = job_of(3, 5).ticketed(), job_of(4, 6, samples=2).ticketed()
    found = reports(
        lambda second: first if second < 9 else samples if second < 30 else [],
    )
    assert found[19] == "line 4 with 6 pieces takes long, 10 s by itself so far."
    assert list(found) == [19, 29]
