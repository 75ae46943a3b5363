"""The parts of ``make gpu`` that measure; each is a function, which the first argument names."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence, Sized
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.commands import preprocess
from nmt_cli.corpus.loader import SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus, open_prepared
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.messages import logs
from nmt_cli.model import attention
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.graphed import search as search_module
from nmt_cli.training.backend_choice import (
    NUM_BATCHES,
    PARTS,
    seconds_of_gradient,
    suited_backends,
    with_backend,
    working_backends,
)
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.translating.translator import Translator
from tests import conftest
from tests.benchmarks.cpu_time import with_children
from tests.benchmarks.data import NEWS, parallel_text, random_corpus, write_batches
from tests.benchmarks.decoding.part import sample_of, trained_model, write_test_text
from tests.benchmarks.decoding.sample import (
    BEAM_SIZE,
    EXPORTED,
    EXTRA_LENGTH,
    LENGTH_PENALTY,
)
from tests.benchmarks.ours import OurLoop, model_config
from tests.benchmarks.shapes import SHAPES, Setup, Shape

WARM_UP, COUNTED = 15, 15  # steps; the first ones load kernels and allocate memory
TOKENS_OF_A_GPU = 25_000 // 8  # of a step on the paper's eight GPUs
TRAINED = (
    ("base", SHAPES["base-25k"]._replace(tokens=TOKENS_OF_A_GPU)),
    ("base", SHAPES["base-25k"]),
    ("big", SHAPES["big-25k"]),
)
PAIRS = 40_000  # random ones, enough for many batches of 25,000 tokens
LINES = 3_000
SECONDS_TO_START, SECONDS_TO_NOTICE = 60, 40  # of the killed rank's training


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # a part may be stopped at its limit


def _loop(shape: Shape, folder: str) -> OurLoop:
    corpus = random_corpus(Path(folder), PAIRS, shape.vocabulary_size, NEWS)
    write_batches(corpus, shape.tokens, WARM_UP + COUNTED)
    return OurLoop(Setup(shape, folder, torch.get_num_threads()), reads_late=True)


def training() -> None:
    """Target tokens a second, and the share of the device's peak."""
    for name, shape in TRAINED:
        with tempfile.TemporaryDirectory() as folder:
            loop = _loop(shape, folder)
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            tokens, started = 0, time.perf_counter()
            for index in range(WARM_UP + COUNTED):
                if index == WARM_UP:
                    loop.finish()
                    tokens, started = 0, time.perf_counter()
                tokens += loop.step("bf16", index).target_tokens
            loop.finish()
            rate = tokens / (time.perf_counter() - started)
            facts: dict[str, Any] = loop.facts
            peak = facts["peak_flops"]["bf16"]
            share = rate * facts["flops_per_target_token"] / peak if peak else None
            utilization = "of an unknown peak" if share is None else f"{share:.1%} of the peak"
            memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0
            steps = f"{name}, steps of {shape.tokens:,} tokens"
            _say(f"{steps}: {rate:,.0f} target tokens/s, {utilization}, {memory:.1f} GiB at most")


def backends() -> None:
    """Milliseconds of a gradient by each backend that training chooses from, and the fastest."""
    _say("| steps | part | backend | ms of a gradient | of the first |")
    _say("| --- | --- | --- | --- | --- |")
    for name, shape in TRAINED:
        with tempfile.TemporaryDirectory() as folder:
            loop = _loop(shape, folder)
            engine, pairs = loop.engine("bf16"), loop.pairs(NUM_BATCHES)
            _say(f"| {name}, {shape.tokens:,} tokens | {_memory_efficient(engine, pairs)} |")
            steps, fastest = f"{name}, {shape.tokens:,} tokens", list[str]()
            for part in PARTS:
                suited = working_backends(engine, part, suited_backends(engine, part))
                seconds = seconds_of_gradient(engine, part, suited, pairs)
                for backend in suited:
                    share = seconds[backend] / seconds[suited[0]]
                    milliseconds = f"{1_000 * seconds[backend]:.2f}"
                    cells = (steps, part.name, backend, milliseconds, f"{share:.2f}")
                    _say(f"| {' | '.join(cells)} |")
                backend = min(suited, key=seconds.__getitem__)
                fastest.append(f"{part.name} {backend}")
                engine = with_backend(engine, part, backend)
            _say(f"| {steps} | | recommended: {', '.join(fastest)} | | |")


def _memory_efficient(engine: GradientEngine, pairs: Sequence[SentencePairs]) -> str:
    """Return the cells of varlen attention by an operator that training does not choose from.

    Its tiles are smaller than those of FlashAttention.
    """
    (part,) = (each for each in PARTS if each.name == "attention")
    if "varlen" not in suited_backends(engine, part):
        return "attention | varlen, memory-efficient | not possible | "
    usual: Any = attention
    flash_operator, usual.flash_operator = usual.flash_operator, lambda: _efficient_operator
    try:
        seconds = seconds_of_gradient(engine, part, ["varlen"], pairs)["varlen"]
        return f"attention | varlen, memory-efficient | {1_000 * seconds:.2f} | "
    except RuntimeError as error:
        return f"attention | varlen, memory-efficient | {str(error).splitlines()[0]} | "
    finally:
        usual.flash_operator = flash_operator


def _efficient_operator(
    queries: Tensor, keys: Tensor, values: Tensor, *sides: Any, is_causal: bool, **_: Any
) -> tuple[Tensor, ...]:
    """Compute what the operator of FlashAttention computes, without windows."""
    operator = torch.ops.aten._efficient_attention_forward
    rows = queries[None], keys[None], values[None]
    found = operator(*rows, None, *sides, 0.0, int(is_causal), compute_log_sumexp=True)
    return (found[0][0],)


def decoding() -> None:
    """Output tokens a second, with graphs and without."""
    with tempfile.TemporaryDirectory() as folder:
        recipe, corpus = _toy(Path(folder))
        device = "cuda" if torch.cuda.is_available() else "cpu"
        shape = SHAPES["base-25k"]
        config = model_config(shape).model_copy(update={"output_bias": True})
        model = Transformer(config, shape.vocabulary_size).to(device)
        assert model.output_bias is not None
        model.output_bias.data[corpus.tokenizer.size :] = -1e4  # the toy has no such pieces
        # Forbid </s>, so that every output has the longest length.
        model.output_bias.data[corpus.tokenizer.eos_id] = -1e4
        settings = settings_of(recipe, shape.vocabulary_size)
        line = " ".join(conftest.WORDS * 2)
        for no_graphs, name in ((False, "graphs"), (True, "no graphs")):
            translator = Translator(
                settings,
                corpus.tokenizer,
                model,
                beam_size=4,
                max_extra_length=5,
                precision="bf16",
                no_cuda_graphs=no_graphs,
            )
            lines = [line] * (LINES // 10 if no_graphs else LINES)
            list(translator.translate(lines[:64]))  # records graphs
            started = time.perf_counter()
            found = list(translator.translate(lines))
            seconds = time.perf_counter() - started
            tokens = sum(len(each.tokens) + 1 for each in found)
            _say(f"base, beam 4, {name}: {tokens / seconds:,.0f} output tokens/s")


def natural(shape: str) -> None:
    """Output tokens a second of a trained base or big, on text, beside CTranslate2.

    The steps that are launched together are varied. CTranslate2 gets the same pieces, where it is
    installed; of its sizes of batches the fastest counts. Outputs are as long as references if
    training was long enough.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, device = Path(name), "cuda" if torch.cuda.is_available() else "cpu"
        text = parallel_text(folder, None)
        model = trained_model(folder, shape, SHAPES[f"{shape}-25k"], text)
        tokenizer = load_model(model).tokenizer
        sample, references, _ = sample_of(text, tokenizer, LINES, as_news=True)
        times = -(-LINES // len(sample.lines))
        lines, pieces = list(sample.lines) * times, list(sample.tokens) * times
        options: dict[str, Any] = {"beam_size": BEAM_SIZE, "length_penalty": LENGTH_PENALTY}
        translator = Translator.load(model, device=device, max_extra_length=EXTRA_LENGTH, **options)
        outputs, rates = list[Sequence[str]](), dict[str, float]()
        for number in (4, 2, 4, 8):  # the first records graphs
            search_module.STEPS_AT_ONCE = number
            started = time.perf_counter()
            outputs = [each.tokens for each in translator.translate(lines)]
            rates[f"nmt-cli, {number} steps at once"] = _rate(outputs, started)
        try:
            import ctranslate2  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            _say("CTranslate2 is not installed.")
        else:
            write_test_text(folder / "text", model, text, shape, as_news=True)
            exported, all_pieces = folder / "text" / EXPORTED, tokenizer.pieces
            kind = "bfloat16" if device == "cuda" else "float32"  # as ours
            theirs = ctranslate2.Translator(str(exported), device=device, compute_type=kind)
            given = [all_pieces(each) for each in pieces]
            longest = max(map(len, pieces)) + EXTRA_LENGTH
            limits: dict[str, Any] = {**options, "max_decoding_length": longest}
            for size in (64, 64, 256, 1024):  # the first loads kernels
                started = time.perf_counter()
                results = theirs.translate_batch(given, max_batch_size=size, **limits)
                found = [each.hypotheses[0] for each in results]
                rates[f"CTranslate2, batches of {size}"] = _rate(found, started)
            equal = sum(list(a) == b for a, b in zip(outputs, found, strict=True))
            _say(f"{equal / len(found):.1%} of the translations are equal.")
        lengths = _mean_length(outputs), _mean_length(tokenizer.encode_batch(references))
        _say("A translation has {:.1f} tokens, a reference {:.1f}.".format(*lengths))
        for who, rate in rates.items():
            _say(f"{shape}, beam {BEAM_SIZE}, {len(lines):,} lines, {who}: {rate:,.0f} tokens/s")


def _mean_length(sentences: Sequence[Sized]) -> float:
    return sum(map(len, sentences)) / len(sentences)


def _rate(outputs: Sequence[Any], started: float) -> float:
    """Return the output tokens, with </s>, of each second since ``started``."""
    return sum(len(each) + 1 for each in outputs) / (time.perf_counter() - started)


def profile() -> None:
    """The kernels of a step of base that take the longest, and the host's share."""
    with tempfile.TemporaryDirectory() as folder:
        loop = _loop(SHAPES["base-25k"], folder)
        for index in range(WARM_UP):
            loop.step("bf16", index)
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profiler:
            for index in range(WARM_UP, WARM_UP + 3):
                loop.step("bf16", index)
            loop.finish()
        key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=key, row_limit=40, max_name_column_width=60)
        _say(table)


def killed_rank() -> None:
    """How long training on two GPUs needs to notice that a rank was killed, and what it saves."""
    if torch.cuda.device_count() < 2:
        _say("Not tried: it needs two GPUs.")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _toy(folder)
        run_dir = folder / "run"
        command = [sys.executable, "-m", "nmt_cli", "train", str(folder / "toy.yaml")]
        options = ["--prepared", folder / "prepared", "--run-dir", run_dir, "--devices", "2"]
        steps = ["--set", "training.max_steps=1000000", "--set", "validation.bleu=off"]
        process = subprocess.Popen([*command, *map(str, options), *steps])
        try:
            _wait_for_metrics(run_dir / "metrics.jsonl")
            victim = max(each for each in with_children(process.pid) if each != process.pid)
            os.kill(victim, signal.SIGKILL)
            killed = time.monotonic()
            status = process.wait(SECONDS_TO_NOTICE)
            _say(f"Ended with status {status}, {time.monotonic() - killed:.1f} s after the kill.")
            kept = sorted(path.name for path in (run_dir / "checkpoints").glob("step-*"))
            _say(f"Checkpoints: {', '.join(kept) or 'none'}.")
        finally:
            process.kill()


def _wait_for_metrics(path: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while not (path.exists() and len(path.read_text().splitlines()) > 10):
        if time.monotonic() > deadline:
            raise TimeoutError("training did not begin")
        time.sleep(0.1)


def _toy(folder: Path) -> tuple[Recipe, PreparedCorpus]:
    """Return the recipe and the prepared text of the tests' toy experiment, made in ``folder``."""
    conftest.write_pairs(folder, "train", 150, seed=1)
    conftest.write_pairs(folder, "validation", 11, seed=2)
    recipe_path = folder / "toy.yaml"
    recipe_path.write_text(conftest.RECIPE.format(folder=folder))
    preprocess.run(recipe=str(recipe_path), output=folder / "prepared", workers=1)
    recipe = read_recipe(str(recipe_path)).recipe
    return recipe, open_prepared(folder / "prepared", recipe, "nmt-cli preprocess toy")


if __name__ == "__main__":
    logs.configure(quiet=True)
    keep_freed_memory()
    parts: tuple[Callable[..., None], ...] = (
        training,
        backends,
        decoding,
        natural,
        profile,
        killed_rank,
    )
    {part.__name__: part for part in parts}[sys.argv[1]](*sys.argv[2:])
