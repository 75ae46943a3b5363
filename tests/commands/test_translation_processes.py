"""Workers of the real command give the output of one process, and options that do not fit fail."""

import io
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt_cli.commands import translate
from nmt_cli.commands.lines import line_windows, translation_processes
from nmt_cli.commands.lines.resumable_output import ResumableOutput
from nmt_cli.commands.lines.translation_processes import (
    Processes,
    bytes_of,
    choose_processes,
    processes_that_pay,
)
from nmt_cli.corpus.text.glossary import Glossary, Term
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.hardware import cpu
from nmt_cli.hardware.cpu import Cores
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers.starter import Starter
from tests.fake_models import save_as_model
from tests.tagging import StandIn


@pytest.fixture
def model(toy, tmp_path, monkeypatch):
    """A folder with a model, and a text of 300 lines, or 6 steady windows, for it."""
    logs.configure(quiet=True)
    monkeypatch.setitem(line_windows.MOST_LINES, "cpu", 50)
    torch.manual_seed(1)
    transformer = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    with directory_appearing_whole(tmp_path / "model") as partial:
        save_as_model(partial, toy.recipe, toy.corpus.tokenizer, transformer)
        partial.manifest["kind"] = "average"
    chance = random.Random(1)
    words = ["ant", "bee", "cat", "dog", "\u2028", ""]
    lines = [" ".join(chance.choices(words, k=chance.randint(0, 5))) for _ in range(300)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "model"


def translated(model, name, **options):
    """Return the exit status and the output of the text beside ``model``, with scores."""
    path = model.with_name(name)
    status = translate.run(
        model,
        input_path=model.with_name("in"),
        output_path=path,
        output_format="tsv",
        device="cpu",
        precision="fp32",
        max_extra_length=3,
        **options,
    )
    return status, path.read_bytes()


def test_workers_write_what_one_process_writes(model, monkeypatch):
    processes, threads = [], []
    whole = Starter.start

    def start_and_kill_the_first(self, number):
        self.wait_until_loaded()
        threads.append(len(list(Path(f"/proc/{self._process.pid}/task").iterdir())))
        connection, process = whole(self, number)
        processes.append(process)
        if len(processes) == 2:
            os.kill(processes[0], signal.SIGKILL)
        return connection, process

    monkeypatch.setattr(Starter, "start", start_and_kill_the_first)
    rules = Constraints(glossary=Glossary([Term("bee", ("ant", "dog cat"))]))
    shared = translated(model, "shared", threads=1, workers=2, constraints=rules)
    assert shared == translated(model, "alone", threads=1, constraints=rules)
    assert len(processes) == 3
    assert set(threads) == {1}  # others would be missing in the processes that are forked


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(cpu, "cores", lambda: Cores(2))
    monkeypatch.setattr(translation_processes, "free_memory", lambda: 1 << 40)
    monkeypatch.setattr(translation_processes, "BYTES_FOR_A_PROCESS", 1 << 10)


@pytest.mark.parametrize(("workers", "then"), [(None, 1), (1, None)])
def test_a_long_text_is_shared_by_default_and_goes_on_with_any_number(
    model, two_cores, monkeypatch, capsys, workers, then
):
    expected = translated(model, "alone", threads=1)
    logs.configure(quiet=False)
    whole_add = ResumableOutput.add

    def interrupted_add(self, lines, data, num_failed):
        if self.record.num_lines >= 100:
            sys.exit(143)
        whole_add(self, lines, data, num_failed)

    monkeypatch.setattr(ResumableOutput, "add", interrupted_add)
    threads = 1 if workers else None
    with pytest.raises(UserError, match="100 lines is kept"):
        translated(model, "out", workers=workers, threads=threads, arguments=["translate"])
    monkeypatch.setattr(ResumableOutput, "add", whole_add)
    again = translated(model, "out", workers=then, resume=True, arguments=["translate"])
    assert again == expected
    err = capsys.readouterr().err
    assert err.count("2 processes of one thread each share the text (see --workers).") == 1


class Echo(StandIn):
    def translate_window(self, requests):
        return [Translation(request.text) for request in requests]


@pytest.mark.parametrize("limit", [{"threads": 1}, {"max_tokens_per_device": 4000}])
def test_one_process_if_the_user_limits_what_the_command_takes(
    model, two_cores, limit, capsys, monkeypatch
):
    logs.configure(quiet=False)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: Echo())
    translated(model, "out", workers=None, **limit)
    assert "share the text" not in capsys.readouterr().err


NAMING_MODULES = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from nmt_cli.cli import main
main()
"""


def test_a_command_with_workers_leaves_the_import_of_torch_to_them(model):
    words = ["translate", str(model), "--device", "cpu", "--workers", "2", "--quiet"]
    result = subprocess.run(
        [sys.executable, "-c", NAMING_MODULES, *words],
        input=b"ant\nbee\n",
        capture_output=True,
        check=True,
    )
    assert result.stdout.count(b"\n") == 2
    heavy = {"torch", "numpy", "pydantic", "yaml", "sentencepiece"}
    assert not heavy & set(result.stderr.decode().split())


def test_a_model_that_cannot_be_loaded_by_workers_is_the_users_error(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="none"):
        translate.run(tmp_path / "none", output_path=tmp_path / "out", device="cpu", workers=2)
    assert list(tmp_path.iterdir()) == []


def test_the_processes_that_options_ask_for(monkeypatch):
    assert choose_processes("cpu", 1, None) == Processes(1)
    assert choose_processes("cpu", 3, None) == Processes(3)
    with pytest.raises(UserError, match="--devices counts GPUs; leave --device cpu out"):
        choose_processes("cpu", 1, 2)
    with pytest.raises(UserError, match="give one of them"):
        choose_processes("cpu", 2, 2)
    monkeypatch.setattr(translation_processes, "num_gpus", lambda device: 0)
    with pytest.raises(UserError, match="--devices 2 asked for, 0 GPUs are visible"):
        choose_processes("auto", 1, 2)
    monkeypatch.setattr(translation_processes, "num_gpus", lambda device: 2)
    assert choose_processes("auto", 1, 2) == Processes(2, on_gpus=True)
    assert choose_processes("auto", 1, 1) == Processes(1, on_gpus=True)
    with pytest.raises(UserError, match="--devices 3 asked for, 2 GPUs are visible"):
        choose_processes("auto", 1, 3)
    with pytest.raises(UserError, match="--workers 2 are processes on the CPU; add --device cpu"):
        choose_processes("auto", 2, None)


SHARED = Processes(2, is_automatic=True)
ALONE = Processes(1)
LONG = 2 * translation_processes.BYTES_FOR_A_PROCESS
CAPTIONS = 300_000  # bytes of 5,000 captions


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (LONG, SHARED),
        (CAPTIONS, SHARED),
        (LONG - 1, ALONE),
        (None, SHARED),  # an open pipe: its lines will show
    ],
)
def test_the_length_of_a_text_decides(monkeypatch, num_bytes, expected):
    monkeypatch.setattr(cpu, "cores", lambda: Cores(2))
    monkeypatch.setattr(translation_processes, "free_memory", lambda: 1 << 40)
    assert processes_that_pay("cpu", num_bytes) == expected


def test_a_text_that_is_too_short_for_all_cores_is_shared_by_fewer_processes(monkeypatch):
    monkeypatch.setattr(cpu, "cores", lambda: Cores(64))
    monkeypatch.setattr(translation_processes, "free_memory", lambda: 1 << 40)
    assert processes_that_pay("cpu", 3 * LONG // 2).number == 3


@pytest.mark.parametrize(
    ("cores", "memory", "device"),
    [(Cores(1), 1 << 40, "cpu"), (Cores(8, 1.0), 1 << 40, "cpu"), (Cores(8), 1 << 30, "cpu"),
     (Cores(8), 1 << 40, "auto")],
)  # fmt: skip
def test_one_process_where_there_is_no_room_or_a_gpu(monkeypatch, cores, memory, device):
    monkeypatch.setattr(cpu, "cores", lambda: cores)
    monkeypatch.setattr(translation_processes, "free_memory", lambda: memory)
    monkeypatch.setattr(translation_processes, "num_gpus", lambda device: int(device == "auto"))
    assert processes_that_pay(device, 1 << 40) == ALONE


def test_what_comes_from_files_and_pipes(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"x" * 1000)
    with path.open("rb") as file, open(file.fileno(), "rb", closefd=False) as stream:
        assert bytes_of(stream) == 1000
    (tmp_path / "text.gz").write_bytes(b"x" * 1000)
    with (tmp_path / "text.gz").open("rb") as packed:
        assert bytes_of(packed) == 4000
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        os.write(writing, b"line\n")
        assert bytes_of(stream) is None
        os.close(writing)
        assert bytes_of(stream) == 5
    assert bytes_of(io.BytesIO(b"a test")) == 0
    with Path("/dev/null").open("rb") as nothing:
        assert bytes_of(nothing) == 0
