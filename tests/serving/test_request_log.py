"""Each request has a line in the log, without anything that its client wrote but its id."""

import re
import socket
import time

import pytest
import requests

from nmt_cli.messages import logs
from tests.serving.conftest import LIMITS, Instant, Silent, running

BOTH = {"source": "en", "target": "de"}


@pytest.fixture
def logged(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(logs, "info", lines.append)
    return lines


def wait_for(lines, number=1):
    deadline = time.monotonic() + 30
    while len(lines) < number and time.monotonic() < deadline:
        time.sleep(0.01)
    return [re.sub(r"[\d,]+ ms", "N ms", line) for line in lines]


def ask(service, path, method="POST", **options):
    headers = {"X-Request-ID": "id"}
    return requests.request(method, service.url + path, headers=headers, timeout=30, **options)


@pytest.mark.parametrize(
    ("path", "options", "line"),
    [
        (
            "/v1/translate",
            {"json": {"text": ["ant", "bee"], "source": "en"}},
            "POST /v1/translate, status 200, N ms, 6 characters, en to de",
        ),
        (
            "/translate?q=secret",
            {"json": {"q": ["ant\nbee", "Katze 猫"], **BOTH}},
            "POST /translate, status 200, N ms, 13 characters, en to de",
        ),
        (
            "/v2/translate",
            {"json": {"text": "secret", "source_lang": "secret\nid", "target_lang": "DE"}},
            "POST /v2/translate, status 400, N ms",
        ),
        ("/secret%0aid", {}, "POST another path, status 404, N ms"),
        ("/download_file/secret", {"method": "GET"}, "GET /download_file/{name}, status 404, N ms"),
        ("/translate", {"method": "DELETE"}, "DELETE another path, status 405, N ms"),
    ],
)
def test_a_request_has_one_line(logged, path, options, line):
    with running(here=Instant()) as service:
        ask(service, path, **options)
        assert wait_for(logged) == [f"request id: {line}"]


@pytest.mark.parametrize("path", ["/translate_file", "/v2/document"])
def test_the_line_of_a_document_has_no_name(logged, path):
    fields = {**BOTH, "source_lang": "en", "target_lang": "de"}
    with running(here=Instant()) as service:
        ask(service, path, data=fields, files={"file": ("secret.txt", b"ant\nant\nbee")})
        line = f"request id: POST {path}, status 200, N ms, 9 characters, en to de"
        assert wait_for(logged) == [line]


def test_programs_that_watch_the_service_have_no_line(logged):
    with running(here=Instant()) as service:
        for path in ("/health", "/metrics", "/languages"):
            assert ask(service, path, "GET").ok
        assert wait_for(logged) == ["request id: GET /languages, status 200, N ms"]


def test_requests_that_end_without_a_translation_have_a_line(logged):
    with running(here=Silent(), limits=LIMITS._replace(seconds=0.2)) as service:
        assert ask(service, "/translate", json={"q": "ant", **BOTH}).status_code == 503
        texts = "N ms, 3 characters, en to de"
        assert wait_for(logged) == [f"request id: POST /translate, status 503, {texts}"]
    logged.clear()
    with running(here=Silent()) as service:
        with socket.create_connection(service.address) as client:
            query = b"/translate?q=ant&source=en&target=de"
            client.sendall(b"POST " + query + b" HTTP/1.1\r\nHost: a\r\nX-Request-ID: id\r\n\r\n")
            while not service.here.batches:
                time.sleep(0.01)
        assert wait_for(logged) == [f"request id: POST /translate, status 499, {texts}"]


@pytest.mark.parametrize("quiet", [False, True])
def test_quiet_stops_the_lines(capsys, quiet):
    was_quiet = logs.are_quiet()
    try:
        logs.configure(quiet=quiet)
        with running(here=Instant()) as service:
            assert ask(service, "/languages", "GET").ok
    finally:
        logs.configure(quiet=was_quiet)
    assert ("request id: GET /languages" in capsys.readouterr().err) != quiet
