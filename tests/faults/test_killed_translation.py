"""SIGKILL at random moments of a translation: ``--resume`` ends it with the same bytes."""

import random
import time

import pytest
import torch

from nmt_cli.atomic_files import directory_appearing_whole
from nmt_cli.model.transformer import Transformer
from tests.fake_models import save_as_model
from tests.faults.faults import fault, set_constant, set_items
from tests.faults.trainings import Command

NUM_LINES = 4000
# More windows and more records than in a job of a few seconds.
OFTEN = [
    fault(set_items, where="nmt_cli.commands.line_windows:STEADY_WINDOW", items={"cpu": 100}),
    fault(
        set_constant, where="nmt_cli.commands.resumable_output:SECONDS_BETWEEN_RECORDS", value=0.1
    ),
]


@pytest.fixture
def translate(zygote, toy, tmp_path):
    """Start a translation of many lines into a file of that name."""
    torch.manual_seed(1)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    with directory_appearing_whole(tmp_path / "model") as partial:
        save_as_model(partial, toy.recipe, toy.corpus.tokenizer, model)
        partial.facts["kind"] = "average"
    chance = random.Random(1)
    lines = [" ".join(chance.choices(["ant", "bee", "cat"], k=5)) for _ in range(NUM_LINES)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))

    def start(name, *options):
        arguments = ["translate", str(tmp_path / "model"), "--device=cpu", "--precision=fp32"]
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
            resumed += "Going on behind line" in ended.stderr
        assert (tmp_path / "out").read_bytes() == expected
    assert resumed > 10
