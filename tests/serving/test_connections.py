"""How many connections there may be, and what one may send before a body."""

import asyncio
import re
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import uvicorn

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.serving import connections, server
from nmt_cli.serving.connections import Connection
from tests.serving import conftest
from tests.serving.conftest import REVERSING, running
from tests.serving.test_limits import until
from tests.serving.test_serve import Command

SOFT, HARD = 64, 256  # limits of open files
MOST = HARD // 2
POST = b"POST /v1/translate HTTP/1.1\r\nHost: here\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = 4 << 20  # bytes; more is not sent
NUM_ANSWERS = 15  # that a client asks for without reading one
HEALTH = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture(scope="module")
def command():
    options = ("--workers=1", "--precision=fp32", "--device=cpu")
    found = Command(str(REVERSING), *options, files=(SOFT, HARD))
    found.url = found.wait_for(r"http://\S+").group()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (b"", b"\r\n"),
        (b"GET /", b"a" * 100),
        (POST, b"a: " + b"b" * 500 + b"\r\n"),
        (POST, b"a:\r\n"),
        (POST + b"a: ", b"b" * 500),
        (CHUNKED + b"0\r\n", b"a: " + b"b" * 500 + b"\r\n"),
        (CHUNKED + b"1;a=", b"b" * 500),
    ],
    ids=["nothing", "address", "headers", "short headers", "header", "trailers", "extension"],
)
def test_what_is_before_a_body_has_a_limit(command, start, part):
    with socket.create_connection(command.place, timeout=30) as client:
        client.sendall(start)
        num_sent = 0
        with suppress(ConnectionError):
            while num_sent < ENDLESS:
                client.sendall(part * 20)
                num_sent += 20 * len(part)
        assert client.recv(100).startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
        assert num_sent < ENDLESS


def test_a_text_in_the_query_may_be_long(command):
    answer = requests.get(f"{command.url}/health?q={'a' * 60_000}", timeout=30)
    assert answer.status_code == 200


def test_trailers_change_nothing(command):
    record = b'{"q": "ant"}'
    body = b"%x\r\n%b\r\n0\r\nContent-Type: multipart/form-data\r\n\r\n" % (len(record), record)
    with socket.create_connection(command.place, timeout=30) as client:
        client.sendall(CHUNKED.replace(b"v1/translate", b"detect") + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_few_requests_are_taken_before_the_first_is_answered(command):
    with socket.create_connection(command.place, timeout=30) as client:
        client.sendall(HEALTH * 1_000)
        found = client.makefile("rb").read()
    assert re.findall(b"HTTP/1.1 (\\d+)", found)[-1] == b"400"


UPGRADE = b"Host: here\r\nConnection: Upgrade\r\nUpgrade: %b\r\n"


@pytest.mark.parametrize("kind", [b"h2c", b"websocket"])
@pytest.mark.parametrize(
    "length", [b"Content-Length: %d" % len(HEALTH), b"Transfer-Encoding: chunked"]
)
@pytest.mark.parametrize("line", [b"POST /health", b"GET /health", b"CONNECT here:80"])
def test_the_body_of_a_request_for_an_upgrade_is_no_further_request(command, kind, length, line):
    with socket.create_connection(command.place, timeout=30) as client:
        client.sendall(line + b" HTTP/1.1\r\n" + UPGRADE % kind + length + b"\r\n\r\n")
        found = client.recv(1_000)
        with suppress(ConnectionError):
            client.sendall(HEALTH)
            while part := client.recv(1_000):
                found += part
        assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"400"]
        assert b"leave the header Upgrade out" in found


@pytest.mark.parametrize("kind", ["h2c", "websocket"])
def test_an_upgrade_without_a_body_is_not_made(command, kind):
    headers = {"Connection": "Upgrade", "Upgrade": kind, "Content-Length": "0"}
    with requests.Session() as session:
        for _ in range(2):
            answer = session.get(f"{command.url}/health", headers=headers, timeout=30)
            assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


def test_further_connections_are_refused(command):
    limits = Path(f"/proc/{command.process.pid}/limits").read_text()
    assert re.search(rf"Max open files +{HARD} +{HARD} ", limits)
    with ExitStack() as stack:

        def connection():
            return stack.enter_context(socket.create_connection(command.place, timeout=30))

        first, *_ = [connection() for _ in range(MOST)]
        for _ in range(HARD):
            with socket.create_connection(command.place, timeout=30) as refused:
                assert refused.recv(100).startswith(b"HTTP/1.1 503 Service Unavailable")
        first.sendall(HEALTH)
        assert first.recv(100).startswith(b"HTTP/1.1 200")

    def is_answered():
        return requests.get(f"{command.url}/health", timeout=30).status_code == 200

    until(is_answered)
    assert "out of system resource" not in command.log
    (line,) = command.log.splitlines()[-1:]
    reason = f"{MOST} are open, half of the {HARD} files that it may open"
    assert line.startswith(f"Warning: further connections are refused: {reason}")
    assert command.log.count("connections are refused") == 1


def test_answers_that_are_not_read_have_a_limit(monkeypatch):
    """The clients that have waited longest lose theirs; the others get them, and are served."""
    warnings = list[str]()
    monkeypatch.setattr(connections, "MOST_UNREAD_BYTES", 1 << 20)
    monkeypatch.setattr(logs, "warning", warnings.append)

    def listening(host, port):  # connections inherit that the system buffers little
        listener = server.listening_socket(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        return listener

    monkeypatch.setattr(conftest, "listening_socket", listening)
    with running() as service, ExitStack() as stack:
        url = f"{service.url}/openapi.json"
        num_bytes = NUM_ANSWERS * len(requests.get(url, timeout=30).content)

        def silent():
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.settimeout(30)
            client.connect((urlsplit(url).hostname, urlsplit(url).port))
            client.sendall(HEALTH.replace(b"/health", b"/openapi.json") * NUM_ANSWERS)
            return client

        def gets_all(client):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            num_read = 0
            with suppress(ConnectionError):
                while num_read < num_bytes and (part := client.recv(1 << 16)):
                    num_read += len(part)
            return num_read >= num_bytes

        early = [silent() for _ in range(50)]
        until(lambda: warnings)
        late = [silent() for _ in range(3)]
        assert requests.get(url, timeout=30).ok
        assert [gets_all(each) for each in late] == [True] * 3
        assert not all(gets_all(each) for each in early)
    (line,) = warnings
    assert line.startswith("answers of more than 1,048,576 bytes wait for clients that do not read")


def test_a_uvicorn_that_lacks_what_connections_need_is_refused(monkeypatch):
    """Otherwise each connection would fail, or none would ever be closed."""

    async def check():
        connections.refuse_unknown_uvicorn(uvicorn.Config(lambda: None, http=Connection))

    asyncio.run(check())
    monkeypatch.setattr(connections, "OF_UVICORN", (*connections.OF_UVICORN, "gone"))
    with pytest.raises(UserError, match=r"uvicorn .* has no gone in its connections, which this"):
        asyncio.run(check())
