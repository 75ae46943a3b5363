"""A file server on the loopback address that can break off, lie and refuse."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """What is wrong with one answer."""

    status: int | None = None  # an error instead of the file
    sent: int | None = None  # the connection ends after so many bytes
    states_length: bool = True  # whether the header Content-Length is there
    damaged: bool = False  # the first byte is another one
    ignores_range: bool = False  # the whole file comes, with status 200


class Server:
    """The files by path, the faults of the next answers, and the requests so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.faults: list[Fault] = []  # one for each request, from the first on
        self.requests: list[tuple[str, str | None]] = []  # path and header Range

    def put(self, path: str, content: bytes) -> str:
        """Serve ``content``; return its URL."""
        self.files[path] = content
        return self.url + path


class _Handler(BaseHTTPRequestHandler):
    files_of: Server

    def do_GET(self) -> None:
        server = self.files_of
        asked = self.headers.get("Range")
        server.requests.append((self.path, asked))
        fault = server.faults.pop(0) if server.faults else Fault()
        content = server.files.get(self.path)
        if fault.status is not None or content is None:
            self.send_error(fault.status or 404)
            return
        if fault.damaged:
            content = bytes([content[0] ^ 1]) + content[1:]
        match = None if fault.ignores_range else re.fullmatch(r"bytes=(\d+)-", asked or "")
        first = int(match[1]) if match else 0
        if match and first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if match else 200)
        if fault.states_length:
            self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[first:][: fault.sent])

    do_HEAD = do_GET  # noqa: N815 - the name that the base class calls

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def answering_in_a_thread(http: ThreadingHTTPServer) -> Iterator[None]:
    """Let ``http`` answer in a thread of this process until the end of the block."""
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        http.shutdown()
        thread.join()


@contextmanager
def running_server() -> Iterator[Server]:
    """Yield a server that runs in a thread of this process."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        server = Server(f"http://127.0.0.1:{http.server_address[1]}")
        http.RequestHandlerClass = type("Handler", (_Handler,), {"files_of": server})
        with answering_in_a_thread(http):
            yield server
