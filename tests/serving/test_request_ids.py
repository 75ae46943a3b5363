"""Each request has an id, which is in the header of its answer and in the log."""

import re

import pytest
import requests

from tests.serving.conftest import REVERSING
from tests.serving.test_serve import Command

NEW = "[0-9a-f]{16}"


def id_of(running, method="GET", path="/health", given=None, **options):
    headers = {} if given is None else {"X-Request-ID": given}
    url = f"{running.url}{path}"
    answer = requests.request(method, url, headers=headers, timeout=30, **options)
    return answer.headers["X-Request-ID"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", None),
        ("GET", "/none", None),
        ("DELETE", "/v1/translate", None),
        ("POST", "/v1/translate", b"{"),
        ("POST", "/v1/translate", b'{"text": "ant", "source": "en"}'),
    ],
)
def test_every_answer_names_its_request(running_service, method, path, body):
    found = {id_of(running_service, method, path, data=body) for _ in range(2)}
    assert len(found) == 2
    assert all(re.fullmatch(NEW, each) for each in found)
    assert id_of(running_service, method, path, "a-1:b_2.C+/=", data=body) == "a-1:b_2.C+/="


@pytest.mark.parametrize("given", ["", "a b", "a\tb", "é", "<b>", "request 1", "a" * 65, "a,b"])
def test_an_id_that_would_mislead_who_reads_the_log_is_replaced(running_service, given):
    assert re.fullmatch(NEW, id_of(running_service, given=given.encode()))


def test_the_log_of_texts_names_their_request():
    options = ("--workers=1", "--precision=fp32", "--device=cpu", "--log-text")
    command = Command(str(REVERSING), *options)
    try:
        command.url = command.wait_for(r"http://\S+").group()
        for number, text in enumerate(["ant bee cat", "dog eel"]):
            record = {"text": ["", text], "source": "en"}
            assert id_of(command, "POST", "/v1/translate", f"id{number}", json=record)
            command.wait_for(f"request id{number}: '{text}' -> ")
    finally:
        command.close()
