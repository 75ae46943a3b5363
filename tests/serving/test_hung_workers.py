"""Workers that hang: the others go on, `/health` says so, and they are replaced."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from tests.serving.conftest import REVERSING
from tests.serving.test_limits import until
from tests.serving.test_serve import TEXTS, Command, metric, translated

OPTIONS = (str(REVERSING), "--precision=fp32", "--device=cpu")
SECONDS = 4.0  # that a request may take


@pytest.fixture
def serving():
    started = list[Command]()

    def serve(*options):
        started.append(Command(*OPTIONS, f"--max-seconds={SECONDS}", *options))
        started[0].url = started[0].wait_for(r"http://\S+").group()
        return started[0]

    yield serve
    started[0].close()


def health(command):
    answer = requests.get(f"{command.url}/health", timeout=30)
    return answer.status_code, answer.json()


def answer_to(command, text):
    record = {"text": text, "source": "en"}
    return requests.post(f"{command.url}/v1/translate", json=record, timeout=60)


def test_the_others_go_on_while_a_stopped_worker_is_replaced(serving):
    command = serving("--workers=2")
    until(lambda: len(command.workers()) == 2)
    expected = translated(command, TEXTS)
    victim = command.workers()[0]
    os.kill(victim, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(answer_to, command, TEXTS)  # both workers get lines of it
        until(lambda: health(command) == (200, {"status": "ready", "silent_workers": 1}))
        assert translated(command, TEXTS[:1]) == expected[:1]
        assert lost.result().status_code == 503
    until(lambda: victim not in command.workers().values() and len(command.workers()) == 2)
    assert translated(command, TEXTS) == expected
    assert health(command) == (200, {"status": "ready"})
    assert metric(command, "nmt_cli_worker_deaths_total") == 1
    assert metric(command, "nmt_cli_worker_lines") == 0
    message = (
        f"worker process {victim} has answered nothing for 4 s and is killed; it has lines of "
        f"request {lost.result().headers['X-Request-ID']}."
    )
    command.wait_for(re.escape(message))


def test_what_waits_for_the_only_worker_is_translated_by_the_next_one(serving):
    command = serving("--workers=1", "--protect=(z+)+$")
    expected = translated(command, TEXTS)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(answer_to, command, f"{'z' * 60}!")  # its matches are never found
        until(lambda: health(command) == (503, {"status": "stuck", "silent_workers": 1}))
        assert metric(command, "nmt_cli_ready") == 0
        assert translated(command, TEXTS) == expected
        assert lost.result().status_code == 503
    assert health(command) == (200, {"status": "ready"})
