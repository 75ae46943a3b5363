"""A server on the loopback address that speaks OpenAI's chat completions, or fails to do so."""

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from typing import Any, NamedTuple

from tests.loopback_server import answering_in_a_thread

SUBJECTS = {
    **{"old man": "Der alte Mann", "young woman": "Die junge Frau", "child": "Das Kind"},
    **{"teacher": "Der Lehrer", "neighbour": "Der Nachbar", "girl": "Das Mädchen"},
    **{"doctor": "Der Arzt", "farmer": "Der Bauer", "student": "Der Student"},
}
VERBS = {"sees": "sieht", "finds": "findet", "buys": "kauft", "needs": "braucht"}
OBJECTS = {
    **{"book": "das Buch", "letter": "den Brief", "bicycle": "das Fahrrad"},
    **{"key": "den Schlüssel", "newspaper": "die Zeitung", "basket": "den Korb"},
    **{"coat": "den Mantel", "picture": "das Bild", "chair": "den Stuhl"},
}
GERMAN = {
    f"The {subject} {verb} the {thing} in the garden.": (
        f"{SUBJECTS[subject]} {VERBS[verb]} {OBJECTS[thing]} im Garten."
    )
    for subject, verb, thing in product(SUBJECTS, VERBS, OBJECTS)
}


class Reply(NamedTuple):
    """One answer; what is None is as it should be."""

    status: int = 200
    content: str | None = None  # of the message
    body: bytes | None = None  # of the whole answer
    headers: Mapping[str, str] = {}
    has_usage: bool = True
    resets: bool = False  # the connection, after the request was read
    is_silent: bool = False  # until the server ends


class ChatServer:
    """The rule by which lines are translated, what goes wrong, and the requests so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rule: Callable[[str], str] = GERMAN.__getitem__
        self.replies: list[Reply] = []  # one for each of the next requests
        self.reply_to: Callable[[dict[str, str]], Reply] = lambda _: Reply()  # after these
        self.requests: list[dict[str, Any]] = []
        self.answers: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.num_running = self.most_running = 0
        self.lock, self.ended = threading.Lock(), threading.Event()

    @property
    def lines(self) -> list[str]:
        """The lines of all requests."""
        return [line for request in self.requests for line in lines_of(request).values()]

    def completion(self, reply: Reply, request: dict[str, Any]) -> bytes:
        content = reply.content
        if content is None:
            found = lines_of(request)
            content = json.dumps({number: self.rule(line) for number, line in found.items()})
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        facts: dict[str, Any] = {"id": "chat-1", "object": "chat.completion", "created": 1}
        if reply.has_usage:
            prompt, own = len(message_of(request)), len(content)
            counts = {"prompt_tokens": prompt, "completion_tokens": own}
            facts["usage"] = {**counts, "total_tokens": prompt + own}
        return json.dumps({**facts, "model": request["model"], "choices": [choice]}).encode()


def message_of(request: dict[str, Any]) -> str:
    return request["messages"][-1]["content"]


def lines_of(request: dict[str, Any]) -> dict[str, str]:
    """The numbered lines of a request."""
    message = message_of(request)
    return json.loads(message[re.search(r"^\{$", message, re.M).start() :])  # type: ignore[union-attr]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    chat: ChatServer

    def do_POST(self) -> None:
        chat = self.chat
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with chat.lock:
            chat.requests.append(request)
            chat.headers.append(dict(self.headers))
            reply = chat.replies.pop(0) if chat.replies else None
            chat.num_running += 1
            chat.most_running = max(chat.most_running, chat.num_running)
        try:
            reply = reply or chat.reply_to(lines_of(request))
            if reply.is_silent:
                chat.ended.wait()
            if reply.resets or reply.is_silent:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                self.close_connection = True
                return
            body = chat.completion(reply, request) if reply.body is None else reply.body
        finally:
            with chat.lock:
                chat.num_running -= 1
        if reply.status == 200:
            chat.answers.append(body)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """The client was killed."""


@contextmanager
def running_chat_server(host: str = "127.0.0.1") -> Iterator[ChatServer]:
    """Yield a server that runs in threads of this process."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with type("Server", (_Server,), {"address_family": family})((host, 0), _Handler) as http:
        shown = f"[{host}]" if ":" in host else host
        chat = ChatServer(f"http://{shown}:{http.server_address[1]}/v1")
        http.RequestHandlerClass = type("Handler", (_Handler,), {"chat": chat})
        with answering_in_a_thread(http):
            try:
                yield chat
            finally:
                chat.ended.set()
