"""Asks a server with OpenAI's chat completions; the key of the server is never shown."""

import json
import os
import re
import time
from email.utils import mktime_tz, parsedate_tz
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import requests

from nmt_cli.commands.distilling.distillation import TeacherServer
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.sections.training import TeacherConfig

CONNECT_SECONDS, ANSWER_SECONDS = 30.0, 600.0  # a thinking model is silent for minutes
MOST_BYTES = 8 << 20  # of an answer; a thousand lines have less than one
READ_AT_ONCE = 1 << 16
SHOWN = 300  # characters of what a server writes about an error
LONGEST_WAIT = 3600.0  # seconds, whatever Retry-After asks for
SECONDS = re.compile(r"\d{1,12}", re.ASCII)
OVERLOAD = {429, 503}
WORTH_REPEATING = {408, 409, 425, *OVERLOAD}  # among the statuses below 500
REFUSES_REQUEST = {400, 413, 422, 501}  # but maybe not the next one
UNTRUSTED = "certificate verify failed"
# Finds the message of the system: requests and urllib3 write names of classes before it.
SYSTEM_ERROR = re.compile(r"(?:\[(?:Errno -?\d+|SSL: [A-Z_]+)\] |Error\(\d+, ')([^'\"()\[]+)")
NO_CREDIT = b"insufficient_quota"  # OpenAI's code for a 429 that no waiting ends


class Usage(NamedTuple):
    """The tokens of a request, as the server counts them."""

    prompt: int
    completion: int


class Answer(NamedTuple):
    """What a model wrote, or the ``problem`` why that is not there."""

    content: str
    usage: Usage | None = None
    problem: str | None = None
    is_refused: bool = False  # the server did not take this request


class BusyError(Exception):
    """The server could not answer now. ``wait`` is for how many seconds it asked."""

    def __init__(self, why: str, wait: float | None = None, is_overload: bool = False) -> None:
        super().__init__(why)
        self.wait, self.is_overload = wait, is_overload


class ChatClient:
    """One model of one server. Threads may share it."""

    def __init__(self, server: TeacherServer, config: TeacherConfig) -> None:
        """Raises UserError if the URL or the key cannot be used."""
        if (parts := urlsplit(server.url)).username or parts.query or parts.fragment:
            raise WrongUsageError(
                "--teacher-url must end with its path, such as /v1, and hold no password: a key is "
                "read from the variable that --teacher-key-variable names."
            )
        self.url = f"{server.url.rstrip('/')}/chat/completions"
        self._variable = server.key_variable
        self._key = os.environ.get(server.key_variable, "").strip()
        if not all("!" <= character <= "~" for character in self._key):
            raise UserError(f"the value of {self._variable} is no key: it must be one ASCII word.")
        self._fixed: dict[str, Any] = {"model": config.model}
        if config.temperature is not None:
            self._fixed["temperature"] = config.temperature
        self._takes_schema: bool | None = None  # not known yet
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            adapter = requests.adapters.HTTPAdapter(pool_maxsize=server.concurrency)
            self._session.mount(scheme, adapter)

    def ask(self, message: str, num_lines: int) -> Answer:
        """Return what the model answers.

        Raises BusyError, or UserError if no other request would be answered either.
        """
        body = {**self._fixed, "messages": [{"role": "user", "content": message}]}
        if self._takes_schema is not False:
            answer = self._post({**body, "response_format": _schema_of(num_lines)})
            if self._takes_schema or not answer.is_refused:
                self._takes_schema = True
                return answer
        answer = self._post(body)
        if not answer.is_refused:
            self._takes_schema = False
        return answer

    def _post(self, body: dict[str, Any]) -> Answer:
        try:
            # No redirects, which could take the key to another host; no compression, by which a
            # short answer can fill the memory.
            with self._session.post(
                self.url,
                json=body,
                headers={"Accept-Encoding": "identity"},
                auth=self._authorized,
                timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = _bytes_of(response)
        except requests.RequestException as error:
            found = SYSTEM_ERROR.search(str(error))
            why = self._shown(found[1] if found else str(error))
            if UNTRUSTED in why:
                why += "; the variable REQUESTS_CA_BUNDLE can name the file of your authority"
            if UNTRUSTED in why or isinstance(error, ValueError):  # such as a wrong URL
                raise UserError(f"{self.url} cannot be asked: {why}.") from None
            raise BusyError(f"the connection failed: {why}") from None
        if content is None:
            return Answer("", problem=f"an answer of more than {MOST_BYTES >> 20} MB")
        if response.status_code == requests.codes.ok:
            return self._answer_in(content)
        return self._refusal(response, content)

    def _authorized(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the key. Given as ``auth``, this also keeps passwords of ~/.netrc away."""
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    def _refusal(self, response: requests.Response, content: bytes) -> Answer:
        """Return an answer that the request is wrong. Raises BusyError or UserError."""
        status = response.status_code
        why = f"{status} {self._message_in(content) or response.reason}"
        if status in REFUSES_REQUEST:
            return Answer("", problem=f"refused: {why}", is_refused=True)
        if (status in WORTH_REPEATING or status >= 500) and NO_CREDIT not in content:
            wait = _seconds_of(response.headers.get("Retry-After", ""))
            raise BusyError(f"it answered {why}", wait, status in OVERLOAD)
        advice = {
            401: f"; the key in {self._variable} is {'not accepted' if self._key else 'not set'}",
            404: "; most URLs end in /v1, and the server lists its models at /v1/models",
        }
        if target := self._shown(response.headers.get("Location", "")):
            why += f": it redirects to {target}; give --teacher-url the address that answers"
        raise UserError(f"{self.url} answered {why}{advice.get(status, '')}.")

    def _answer_in(self, body: bytes) -> Answer:
        found, usage = _json_in(body), None
        match found:
            case {"usage": {"prompt_tokens": int(prompt), "completion_tokens": int(completion)}}:
                usage = Usage(max(prompt, 0), max(completion, 0))
        match found:
            case {"choices": [{"message": {"content": str(content)}}, *_]}:
                return Answer(content, usage)
        return Answer("", usage, f"no chat completion: {self._message_in(body)}")

    def _message_in(self, body: bytes) -> str:
        """Return what a server writes about an error: that of OpenAI's form, or all of it."""
        match _json_in(body):
            case {"error": {"message": str(text)}} | {"error": str(text)} | {"detail": str(text)}:
                return self._shown(text)
        return self._shown(body[: 4 * SHOWN].decode(errors="replace"))

    def _shown(self, text: str) -> str:
        text = " ".join(text.encode(errors="replace").decode().split())
        return (text.replace(self._key, "***") if self._key else text)[:SHOWN].rstrip(".")


def _schema_of(num_lines: int) -> dict[str, Any]:
    numbers = [str(number) for number in range(1, num_lines + 1)]
    texts = {number: {"type": "string"} for number in numbers}
    keys = {"properties": texts, "required": numbers, "additionalProperties": False}
    named = {"name": "translations", "strict": True, "schema": {"type": "object", **keys}}
    return {"type": "json_schema", "json_schema": named}


def _bytes_of(response: requests.Response) -> bytes | None:
    """Return the bytes of an answer; None if they are too many. Raises Timeout if it never ends."""
    content, deadline = bytearray(), time.monotonic() + 2 * ANSWER_SECONDS
    for chunk in response.iter_content(READ_AT_ONCE):
        content += chunk
        if len(content) > MOST_BYTES:
            return None
        if time.monotonic() > deadline:
            raise requests.Timeout("its answer has no end")
    return bytes(content)


def _json_in(body: bytes) -> object:
    try:
        return cast(object, json.loads(body))
    except (ValueError, RecursionError):
        return None


def _seconds_of(retry_after: str) -> float | None:
    """Return for how long the header Retry-After asks to wait: seconds, or a date."""
    if date := parsedate_tz(retry_after):
        return min(max(0.0, mktime_tz(date) - time.time()), LONGEST_WAIT)
    return min(int(retry_after), LONGEST_WAIT) if SECONDS.fullmatch(retry_after) else None
