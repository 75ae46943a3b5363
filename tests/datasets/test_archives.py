import gzip
import io
import tarfile
import zipfile

import pytest

from nmt_cli.datasets import assembly
from nmt_cli.datasets.assembly import append_lines, append_members
from nmt_cli.messages.errors import UserError
from tests.tar_files import tar_of

# Characters at which str.splitlines and other programs split, inside two lines.
ODD = "one\u0085two\u2028three\x0bfour\x0cfive\x1csix\rseven\neight\u2029nine\n".encode()


def make_archive(path, members, mode="w:gz"):
    path.write_bytes(tar_of(members, mode))
    return path


def members_of(path, *names):
    outputs = {name: io.BytesIO() for name in names}
    counts = append_members(path, outputs, lambda _: None)
    return counts, [outputs[name].getvalue() for name in names]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2"])
def test_members_are_copied_byte_by_byte(tmp_path, mode):
    members = {"other.de": b"x\n", "./t/a.de": b"eins\n", "t/a.en": ODD, "t/a.fr": b"un\n"}
    path = make_archive(tmp_path / "a.tar", members, mode)
    counts, texts = members_of(path, "t/a.en", "t/a.de")
    assert texts == [ODD, b"eins\n"]
    assert counts == {"t/a.en": 2, "t/a.de": 1}


def test_of_two_members_of_a_name_the_first_counts(tmp_path):
    members = {"a.en": b"one\n", "./a.en": b"two\n", "a.de": b"eins\n"}
    path = make_archive(tmp_path / "a.tar", members)
    assert members_of(path, "a.en", "a.de")[1] == [b"one\n", b"eins\n"]


def test_compressed_members_are_decompressed(tmp_path):
    path = make_archive(tmp_path / "a.tar", {"a.en.gz": gzip.compress(ODD)}, "w")
    assert members_of(path, "a.en.gz") == ({"a.en.gz": 2}, [ODD])


@pytest.mark.parametrize(
    ("text", "copy", "num_lines"),
    [
        (b"", b"", 0),
        (b"\n", b"\n", 1),
        (b"a\nb", b"a\nb\n", 2),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", b"a\n\xef\xbb\xbfb\n", 2),
        (b"\n\n a \r\n", b"\n\n a \r\n", 3),
    ],
)
def test_joined_texts_do_not_run_into_each_other(text, copy, num_lines):
    output = io.BytesIO(b"before\n")
    counted: list[int] = []
    output.seek(0, io.SEEK_END)
    assert append_lines(io.BytesIO(text), output, counted.append) == num_lines
    assert output.getvalue() == b"before\n" + copy
    assert sum(counted) == num_lines


def test_a_missing_member_is_named(tmp_path):
    path = make_archive(tmp_path / "a.tgz", {"a.en": b"one\n"})
    with pytest.raises(UserError, match=r"a\.tgz has no file a\.de; it is not the archive"):
        members_of(path, "a.en", "a.de")


def test_a_folder_of_the_name_is_no_text(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("a.en")
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    with pytest.raises(UserError, match=r"has no file a\.en"):
        members_of(path, "a.en")


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_cut_archive_is_damaged(tmp_path, kept, mode):
    text = b"".join(b"%d\n" % (number * number) for number in range(20_000))
    path = make_archive(tmp_path / "a.tgz", {"a.en": text, "a.de": text}, mode)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(UserError, match=r"a\.tgz (is damaged|has no file)"):
        members_of(path, "a.en", "a.de")


def test_a_damaged_compressed_member_is_damage(tmp_path):
    packed = bytearray(gzip.compress(ODD * 100))
    packed[-6] ^= 1  # in its checksum
    path = make_archive(tmp_path / "a.tar", {"a.en.gz": bytes(packed)}, "w")
    with pytest.raises(UserError, match=r"a\.tar is damaged \(CRC check failed"):
        members_of(path, "a.en.gz")


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.zip"])
def test_an_archive_that_would_fill_the_disk_is_refused_before(tmp_path, monkeypatch, name):
    monkeypatch.setattr(assembly, "SMALLEST_LIMIT", 1 << 20)
    text, path, output = b"\n" * (12 << 20), tmp_path / name, io.BytesIO(b"before")
    member = "a.en.gz" if name == "a.tar" else "a.en"
    if name == "a.zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(member, text)
    elif name == "a.tar":
        path.write_bytes(tar_of({member: gzip.compress(text)}, "w"))
    else:
        path.write_bytes(tar_of({member: text}, "w:gz"))
    limit = max(1 << 20, 100 * path.stat().st_size)
    assert 1 << 20 < limit < len(text) // 2
    message = rf"bytes and unpacks to more than {limit:,}; no text is compressed that much\. Remove"
    with pytest.raises(UserError, match=message):
        append_members(path, {member: output}, lambda _: None)
    assert limit < output.tell() < limit + (1 << 20)


def test_damage_that_zipfile_does_not_report_as_its_own(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("ä.txt", "")
        file.writestr("a.en", ODD * 100)
    whole, name = path.read_bytes(), "ä.txt".encode()
    middle = whole.index(b"a.en") + 30
    path.write_bytes(whole[:middle] + bytes(20) + whole[middle + 20 :])
    with pytest.raises(UserError, match=r"a\.zip is damaged \(Corrupt input data\); remove it"):
        members_of(path, "a.en")
    path.write_bytes(whole.replace(name, b"\xff" + name[1:]))
    with pytest.raises(UserError, match=r"a\.zip is damaged \('utf-8' codec can't decode"):
        members_of(path, "a.en")
