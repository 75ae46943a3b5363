import bz2
import io
import os
import shlex
import shutil
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nmt_cli.files import text_files
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.files.text_files import (
    TextSize,
    bytes_read,
    open_text,
    read_content,
    read_packed_text,
)
from nmt_cli.files.text_forms import wrong_lines
from nmt_cli.messages.errors import UserError
from tests.compressed import PACK, zstd


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_text_reads_as_the_plain_one(tmp_path, suffix):
    parts = ["ä\n".encode() * 1000, b"second part\n" * 5000]
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"".join(PACK[suffix](part) for part in parts))
    with open_text(path) as stream:
        assert stream.read() == b"".join(parts)


@pytest.mark.parametrize("num_zeros", [4, 8, 1 << 16])
@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_padding_between_and_behind_parts_ends_no_text(tmp_path, suffix, num_zeros):
    parts = [b"one line\n", b"", b"x" * 100_000 + b"\n", b"the last\n"]
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"".join(PACK[suffix](part) + bytes(num_zeros) for part in parts))
    with open_text(path) as stream:
        assert stream.read() == b"".join(parts)
    # Behind the padding there must be whole parts.
    whole = PACK[suffix](parts[0])
    path.write_bytes(whole + bytes(num_zeros) + whole[:-9])
    assert_refused(path, f"{path} is damaged or not a {suffix} file: ")
    path.write_bytes(whole + bytes(num_zeros) + b"garbage")
    assert_refused(path, f"{path} is damaged or not a {suffix} file: ")


@pytest.mark.parametrize("window_log", [27, 28, 31])
def test_zstd_with_a_long_window_is_read(tmp_path, window_log):
    lines = b"".join(b"line %d\n" % number for number in range(3000))
    path = tmp_path / "text.zst"
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
    # The size is unknown at the beginning, as in a pipe; else a short text gets a short window.
    path.write_bytes(packer.compress(lines[:9]) + packer.compress(lines[9:]) + packer.flush())
    assert zstd.get_frame_info(path.read_bytes()).decompressed_size is None
    with open_text(path) as stream:
        assert stream.read() == lines


@pytest.mark.parametrize("suffix", PACK)
def test_every_cut_of_a_compressed_file_is_noticed(tmp_path, suffix):
    whole = PACK[suffix](os.urandom(3000).hex().encode() + b"\nthe end\n")
    path = tmp_path / f"text{suffix}"
    cuts = {0, 1, 2, 5, 10, *range(17, len(whole), len(whole) // 40)}
    cuts |= {len(whole) - back for back in (1, 2, 4, 8, 12)}
    assert len(cuts) > 45
    for cut in cuts:
        path.write_bytes(whole[:cut])
        if cut == 0 and suffix == ".gz":
            continue  # gzip takes nothing for nothing; callers refuse empty text
        assert_refused(path, f"{path} is damaged or not a {suffix} file: ")


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("garbage", [b"garbage", b"\x1f\x8b", b"one line\n" * 1000])
def test_garbage_behind_compressed_text_is_noticed(tmp_path, suffix, garbage):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(PACK[suffix](b"text\n") + garbage)
    assert_refused(path, f"{path} is damaged or not a {suffix} file: ")


@pytest.mark.parametrize("suffix", PACK)
def test_plain_text_under_a_compressed_name_is_refused(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"plain text\n")
    assert_refused(path, f"{path} is damaged or not a {suffix} file: ")


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_text_under_another_name_is_refused(tmp_path, suffix):
    path = tmp_path / "text.en"
    path.write_bytes(PACK[suffix](b"text\n"))
    assert_refused(path, f"{path} is compressed; its name must end in {suffix}.")


@pytest.mark.parametrize("suffix", ["", *PACK])
def test_the_bytes_of_a_text_are_known_or_estimated_while_it_is_read(tmp_path, suffix):
    text = b"".join(os.urandom(20).hex().encode() + b"\n" for _ in range(30_000))
    path = tmp_path / f"text{suffix}"
    path.write_bytes(PACK[suffix](text) if suffix else text)
    with open_text(path) as stream:
        size = TextSize(stream)
        stream.read(len(text) // 3)
        assert size.expected() == pytest.approx(len(text), rel=0.05 if suffix else 0)
        assert bytes_read(stream) == pytest.approx(path.stat().st_size / 3, rel=0.5)
        stream.read()
        assert size.expected() == len(text)
        assert bytes_read(stream) == path.stat().st_size
    assert TextSize(io.BytesIO(text)).expected() is None


def test_the_estimate_holds_while_another_thread_is_in_a_read(tmp_path, monkeypatch):
    text = b"".join(os.urandom(20).hex().encode() + b"\n" for _ in range(30_000))
    path = tmp_path / "text.gz"
    path.write_bytes(PACK[".gz"](text))
    estimates = []
    read = text_files._Counted.read
    with open_text(path) as stream:
        size = TextSize(stream)

        def asked_after_reading(self, num_bytes):
            chunk = read(self, num_bytes)
            estimates.append(size.expected())
            return chunk

        stream.read(1)
        monkeypatch.setattr(text_files._Counted, "read", asked_after_reading)
        stream.read()
    assert len(estimates) > 20
    assert estimates == pytest.approx([len(text)] * len(estimates), rel=0.05)


def test_what_cannot_be_opened_is_named(tmp_path):
    missing = tmp_path / "missing.en"
    assert_refused(missing, f"{missing} not found.")
    assert_refused(tmp_path, f"{tmp_path} is a directory, not a text file.")
    assert_refused(Path("a\0b"), "a\0b cannot be read: embedded null byte.")
    long = tmp_path / ("x" * 300)
    assert_refused(long, f"{long} cannot be read: File name too long.")


def assert_refused(path, message):
    with pytest.raises(UserError) as caught, open_text(path) as stream:
        stream.read()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def proposed_by_refusal(path):
    with pytest.raises(UserError, match="unpack it: ") as caught, open_text(path):
        pass
    return shlex.split(str(caught.value).partition("unpack it: ")[2])


@pytest.mark.parametrize("suffix", [".bz2", ".zip"])
def test_the_proposed_unpacking_overwrites_nothing(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    path = Path(f"-keep{suffix}")
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("text", "ein Satz\n")
    else:
        path.write_bytes(bz2.compress(b"ein Satz\n"))
    assert proposed_by_refusal(path)[2:] == [f"./{path}", ">", "./-keep"]
    Path("-keep").write_text("precious")
    assert proposed_by_refusal(path)[2:] == [f"./{path}", ">", "./-keep-2"]
    path = path.rename("-other")
    Path("unpacked--other").symlink_to("nowhere")
    assert proposed_by_refusal(path)[2:] == ["./-other", ">", "unpacked--other-2"]


def test_an_archive_of_several_files_is_unpacked_into_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("pair.zip", "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/a.en", "one\n")
    assert proposed_by_refusal(Path("pair.zip"))[:2] == ["unzip", "-p"]
    with zipfile.ZipFile("pair.zip", "a") as archive:
        archive.writestr("folder/a.de", "eins\n")
    assert proposed_by_refusal(Path("pair.zip")) == ["unzip", "-d", "pair", "pair.zip"]
    Path("pair").mkdir()
    command = proposed_by_refusal(Path("pair.zip"))
    assert command == ["unzip", "-d", "pair-2", "pair.zip"]
    if shutil.which("unzip"):
        subprocess.run(command, check=True)
        assert Path("pair-2/folder/a.de").read_text() == "eins\n"


@pytest.mark.parametrize("read", [read_packed_text, lambda path: read_content(path).decode()])
def test_a_pipe_is_read_whole(tmp_path, read):
    """It cannot be opened twice, to look at its begin first."""
    pipe, text = tmp_path / "pipe", "a\u00e9\n" * 40_000
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_text, text)
        assert read(pipe) == text
        written.result()


def test_stdin_is_read_from_where_it_stands(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_bytes(b"first\rsecond\rthird")
    with path.open("rb") as file:
        monkeypatch.setattr("sys.stdin", file)
        file.seek(6)
        assert wrong_lines(STANDARD_INPUT) is None  # nothing is read of it
        with open_text(STANDARD_INPUT) as stream:
            assert stream.read() == b"second\rthird"
        assert not file.closed
