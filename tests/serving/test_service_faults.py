"""The service under clients that vanish, send rubbish or do not read, and workers that are killed.

Every loop is bounded in count and time, and everything is sent to 127.0.0.1.
"""

import asyncio
import io
import json
import os
import random
import re
import signal
import socket
import struct
import zipfile
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from nmt_cli.serving.connections import MOST_UNREAD_BYTES
from nmt_cli.translating.translator import Translator
from tests.serving.conftest import REVERSING
from tests.serving.load import translate_all
from tests.serving.test_documents_of_requests import FILE
from tests.serving.test_limits import BODY, head, until
from tests.serving.test_serve import TEXTS, Command, metric

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LARGE = 100_000_000  # bytes
AT_ONCE = 100
SECONDS = 4.0  # that a service of impatient waits for a client
HTTP = "http"  # the process that answers
RESET = struct.pack("ii", 1, 0)  # a socket with this option ends its connection by RST


@contextmanager
def serving(*options):
    command = Command(str(REVERSING), "--workers=2", "--precision=fp32", "--device=cpu", *options)
    try:
        command.url = command.wait_for(r"http://\S+").group()
        yield command
    finally:
        command.close()


@pytest.fixture(scope="module")
def service():
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def impatient():
    with serving(f"--max-seconds={SECONDS}") as found:
        yield found


@pytest.fixture(scope="module")
def expected():
    """The translation of each of TEXTS."""
    translator = Translator.load(REVERSING, device="cpu", precision="fp32")
    return {
        text: found.text for text, found in zip(TEXTS, translator.translate(TEXTS), strict=True)
    }


def is_well(command, expected):
    """Check that all is answered as before, and that nothing is left of earlier requests."""
    found = asyncio.run(translate_all(command.place, 8, TEXTS, source="en"))
    assert {text: answer["text"] for text, answer, _ in found} == expected
    until(lambda: not metric(command, "nmt_cli_waiting_lines"))
    until(lambda: not metric(command, "nmt_cli_worker_lines"))
    assert metric(command, "nmt_cli_worker_deaths_total") == 0
    text = requests.get(f"{command.url}/metrics", timeout=30).text
    assert 'status="500"' not in text, text


def connections_of(command):
    """Return how many sockets of TCP the HTTP process has: those of its processes are others."""
    process = Path(f"/proc/{command.process.pid}")
    rows = [row.split() for row in (process / "net/tcp").read_text().splitlines()[1:]]
    of_tcp = {f"socket:[{row[9]}]" for row in rows}
    found = 0
    for link in (process / "fd").iterdir():
        with suppress(OSError):
            found += str(link.readlink()) in of_tcp
    return found


def peak_of(command):
    """Return the most resident bytes that the HTTP process has had."""
    status = Path(f"/proc/{command.process.pid}/status").read_text()
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])


def resident(command):
    """Return the resident bytes of the HTTP process, and of each worker."""
    text = requests.get(f"{command.url}/metrics", timeout=30).text
    rows = [row for row in text.splitlines() if row.startswith("nmt_cli_resident_bytes{")]
    return {re.findall('worker="(.*?)"', row)[0]: float(row.split()[1]) for row in rows}


async def vanish(place, number):
    """Go away in the middle of a head, a body, a translation or an answer."""
    whole = head(len(BODY)) + BODY
    stage = number % 4
    sent = [whole[:20], whole[: -len(BODY) // 2], whole, whole][stage]
    reader, writer = await asyncio.open_connection(*place)
    writer.write(sent)
    await writer.drain()
    if stage == 3:
        await reader.readexactly(10)
    if number % 8 < 4:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort() if number % 8 < 4 else writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def test_a_thousand_clients_that_vanish(service, expected):
    is_well(service, expected)
    before = connections_of(service)

    async def all_vanish():
        for first in range(0, 1_000, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            await asyncio.gather(*(vanish(service.place, number) for number in numbers))

    asyncio.run(asyncio.wait_for(all_vanish(), 300))
    is_well(service, expected)
    until(lambda: connections_of(service) <= before)


def test_bodies_that_are_sent_by_half(impatient, expected):
    before = connections_of(impatient)

    async def send_half(client):
        reader, writer = await asyncio.open_connection(*impatient.place)
        writer.write(head(len(BODY)) + BODY[: client % len(BODY)])
        status = await reader.readline()
        writer.close()
        return status

    async def with_others():
        halves = asyncio.gather(*(send_half(client) for client in range(300)))
        found = await translate_all(impatient.place, 4, TEXTS, source="en")
        return found, await halves

    found, statuses = asyncio.run(asyncio.wait_for(with_others(), 120))
    assert {text: answer["text"] for text, answer, _ in found} == expected
    assert set(statuses) == {b"HTTP/1.1 408 Request Timeout\r\n"}
    until(lambda: connections_of(impatient) <= before)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_of_100_mb_is_refused_before_it_has_come(service, expected, is_chunked):
    before = resident(service)[HTTP]
    start = head(LARGE)
    if is_chunked:
        start = start.replace(f"Content-Length: {LARGE}".encode(), b"Transfer-Encoding: chunked")
    part = b" " * (1 << 16)
    data = b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part
    for _ in range(10):
        num_sent = 0
        with socket.create_connection(service.place, timeout=60) as client:
            client.sendall(start)
            with suppress(ConnectionError):
                while num_sent < LARGE:
                    client.sendall(data)
                    num_sent += len(part)
        assert num_sent < LARGE / 4
    with socket.create_connection(service.place, timeout=60) as client:
        client.sendall(start)
        for _ in range(17 if is_chunked else 0):  # one more than --max-body-bytes
            client.sendall(data)
        assert client.recv(100).startswith(b"HTTP/1.1 413")
    is_well(service, expected)
    assert resident(service)[HTTP] < before + 20_000_000


def spoiled(body, draw):
    """Return a body with some bytes changed, taken out or repeated."""
    data = bytearray(body)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(data))
        match draw.randrange(4):
            case 0:
                data[place] = draw.randrange(256)
            case 1:
                del data[place : place + draw.randint(1, 5)]
            case 2:
                data[place:place] = data[place : place + 10] * draw.randint(1, 100)
            case 3:
                data[place:place] = draw.choice(
                    [b"\xff", b"\\ud800", b"[" * 3_000, b'{"a":' * 3_000]
                )
        data = data or bytearray(b"{")
    return bytes(data)


def test_malformed_json_and_utf_8(service, expected):
    draw = random.Random(1)
    paths = {
        "/v1/translate": {"text": ["ant", "bée"], "source": "en", "n_best": 2, "required": ["a"]},
        "/translate": {"q": ["ant", "bée"], "source": "en", "target": "de", "alternatives": 1},
        "/v2/translate": {"text": ["ant"], "source_lang": "EN", "target_lang": "DE"},
        "/v1/sentences": {"text": "Ant. Bée.", "source": "en"},
    }
    statuses = set()
    with requests.Session() as session:
        for path, record in islice(cycle(paths.items()), 2_000):
            body = spoiled(json.dumps(record, ensure_ascii=draw.random() < 0.5).encode(), draw)
            answer = session.post(f"{service.url}{path}", data=body, timeout=30)
            assert answer.status_code in {200, 400}, (path, body, answer.text)
            assert isinstance(answer.json(), dict)
            statuses.add(answer.status_code)
    assert statuses == {200, 400}
    is_well(service, expected)


def test_clients_that_do_not_read_their_answers(impatient, expected):
    """A document that is kept is fetched by so many that their answers do not fit in the memory."""
    data = io.BytesIO(FILE)
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr("word/media/large.png", random.Random(1).randbytes(9 << 20))
    form, files = {"source": "en", "target": "de"}, {"file": ("a.docx", data.getvalue())}
    answer = requests.post(f"{impatient.url}/translate_file", form, files=files, timeout=60)
    path = urlsplit(answer.json()["translatedFileUrl"]).path
    get = f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()
    num_clients, num_read = 4 * MOST_UNREAD_BYTES // len(data.getvalue()), list[int]()

    async def read_slowly():
        loop = asyncio.get_running_loop()
        with socket.socket() as client, suppress(ConnectionError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await loop.sock_connect(client, impatient.place)
            await loop.sock_sendall(client, get)
            assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200")
            num_read.append(100)
            while await loop.sock_recv(client, 100):
                await asyncio.sleep(0.1)

    async def with_others():
        slow = asyncio.gather(*(read_slowly() for _ in range(num_clients)))
        found = await translate_all(impatient.place, 4, list(TEXTS) * 5, source="en")
        # The system goes on sending what the service has written.
        await asyncio.to_thread(until, lambda: connections_of(impatient) <= before)
        slow.cancel()
        with suppress(asyncio.CancelledError):
            await slow
        return found

    before, bytes_before = connections_of(impatient), resident(impatient)[HTTP]
    found = asyncio.run(asyncio.wait_for(with_others(), 300))
    assert len(num_read) == num_clients
    assert all(answer["text"] == expected[text] for text, answer, _ in found)
    is_well(impatient, expected)
    # What Python allocates is more than what it is for.
    assert peak_of(impatient) < bytes_before + 1.5 * MOST_UNREAD_BYTES
    assert "wait for clients that do not read them" in impatient.log


def test_workers_that_are_killed_again_and_again(expected):
    """No answer is lost or swapped."""
    draw, killed = random.Random(1), set[int]()
    texts = list(islice(cycle(TEXTS), 10_000))
    draw.shuffle(texts)

    async def under_load(command):
        answers = asyncio.ensure_future(translate_all(command.place, 32, texts, source="en"))
        num_lines = 0.0
        while not answers.done() and len(killed) < 40:
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(metric, command, "nmt_cli_lines_total")
            # One that was killed is listed until the process that started it has asked for its end.
            workers = [each for each in command.workers().values() if each not in killed]
            if found > num_lines + 100 and workers:
                victim = draw.choice(workers)
                os.kill(victim, signal.SIGKILL)
                killed.add(victim)
                num_lines = found
        return await answers

    with serving() as command:
        found = asyncio.run(asyncio.wait_for(under_load(command), 500))
        assert len(found) == len(texts)
        assert all(answer["text"] == expected[text] for text, answer, _ in found)
        assert len(killed) >= 20
        until(lambda: metric(command, "nmt_cli_worker_deaths_total") == len(killed))
        until(lambda: len(command.workers()) == 2)


@pytest.mark.timeout(1_800)
def test_memory_stays_the_same(expected):
    with serving() as command:

        def ask(count):
            texts = islice(cycle(TEXTS), count)
            found = asyncio.run(translate_all(command.place, 32, texts, source="en"))
            assert len(found) == count
            assert all(answer["text"] == expected[text] for text, answer, _ in found)

        ask(10_000)
        early = resident(command)
        for _ in range(9):
            ask(10_000)
        late = resident(command)
    assert early.keys() == late.keys()
    assert len(early) == 4  # one of them reads documents
    assert all(late[name] <= 1.05 * early[name] for name in early), (early, late)
