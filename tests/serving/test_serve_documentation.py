"""What the pages about the service say, and what the program does."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.error import HTTPError

import pytest
import uvicorn

from nmt_cli.cli import main
from nmt_cli.serving.connections import MOST_CONNECTIONS
from tests.serving.conftest import ARGUMENTS, Instant, running

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / name for name in ("how-to/serve.md", "tutorials/serve.md", "reference/http.md")]
HOW_TO, TUTORIAL, REFERENCE = (page.read_text(encoding="utf-8") for page in PAGES)
ADDRESS = "http://127.0.0.1:5000"
CURL = shutil.which("curl")
OPTIONS = {each.name: each for each in main.commands["serve"].params}


@pytest.fixture(scope="module")
def service():
    with running(ARGUMENTS[:1], here=Instant()) as found:
        yield found


@pytest.mark.skipif(CURL is None, reason="there is no curl here")
@pytest.mark.parametrize(
    "command", re.findall(r"^    (?:\w+=\S*/)?(curl .*)", HOW_TO + TUTORIAL + REFERENCE, re.M)
)
def test_commands_of_curl_are_answered(service, command):
    words = f"{command} --silent --show-error --fail".replace(ADDRESS, service.url)
    assert service.url in words
    subprocess.run(["bash", "-c", words], check=True, stdout=subprocess.PIPE, timeout=30)


def test_every_figure_that_is_named_is_there():
    figures = set(re.findall(r"`(nmt_cli_\w+)`", REFERENCE.split("## Figures for Prometheus")[1]))
    named = set(re.findall(r"\bnmt_cli_\w+", HOW_TO))
    assert len(named) >= 6
    assert named <= figures
    statuses = set(re.findall(r'status="(\d+)"', HOW_TO))
    assert statuses - {"499"} <= set(re.findall(r"^\| (\d+) \|", REFERENCE, re.M))


def value(pattern):
    (found,) = re.findall(pattern, HOW_TO)
    return int(found)


def test_times_and_sizes_of_other_programs_fit_the_limits():
    drain, most = OPTIONS["drain_seconds"].default, OPTIONS["max_seconds"].default
    assert f"`--drain-seconds`, which is {drain:g}." in HOW_TO
    assert value(r"TimeoutStopSec=(\d+)") > drain
    assert value(r"--stop-timeout (\d+) ") > drain
    assert value(r"proxy_read_timeout (\d+)s") > most
    assert value(r"client_max_body_size (\d+)m") << 20 == OPTIONS["max_document_bytes"].default
    assert value(r"client_body_buffer_size (\d+)m") << 20 == OPTIONS["max_document_bytes"].default
    assert value(r"LimitNOFILE=(\d+)") >= 2 * MOST_CONNECTIONS == 20_000
    assert f"the {MOST_CONNECTIONS:,} connections that it may have" in HOW_TO
    assert value(r" keepalive_timeout (\d+)s") < uvicorn.Config("").timeout_keep_alive == 5


def test_the_check_of_the_container_finds_out_whether_the_service_is_ready(service):
    containerfile = (DOCS.parent / "Containerfile").read_text(encoding="utf-8")
    (words,) = re.findall(r"HEALTHCHECK .* CMD (\[.*\])", containerfile)
    *_, program = json.loads(words)
    exec(program.replace(ADDRESS, service.url))
    service.service.state = "draining"
    with pytest.raises(HTTPError, match="503"):
        exec(program.replace(ADDRESS, service.url))
    service.service.state = "ready"
