"""The real training on a GPU that is not there."""

import itertools
import re
import sys
from collections import Counter

import pytest

from tests.rehearsal.findings import (
    KNOWN_IN_STEP,
    STEP_BUDGET,
    blocks,
    findings,
    num_launches,
)
from tests.rehearsal.scenarios import STEPS

VARLEN, PADDED = "model/attention.py: attend_varlen", "model/attention.py: _attend_padded"
OURS = "model/triton_kernels/attention.py: _launch"
NUM_TENSORS = 8  # of a micro-batch
OTHER_MODEL = {
    **{"attention_dropout": 0.1, "d_v": 16, "norm": "pre"},
    **{"positions": "learned", "tied_embeddings": "none", "output_bias": True},
}


def kept(*steps):
    return [f"step-{step:08}" for step in steps]


def batches_sent(steps):
    """Return how many batches are sent in each step; a batch has two micro-batches."""
    copies = [[each for each in step if each.kind == "copy" and each.is_ahead] for step in steps]
    of_batch = ("to the device", "hardware/device.py: sent_together", "pinned")
    assert {(each.what, each.where, each.how) for step in copies for each in step} == {of_batch}
    return [len(of_step) for of_step in copies]


def ways_of_attention(step):
    return {event.where for event in step} & {VARLEN, PADDED, OURS}


def types_of_products(report):
    steps = report.between("step begins", "step ends")
    return {event.how for step in steps for event in step if event.what in ("mm", "addmm", "bmm")}


def test_the_cpu_waits_for_no_more_than_it_is_known_to(rehearse):
    report = rehearse("train")
    assert findings(report) == KNOWN_IN_STEP
    assert report.result == {"step": STEPS, "max_tokens": 80, "checkpoints": kept(STEPS)}
    steps = report.between("step begins", "step ends")
    assert len(steps) == STEPS
    assert all(num_launches(step) > 0.95 * STEP_BUDGET for step in steps)  # it is a close limit
    assert types_of_products(report) == {"bfloat16"}
    assert batches_sent(steps) == [STEPS, 0]  # none is read ahead that is not trained
    assert any(event.what == "replay" for event in report.events)  # graphs, in the validation


def test_a_micro_batch_of_base_is_one_launch(rehearse):
    """The others round the weights, and copy its eight tensors to those of the graph."""
    first, again = rehearse("compute base").between("micro-batch begins", "micro-batch ends")
    assert sum(event.what == "replay" for event in again) == 1
    assert num_launches(again) + NUM_TENSORS - 1 < 20  # one operation copies all
    assert not any(map(blocks, again))
    in_graph = [event for event in first if event.is_recorded]
    assert len(in_graph) == num_launches(first) - num_launches(again) - NUM_TENSORS + 2
    assert 500 < len(in_graph) <= 600


def test_a_graph_of_base_by_our_kernels_has_two_fifths_fewer_than_were_launched(rehearse):
    """A micro-batch of base was 724 launches before there were graphs and kernels of ours."""
    report = rehearse("compute base", by_triton=True)
    first, again = report.between("micro-batch begins", "micro-batch ends")
    assert num_launches(again) + NUM_TENSORS - 1 < 20
    in_graph = [event for event in first if event.is_recorded]
    begin = next(i for i, event in enumerate(in_graph) if "loss.py" in event.where)
    # They are added up, and then multiplied by the share of a token.
    end = max(i for i, event in enumerate(in_graph) if "loss.py: values" in event.where) + 2
    parts = {"forward": in_graph[:begin], "loss": in_graph[begin:end], "backward": in_graph[end:]}
    for part, events in parts.items():
        for (where, what), number in Counter((e.where, e.what) for e in events).most_common():
            sys.stdout.write(f"{part:8}  {number:3}  {what:28}  {where}\n")
    found = {part: len(events) for part, events in parts.items()}
    encoder, decoder = Counter(forward=7, backward=15), Counter(forward=12, backward=25)
    assert found == {
        "forward": 6 * (encoder["forward"] + decoder["forward"]) + 11,
        "loss": 27,
        "backward": 6 * (encoder["backward"] + decoder["backward"]) + 17,
    }
    assert len(in_graph) < 724 * 3 // 5


def test_recurrent_units_do_not_let_the_cpu_wait(rehearse):
    changes = {"model": {"decoder": "ssru"}}
    report = rehearse("train", changes=changes, only_a_step=True)
    assert not findings(report, budget=2 * STEP_BUDGET)
    steps = report.between("step begins", "step ends")
    assert any(event.what == "roll" for event in steps[0])


@pytest.mark.parametrize("changes", [{}, {"d_k": 5}])
def test_attention_within_a_window_does_not_let_the_cpu_wait(changes, rehearse):
    model = {"attention_window": 2, **changes}
    report = rehearse("train", changes={"model": model}, only_a_step=True)
    steps = report.between("step begins", "step ends")
    assert not any(map(blocks, itertools.chain(*steps)))
    if not changes:  # else padded groups are sent
        assert not findings(report, budget=2 * STEP_BUDGET)


def test_a_step_of_muon_does_not_let_the_cpu_wait(rehearse):
    training = {"optimizer": "muon", "weight_decay": 0.1}
    report = rehearse("train", changes={"training": training}, only_a_step=True)
    assert not findings(report, budget=2 * STEP_BUDGET)
    steps = report.between("step begins", "step ends")
    assert {e.how for step in steps for e in step if e.what == "baddbmm"} == {"bfloat16"}


def test_another_model_attends_in_padded_groups_without_a_wait(rehearse):
    """Varlen attention does not suit it."""
    report = rehearse("train", changes={"model": OTHER_MODEL}, only_a_step=True)
    assert (report.illegal, report.error) == ([], None)
    steps = report.between("step begins", "step ends")
    assert batches_sent(steps) == [STEPS]
    assert not any(map(blocks, itertools.chain(*steps)))
    assert {way for step in steps for way in ways_of_attention(step)} == {PADDED}


def test_a_graph_of_our_kernels_has_fewer_and_needs_no_waiting(rehearse):
    plain = rehearse("train", only_a_step=True)
    report = rehearse("train", only_a_step=True, by_triton=True)
    assert findings(report) == findings(plain) == set()
    step, plain_step = (each.between("step begins", "step ends")[0] for each in (report, plain))
    recorded, plainly = (sum(event.is_recorded for event in each) for each in (step, plain_step))
    assert 0 < recorded < 0.88 * plainly
    ours = {event.where.partition(":")[0] for event in step if "triton" in event.where}
    names = ("attention", "residual", "relu", "cross_entropy", "sums")
    assert ours == {f"model/triton_kernels/{name}.py" for name in names}


def test_a_guided_head_needs_no_waiting(rehearse):
    report = rehearse("train", is_guided=True, only_a_step=True)
    assert not findings(report, budget=2 * STEP_BUDGET)
    steps = report.between("step begins", "step ends")
    assert batches_sent(steps) == [STEPS]
    assert any("guided_alignment.py" in event.where for step in steps for event in step)
    assert {way for step in steps for way in ways_of_attention(step)} == {VARLEN}


def test_the_faster_kernels_are_measured_once_in_a_run(rehearse):
    """The clock is that of the kernels which the device has done."""
    fast, slow = {VARLEN: 1e-3, OURS: 1.0}, {VARLEN: 1.0, OURS: 1e-3}
    report = rehearse("choose kernels", costs=[fast, slow, slow], forgets=2)
    assert findings(report, budget=2 * STEP_BUDGET) == KNOWN_IN_STEP
    assert report.result["kernels"] == ["torch", None, "ours"]
    assert report.result["cuda_graphs"] == [True, None, True]
    used = [ways_of_attention(step) for step in report.between("step begins", "step ends")]
    assert used == [{VARLEN}, {VARLEN}, {OURS}]
    measured = [line for line in report.result["lines"] if line.startswith("Gradients")]
    # One attention of the encoder, two of the decoder, and as many in the backward pass by ours.
    assert measured == [
        "Gradients are computed by torch's kernels: the gradient of a micro-batch of this text "
        "takes 3.0 ms, by our kernels in Triton 6000.0 ms.",
        "Gradients are computed by our kernels in Triton: the gradient of a micro-batch of this "
        "text takes 6.0 ms, by torch's kernels 3000.0 ms.",
    ]
    tried = [line for line in report.result["lines"] if line.startswith("Our kernels")]
    assert len(tried) == 2


def test_deterministic_training_takes_torchs_kernels_without_measuring(rehearse):
    slow = {VARLEN: 1.0, OURS: 1e-6}
    report = rehearse("choose kernels", costs=[slow], is_deterministic=True)
    assert report.result == {"lines": [], "kernels": ["torch"], "cuda_graphs": [True]}


def test_a_graph_that_cannot_be_recorded_ends_with_its_cause_and_training_goes_on_without(rehearse):
    report = rehearse("choose kernels", costs=[{}, {}], cannot_record=1, is_deterministic=True)
    assert report.result == {
        "lines": [
            "a CUDA graph could not be recorded (RuntimeError: operation not permitted when stream "
            "is capturing); give --no-cuda-graphs, and the kernels are launched one by one."
        ],
        "kernels": ["torch", "torch"],
        "cuda_graphs": [False, False],
    }


def test_products_of_fp32_stay_in_fp32(rehearse):
    report = rehearse("train", precision="fp32", only_a_step=True)
    assert (report.illegal, report.error) == ([], None)
    assert types_of_products(report) == {"float32"}


def test_a_resumed_training_goes_on_after_a_full_memory(rehearse):
    report = rehearse("train", resumes=True, changes={"validation": {"bleu": "off"}})
    assert (report.illegal, report.error) == ([], None)
    assert report.result == {
        "step": STEPS + 2,
        "max_tokens": 31,  # as long as the longest sentence; 80 before
        "checkpoints": kept(STEPS, STEPS + 2),
    }


@pytest.mark.parametrize("exchange", [pytest.param("fp32", marks=pytest.mark.slow), "bf16"])
def test_ranks_exchange_gradients_on_the_device_without_a_wait(exchange, rehearse):
    """The gradient is sent behind the graph that computes it."""
    changes = {"validation": {"bleu": "off"}}
    report = rehearse("train", ranks=2, exchange=exchange, changes=changes)
    assert findings(report, budget=STEP_BUDGET + 40) == KNOWN_IN_STEP
    steps = report.between("step begins", "step ends")
    assert len(steps) == STEPS
    for step in steps:
        marks = [event.what for event in step if event.kind == "mark"]
        sent = [what for what in marks if what.startswith("collective")]
        assert sent == ["collective on cuda"] * (1 + (exchange == "bf16"))  # and figures in fp32


def test_a_rank_that_dies_in_an_exchange_is_noticed_and_the_step_before_is_saved(rehearse):
    report = rehearse("lose a rank", step=3)
    assert (report.illegal, report.error) == ([], None)
    assert "lost another rank and ends: gradients were not exchanged" in report.result["error"]
    assert report.result["counts"] == (2, 2)
    assert report.result["checkpoints"] == kept(2)


def test_make_gpu_reads_figures_as_late_as_training_and_times_each_way(rehearse):
    report = rehearse("measure")
    assert (report.illegal, report.error) == ([], None)
    steps = report.between("step begins", "step ends")
    waits = [{event.where for event in step if blocks(event)} for step in steps]
    assert waits[:2] == [set(), {"hardware/device.py: read"}]

    figures = r"\d+\.\d ms a step, \d+\.\d ms of the host, [\d,]+ target tokens/s"
    lines = report.result["lines"]
    assert len(lines) == 2
    for line, launches in zip(lines, ("single launches", "graphs"), strict=True):
        assert re.match(f"toy, 200 tokens, torch, {launches}: {figures}", line)
