"""The real training on a GPU that is not there."""

import pytest

from tests.rehearsal.findings import KNOWN_IN_STEP, STEP_BUDGET, blocks, findings, num_kernels
from tests.rehearsal.scenarios import STEPS

OTHER_MODEL = {
    **{"attention_dropout": 0.1, "d_v": 16, "norm": "pre"},
    **{"positions": "learned", "tied_embeddings": "none", "output_bias": True},
}


def kept(*steps):
    return [f"step-{step:08}" for step in steps]


def types_of_products(report):
    steps = report.between("step begins", "step ends")
    return {event.how for step in steps for event in step if event.what in ("mm", "addmm", "bmm")}


def test_the_cpu_waits_for_no_more_than_it_is_known_to(rehearse):
    report = rehearse("train")
    assert findings(report) == KNOWN_IN_STEP
    assert report.result == {"step": STEPS, "max_tokens": 80, "checkpoints": kept(STEPS)}
    steps = report.between("step begins", "step ends")
    assert len(steps) == STEPS
    assert all(num_kernels(step) > 0.95 * STEP_BUDGET for step in steps)  # it is a close limit
    assert types_of_products(report) == {"bfloat16"}


def test_products_of_fp32_stay_in_fp32(rehearse):
    report = rehearse("train", precision="fp32", changes={"validation": {"bleu": "off"}})
    assert (report.illegal, report.error) == ([], None)
    assert types_of_products(report) == {"float32"}


def test_another_model_trains_too(rehearse):
    """Its attention is padded, because varlen attention does not suit it."""
    report = rehearse("train", changes={"model": OTHER_MODEL})
    assert (report.illegal, report.error) == ([], None)
    assert report.result["step"] == STEPS


def test_a_resumed_training_goes_on_after_a_full_memory(rehearse):
    report = rehearse("train", resumes=True)
    assert (report.illegal, report.error) == ([], None)
    assert report.result == {
        "step": STEPS + 2,
        "max_tokens": 31,  # as long as the longest sentence; 80 before
        "checkpoints": kept(STEPS, STEPS + 2),
    }


@pytest.mark.parametrize("exchange", ["fp32", "bf16"])
def test_ranks_exchange_gradients_on_the_device_without_a_wait(exchange, rehearse):
    changes = {"validation": {"bleu": "off"}}
    report = rehearse("train", ranks=2, exchange=exchange, changes=changes)
    assert findings(report, budget=STEP_BUDGET + 15) == KNOWN_IN_STEP
    steps = report.between("step begins", "step ends")
    assert len(steps) == STEPS
    for step in steps:
        marks = [event.what for event in step if event.what.startswith("collective")]
        assert marks == ["collective on cuda"] * (1 if exchange == "fp32" else 2)


def test_a_rank_that_dies_in_an_exchange_is_noticed_and_the_step_before_is_saved(rehearse):
    report = rehearse("lose a rank", step=3)
    assert (report.illegal, report.error) == ([], None)
    assert "lost another rank and ends: gradients were not exchanged" in report.result["error"]
    assert report.result["counts"] == (2, 2)
    assert report.result["checkpoints"] == kept(2)


def test_what_make_gpu_measures_reads_figures_as_late_as_training(rehearse):
    report = rehearse("measure")
    assert (report.illegal, report.error) == ([], None)
    steps = report.between("step begins", "step ends")
    waits = [{event.where for event in step if blocks(event)} for step in steps]
    assert waits == [set(), {"hardware/cuda_graphs.py: read"}]
