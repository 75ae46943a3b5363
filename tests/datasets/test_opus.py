"""Corpora of OPUS, from a server on this machine that has its paths and its API."""

import hashlib
import io
import json
import random
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.datasets import opus
from nmt_cli.datasets.assembly import append_members
from nmt_cli.files.atomic_files import verify
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from tests.folders_in_memory import tmp_path as tmp_path
from tests.loopback_server import Fault

# Line separators of other programs are inside the lines.
TEXTS = {"de": "Ein Fuchs\u2028rennt\nEs regnet\n", "en": "A fox runs\nIt\u0085rains"}
COPIES = {"de": TEXTS["de"], "en": TEXTS["en"] + "\n"}
PATH = "/OPUS-Books/v2/moses/de-en.txt.zip"
QUERY = "?corpus=Books&source={}&target={}&preprocessing=moses&version=latest"


def zip_of(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return stream.getvalue()


def archive_of(pair="de-en", texts=TEXTS):
    texts = {f"Books.{pair}.{language}": text for language, text in texts.items()}
    return zip_of({"README": "Books", "LICENSE": "free", **texts, f"Books.{pair}.xml": "<x/>"})


@pytest.fixture
def store(server, monkeypatch, tmp_path):
    """The server, with version 2 of a corpus; its API knows it as the newest one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opus, "FILES", server.url)
    monkeypatch.setattr(opus, "API", f"{server.url}/opusapi/")
    url = server.put(PATH, archive_of())
    entry = {"corpus": "Books", "version": "v2", "url": url, "alignment_pairs": 2, "size": 1}
    for pair in (("en", "de"), ("de", "en")):
        server.put(f"/opusapi/{QUERY.format(*pair)}", json.dumps({"corpora": [entry]}).encode())
    return server


def get(*arguments):
    result = CliRunner().invoke(cli.main, ["data", "get", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return result.exit_code, result.stderr


def failure_of(*arguments, status=1):
    exit_code, text = get(*arguments)
    assert exit_code == status, text
    *warnings, error = text.splitlines()
    assert all(line.startswith("Warning: ") for line in warnings)
    assert error.startswith("Error: ")
    return error.removeprefix("Error: ")


def texts_in(folder):
    return {path.suffix[1:]: path.read_bytes().decode() for path in Path(folder).glob("train.*")}


@pytest.mark.parametrize("pair", ["en-de", "de-en"])
@pytest.mark.parametrize("version", ["v2", "2"])
def test_a_version_is_fetched_without_the_api(store, pair, version):
    assert get(f"opus:Books@{version}/{pair}")[0] == 0
    assert texts_in(f"data/opus/Books@{version}/{pair}") == COPIES
    assert store.requests == [(PATH, None)] * 2  # for the size, and for the file


def test_the_newest_version_is_that_of_the_api(store):
    exit_code, text = get("opus:Books/en-de")
    assert exit_code == 0
    assert text.splitlines()[0] == "The newest version of opus:Books/en-de is v2."
    assert texts_in("data/opus/Books/en-de") == COPIES
    manifest = verify(Path("data/opus/Books/en-de"))
    content = archive_of()
    assert (manifest["kind"], manifest["name"]) == ("dataset", "opus:Books@v2/en-de")
    assert manifest["test_sets"] == []
    assert manifest["train"] == [
        {
            "name": "Books v2",
            "url": store.url + PATH,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "members": ["Books.de-en.en", "Books.de-en.de"],
            "lines": 2,
            "expected_lines": None,
        }
    ]
    downloads = Path("data/opus/Books/downloads")
    assert [path.name for path in downloads.iterdir()] == ["opus-Books-v2-de-en.txt.zip"]


def test_a_broken_download_is_continued_by_the_next_command(store):
    content = bytes(random.Random(1).choices(range(256), k=600_000))
    store.put(PATH, zip_of({"Books.de-en.de": content, "Books.de-en.en": content}, 0))
    store.faults = [Fault(), Fault(sent=400_000), *[Fault(status=503)] * 4]
    error = failure_of("opus:Books@v2/en-de")
    assert error.startswith(f"{store.url}{PATH} gave 503 Service Unavailable, in the last of 5 att")
    del store.requests[:]
    assert get("opus:Books@v2/en-de")[0] == 0
    assert store.requests == [(PATH, None), (PATH, "bytes=262144-")]
    assert Path("data/opus/Books@v2/en-de/train.en").read_bytes().startswith(content)


def test_what_is_there_is_not_downloaded_again(store):
    assert get("opus:Books@v2/en-de", "--output", "one", "--downloads", "kept")[0] == 0
    del store.requests[:]
    assert get("opus:Books@v2/de-en", "--output", "two", "--downloads", "kept")[0] == 0
    assert store.requests == [(PATH, None)]  # it asks for the size
    (archive,) = Path("kept").iterdir()
    archive.write_bytes(archive.read_bytes()[:-1])
    exit_code, text = get("opus:Books@v2/en-de", "--output", "three", "--downloads", "kept")
    assert exit_code == 0
    assert "bytes instead of" in text
    assert texts_in("three") == texts_in("two") == COPIES


@pytest.mark.parametrize("busy", [[Fault(status=500)], [Fault(status=429), Fault(status=503)]])
def test_a_busy_server_is_asked_again(store, busy):
    store.faults = [*busy]
    exit_code, text = get("opus:Books/en-de")
    assert exit_code == 0
    assert text.count("trying again") == len(busy)


def test_a_damaged_archive_is_one_line_and_leaves_nothing(store):
    whole = archive_of()
    middle = whole.index(b"Books.de-en.de") + 20
    damaged = {"cut": whole[:-40], "changed": whole[:middle] + b"x" + whole[middle + 1 :]}
    for content in (*damaged.values(), b"no zip"):
        store.put(PATH, content)
        error = failure_of("opus:Books@v2/en-de", "--output", "mine", "--force")
        assert error.startswith("downloads/opus-Books-v2-de-en.txt.zip is damaged (")
        assert error.endswith("); remove it and run the same command again.")
        assert not Path("mine").exists()
        Path("downloads/opus-Books-v2-de-en.txt.zip").unlink()


def test_any_changed_byte_gives_the_text_or_an_error(tmp_path):
    members = {f"a.{language}": text.encode() for language, text in COPIES.items()}
    whole, path = zip_of(members), tmp_path / "a.zip"
    num_refused = 0
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 0x55
        path.write_bytes(content)
        outputs = {name: io.BytesIO() for name in members}
        try:
            append_members(path, outputs, lambda _: None)
        except UserError:
            num_refused += 1
        else:
            assert {name: text.getvalue() for name, text in outputs.items()} == members
    assert num_refused > len(whole) / 2


def test_sides_of_different_length_are_refused(store):
    store.put(PATH, archive_of(texts={"de": "eins\n", "en": "one\ntwo\n"}))
    assert failure_of("opus:Books@v2/en-de") == (
        "data/opus/Books@v2/downloads/opus-Books-v2-de-en.txt.zip: Books.de-en.en has 2 lines but "
        "Books.de-en.de has 1; line n of one must translate line n of the other."
    )


def test_an_archive_without_the_texts_is_refused(store):
    store.put(PATH, zip_of({"Books.de-en.de": "eins\n", "Books.de-fr.fr": "un\n"}))
    assert failure_of("opus:Books@v2/en-de") == (
        "data/opus/Books@v2/downloads/opus-Books-v2-de-en.txt.zip has no file Books.de-en.en; it "
        "is not the archive that we know."
    )


@pytest.mark.parametrize("status", [404, 403])
def test_a_missing_corpus_is_one_line(store, status):
    store.faults = [Fault(status=status)]
    url = f"{store.url}/OPUS-Books/v9/moses"
    assert failure_of("opus:Books@v9/en-de") == (
        f"OPUS has no opus:Books@v9/en-de: {url}/de-en.txt.zip not found; see https://opus.nlpl.eu "
        "for its corpora, versions and languages."
    )
    store.put(f"/opusapi/{QUERY.format('en', 'fr')}", b'{"corpora": []}')
    assert failure_of("opus:Books/en-fr") == (
        "OPUS has no opus:Books/en-fr; see https://opus.nlpl.eu for its corpora and their "
        "languages."
    )
    assert list(Path().rglob("*.zip*")) == []


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"{}",
        b'{"corpora": 3}',
        b'{"corpora": [{}]}',
        b'{"corpora": [{"version": "v1", "url": "file:///etc/passwd"}]}',
        b'{"corpora": [{"version": "../v1", "url": "http://x/a.zip"}]}',
        b'{"corpora": [{"version": null, "url": null}]}',
    ],
)
def test_an_odd_answer_of_the_api_is_one_line(store, answer):
    store.put(f"/opusapi/{QUERY.format('en', 'de')}", answer)
    assert failure_of("opus:Books/en-de") == (
        f"{store.url}/opusapi/ gave no version and URL of opus:Books/en-de; give a version, as in "
        "opus:Books@v1/en-de."
    )


def test_an_api_that_fails_is_one_line(store, monkeypatch):
    store.put(f"/opusapi/{QUERY.format('en', 'de')}", b"<html>")
    assert failure_of("opus:Books/en-de") == (
        f"{store.url}/opusapi/ gave something else than JSON; try it again later."
    )
    assert failure_of("opus:Boks/en-de") == (
        f"{store.url}/opusapi/ gave 404 Not Found; try it again later."
    )
    store.faults = [Fault(status=500)] * 5
    assert failure_of("opus:Books/en-de") == (
        f"{store.url}/opusapi/ gave 500 Internal Server Error, in the last of 5 attempts. Run the "
        "same command again later."
    )
    monkeypatch.setattr(opus, "API", "http://127.0.0.1:1/opusapi/")
    assert failure_of("opus:Books/en-de") == (
        "http://127.0.0.1:1/opusapi/ could not be asked (Connection refused), in the last of 5 "
        "attempts. Run the same command again later."
    )


def test_a_server_without_a_size_is_one_line(store):
    url = store.url + PATH
    store.faults = [Fault(states_length=False)]
    error = failure_of("opus:Books@v2/en-de")
    assert error == f"{url} cannot be downloaded: 200 OK, with a size of no bytes."
    store.put(PATH, b"")
    error = failure_of("opus:Books@v2/en-de")
    assert error == f"{url} cannot be downloaded: 200 OK, with a size of 0 bytes."


@pytest.mark.parametrize(
    "name",
    [
        *("opus:", "opus:Books", "opus:Books/en", "opus:Books/en-en", "opus:Books@/en-de"),
        *("opus:../x/en-de", "opus:Books/en-de-fr", "opus:Books@../1/en-de", "opus:Books/../e-de"),
        *("opus:Bo oks/en-de", "opus:Books/en_-de", "opus:/en-de", "opus:Bücher/en-de"),
    ],
)
def test_a_wrong_name_is_one_line(store, name):
    assert failure_of(name, status=2) == (
        f"{name} is no name of a corpus; write opus:CORPUS/en-de, or opus:CORPUS@v8/en-de for a "
        "version, with two languages as OPUS writes them."
    )
    assert store.requests == []


def test_names_of_opus_are_understood():
    for name in ("News-Commentary@v16/en-zh", "ELRC-1077-EUIPO@v1/pt_BR-en", "tico-19/en-fr"):
        assert str(opus.parse_name(f"opus:{name}")) == f"opus:{name}"


def test_options_of_other_data_sets_do_not_fit(store):
    text = "opus:Books/en-de is not made of a treebank; --treebank is for wsj."
    assert failure_of("opus:Books/en-de", "--treebank", "x", status=2) == text
    logs.configure(quiet=True)
