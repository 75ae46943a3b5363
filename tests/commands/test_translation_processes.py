"""Workers of the real command give the output of one process, and options that do not fit fail."""

import os
import random
import signal

import pytest
import torch

from nmt_cli.commands import translate
from nmt_cli.commands.lines import line_windows, translation_processes
from nmt_cli.commands.lines.translation_processes import Processes, choose_processes
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.translating.workers.process import Starter
from tests.fake_models import save_as_model


def test_workers_write_what_one_process_writes(toy, tmp_path, monkeypatch, capsys):
    logs.configure(quiet=True)
    monkeypatch.setitem(line_windows.STEADY_WINDOW, "cpu", 50)
    torch.manual_seed(1)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    with directory_appearing_whole(tmp_path / "model") as partial:
        save_as_model(partial, toy.recipe, toy.corpus.tokenizer, model)
        partial.facts["kind"] = "average"
    chance = random.Random(1)
    words = ["ant", "bee", "cat", "dog", "\u2028", ""]
    lines = [" ".join(chance.choices(words, k=chance.randint(0, 5))) for _ in range(300)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))

    def run(name, **options):
        path = tmp_path / name
        status = translate.run(
            tmp_path / "model",
            input_path=tmp_path / "in",
            output_path=path,
            output_format="tsv",  # with scores
            device="cpu",
            precision="fp32",
            threads=1,
            max_extra_length=3,
            **options,
        )
        return status, path.read_bytes()

    processes = []
    whole = Starter.start

    def start_and_kill_the_first(self, number):
        connection, process = whole(self, number)
        processes.append(process)
        if len(processes) == 2:
            os.kill(processes[0], signal.SIGKILL)
        return connection, process

    monkeypatch.setattr(Starter, "start", start_and_kill_the_first)
    assert run("shared", workers=2) == run("alone")
    assert len(processes) == 3


def test_a_model_that_cannot_be_loaded_by_workers_is_the_users_error(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="none"):
        translate.run(tmp_path / "none", output_path=tmp_path / "out", device="cpu", workers=2)
    assert list(tmp_path.iterdir()) == []


def test_the_processes_that_options_ask_for(monkeypatch):
    assert choose_processes("cpu", 1, None) == Processes(1, False, False)
    assert choose_processes("cpu", 3, None) == Processes(3, True, False)
    with pytest.raises(UserError, match="--devices counts GPUs; leave --device cpu out"):
        choose_processes("cpu", 1, 2)
    with pytest.raises(UserError, match="give one of them"):
        choose_processes("cpu", 2, 2)
    monkeypatch.setattr(translation_processes, "visible_gpus", lambda: 2)
    monkeypatch.setattr(translation_processes, "choose_device", lambda name: torch.device("cuda"))
    assert choose_processes("auto", 1, 2) == Processes(2, True, True)
    assert choose_processes("auto", 1, 1) == Processes(1, False, True)
    with pytest.raises(UserError, match="--devices 3 asked for, 2 GPUs are visible"):
        choose_processes("auto", 1, 3)
    with pytest.raises(UserError, match="--workers 2 are processes on the CPU; add --device cpu"):
        choose_processes("auto", 2, None)
