"""What the service refuses, and what it does with clients that are slow or go away."""

import json
import re
import socket
import time

import pytest
import requests

from nmt_cli.messages import logs
from nmt_cli.serving import requests as reading
from nmt_cli.serving import server
from nmt_cli.serving.readers import MOST_INSIDE, Readers
from nmt_cli.serving.requests import Limits
from nmt_cli.serving.service import SMALL_REQUEST
from tests.serving.conftest import Silent, running

RECORD = {"text": "ant bee", "source": "en", "target": "de"}
BODY = json.dumps(RECORD).encode()


@pytest.fixture(scope="module")
def silent():
    """A service that answers nothing until it is told to."""
    limits = Limits(2_000, characters=100, lines=5, waiting_lines=20, seconds=0.4)
    with running(limits=limits, here=Silent(), origins=["https://example.org"]) as found:
        yield found


def post(service, path="/v1/translate", **options):
    return requests.post(f"{service.url}{path}", timeout=30, **options)


def until(condition):
    """Wait until a condition holds, at most half a minute."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def head(length, path="/v1/translate"):
    lines = (f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {length}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"text": "a" * 101}, "101 characters are more than 100"),
        ({"text": ["a"] * 6}, "6 lines are more than 5"),
        ({"text": "a" * 2_000}, "the body has more than 2,000 bytes"),
    ],
)
def test_large_requests_are_refused(silent, record, error):
    answer = post(silent, json={**RECORD, **record})
    assert (answer.status_code, answer.json()) == (413, {"error": error})


@pytest.mark.parametrize(
    ("path", "record"),
    [
        ("/v1/sentences", {"text": "a" * 101, "source": "en"}),
        ("/v1/attention", {"text": "a", "translation": "b" * 100, "model": "sentencepiece"}),
    ],
)
def test_the_characters_of_all_texts_are_limited(silent, path, record):
    answer = post(silent, path, json=record)
    error = "101 characters are more than 100"
    assert (answer.status_code, answer.json()) == (413, {"error": error})


def test_a_body_without_a_length_is_limited_too(silent):
    answer = post(silent, data=iter([b" " * 1_500, b" " * 1_500]))
    assert (answer.status_code, answer.headers["Connection"]) == (413, "close")


def test_more_lines_than_may_wait_are_refused(silent):
    record = {"text": ["a"], "source_lang": "EN", "target_lang": "DE"}
    silent.here.num_waiting = 10  # for each of two models
    answer = post(silent, "/v2/translate", json=record)
    silent.here.num_waiting = 0
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json() == {"message": "20 lines wait already"}


@pytest.mark.parametrize("state", ["starting", "draining"])
def test_a_service_that_is_not_ready_refuses(silent, state):
    silent.service.state = state
    answer, health = post(silent, json=RECORD), requests.get(f"{silent.url}/health", timeout=30)
    silent.service.state = "ready"
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert (health.status_code, health.json()) == (503, {"status": state})


def test_a_translation_that_takes_too_long_is_withdrawn(silent):
    answer = post(silent, json=RECORD)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json() == {"error": "it was not translated within 0.4 seconds"}
    assert silent.here.withdrawn[-1] is silent.here.batches[-1]


@pytest.fixture
def with_key():
    with running(here=Silent(), keys=["secret"]) as found:
        yield found


LARGE = json.dumps({**RECORD, "prefix": "a" * SMALL_REQUEST}).encode()


def test_only_so_many_large_requests_of_strangers_wait_to_be_read(with_key, monkeypatch):
    monkeypatch.setattr(Readers, "num_inside", MOST_INSIDE)
    for path in ("/v1/translate", f"/translate?q={'a' * SMALL_REQUEST}", "/detect?q=a"):
        answer = post(with_key, path, data=LARGE)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert f"{MOST_INSIDE} large requests are being read already" in answer.text
    known = post(with_key, data=LARGE[:-1], headers={"Authorization": "Bearer secret"})
    assert (known.status_code, "is not JSON" in known.text) == (400, True)
    monkeypatch.setattr(Readers, "num_inside", MOST_INSIDE - 1)
    assert post(with_key, data=LARGE).status_code == 403


@pytest.mark.parametrize("path", ["/v1/translate", "/translate"])
def test_only_a_request_above_3000_bytes_is_read_in_another_process(silent, monkeypatch, path):
    monkeypatch.setattr(Readers, "num_inside", MOST_INSIDE)  # none of them is free
    limits = silent.service.limits._replace(body_bytes=10_000)
    monkeypatch.setattr(silent.service, "limits", limits)
    body = b'{"unknown": 1}'
    assert post(silent, path, data=body.ljust(3_000)).status_code == 400
    above = post(silent, path, data=body.ljust(3_001))
    assert (above.status_code, "large requests are being read" in above.text) == (503, True)


def test_a_form_with_a_long_content_type_is_read_in_another_process(silent, monkeypatch):
    monkeypatch.setattr(Readers, "num_inside", MOST_INSIDE)
    headers = {"Content-Type": f"multipart/form-data{';' * 3_000} boundary=x"}
    assert post(silent, "/translate", data=b"--x--", headers=headers).status_code == 503


def test_bodies_of_strangers_take_only_so_much_memory(with_key, monkeypatch):
    monkeypatch.setattr(reading, "MOST_HELD_BYTES", 1)  # so it is --max-body-bytes
    part = b" " * 600_000
    with socket.create_connection(with_key.address) as client:
        client.sendall(head(1_000_000) + part)
        until(lambda: post(with_key, data=part).status_code == 503)
        answer = post(with_key, data=part)
        assert (answer.status_code, answer.headers["Connection"]) == (503, "close")
        assert answer.json() == {"error": "too many bodies are being read"}
        key = {"Authorization": "Bearer secret"}
        assert post(with_key, data=part, headers=key).status_code == 400
    until(lambda: post(with_key, data=part).status_code == 400)


def test_what_a_client_that_goes_away_asked_for_is_withdrawn(silent):
    before = len(silent.here.withdrawn)
    for _ in range(20):
        with socket.create_connection(silent.address) as client:
            client.sendall(head(len(BODY)) + BODY)
    until(lambda: len(silent.here.withdrawn) == before + 20)
    metrics = requests.get(f"{silent.url}/metrics", timeout=30).text
    assert 'nmt_cli_requests_total{path="/v1/translate",status="499"}' in metrics


def test_a_body_that_does_not_come_is_not_waited_for(silent):
    with socket.create_connection(silent.address) as client:
        client.sendall(head(len(BODY)) + BODY[:10])
        assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_head():
    with server.listening_socket("127.0.0.1", 0) as listener:
        with socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_connections_that_do_nothing_are_closed(silent, monkeypatch):
    monkeypatch.setattr(server, "SECONDS_BETWEEN_LOOKS", 0.05)
    with (
        socket.create_connection(silent.address) as mute,
        socket.create_connection(silent.address) as slow,
    ):
        slow.sendall(head(len(BODY))[:20])
        for client in (mute, slow):
            client.settimeout(10)
            assert client.recv(100) == b""


def test_clients_that_do_not_read_their_answers_are_disconnected(silent, monkeypatch):
    monkeypatch.setattr(server, "SECONDS_BETWEEN_LOOKS", 0.05)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(silent.address)

        def is_disconnected():
            try:
                client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n\r\n")
            except ConnectionError:
                return True
            # Then the service has read the request.
            return requests.get(f"{silent.url}/health", timeout=30).status_code != 200

        until(is_disconnected)


@pytest.mark.parametrize("data", [b"\x00\xff" * 50, b"GET\r\n\r\n"])
def test_what_is_no_http_is_refused(silent, data):
    with socket.create_connection(silent.address) as client:
        client.sendall(data)
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_only_pages_of_the_given_origins_may_ask(silent):
    for origin, allowed in ("https://example.org", "https://example.org"), ("https://a.org", None):
        answer = requests.get(f"{silent.url}/v1/models", headers={"Origin": origin}, timeout=30)
        assert answer.headers.get("Access-Control-Allow-Origin") == allowed


def test_the_log_says_how_to_let_a_page_use_the_service(monkeypatch):
    logged: list[str] = []
    monkeypatch.setattr(logs, "warning", logged.append)
    with running(here=Silent()) as service:

        def ask(origin):
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            return requests.options(f"{service.url}/translate", headers=headers, timeout=30)

        for origin in ("https://a.org", "https://a.org", "null", "https://a.org; rm", "a" * 9_999):
            assert ask(origin).status_code == 400
        found = [re.findall("--allow-origin (\\S+)[,.]", each) for each in logged]
        assert found == [["https://a.org", "'*'"], ["null", "'*'"]]
        for number in range(100):
            ask(f"https://{number}.org")
        assert len(logged) == server.MOST_LOGGED_ORIGINS
    with running(here=Silent(), origins=["*"]) as service:
        assert ask("https://a.org").headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"]
)
def test_no_file_is_reachable(silent, path):
    with socket.create_connection(silent.address) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(("path", "key"), [("/v2/usage/", "message"), ("/health/", "error")])
def test_a_path_with_a_slash_at_its_end_is_unknown(silent, path, key):
    headers = {"Host": "example.org"}
    answer = requests.get(f"{silent.url}{path}", headers=headers, timeout=30, allow_redirects=False)
    assert (answer.status_code, answer.json()) == (404, {key: "Not Found"})


def test_forms_that_cannot_be_read_are_refused(silent):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"q=%ff", b"q=\xff"):
        answer = post(silent, "/translate", data=body, headers=form)
        assert (answer.status_code, answer.json()) == (400, {"error": "the body is not UTF-8"})
