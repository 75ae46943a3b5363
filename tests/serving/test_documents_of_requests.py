"""Documents of requests: they come back translated, and nothing of them is kept for long."""

import asyncio
import gc
import io
import time
from contextlib import asynccontextmanager
from typing import Any

import deepl
import pytest
import requests
from starlette.datastructures import Headers
from starlette.requests import Request

from nmt_cli.corpus.text.language_codes import standard_code
from nmt_cli.documents.formats import ENDINGS
from nmt_cli.serving import documents
from nmt_cli.serving.models import glossaries_of, models_of
from nmt_cli.serving.read_documents import ReadDocument
from nmt_cli.serving.requests import RefusedError
from nmt_cli.serving.served import Sent
from nmt_cli.serving.server import _BehindProxy
from nmt_cli.translating.interface.translation import Translation
from tests.documents.archives import docx, unzipped
from tests.serving.conftest import ARGUMENTS, LIMITS, Instant, Silent, running
from tests.serving.test_limits import until

TEXT = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
FILE = docx(TEXT.format("ant bee") * 2)
PAIR = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def service():
    with running(here=Instant()) as found:
        yield found


def sent(service, name="a.docx", data=FILE, path="/translate_file", **fields):
    files = {"file": (name, data)}
    return requests.post(service.url + path, data=fields or PAIR, files=files, timeout=30)


def test_translate_file(service):
    answer = sent(service)
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(f"{service.url}/download_file/")
    found = requests.get(url, timeout=30)
    assert found.headers["Content-Disposition"] == 'attachment; filename="translation.docx"'
    expected = unzipped(FILE)
    body = expected["word/document.xml"].decode().replace("<w:t>", '<w:t xml:space="preserve">')
    expected["word/document.xml"] = body.replace("ant bee", "not ant bee").encode()
    assert unzipped(found.content) == expected
    assert len(service.here.batches[-1].requests) == 1  # equal segments are one line
    settings = requests.get(f"{service.url}/frontend/settings", timeout=30).json()
    assert settings["filesTranslation"]
    assert settings["supportedFilesFormat"] == [
        *(each for names in ENDINGS.values() for each in names),
        ".txt",
    ]


TEXT_FILE = b"\xef\xbb\xbfone\r\n\r\n two \n<b>\none\x0b\xe2\x80\xa8 \r\r\nend"


def test_a_text_is_translated_line_by_line(service):
    answer = sent(service, "A.TXT", TEXT_FILE).json()
    found = requests.get(answer["translatedFileUrl"], timeout=30).content
    lines = TEXT_FILE.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").split(b"\n")
    assert found.replace(b"\r\n", b"\n")[3:].split(b"\n") == [b"not " + each for each in lines]
    assert found[:3] + found[3:].replace(b"not ", b"") == TEXT_FILE
    assert {each.markup for each in service.here.batches[-1].requests} == {None}
    with running() as real:
        url = sent(real, "a.txt", b"ant bee\n\n1. cat dog\r\n").json()["translatedFileUrl"]
        found = requests.get(url, timeout=30).content
        expected = "ant bee\n\n1. cat dog"
        both = requests.post(f"{real.url}/translate", json={"q": expected, **PAIR}, timeout=30)
        assert found.decode() == both.json()["translatedText"] + "\r\n"


FORWARDED = {
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "forged.org, example.org:8443",
    "X-Forwarded-Prefix": "/translate/",
}


@pytest.mark.parametrize(
    ("trusted", "given", "expected"),
    [
        (None, FORWARDED, "https://example.org:8443/translate/"),
        ("*", FORWARDED, "https://example.org:8443/translate/"),
        (None, {"Host": "example.org", "X-Forwarded-Prefix": "a/b"}, "http://example.org/a/b/"),
        (None, {"X-Forwarded-Prefix": "//evil.org/?"}, "{url}/evil.org/%3F/"),
        ("10.0.0.1", FORWARDED, "{url}/"),
    ],
)
def test_the_address_of_a_document_is_that_of_the_proxy(monkeypatch, trusted, given, expected):
    if trusted is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    with running(here=Instant()) as service:
        url, files = f"{service.url}/translate_file", {"file": ("a.html", b"<p>one</p>")}
        answer = requests.post(url, data=PAIR, files=files, headers=given, timeout=30)
        found = answer.json()["translatedFileUrl"]
        assert found.rpartition("download_file/")[0] == expected.format(url=service.url)
        assert requests.get(f"{service.url}/v2/none", headers=given, timeout=30).json() == {
            "message": "Not Found"
        }


def test_the_header_of_the_last_proxy_counts():
    async def app(scope, _receive, _send):
        assert (Headers(scope=scope)["host"], scope["app_root_path"]) == ("example.org", "/b")

    names = [b"forged.org", b"one.org, example.org"]
    headers = [(b"x-forwarded-host", name) for name in names]
    headers += [(b"host", b"here"), (b"x-forwarded-prefix", b"a"), (b"x-forwarded-prefix", b"b")]
    scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 1), "headers": headers}
    asyncio.run(_BehindProxy(app, "127.0.0.1")(scope, None, None))


def test_the_client_of_deepl(service, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    client = deepl.Translator("key", server_url=service.url, send_platform_info=False)
    output = io.BytesIO()
    status = client.translate_document(
        b"<p>one <b>two</b></p>",
        output,
        source_lang="EN",
        target_lang="DE",
        filename="a.html",
    )
    assert status.done
    assert output.getvalue() == b"<p>not one <b>two</b></p>"
    handle = client.translate_document_upload(
        FILE, source_lang="EN", target_lang="DE", filename="a.docx"
    )
    wrong = deepl.DocumentHandle(handle.document_id, "wrong \N{SNOWMAN}")
    with pytest.raises(deepl.DeepLException, match="there is no such document"):
        client.translate_document_get_status(wrong)


def test_the_language_of_a_document_is_detected(service):
    german = b"<p>Das ist ein deutscher Satz.</p>"
    url = sent(service, "a.html", german, source="auto", target="de").json()["translatedFileUrl"]
    assert requests.get(url, timeout=30).content == german


def test_documents_name_the_language_of_their_translation(service):
    page = (
        b'<html lang="en"><p>The ant and the bee live in an old tree beside the river.</p></html>'
    )
    for source in ("en", "auto"):
        url = sent(service, "a.html", page, source=source, target="de").json()["translatedFileUrl"]
        found = requests.get(url, timeout=30).content
        assert found.startswith(b'<html lang="de"><p>not The ant')


def test_every_format(service):
    srt = b"1\n00:00:01,000 --> 00:00:02,000\nOne.\n"
    po = (
        b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "One"\nmsgstr ""\n'
    )
    tmx = b"""<tmx version="1.4"><header/>
    <body><tu><tuv xml:lang="en"><seg>One</seg></tuv></tu></body></tmx>"""
    xlf = b"""<xliff version="1.2"><file source-language="en" target-language="de" original="a">
    <body><trans-unit id="1"><source>One</source></trans-unit></body></file></xliff>"""
    for name, data in (
        *(("a.srt", srt), ("a.po", po), ("a.tmx", tmx), ("a.xlf", xlf)),
        *(("a.md", b"# One"), ("a.txt", b"One")),
    ):
        answer = sent(service, name, data)
        assert answer.status_code == 200, answer.text
        found = requests.get(answer.json()["translatedFileUrl"], timeout=30).content
        assert b"not One" in found
    answer = sent(service, "a.tmx", tmx, source="auto", target="de").json()
    assert answer == {"error": "a document of tmx needs the language of its source"}


@pytest.mark.parametrize(
    ("name", "data", "status", "error"),
    [
        ("a.pdf", b"%PDF", 400, "the name of the file must end in one of .html, .htm, "),
        ("a.docx", b"PK\x03\x04", 400, "the file cannot be read as docx: it is no zip file, or"),
        ("a.docx", b"", 400, "the file cannot be read as docx: it is no zip file, or"),
        ("a.txt", b"\xff", 400, "the file cannot be read as text: it is not in the encoding utf-8"),
        ("a.html", b"\xff", 400, "the file cannot be read as html: it is not in the encoding"),
        ("a.html", b"<p>" + b"x" * 200_000, 413, "200,000 characters are more than 100,000"),
        ("a.html", b"<p>" * 2_000_000, 413, "6,000,000 bytes of markup are more than 4,000,000"),
        ("a.html", b"x" * (11 << 20), 413, "the body has more than 10,485,760 bytes"),
    ],
)
def test_what_is_refused(service, name, data, status, error):
    answer = sent(service, name, data)
    assert (answer.status_code, answer.json()["error"][: len(error)]) == (status, error)


def test_a_request_needs_a_file(service):
    for body in ({"file": "text", **PAIR}, PAIR):
        answer = requests.post(f"{service.url}/translate_file", json=body, timeout=30)
        assert answer.json() == {"error": "file must be a file, in a form of several parts"}


def test_documents_are_kept_for_a_while_only(service, monkeypatch):
    monkeypatch.setattr(documents, "KEPT_SECONDS", 0.0)
    url = sent(service).json()["translatedFileUrl"]
    assert requests.get(url, timeout=30).status_code == 404
    monkeypatch.undo()
    monkeypatch.setattr(documents, "MOST_KEPT_BYTES", len(FILE) - 1)
    assert sent(service).status_code == 503


def test_a_document_that_takes_too_long():
    fields = {"source_lang": "EN", "target_lang": "DE"}
    with running(here=Silent(), limits=LIMITS._replace(seconds=0.2)) as service:
        assert sent(service).status_code == 503
        kept = sent(service, path="/v2/document", **fields).json()
        url, key = f"{service.url}/v2/document/{kept['document_id']}", kept["document_key"]
        statuses = []
        while "error" not in statuses:
            answer = requests.post(url, json={"document_key": key}, timeout=30).json()
            statuses.append(answer["status"])
        assert statuses[0] == "translating"
        assert answer["error_message"] == "it was not translated within 0.2 seconds"
        assert len(service.here.withdrawn) == 2


class Failing(Instant):
    """Cannot translate what is bad."""

    def submit(self, batch):
        Silent.submit(self, batch)
        for place, request in enumerate(batch.requests):
            error = "it is bad" if "bad" in request.text else None
            batch.answer(place, Translation("" if error else f"not {request.text}", error=error))


def test_segments_that_fail_stay_and_are_named():
    page = b"<p>one</p><p>two</p><p>one</p><p>a <b>bad</b> one</p>"
    failed = [{"segment": 4, "text": "a bad one", "error": "it is bad"}]
    fields = {"source_lang": "EN", "target_lang": "DE"}
    with running(here=Failing()) as service:
        answer = sent(service, "a.html", page).json()
        assert answer["failedSegments"] == failed
        found = requests.get(answer["translatedFileUrl"], timeout=30).content
        assert found == b"<p>not one</p><p>not two</p><p>not one</p><p>a <b>bad</b> one</p>"
        kept = sent(service, "a.html", page, "/v2/document", **fields).json()
        url, key = f"{service.url}/v2/document/{kept['document_id']}", kept["document_key"]
        status: dict[str, Any] = {"status": "translating"}
        while status["status"] == "translating":
            status = requests.post(url, json={"document_key": key}, timeout=30).json()
        assert (status["status"], status["failed_segments"]) == ("done", failed)
        answer = sent(service, "a.html", b"<p>bad</p>")
        assert answer.status_code == 400
        assert answer.json() == {"error": "no segment could be translated: it is bad"}


def test_a_memory_has_the_languages_of_the_request(service):
    texts = {"en": "a", "en-GB": "b", "en-US": "c"}
    unit = "".join(
        f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items()
    )
    data = f"<tmx><body><tu>{unit}</tu></body></tmx>".encode()
    for (source, target), written in {
        ("en", "de"): ' xml:lang="de" creationtool="nmt-cli"><seg>not a<',
        ("EN", "DE"): ' xml:lang="de" creationtool="nmt-cli"><seg>not a<',
        ("EN_gb", "DE-at"): ' xml:lang="de-AT" creationtool="nmt-cli"><seg>not b<',
        ("en-US", 'de-"'): ' xml:lang="de" creationtool="nmt-cli"><seg>not c<',
    }.items():
        answer = sent(service, "a.tmx", data, source=source, target=target)
        assert answer.status_code == 200, answer.text
        assert written in requests.get(answer.json()["translatedFileUrl"], timeout=30).text


def test_few_large_documents_are_translated_at_once(monkeypatch):
    monkeypatch.setattr(documents, "MOST_READ_BYTES", 30)
    fields = {"source_lang": "EN", "target_lang": "DE", "path": "/v2/document"}
    with running(here=Silent()) as service:
        kept = sent(service, "a.html", b"<p>one" + b"<br>" * 9, **fields).json()
        answer = sent(service, "a.html", b"<p>two", **fields)
        assert answer.status_code == 503
        assert answer.json() == {"message": "too many documents are being translated"}
        url, key = f"{service.url}/v2/document/{kept['document_id']}", kept["document_key"]
        while requests.post(url, json={"document_key": key}, timeout=30).json()["status"] != "done":
            for batch in service.here.batches:
                batch.done.get_loop().call_soon_threadsafe(batch.answer, 0, Translation("eins"))
        assert sent(service, "a.html", b"<p>two", **fields).status_code == 200


def test_documents_in_progress_are_counted_before_they_are_read(monkeypatch):
    """Six at once passed a limit that three of them reach."""
    monkeypatch.setattr(documents, "MOST_READ_BYTES", 30)

    class Slow:
        def __init__(self):
            self.may_read, self.num_read = asyncio.Event(), 0

        @asynccontextmanager
        async def sent(self, http, *, has_document):
            assert has_document
            yield Sent({}, "", b"0123456789", False, 10)

        async def read_aside(self, http, sent, reading):
            self.num_read += 1
            await self.may_read.wait()
            return ReadDocument("a.html", None, None, [], [], 0, http.scope["size"], 10)

    async def in_progress(found, num_markup):
        async with found._read(Request({"type": "http", "size": num_markup}), None):
            await asyncio.sleep(0.01)

    async def count(sizes):
        slow: Any = Slow()
        found = documents.Documents(slow)
        together = [asyncio.ensure_future(in_progress(found, size)) for size in sizes]
        await asyncio.sleep(0)
        slow.may_read.set()
        await asyncio.wait(together)
        assert not found._in_progress
        refused = [each.exception() for each in together if each.exception()]
        assert {type(each) for each in refused} <= {RefusedError}, refused
        return len(refused), slow.num_read

    assert asyncio.run(count([10] * 6)) == (3, 3)
    assert asyncio.run(count([10, 21])) == (1, 2)  # an archive: its markup is known when it is read
    assert asyncio.run(count([99])) == (0, 1)


@pytest.mark.parametrize("path", ["/v2/document", "/translate_file"])
def test_nothing_holds_a_document_that_was_fetched_or_is_no_longer_kept(service, monkeypatch, path):
    def number():
        gc.collect()
        return sum(type(each) is documents.Kept for each in gc.get_objects())

    before = number()
    if path == "/translate_file":
        monkeypatch.setattr(documents, "KEPT_SECONDS", 0.0)
        assert sent(service).status_code == 200
    else:
        kept = sent(service, path=path, source_lang="EN", target_lang="DE").json()
        url = f"{service.url}{path}/{kept['document_id']}"
        body = {"document_key": kept["document_key"]}
        assert number() > before
        until(lambda: requests.post(f"{url}/result", json=body, timeout=30).status_code == 200)
    until(lambda: number() == before)


@pytest.mark.parametrize(
    ("code", "standard"),
    [
        ("pb", "pt-BR"),
        ("ZT", "zh-Hant"),
        ("en_us", "en-US"),
        ("no", "nb"),
        ("sr-latn-rs", "sr-Latn-RS"),
    ],
)
def test_codes_are_written_as_in_bcp_47(code, standard):
    assert standard_code(code) == standard


def test_a_long_reference_beside_a_glossary(tmp_path):
    (tmp_path / "animals.tsv").write_text("bee\tBiene\n")
    glossaries = glossaries_of([str(tmp_path / "animals.tsv")], models_of(ARGUMENTS))
    with running(here=Instant(), glossaries=glossaries) as service:
        asked = {"text": [f"<p>a &#{'9' * 5000}; bee"], "source_lang": "EN", "target_lang": "DE"}
        asked |= {"tag_handling": "html", "glossary_id": "animals"}
        answer = requests.post(f"{service.url}/v2/translate", json=asked, timeout=30)
        assert answer.status_code == 200, answer.text
        assert service.here.batches[0].requests[0].glossary is not None
