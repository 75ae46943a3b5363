"""The ways to translate on a GPU that is not there."""

import pytest

from tests.rehearsal.findings import (
    KNOWN_BESIDE_GRAPHS,
    blocks,
    findings_beside_graphs,
    num_kernels,
)

# Operations that launch a kernel, in a step of a model of one layer with beam 4.
GRAPH_BUDGET = 168
TRITON_BUDGET = 98  # with our kernels
OF_THE_TRIAL = {"search/graphed/kernel_check.py: drawn", "search/graphed/kernel_check.py: _why_not"}
PLAIN_BUDGET = 125
PLAIN_WAITS = 13  # and blocking copies, of a step


def test_steps_of_graphs_do_not_wait(rehearse):
    report = rehearse("translate")
    assert report.result == {"lines": 6, "errors": []}
    assert findings_beside_graphs(report) == KNOWN_BESIDE_GRAPHS
    recordings = report.between("recording begins", "recording ends")
    assert recordings
    assert 0.9 * GRAPH_BUDGET < max(map(num_kernels, recordings)) <= GRAPH_BUDGET


def test_our_kernels_take_the_place_of_many(rehearse):
    report = rehearse("translate", by_triton=True)
    report.events[:] = [each for each in report.events if each.where not in OF_THE_TRIAL]
    assert report.result == {"lines": 6, "errors": []}
    assert findings_beside_graphs(report) == KNOWN_BESIDE_GRAPHS
    recordings = report.between("recording begins", "recording ends")
    assert 0.9 * TRITON_BUDGET < max(map(num_kernels, recordings)) <= TRITON_BUDGET
    ours = {event.what for event in recordings[0] if "triton" in event.where}
    assert ours == {"_attend", "_best_entries"}


def test_recurrent_units_are_searched_in_graphs(rehearse):
    report = rehearse("translate", decoder="ssru")
    assert report.result == {"lines": 6, "errors": []}
    assert findings_beside_graphs(report) == KNOWN_BESIDE_GRAPHS
    marks = [event.what for event in report.events if event.kind == "mark"]
    assert "replay" in marks
    assert "step begins" not in marks


def test_a_plain_step_stays_within_its_budget(rehearse):
    report = rehearse("translate", kind="plain", precision="fp32")
    assert (report.illegal, report.error) == ([], None)
    assert report.result == {"lines": 6, "errors": []}
    steps = report.between("step begins", "step ends")
    assert steps
    for step in steps:
        assert num_kernels(step) <= PLAIN_BUDGET
        assert sum(map(blocks, step)) <= PLAIN_WAITS


@pytest.mark.parametrize(
    "kind", ["submit", "nucleus", "top k", "rules", "alignments", "ensemble", "rescoring"]
)
def test_every_way_translates(kind, rehearse):
    report = rehearse("translate", kind=kind, num_lines=4)
    assert (report.illegal, report.error) == ([], None)
    assert report.result == {"lines": 4, "errors": []}


def test_graphs_translate_the_lines_beside_one_with_a_phrase(rehearse):
    report = rehearse("translate", kind="a phrase", num_lines=4)
    assert (report.illegal, report.error) == ([], None)
    assert report.result == {"lines": 4, "errors": []}
    marks = [event.what for event in report.events if event.kind == "mark"]
    assert marks.index("replay") < marks.index("step begins")  # the line with the phrase comes last
    assert "replay" not in marks[marks.index("step begins") :]


def test_two_devices_share_a_text(rehearse):
    lines = [f"ant {word}" if word else "" for word in ("bee", "", "cat", "dog", "", "", "elk")]
    report = rehearse("share a text", lines=lines)
    assert (report.illegal, report.error) == ([], None)
    assert report.result["status"] == 0
    # What is invented depends on which worker gets a line, and may end at once.
    output = zip(lines, report.result["output"], strict=True)
    assert not any(found for line, found in output if not line)
    workers = report.result["workers"]
    assert sorted(worker["devices"] for worker in workers) == [["cuda:0"], ["cuda:1"]]
    assert [worker["illegal"] for worker in workers] == [[], []]
    assert sorted(line for worker in workers for line in worker["lines"]) == sorted(lines)
