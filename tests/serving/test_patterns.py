"""Requests choose among the patterns of text to copy that the service was started with."""

import pytest
import requests

from nmt_cli.serving.models import patterns_of
from nmt_cli.translating.interface.request import Request
from tests.serving.conftest import running

INSECT = "(?P<insect>bee|wasp)"
TEXT = "bee banana ant {x}"


@pytest.fixture(scope="module")
def service():
    with running(patterns=patterns_of([INSECT, "banana"])) as found:
        yield found


def translated(service, *patterns):
    (found,) = service.here.translator.translate([Request(TEXT, protect=patterns)])
    return found.text


def post(service, path, **record):
    return requests.post(f"{service.url}{path}", json=record, timeout=30)


@pytest.mark.parametrize(
    ("asked", "patterns"),
    [
        ({}, [INSECT, "banana"]),
        ({"protect": []}, []),
        ({"protect": ["insect"]}, [INSECT]),
        ({"protect": ["banana", "common"]}, ["banana", "common"]),
    ],
)
def test_a_request_gets_the_patterns_that_it_names_or_all_that_were_given(service, asked, patterns):
    found = post(service, "/v1/translate", text=TEXT, source="en", **asked).json()
    assert found["translations"][0]["text"] == translated(service, *patterns)
    every = [[], [INSECT], ["banana"], ["common"]]
    assert len({translated(service, *each) for each in every}) == len(every)


def test_texts_of_other_clients_get_all_that_were_given(service):
    expected = translated(service, INSECT, "banana")
    found = post(service, "/translate", q=TEXT, source="en", target="de").json()
    assert found["translatedText"] == expected
    found = post(service, "/v2/translate", text=[TEXT], source_lang="EN", target_lang="DE").json()
    assert found["translations"][0]["text"] == expected


@pytest.mark.parametrize(
    "name", ["(a+)+$", "a*a*a*b", "", "banana|", INSECT, "\u062a", "z" * 10_000]
)
def test_a_pattern_of_a_client_is_refused(service, name):
    answer = post(service, "/v1/translate", text="a" * 40 + "!", source="en", protect=[name])
    shown = repr(name[:60])
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        f"protect: this service has no pattern {shown}; those it has are common, placeholders, "
        "insect, banana",
    )
