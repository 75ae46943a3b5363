"""What comes in bodies, and that no body keeps the service from other clients."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import requests

from nmt_cli.serving.requests import RefusedError, Upload, body_fields
from nmt_cli.serving.service import SMALL_REQUEST
from tests.serving.conftest import REVERSING
from tests.serving.test_limits import until
from tests.serving.test_serve import Command

# Functions that work on requests wait once, until a pipe is closed: in the process that answers,
# which nothing may keep from other clients, and in those that read.
HOLDING = """
import functools, html, json, os, sys, urllib.parse
from py3langid.langid import LanguageIdentifier
from python_multipart.multipart import MultipartParser

done = set()

def hold(place, name):
    function = getattr(place, name)

    @functools.wraps(function)
    def held(*arguments, **options):
        if name not in done and f"hold-{name}" in str(arguments):
            done.add(name)
            with open(os.environ["PIPE"]) as pipe:
                pipe.read()
        return function(*arguments, **options)

    setattr(place, name, held)

if "serve" in sys.orig_argv or "serving.readers" in str(sys.orig_argv):
    hold(json, "loads")
    hold(json, "dumps")
    hold(urllib.parse, "parse_qsl")
    hold(MultipartParser, "write")
    hold(html, "unescape")
    hold(LanguageIdentifier, "rank")
"""
KEY = {"Authorization": "Bearer right"}
PAIR = {"source": "en", "target": "de"}
MANY = ["ant"] * (SMALL_REQUEST // 4)  # more than is read between two other requests
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
PART = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nant\r\n'
PART_OF = PART.replace(b"\r\n\r\n", b"\r\n%b\r\n\r\n") + b"--x--"


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("pipe") / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="module")
def command(tmp_path_factory, pipe):
    folder = tmp_path_factory.mktemp("service")
    (folder / "sitecustomize.py").write_text(HOLDING)
    (folder / "keys").write_text("right\n")
    (folder / "animals.tsv").write_text("ant\tlark\n")
    found = Command(
        *(f"{REVERSING}=en:de", f"{REVERSING}=de:fr", f"--api-keys={folder}/keys"),
        *("--workers=1", "--precision=fp32", "--device=cpu", f"--glossary={folder}/animals.tsv"),
        PYTHONPATH=str(folder),
        PIPE=str(pipe),
    )
    found.url = found.wait_for(r"http://\S+").group()
    yield found
    found.close()


def post(command, path, **options):
    headers = {**KEY, **options.pop("headers", {})}
    return requests.post(f"{command.url}{path}", headers=headers, timeout=60, **options)


LARGE: dict[str, Any] = {
    "/v1/translate": {"json": {"text": [*MANY, "hold-loads"], "source": "en"}},
    "/v1/sentences": {"json": {"text": f"hold-dumps {'Ant. ' * 2_000}", "source": "en"}},
    "/translate": {"data": {"q": [*MANY, "hold-parse_qsl"], **PAIR}},
    "/translate?": {
        "files": [*(("q", (None, each)) for each in MANY[:900]), ("q", (None, "hold-write"))]
    },
    "/translate?target=fr": {"json": {"q": [*MANY, "hold-rank"], "source": "auto"}},
    "/v2/translate": {
        "json": {
            **{"text": [*MANY, "hold-unescape"], "source_lang": "EN", "target_lang": "DE"},
            **{"tag_handling": "html", "glossary_id": "animals"},
        }
    },
}


@pytest.mark.parametrize("path", LARGE)
def test_others_are_answered_while_a_large_request_is_worked_on(command, pipe, path):
    writers = list[int]()

    def is_held():
        with suppress(OSError):  # nobody reads
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return writers

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(post, command, path, **LARGE[path])
        until(is_held)
        try:
            assert requests.get(f"{command.url}/health", timeout=10).status_code == 200
            assert not future.done()
        finally:
            os.close(writers[0])
        assert future.result().status_code in {200, 400}


def test_a_wrong_key_in_the_head_is_refused_before_the_body_has_come(command):
    wrong = "Authorization: Bearer wrong\r\n"
    for target, header in (
        ("/v1/translate", wrong),
        ("/v1/attention", wrong.replace("Bearer", "DeepL-Auth-Key")),
        ("/translate?api_key=wrong", ""),
        ("/v2/translate?auth_key=wrong", ""),
    ):
        with socket.create_connection(command.place, timeout=30) as client:
            head = f"POST {target} HTTP/1.1\r\nHost: here\r\nContent-Length: 900\r\n{header}\r\n"
            client.sendall(head.encode())
            assert client.recv(100).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("way", ["json", "data", "files", "params"])
def test_a_key_may_be_given_among_the_fields(command, way):
    for key, status in ("right", 200), ("wrong", 403), ("", 403):
        fields: dict[str, Any] = {"q": "ant", **PAIR, "api_key": key}
        if way == "files":
            fields = {name: (None, value) for name, value in fields.items()}
        form: dict[str, Any] = {way: fields}
        answer = requests.post(f"{command.url}/translate", timeout=30, **form)
        assert answer.status_code == status


def test_a_key_may_be_given_several_times(command):
    for keys, status in (
        (["right"] * 2, 200),
        (["wrong", "right"], 200),
        (["wrong"] * 2, 403),
        ([*["wrong"] * 10, "right"], 403),  # as many are compared as one may try
    ):
        url = f"{command.url}/v2/usage"
        assert requests.get(url, params={"auth_key": keys}, timeout=30).status_code == status


TEXTS = [
    "".join(map(chr, range(32, 127))),
    "Die Straße\r\n--x\r\n\r\n\tist lang.\n",
    "猫坐在垫子上。",
    "القطة على السجادة",
    "แมวนั่งบนเสื่อ",
    "İstanbul'da kış",
    "blåbærsyltetøy \U0001f431",
    "",
]


def test_a_form_in_parts_has_the_texts_that_were_sent(command):
    for text in TEXTS:
        fields = {"source": (None, text.encode()), "target": (None, b"de"), "q": (None, b"ant")}
        answer = post(command, "/translate", files=fields)
        assert answer.status_code == 400
        no_model = f"there is no model with source {text!r}, target"
        assert (no_model if text else "names no source language") in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (PART * 1_001 + b"--x--", 413, "the form has more than 1,000 parts"),
        (PART, 400, "the form has no end"),
        (PART_OF % b"Content-Type: Multipart/mixed; boundary=y", 400, "has parts of its own"),
        (PART_OF % b"Content-Type: message/rfc822", 400, "has parts of its own"),
        (PART_OF % b"Content-Transfer-Encoding: gzip", 400, "the form cannot be read: "),
        (b"--x\r\n\r\nant\r\n--x--", 400, "the form cannot be read: Field name not found"),
        (PART.replace(b"ant", b"\xff") + b"--x--", 400, "the body is not UTF-8"),
        (PART.replace(b'"q"', b'"\xff"') + b"--x--", 400, "the body is not UTF-8"),
        (PART.replace(b"\r\n", b"\n") + b"--x--", 400, "the form cannot be read: "),
        (b"text\r\n" + PART + b"--x--", 400, "the form cannot be read: "),
    ],
)
def test_a_form_in_parts_has_limits(command, body, status, error):
    answer = post(command, "/translate", data=body, headers=FORM)
    assert answer.status_code == status
    assert error in answer.json()["error"]


CONTENT_TYPE = FORM["Content-Type"]


def part(disposition, value=b"ant", headers=b""):
    head = b"--x\r\nContent-Disposition: form-data; " + disposition + b"\r\n" + headers
    return head + b"\r\n" + value + b"\r\n"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (part(b'name="q"') + part(b'name="q"', b"bee"), {"q": ["ant", "bee"]}),
        (part(b'name="q"', b""), {"q": ""}),
        (part(b'name="q"', b"w58=", b"Content-Transfer-Encoding: base64\r\n"), {"q": "ß"}),
        (part(b'name="q"', headers=b"X: %b\r\n" % (b"a" * 9_000) * 20), {"q": "ant"}),
        (part(b'name="q"', b"\r\n--" * 9 + b"\r\n--xa"), {"q": "\r\n--" * 9 + "\r\n--xa"}),
        (part(b'name="f"; filename=""', b"\xff"), {"f": Upload("", b"\xff")}),
        (part('name="f"; filename="ß;.html"'.encode()), {"f": Upload("ß;.html", b"ant")}),
        (part(b'name="f"; filename="a"; filename*=UTF-8\'\'b'), {"f": Upload("a", b"ant")}),
        (part(b"name=\"f\"; filename*=UTF-8''b"), {"f": "ant"}),
        (part(b'NAME="q"', headers=b"content-transfer-encoding: BINARY\r\n"), {"q": "ant"}),
    ],
)
def test_fields_of_a_form_in_parts(body, fields):
    assert body_fields(CONTENT_TYPE, body + b"--x--\r\nno part") == fields


def test_a_header_of_a_form_is_quoted_only_in_part():
    with pytest.raises(RefusedError) as caught:
        body_fields(CONTENT_TYPE, part(b"a" * 100_000) + b"--x--")
    assert len(caught.value.message) < 200


def test_a_form_that_cannot_be_read_is_not_logged(caplog):
    with pytest.raises(RefusedError, match="the form cannot be read"):
        body_fields(CONTENT_TYPE, b"--xa")
    assert caplog.records == []


def test_a_form_has_a_limit_of_fields(command):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = post(command, "/translate", data="q&" * 10_000 + "q", headers=form)
    assert answer.status_code == 413
    assert answer.json() == {"error": "the body has more than 10,000 fields"}


def test_a_form_in_parts_has_a_boundary(command):
    answer = post(command, "/translate", data=PART, headers={"Content-Type": "multipart/form-data"})
    assert (answer.status_code, "has no boundary" in answer.json()["error"]) == (400, True)


HALF = "\\ud800"  # of a pair, as JSON has it
NOT_UTF_8 = b"\xed\xa0\x80"  # the same in what would be UTF-8
BODIES = {
    "/v1/translate": '{"text": ["ant", "%s"], "source": "en"}',
    "/v1/sentences": '{"text": "%s", "source": "en"}',
    "/v1/attention": '{"text": "ant", "translation": "%s", "model": "sentencepiece"}',
    "/translate": '{"q": "%s", "source": "en", "target": "de"}',
    "/detect": '{"q": ["%s"]}',
    "/v2/translate": '{"text": "%s", "target_lang": "DE", "source_lang": "EN"}',
    "/v1/translate#prefix": '{"text": "ant", "source": "en", "prefix": "%s"}',
    "/v1/translate#term": '{"text": "ant", "source": "en", "glossary": {"ant": ["%s"]}}',
    "/v1/translate#key": '{"text": "ant", "source": "en", "%s": 1}',
    "/translate#key": '{"q": "ant", "source": "en", "target": "de", "api_key": "%s"}',
}


@pytest.mark.parametrize("path", BODIES)
def test_half_of_a_character_is_refused(command, path):
    escaped = post(command, path, data=BODIES[path] % HALF)
    raw = post(command, path, data=(BODIES[path] % "@").encode().replace(b"@", NOT_UTF_8))
    for answer, reason in (escaped, "half of a surrogate pair"), (raw, "is not UTF-8"):
        assert answer.status_code == 400
        (error,) = answer.json().values()
        assert error.startswith("the body ")
        assert error.endswith(reason)


def test_half_of_a_character_in_a_form_or_a_query_is_refused(command):
    escaped = f"q={'%ED%A0%80'}&source=en&target=de"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert post(command, "/translate", data=escaped, headers=form).status_code == 400
    answer = post(command, f"/translate?{escaped}")
    assert (answer.status_code, answer.json()) == (400, {"error": "the query is not UTF-8"})
    body = PART.replace(b"ant", NOT_UTF_8) + b"--x--"
    assert post(command, "/translate", data=body, headers=FORM).status_code == 400
