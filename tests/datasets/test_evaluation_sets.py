import errno
import hashlib
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS, base
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from nmt_cli.datasets import assembly
from nmt_cli.messages.errors import OutputError, UserError
from tests.loopback_server import Fault
from tests.tar_files import tar_of

ENGLISH = ["The kettle  sings.", "A line\u2028with a separator", "Nothing is lost."]
GERMAN = ["Der Kessel singt.", "Eine Zeile\u0085mit Trennzeichen", "Nichts geht verloren."]


def sgm_of(lines):
    segments = "".join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines, 1))
    return f'<srcset setid="x">\n<doc docid="d">\n{segments}</doc>\n</srcset>\n'.encode()


@pytest.fixture
def folder(server, monkeypatch, tmp_path):
    """The folder of sacreBLEU, which knows the test set toy/full."""
    packed = tar_of({"t/a-src.en.sgm": sgm_of(ENGLISH), "t/a-ref.de.sgm": sgm_of(GERMAN)})
    monkeypatch.setattr(base, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(assembly, "SACREBLEU_DIR", str(tmp_path))
    dataset = FakeSGMLDataset(
        "toy/full",
        data=[server.put("/t.tgz", packed)],
        md5=[hashlib.md5(packed).hexdigest()],
        langpairs={"en-de": ["t/a-src.en.sgm", "t/a-ref.de.sgm"]},
    )
    monkeypatch.setitem(DATASETS, "toy/full", dataset)
    return tmp_path / "toy/full"


def texts_of(downloaded):
    return [path.read_bytes().decode() for path in (downloaded.source, downloaded.reference)]


# sacreBLEU replaces white space of every kind by one space.
EXPECTED = [
    "The kettle sings.\nA line with a separator\nNothing is lost.\n",
    "Der Kessel singt.\nEine Zeile mit Trennzeichen\nNichts geht verloren.\n",
]


def test_a_test_set_arrives_once(server, folder):
    downloaded = assembly.download_set("toy/full", "en-de", 3)
    assert texts_of(downloaded) == EXPECTED
    assert downloaded.url == f"{server.url}/t.tgz"
    assert assembly.download_set("toy/full", "en-de", 3) == downloaded
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Fault(damaged=True), "its MD5 sum is not"),
        (Fault(sent=40), "IncompleteRead(40 bytes read"),
        (Fault(sent=40, states_length=False), "its MD5 sum is not"),
        (Fault(status=503), "Service Unavailable"),
    ],
)
def test_a_broken_download_is_named_and_repeated(server, folder, fault, problem, capsys, caplog):
    server.faults = [fault]
    assert texts_of(assembly.download_set("toy/full", "en-de", 3)) == EXPECTED
    assert len(server.requests) == 2
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"Warning: {server.url}/t.tgz: {problem}")
    assert warning.endswith("; trying again (2 of 3).")
    assert all(record.name == "nmt_cli" for record in caplog.records)  # sacreBLEU is silent


def cut_text(folder):
    path = next(folder.glob("*.en-de.ref"))
    path.write_bytes(path.read_bytes()[:20])


def lose_extracted(folder):
    for path in (*folder.glob("*en-de*"), *folder.glob("raw/t/*")):
        path.unlink()


@pytest.mark.parametrize("damage", [cut_text, lose_extracted])
def test_what_a_killed_program_left_is_repaired(server, folder, damage):
    assembly.download_set("toy/full", "en-de", 3)
    damage(folder)
    assert texts_of(assembly.download_set("toy/full", "en-de", 3)) == EXPECTED
    assert len(server.requests) == 2


def test_a_set_of_another_size_is_refused(folder):
    with pytest.raises(UserError, match=r"had 3 lines instead of 4\. Run the same command again"):
        assembly.download_set("toy/full", "en-de", 4)


def test_a_signal_is_not_taken_for_a_wrong_sum(folder, monkeypatch):
    def end(*_):
        raise SystemExit(143)

    monkeypatch.setattr(DATASETS["toy/full"], "get_files", end)
    with pytest.raises(SystemExit):
        assembly.download_set("toy/full", "en-de", 3)


def test_a_full_disk_is_named(folder, monkeypatch):
    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DATASETS["toy/full"], "get_files", fill)
    with pytest.raises(
        OutputError, match=r"toy/full could not be written: No space left on device"
    ):
        assembly.download_set("toy/full", "en-de", 3)


@pytest.mark.parametrize("language", ["de", "fr"])
@pytest.mark.parametrize("name", ["wmt13", "wmt14/full"])
def test_sacrebleu_knows_the_sets_of_the_paper(name, language):
    dataset = DATASETS[name]
    source, reference = dataset.langpairs[f"en-{language}"]
    assert Path(source).name.endswith(".en.sgm")
    assert Path(reference).name.endswith(f".{language}.sgm")
    assert [len(urls or []) for urls in (dataset.data, dataset.md5)] == [1, 1]
