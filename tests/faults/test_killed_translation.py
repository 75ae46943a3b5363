"""Long translations: SIGKILL at random moments changes no byte, and memory does not grow."""

import random
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.model.transformer import Transformer
from tests.fake_models import save_as_model
from tests.faults.faults import fault, set_constant, set_items
from tests.faults.trainings import Command

NUM_LINES = 12_000
SHORT_LINES = 2_000_000
# More windows and more records than in a job of a few seconds.
OFTEN = [
    fault(set_items, where="nmt_cli.commands.lines.line_windows:MOST_LINES", items={"cpu": 100}),
    fault(
        set_constant,
        where="nmt_cli.commands.lines.resumable_output:SECONDS_BETWEEN_RECORDS",
        value=0.1,
    ),
]


@pytest.fixture
def model(toy, tmp_path):
    """The directory of a tiny model that was not trained."""
    torch.manual_seed(1)
    transformer = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    decoding = toy.recipe.decoding.model_copy(update={"max_extra_length": 1, "beam_size": 1})
    recipe = toy.recipe.model_copy(update={"decoding": decoding})
    with directory_appearing_whole(tmp_path / "model") as partial:
        save_as_model(partial, recipe, toy.corpus.tokenizer, transformer)
        partial.manifest["kind"] = "average"
    return tmp_path / "model"


@pytest.fixture
def translate(zygote, model, tmp_path):
    """Start a translation of many lines into a file of that name."""
    chance = random.Random(1)
    lines = [" ".join(chance.choices(["ant", "bee", "cat"], k=5)) for _ in range(NUM_LINES)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))

    def start(name, *options):
        arguments = ["translate", str(model), "--device=cpu", "--precision=fp32"]
        arguments += ["--threads=1", f"--input={tmp_path / 'in'}", f"--output={tmp_path / name}"]
        return Command(zygote, [*arguments, *options], tmp_path / f"{name}.stderr", OFTEN)

    return start


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_random_kills_change_no_byte(translate, tmp_path):
    started = time.monotonic()
    undisturbed = translate("undisturbed").wait()
    assert undisturbed.status == 0, undisturbed.stderr
    lifetime = time.monotonic() - started
    expected = (tmp_path / "undisturbed").read_bytes()
    chance = random.Random(1)
    kills = resumed = 0
    while kills < 100:
        (tmp_path / "out").unlink(missing_ok=True)
        status = -9
        while status != 0:
            ended = translate("out", "--resume").kill_after(chance.uniform(0, lifetime))
            assert ended.status in (0, -9), ended.stderr
            status = ended.status
            kills += status == -9
            resumed += "Continuing after line" in ended.stderr
        assert (tmp_path / "out").read_bytes() == expected
    assert resumed > 10


def memory_of(process):
    """Return the resident memory of a process in MB."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1000


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_million_short_lines_take_no_more_memory_than_few(zygote, model, tmp_path):
    with (tmp_path / "in").open("w") as stream:
        stream.writelines(
            f"{'ant bee' if number % 3 else 'cat'}\n" for number in range(SHORT_LINES)
        )
    arguments = ["translate", str(model), "--device=cpu", "--precision=fp32", "--threads=1"]
    arguments += [f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"]
    command = Command(zygote, arguments, tmp_path / "stderr", [])
    before, largest = memory_of(command.pid), 0.0
    with suppress(OSError, IndexError):  # it has ended
        while not (tmp_path / "out").exists():
            largest = max(largest, memory_of(command.pid))
            time.sleep(0.2)
    ended = command.wait()
    assert ended.status == 0, ended.stderr
    with (tmp_path / "out").open("rb") as stream:
        assert sum(1 for _ in stream) == SHORT_LINES
    assert 0 < largest - before < 150
