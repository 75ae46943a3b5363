"""Models in archives, and with parts in .gz, are imported as what is in them is."""

import gzip
import io
import shutil
import tarfile
import tempfile

import pytest

from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.interchange import archives
from nmt_cli.messages.errors import DamagedError
from tests.interchange.fairseq_files import write_model as write_fairseq_model
from tests.interchange.import_command import run_import
from tests.interchange.test_marian_import import write_folder
from tests.tar_files import tar_of

FORMS = {"zip": "zip", "gztar": "tar.gz", "bztar": "tar.bz2", "xztar": "tar.xz", "tar": "tar"}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, which is empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


def weights_of(path, output):
    result = run_import(path, "--output", output)
    assert result.exit_code == 0, result.output
    assert read_manifest(output)["imported"]["path"] == str(path)
    return (output / "model.safetensors").read_bytes()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("has_folder", [False, True])
def test_an_archive_is_imported_as_its_folder(tmp_path, form, has_folder):
    folder = tmp_path / "there/marian"
    folder.parent.mkdir()
    write_folder(folder)
    expected = weights_of(folder, tmp_path / "one")
    root, inner = (folder.parent, "marian") if has_folder else (folder, ".")
    path = shutil.make_archive(str(tmp_path / "packed"), form, root, inner)
    assert path.endswith(FORMS[form])
    assert weights_of(tmp_path / path, tmp_path / "two") == expected


def test_a_checkpoint_of_fairseq_in_an_archive(tmp_path):
    path, _ = write_fairseq_model(tmp_path / "fairseq")
    packed = shutil.make_archive(str(tmp_path / "a"), "bztar", path.parent)
    expected = weights_of(path, tmp_path / "one")
    assert weights_of(tmp_path / packed, tmp_path / "two") == expected


@pytest.mark.parametrize("packed", [["*"], ["*.yml"], ["*.bin"]])
def test_packed_parts_of_a_folder(tmp_path, packed):
    folder = tmp_path / "marian"
    write_folder(folder, integers=True, tied="decoder", d_model=48, widths=(16, 32))
    expected = weights_of(folder, tmp_path / "one")
    for each in [each for pattern in packed for each in folder.glob(pattern)]:
        (folder / f"{each.name}.gz").write_bytes(gzip.compress(each.read_bytes()))
        each.unlink()
    before = sorted(folder.iterdir())
    assert weights_of(folder, tmp_path / "two") == expected
    assert sorted(folder.iterdir()) == before


def test_parts_that_are_unpacked_already_are_not_unpacked_again(tmp_path):
    write_folder(tmp_path / "marian")
    (tmp_path / "marian/model.npz.gz").write_bytes(b"damaged")
    assert weights_of(tmp_path / "marian", tmp_path / "one")


def refused(path, reason):
    with pytest.raises(DamagedError, match=reason), archives.unpacked(path):
        raise AssertionError


def test_an_archive_cannot_fill_memory_or_a_folder(tmp_path, monkeypatch):
    path = tmp_path / "a.tar"
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        header = tarfile.TarInfo("a")
        header.type, header.size = kind, 1 << 40
        path.write_bytes(header.tobuf(tarfile.GNU_FORMAT))
        refused(path, "it holds a header of 1,099,511,627,776 bytes")
    path.write_bytes(tar_of({"n" * 300: b""}))
    refused(path, "File name too long.*; get it again, or unpack it yourself")
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.yml").touch()
    for form in ("zip", "tar"):
        packed = shutil.make_archive(str(tmp_path / "many"), form, folder)
        refused(tmp_path / packed, "it holds more than 3 files")


def test_hostile_archives_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.tar.gz"
    for name in ("../outside", "/outside"):
        path.write_bytes(tar_of({"model.npz": b"", name: b""}))
        refused(path, f"it holds '{name}', a path outside; get it again, or unpack it yourself")
    for content in (b"", b"text", tar_of({"a": bytes(9_999)})[:60], tar_of({"a": b"", "a/b": b""})):
        path.write_bytes(content)
        refused(path, f"{path} is damaged: ")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            entry = tarfile.TarInfo(f"a{kind.decode()}.npz")
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
    path = tmp_path / "a.tar"
    path.write_bytes(packed.getvalue())
    with archives.unpacked(path) as folder:
        assert not list(folder.iterdir())
    monkeypatch.setattr(archives, "SMALLEST_LIMIT", 1 << 20)
    path.with_suffix(".tgz").write_bytes(tar_of({"bomb": bytes(9 << 20)}))
    refused(path.with_suffix(".tgz"), "more than any model's")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/model.bin.gz").write_bytes(gzip.compress(bytes(9 << 20)))
    refused(tmp_path / "folder", "more than any model's")
