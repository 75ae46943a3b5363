"""What a search that failed leaves: an answer for each line, empty caches, a limit that fits."""

from typing import Any

import pytest

from nmt_cli.search.engine import SHORTEST_OF_LIBRARY
from tests.fake_models import copying
from tests.translating.test_submitted_lines import SECONDS, submitted, untrained

BUG = TypeError("a bug of ours")


@pytest.mark.parametrize("device_fails", [False, True])
def test_an_error_leaves_no_caches(monkeypatch, device_fails):
    def fails(sources):
        raise KeyboardInterrupt

    translator, model = copying(monkeypatch, fails)
    reset = model.reset

    def reset_that_may_fail(num_slots, beam_size):
        reset(num_slots, beam_size)
        if device_fails and num_slots == 0:
            raise RuntimeError("the device failed")

    monkeypatch.setattr(model, "reset", reset_that_may_fail)
    with pytest.raises(KeyboardInterrupt):
        translator.translate_window(["a line"])
    assert model.sources == []


def test_memory_that_is_full_after_the_last_step_of_several_lines_halves_the_slots(monkeypatch):
    translator = untrained(alignments=True, max_tokens_per_device=1000)
    driver: Any = translator._engine.driver
    with_attention = driver._finish.complete
    failed: list[int] = []

    def fails_once(founds, sentences):
        if founds and not failed:
            failed.append(len(founds))
            raise MemoryError
        return with_attention(founds, sentences)

    monkeypatch.setattr(driver._finish, "complete", fails_once)
    with translator:
        assert [each.error for each in submitted(translator, ["ant bee", "ant bee"])] == [None] * 2
    assert failed == [2]  # both lines were done, so none was left in the search
    assert translator._engine.driver.size.max_tokens == 4 * SHORTEST_OF_LIBRARY  # room for one


@pytest.mark.parametrize("num_exits", [1, 4])
def test_a_callback_that_exits_leaves_no_line_without_an_answer(monkeypatch, num_exits):
    failed: list[bool] = []

    def fails_once(sources):
        if not failed:
            failed.append(True)
            raise BUG

    def callback(_):
        raise SystemExit

    translator, _ = copying(monkeypatch, fails_once)
    with translator._submitted.paused():
        futures = [translator.submit(f"line {number}") for number in range(4)]
        for future in futures[:num_exits]:
            future.add_done_callback(callback)
    assert futures[0].result(SECONDS).text == "line 0"
    for future in futures[1:]:
        assert isinstance(future.exception(SECONDS), SystemExit)
    assert translator.submit("later").result(SECONDS).text == "later"
    translator.close()
