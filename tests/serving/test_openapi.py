"""The description of the interface, and what the program takes and answers."""

import ast
import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import requests
from jsonschema import Draft202012Validator

from nmt_cli.messages import logs
from nmt_cli.serving import deepl, server
from nmt_cli.serving.openapi import ERRORS, TITLE, described, document
from nmt_cli.serving.requests import FORM
from nmt_cli.serving.served import KEY_FIELDS, Served
from nmt_cli.serving.service import Service
from tests import reference_pages
from tests.reference_pages import command_of
from tests.serving.conftest import Instant, Silent, running

DOCUMENT = document()
OPERATIONS = [
    pytest.param(path, method, operation, id=f"{method} {path}")
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
DOCUMENTS = re.compile(r"/v2/document|/translate_file")  # test_documents_of_requests.py has these
TAKING = [
    each for each in server.PATHS if each.takes is not None and not DOCUMENTS.match(each.path)
]
SERVING = Path(server.__file__).parent


def schema_of(operation, status="200"):
    ((kind, content),) = operation["responses"][status]["content"].items()
    return content["schema"] if kind == "application/json" else None


def test_every_path_is_described():
    described = {(path, method) for path, ways in DOCUMENT["paths"].items() for method in ways}
    assert described == {(each.path, each.method.lower()) for each in server.PATHS}
    names = {each["operationId"] for ways in DOCUMENT["paths"].values() for each in ways.values()}
    assert len(names) == len(server.PATHS)


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_descriptions_are_whole(path, method, operation):
    assert operation["summary"].endswith(".")
    in_path = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
    assert in_path == re.findall("{(.*?)}", path)
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    answers = [schema_of(operation, status) for status in operation["responses"]]
    for schema in (*(body["schema"] for body in bodies), *filter(None, answers)):
        Draft202012Validator.check_schema(schema)
    assert {tag["name"] for tag in DOCUMENT["tags"]} > set(operation["tags"])


@pytest.mark.slow
def test_the_document_keeps_the_rules_of_openapi():
    reason = "openapi-spec-validator is not installed (make test-all)"
    validator = pytest.importorskip("openapi_spec_validator", reason=reason)
    validator.validate(DOCUMENT)


class Noting(dict[str, Any]):
    """Keys of a request; it notes those that are looked for."""

    def __init__(self, *given):
        super().__init__(*given)
        self.asked = set()

    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)

    def pop(self, key, *default):
        self.asked.add(key)
        return super().pop(key, *default)

    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)


def keys_of(endpoint):
    """Return the keys of a table, and what is in the words of the description as a key is."""
    return {*(endpoint.takes or ()), *re.findall(r"`(\w+)", " ".join(described(endpoint)))}


@pytest.mark.parametrize("endpoint", [each for each in TAKING if not each.is_closed])
def test_every_key_that_is_read_is_described(running_service, monkeypatch, endpoint):
    """Keys beyond those are refused by closed paths, and ignored by the others."""
    noted = []

    def fields(self, sent):
        noted.append(Noting(endpoint.example))
        return noted[-1]

    async def read_here(self, http, sent, function):
        return function(self.served, self.served.fields(sent))

    monkeypatch.setattr(Served, "fields", fields)
    monkeypatch.setattr(Service, "read_aside", read_here)
    path = endpoint.path.format(name="animals") if "{" in endpoint.path else endpoint.path
    answer = requests.request(endpoint.method, f"{running_service.url}{path}", timeout=30)
    assert answer.status_code == 200, answer.text
    assert noted[0].asked <= keys_of(endpoint)


@pytest.mark.parametrize("endpoint", [each for each in TAKING if each.is_closed])
def test_no_other_key_is_taken(running_service, endpoint):
    record = {**endpoint.example, "unheard-of": 1}
    url = f"{running_service.url}{endpoint.path}"
    answer = requests.post(url, json=record, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith('the key "unheard-of" is unknown; known keys: ')
    assert set(answer.json()["error"].split(": ")[1].split(", ")) == set(endpoint.takes)
    for name in KEY_FIELDS:  # ignored by a service that needs none
        again = requests.post(url, json={**record, name: 1}, timeout=30)
        assert again.json() == answer.json()


@pytest.mark.parametrize(
    "endpoint", [each for each in server.PATHS if each.returns and not DOCUMENTS.match(each.path)]
)
def test_answers_are_as_described(running_service, endpoint):
    operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
    url = running_service.url + endpoint.path.replace("{name}", "animals")
    every = {**endpoint.example}
    if endpoint.path == "/v1/translate":
        every |= {"text": "A {cat}.", "token_scores": True, "alignments": True}
        every |= {"protect": ["common"]}
    answer = requests.request(endpoint.method, url, json=every or None, timeout=30)
    assert answer.status_code == 200, answer.text
    Draft202012Validator(schema_of(operation)).validate(answer.json())
    rows = answer.json() if isinstance(answer.json(), list) else [answer.json()]
    for row in rows:
        assert set(row) <= set(endpoint.returns)


ODD: tuple[Any, ...] = ([], {}, [[]], {"a": {}}, 1, -0.5, True, None, "\ud800", 10**400, ["\ud800"])


def test_no_value_of_a_key_is_a_bug():
    with running(here=Instant()) as service, requests.Session() as session:
        for endpoint in (each for each in TAKING if each.example):
            for key, value in itertools.product(sorted(keys_of(endpoint)), ODD):
                body = json.dumps({**endpoint.example, key: value})
                answer = session.post(service.url + endpoint.path, data=body, timeout=30)
                assert answer.status_code in {200, 400, 404}, (key, value, answer.text)


@pytest.mark.parametrize("endpoint", [each for each in server.PATHS if each.example])
def test_the_example_of_a_path_is_answered(running_service, endpoint):
    command, url, flag, body = shlex.split(command_of(endpoint, running_service.url))
    assert (command, flag, json.loads(body)) == ("curl", "-d", endpoint.example)
    answer = requests.post(url, data=body, headers={"Content-Type": FORM}, timeout=30)  # as curl
    assert answer.status_code == 200, answer.text


def test_errors_are_as_described(running_service):
    for endpoint in TAKING:
        operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
        url = running_service.url + endpoint.path.replace("{name}", "animals")
        answer = requests.request(endpoint.method, url, data=b"\xff", timeout=30)
        assert answer.status_code == 400
        schema = {**schema_of(operation, "400"), "additionalProperties": False}
        Draft202012Validator(schema).validate(answer.json())


def test_the_statuses_of_errors_are_those_of_the_program():
    used = {
        node.args[0].value
        for path in SERVING.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RefusedError"
        if isinstance(node.args[0], ast.Constant)
    }
    assert used | {405, 500} == set(ERRORS)


class Broken(Silent):
    def submit(self, requests):
        raise ZeroDivisionError


def test_a_bug_is_an_answer_that_is_logged_and_counted(monkeypatch):
    logged: list[str] = []
    monkeypatch.setattr(logs, "warning", logged.append)
    with running(here=Broken()) as service:
        for path, key in ("/v1/translate", "error"), ("/v2/translate", "message"):
            (endpoint,) = [each for each in server.PATHS if each.path == path]
            answer = requests.post(f"{service.url}{path}", json=endpoint.example, timeout=30)
            assert answer.status_code == 500
            assert answer.json()[key].startswith("it met a bug; the log")
        figures = requests.get(f"{service.url}/metrics", timeout=30)
    assert 'requests_total{path="/v1/translate",status="500"} 1' in figures.text
    what = "request [0-9a-f]{16}: POST /v1/translate met a bug:\nTraceback"
    assert re.match(what, logged[0])
    assert logged[0].rstrip().endswith("ZeroDivisionError")


def test_the_service_answers_with_the_document(running_service):
    served, other = (
        requests.get(f"{running_service.url}/{name}", timeout=30).json()
        for name in ("openapi.json", "spec")
    )
    assert served == other
    assert served == json.loads(json.dumps(DOCUMENT))
    assert served["info"]["title"] == TITLE


def test_the_reference_has_every_path_and_key():
    page = reference_pages.http()
    for endpoint in server.PATHS:
        assert f"### `{endpoint.method} {endpoint.path}`" in page
        for key in (*(endpoint.takes or ()), *endpoint.returns):
            assert f"`{key}`" in page
    for name in deepl.REFUSED:
        assert f"`{name}`" in page
