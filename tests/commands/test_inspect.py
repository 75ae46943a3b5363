"""The inspect command: what it looks at, its figures against the paper's, and its refusals."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.costs import this_machine
from nmt_cli.messages import logs
from nmt_cli.recipe.reading.recipe_files import dump_recipe

FORMATS = Path(__file__).parents[1] / "formats"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def inspect(*arguments):
    result = CliRunner().invoke(cli.main, ["inspect", *map(str, arguments)])
    assert result.exit_code == 0, result.stderr
    return result


def as_json(*arguments):
    return json.loads(inspect(*arguments, "--format", "json").stdout)


def refusal(*arguments):
    result = CliRunner().invoke(cli.main, ["inspect", *map(str, arguments)])
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 or result.exit_code == 2
    return result.exit_code, result.stderr.splitlines()[0].removeprefix("Error: ")


def totals(counts):
    """Yield each part with a total, and the sum of the numbers it is made of."""
    parts = {name: part for name, part in counts.items() if name != "total"}
    for part in parts.values():
        if isinstance(part, dict):
            yield from totals(part)
    sums = [part["total"] if isinstance(part, dict) else part for part in parts.values()]
    yield counts["total"], sum(sums)


def test_base_costs_what_is_known_of_it():
    base = as_json("base")
    assert base["vocabulary_size"] == 37_000
    assert base["lengths"] == {"source": 27, "target": 27, "origin": "assumed"}
    assert base["parameters"]["total"] == pytest.approx(63.1e6, rel=0.002)
    flops = base["forward_flops_per_target_token"]
    assert base["training_flops_per_target_token"] == pytest.approx(381e6, rel=0.005)
    assert flops["total"] == pytest.approx(127e6, rel=0.005)
    assert flops["softmax"] / flops["total"] == pytest.approx(0.30, abs=0.005)
    for part in ("parameters", "forward_flops_per_target_token"):
        for total, added in totals(base[part]):
            assert total == pytest.approx(added, rel=1e-12)


def test_attention_within_a_window_costs_its_pairs_only():
    options = "base", "--lengths", "50,100"
    whole, near = (
        as_json(*options, *more)["forward_flops_per_target_token"]
        for more in ((), ("--set", "model.attention_window=3"))
    )
    of_pair = 6 * 2 * 2 * 512 / 100  # layers, multiply-adds, keys and values of a target token
    pairs = 50 * 7 - 3 * 4, 100 * 4 - 6 + 50 * 100
    assert whole["encoder"]["attention_core"] == pytest.approx(of_pair * 50 * 50)
    assert near["encoder"]["attention_core"] == pytest.approx(of_pair * pairs[0])
    assert near["decoder"]["attention_core"] == pytest.approx(of_pair * pairs[1])


@pytest.mark.parametrize(
    ("recipe", "step_seconds", "hours", "papers", "share"),
    [("base", 0.432, 12, 3.3e18, 0.29), ("big", 1.008, 84, 2.3e19, 0.42)],
)
def test_the_papers_time_and_estimate_stand_beside_the_true_flops(
    recipe, step_seconds, hours, papers, share
):
    training = as_json(recipe)["training"]
    time = training["times"][0]
    assert time["machine"] == "8 P100"
    assert time["seconds"] == pytest.approx(hours * 3600)
    assert time["seconds"] == pytest.approx(step_seconds * training["steps"])
    assert training["flops_as_the_paper_estimates"] == pytest.approx(papers, rel=0.02)
    assert training["flops"] == pytest.approx(25_000 * training["steps"] * 3 * 127e6 * {
        "base": 1, "big": 1.29 / 0.381}[recipe], rel=0.01)  # fmt: skip
    assert training["flops"] / training["flops_as_the_paper_estimates"] == pytest.approx(
        share, abs=0.01
    )


@pytest.mark.parametrize(("recipe", "rate"), [("base", 477_371), ("big", 243_714)])
def test_the_time_of_an_h100_is_that_of_its_measured_rate(recipe, rate):
    training = as_json(recipe)["training"]
    time = training["times"][1]
    assert time["machine"] == "1 H100"
    assert time["seconds"] == pytest.approx(25_000 * training["steps"] / rate)
    assert "s a step, as measured in bf16" in time["basis"]


def test_this_machine_takes_as_long_as_its_measured_speed_implies(monkeypatch, tmp_path):
    estimated = r"this machine +\d.*estimated: products run at .* [GT]FLOP/s"
    assert re.search(estimated, inspect("base").stdout)
    monkeypatch.setattr(this_machine, "GPU", tmp_path)  # whose speed is not known without torch
    assert re.search(r"this machine +\? +give --target-tokens-per-second", inspect("base").stdout)
    times = as_json("base", "--target-tokens-per-second", 2_500)["training"]["times"]
    assert times[-1]["machine"] == "this machine"
    assert times[-1]["seconds"] == 100_000 * 25_000 / 2_500
    assert "at the 2,500 target tokens/s that you gave" in times[-1]["basis"]


def test_a_model_that_was_not_timed_takes_the_rate_of_base():
    base, halved = as_json("base")["training"], as_json("table3/c-2-layers")["training"]
    for of_base, of_halved in zip(base["times"][:2], halved["times"][:2], strict=True):
        assert "estimated: base trains at " in of_halved["basis"]
        assert of_halved["seconds"] / of_base["seconds"] == pytest.approx(
            halved["flops"] / base["flops"], rel=1e-6
        )


def test_lengths_can_be_given():
    given = as_json("base", "--lengths", "50,100", "--set", "training.tokens_per_step=20000")
    assert given["lengths"] == {"source": 50, "target": 100, "origin": "given"}
    assert given["training"]["target_tokens_per_step"] == 20_000


@pytest.mark.parametrize("text", ["0", "5,", "a", "-3", "5,6,7", "1000001", "2.5", ""])
def test_wrong_lengths_are_refused(text):
    status, message = refusal("base", f"--lengths={text}")
    assert status == 2
    assert "is not one or two numbers of tokens, from 1 to 1,000,000, such as 25,28." in message


def test_memory_is_that_of_the_largest_micro_batch():
    whole, half = (
        as_json("base", *options)["memory_bytes"]
        for options in ((), ("--max-tokens-per-device", 12_500))
    )
    assert whole["max_tokens_per_device"] == 25_000
    assert whole["weights"] == whole["gradient"] == half["weights"]
    assert whole["moments"] == 2 * whole["weights"]
    assert whole["activations"] == 2 * half["activations"]
    assert whole["moving_average"] == 0
    average = as_json("base", "--set", "training.ema_decay=0.999")["memory_bytes"]
    assert average["moving_average"] == whole["weights"]
    large = as_json("base", "--max-tokens-per-device", 99_999)["memory_bytes"]
    assert large == whole  # no micro-batch is larger than a step


def test_long_sentences_keep_more_attention_weights_on_either_side():
    activations = [
        as_json("base", "--lengths", lengths)["memory_bytes"]["activations"]
        for lengths in ("10", "10,5000", "5000,10")
    ]
    assert activations[0] < activations[1] == activations[2]


def test_unlike_stacks_are_named_one_by_one():
    sizes = ("decoder_num_layers=2", "decoder_d_ff=1024", "decoder_num_heads=4")
    arguments = [word for size in sizes for word in ("--set", f"model.{size}")]
    assert inspect("base", *arguments).stdout.splitlines()[1] == (
        "6 layers of width 512 (feed-forward 2,048), 8 heads with keys of 64 and values of 64 + 2 "
        "layers of width 512 (feed-forward 1,024), 4 heads with keys of 128 and values of 128, "
        "vocabulary 37,000"
    )


def test_text_has_the_same_figures():
    lines = inspect("big").stdout.splitlines()
    assert lines[:2] == [
        "big",
        "6 + 6 layers of width 1,024 (feed-forward 4,096), 16 heads with keys of 64 and values of "
        "64, vocabulary 37,000",
    ]
    titles = [line.split()[0] for line in lines[2:] if line and not line.startswith(" ")]
    assert titles == ["Parameters", "FLOPs", "Memory", "Time", "FLOPs"]
    parameters = as_json("big")["parameters"]
    (first, *_) = [line for line in lines if line.startswith("  total")]
    assert first.split() == ["total", f"{parameters['total']:,}", "100.0%"]
    (time,) = [line for line in lines if "P100  " in line]
    assert time.split(maxsplit=3) == ["8", "P100", "84h", "1.01 s a step, as the paper reports"]
    assert any(line.endswith("8 P100 for 84h at 9.5 TFLOP/s each") for line in lines)


def weights_in(model):
    with safetensors.safe_open(model / "model.safetensors", "pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    return sum(rows * (columns or [1])[0] for rows, *columns in shapes)


@pytest.mark.parametrize("tokenizer", ["whitespace", "sentencepiece"])
@pytest.mark.parametrize("part", ["", "average", "checkpoints/step-00001200"])
def test_a_model_or_run_has_the_parameters_of_its_weights(tokenizer, part):
    path = FORMATS / "format_2" / tokenizer / "run" / part
    model = path if part else path / "average"
    found = as_json(path)
    assert found["name"] == str(path)
    assert found["parameters"]["total"] == weights_in(model)
    assert found["training"]["steps"] > 1200  # of the recipe beside the weights


def test_the_characters_that_a_model_saw_are_counted(folder):
    model = folder / "model"
    shutil.copytree(FORMATS / "format_2/sentencepiece/run/average", model)
    assert as_json(model)["source_characters"] is None
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "characters": "ab\U0001f44d"}))
    assert as_json(model)["source_characters"] == 3
    assert "trained on sources of 3 characters; translate copies others\n" in inspect(model).stdout


def test_a_run_may_have_only_its_average(folder):
    run = folder / "run"
    shutil.copytree(FORMATS / "format_2/whitespace/run", run)
    shutil.rmtree(run / "checkpoints")
    assert as_json(run)["parameters"]["total"] == weights_in(run / "average")


def test_no_torch_is_loaded_and_no_weights_are_read(folder):
    model = folder / "model"
    model.mkdir()
    for path in (FORMATS / "format_2/whitespace/run/average").iterdir():
        if path.suffix != ".safetensors":
            (model / path.name).write_bytes(path.read_bytes())
    code = (
        "import sys\nfrom nmt_cli.cli import main\n"
        "try:\n    main(['inspect', sys.argv[1]])\nexcept SystemExit as end:\n"
        "    assert not end.code\n"
        "sys.exit('torch' if 'torch' in sys.modules else 0)"
    )
    for subject in ("base", str(model)):
        command = [sys.executable, "-c", code, subject]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
        assert "Parameters" in result.stdout


def test_a_model_whose_recipe_cannot_be_read_has_no_training(folder):
    model = folder / "model"
    model.mkdir()
    for path in (FORMATS / "format_2/sentencepiece/run/average").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    (model / "recipe.yaml").write_text("a: newer recipe\n")
    found = as_json(model)
    assert found["parameters"]["total"] == weights_in(model)
    assert (found["training"], found["memory_bytes"]) == (None, None)
    assert "Memory" not in inspect(model).stdout


def test_prepared_text_gives_vocabulary_and_lengths(toy):
    found = as_json(toy.recipe_path, "--set", f"data.prepared={toy.prepared}")
    corpus = toy.corpus
    assert found["vocabulary_size"] == corpus.tokenizer.size
    assert found["lengths"] == {
        "source": pytest.approx(corpus.source.lengths.mean()),
        "target": pytest.approx(corpus.target.lengths.mean()),
        "origin": str(toy.prepared),
    }
    options = ["--set", f"data.prepared={toy.prepared}", "--lengths", 9]
    assert as_json(toy.recipe_path, *options)["lengths"]["source"] == 9


def test_a_run_has_the_lengths_of_its_prepared_text(toy, folder):
    run = folder / "runs/deep/toy"
    shutil.copytree(FORMATS / "format_2/whitespace/run", run)
    dumped = dump_recipe(toy.recipe, run="deep/toy")
    (run / "recipe.yaml").write_text(dumped)
    assert as_json(run)["lengths"]["origin"] == "assumed"
    shutil.copytree(toy.prepared, folder / "prepared/deep/toy")
    assert as_json(run)["lengths"]["source"] == pytest.approx(toy.corpus.source.lengths.mean())
    assert as_json(run, "--lengths", 9)["lengths"]["source"] == 9


def test_epochs_are_steps_once_the_text_is_prepared(toy):
    by_epochs = ["--set", "training.max_steps=null", "--set", "training.max_epochs=4"]
    unknown = inspect(toy.recipe_path, *by_epochs, "--vocabulary-size", 99)
    assert "Time: unknown, because training.max_epochs ends this training" in unknown.stdout
    known = as_json(toy.recipe_path, *by_epochs, "--set", f"data.prepared={toy.prepared}")
    tokens = 4 * max(toy.corpus.source.num_tokens, toy.corpus.target.num_tokens)
    assert known["training"]["steps"] == -(-tokens // 120)
    weighted = ["--set", "data.train.0.weight=2.5", "--set", f"data.prepared={toy.prepared}"]
    more = as_json(toy.recipe_path, *by_epochs, *weighted)
    assert more["training"]["steps"] == pytest.approx(2.5 * tokens / 120, abs=1)


def test_a_vocabulary_that_only_the_text_decides_must_be_given(toy):
    status, message = refusal(toy.recipe_path)
    assert status == 1
    assert message == (
        f"{toy.recipe_path}: the size of the vocabulary is known only after the text is prepared. "
        f"Give it with --vocabulary-size N, or run: nmt-cli preprocess {toy.recipe_path}"
    )
    assert as_json(toy.recipe_path, "--vocabulary-size", 99)["vocabulary_size"] == 99


def test_prepared_text_that_does_not_fit_is_not_used(toy, capsys):
    logs.configure(quiet=False)
    options = ["--set", f"data.prepared={toy.prepared}", "--set", "data.max_length=29"]
    result = inspect(toy.recipe_path, *options, "--vocabulary-size", 99)
    assert "99" in result.stdout.splitlines()[1]
    warning = capsys.readouterr().err + result.stderr
    assert f"Warning: {toy.prepared} is not used: " in warning
    assert "max_length 30" in warning


def test_an_empty_run_is_inspected_by_its_recipe(folder):
    run = folder / "runs/new"
    run.mkdir(parents=True)
    (run / "sessions.jsonl").write_text("{}\n")
    shown = CliRunner().invoke(cli.main, ["recipes", "show", "base"]).stdout
    (run / "recipe.yaml").write_text(shown)
    assert as_json(run)["parameters"] == as_json("base")["parameters"]


def test_what_is_neither_recipe_nor_model_is_named(folder):
    (folder / "runs/base").mkdir(parents=True)
    (folder / "runs/base/sessions.jsonl").write_text("{}\n")
    assert refusal("runs/bsae") == (
        1,
        f"runs/bsae not found; the path is relative to {Path.cwd()}; give a recipe, a model "
        "directory, a checkpoint or a run directory.",
    )
    assert refusal("runs") == (1, "runs holds runs; give runs/base.")
    assert refusal("table3/a-1-hed")[1].endswith("did you mean table3/a-1-head?")
    assert "did you mean base?" in refusal("bse")[1]
    status, message = refusal("runs/base", "--set", "model.d_ff=8")
    assert status == 1
    assert message.startswith("runs/base is a folder, and --set and --vocabulary-size change a")


def test_a_folder_with_the_name_of_a_shipped_recipe_needs_a_path(folder):
    (folder / "base").mkdir()
    assert as_json("base")["name"] == "base"
    assert refusal("./base")[0] == 1
