"""The parts of ``make gpu`` that measure; each is a function, which the first argument names."""

import functools
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.commands import preprocess
from nmt_cli.corpus.loader import Batch
from nmt_cli.corpus.prepared import PreparedCorpus, open_prepared
from nmt_cli.hardware.device import GraphRecorder, choose_device, finish_work
from nmt_cli.hardware.machine_options import Kernels
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.attention_window import EVERYTHING
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.triton_support import has_triton
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.graphed import search as search_module
from nmt_cli.training.batch_cut import BatchCut, gradient_within_memory
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.kernel_trials import worst_result
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

DEVICE = choose_device("auto")
TOKENS, BATCHES, ROOMS = 25_000, 6, 3
TOKENS_OF_A_GPU = TOKENS // 8  # of a step on the paper's eight GPUs
LAYER = SHAPES["base-25k"]._replace(num_layers=1, tokens=2_048)
LENGTH = 30  # of the sentences that a kernel is timed with
PAIRS = 40_000  # random ones, enough for many batches of 25,000 tokens
LINES = 3_000
SECONDS_TO_START, SECONDS_TO_NOTICE = 60, 40  # of the killed rank's training


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # a part may be stopped at its limit


def _kernels() -> list[Kernels]:
    """Return what can compute gradients here; on a CPU, torch."""
    return ["torch", "ours"] if DEVICE.type == "cuda" and has_triton(DEVICE) else ["torch"]


def _seconds(work: Callable[[], object], times: int = 20, warm_up: int = 3) -> float:
    """Return the mean seconds of ``work``."""
    for _ in range(warm_up):
        work()
    finish_work(DEVICE)
    started = time.perf_counter()
    for _ in range(times):
        work()
    finish_work(DEVICE)
    return (time.perf_counter() - started) / times


def _loop(shape: Shape, folder: str, num_batches: int, **of_machine: Any) -> OurLoop:
    """Return a loop over so many batches of random pairs; it begins again after them."""
    corpus = random_corpus(Path(folder), PAIRS, shape.vocabulary_size, NEWS)
    write_batches(corpus, shape.tokens, num_batches)
    setup = Setup(shape, folder, torch.get_num_threads())
    return OurLoop(setup, reads_late=True, **of_machine)


def machine() -> None:
    """How fast the device copies and multiplies, and what versions there are."""
    versions = [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    if importlib.util.find_spec("triton") is not None:
        versions.append(f"Triton {importlib.metadata.version('triton')}")
    _say(", ".join(versions))
    size, width = (1 << 28, 8192) if DEVICE.type == "cuda" else (1 << 20, 256)
    bytes_of_one, copy = (torch.empty(size, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    seconds = _seconds(lambda: copy.copy_(bytes_of_one))
    _say(f"A copy of {size >> 20} MiB: {2 * size / seconds / 1e9:,.0f} GB/s, read and written")
    factor = torch.randn(width, width, dtype=torch.bfloat16, device=DEVICE)
    seconds = _seconds(lambda: factor @ factor)
    _say(f"A product of {width}^3 in bf16: {2 * width**3 / seconds / 1e12:,.1f} TFLOP/s")


def layer() -> None:
    """Whether a graph of one layer computes what its kernels do one by one, to the last bit."""
    with tempfile.TemporaryDirectory() as folder:
        shape = LAYER
        for kernels in _kernels():
            loop = _loop(shape, folder, 2, kernels=kernels)
            first, other = (each._replace(number=7) for each in loop.batches(2))
            halves = first.into_micro_batches(shape.tokens // 2)
            engine = loop.engine("bf16")
            eager = _gradient(engine, first)  # is computed kernel by kernel, and recorded
            found = {
                "a replay": torch.equal(_gradient(engine, first), eager),
                "the same seed again": torch.equal(_gradient(engine, first), eager),
                "another seed": not torch.equal(_gradient(engine, first._replace(number=8)), eager),
            }
            of_other = _gradient(engine, other)
            found["a second shape"] = torch.equal(_gradient(engine, other), of_other)
            found["the first shape after it"] = torch.equal(_gradient(engine, first), eager)
            of_halves = _gradient(engine, halves)
            found["two micro-batches"] = torch.equal(_gradient(engine, halves), of_halves)
            for what, is_right in found.items():
                _say(f"{kernels}, {what}: {'right' if is_right else 'WRONG'}")
            has_graphs = engine.graphed is not None
            _say(f"{kernels}: {'with' if has_graphs else 'WITHOUT'} graphs")


def _gradient(engine: GradientEngine, batch: Batch) -> Tensor:
    engine.compute(batch)
    weights = engine.model.parameters()
    return torch.cat([each.grad.flatten() for each in weights if each.grad is not None])


def kernels() -> None:
    """The errors of our kernels, their registers, the seconds to compile them, and their speed."""
    if DEVICE.type != "cuda":
        _say("Not tried: it needs a GPU.")
        return
    import triton

    compiled = dict[str, tuple[float, Any]]()
    launch = triton.runtime.JITFunction.run

    def noted(kernel: Any, *args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        found = launch(kernel, *args, **options)
        where = Path(kernel.fn.__code__.co_filename).stem
        compiled.setdefault(f"{where}.{kernel.fn.__name__}", (time.perf_counter() - started, found))
        return found

    triton.runtime.JITFunction.run = noted
    with tempfile.TemporaryDirectory() as folder:
        shape = LAYER._replace(tokens=TOKENS)
        loop = _loop(shape, folder, 1, kernels="ours")
        engine = loop.engine("bf16")
        worst = worst_result(engine)
        _say(f"The largest error is {worst.multiple:.0%} of what is allowed: {worst.text}")
        (pairs,) = (batch.micro_batches[0] for batch in loop.batches(1))
        engine.try_gradient(engine.on_device(pairs))  # compiles what was not compiled yet
        for name, (seconds, found) in compiled.items():
            resources = f"{found.n_regs} registers, {found.n_spills} spilled"
            _say(f"{name}: {seconds:.1f} s to compile and launch, {resources}")
        triton.runtime.JITFunction.run = launch
        for name, work, num_bytes in _work_of_kernels(shape):
            seconds = _seconds(work)
            rate = num_bytes / seconds / 1e9
            _say(f"{name}: {1e6 * seconds:,.0f} us, {rate:,.0f} GB/s of {num_bytes >> 20} MiB")


def _work_of_kernels(shape: Shape) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Yield the name of a kernel, what launches it forward and backward, and the bytes it needs."""
    from nmt_cli.model.dropout import KernelDropout
    from nmt_cli.model.triton_kernels.attention import Heads, attend
    from nmt_cli.model.triton_kernels.cross_entropy import losses_in_place
    from nmt_cli.model.triton_kernels.relu import linear_relu
    from nmt_cli.model.triton_kernels.residual import Norm, add_dropout_norm

    tokens, width = shape.tokens, shape.d_model

    def rows(*size: int) -> Tensor:
        return torch.randn(size, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)

    def both_ways(compute: Callable[..., Tensor], *given: Tensor) -> Callable[[], object]:
        def work() -> object:
            return torch.autograd.grad(compute(*given).sum(), given)

        return work

    lengths = [LENGTH] * (tokens // LENGTH)
    sentences = pack(torch.zeros(sum(lengths), dtype=torch.int64), lengths, DEVICE)
    layout = AttentionLayout(sentences, sentences)
    d_head = width // shape.num_heads
    heads = Heads(shape.num_heads, d_head, d_head, KernelDropout(0.0, None, 0))
    given = rows(sum(lengths), 3 * width)
    # Forward reads the parts and writes the output; backward reads five and writes three of them.
    attended = both_ways(lambda each: attend(layout, EVERYTHING, heads, each), given)
    yield "attention", attended, 2 * sum(lengths) * width * (4 + 8)
    drawn = KernelDropout(0.1, torch.zeros(1, dtype=torch.int64, device=DEVICE), 1)
    norm = Norm(rows(width), rows(width), 1e-5)
    both = rows(tokens, width), rows(tokens, width)
    added = both_ways(lambda a, b: add_dropout_norm(a, b, drawn, norm), *both)
    yield "residual", added, 2 * tokens * width * (3 + 5)
    inner = rows(tokens, width), rows(shape.d_ff, width), rows(shape.d_ff)
    activated = both_ways(lambda *given: linear_relu(*given)[0], *inner)
    yield "relu, with its products", activated, 2 * tokens * shape.d_ff * 3
    logits, targets = (
        rows(4096, shape.vocabulary_size).detach(),
        torch.zeros(4096).long().to(DEVICE),
    )
    losses = functools.partial(losses_in_place, logits, targets, 0.1)
    yield "loss of 4,096 rows", losses, 2 * logits.numel() * 3


def training(size: str) -> None:
    """Milliseconds of a step, target tokens a second and the host's share, in a second pass."""
    shapes = [(f"{size}, {TOKENS:,} tokens", SHAPES[f"{size}-25k"])]
    if size == "big":
        small = SHAPES["base-25k"]._replace(tokens=TOKENS_OF_A_GPU)
        shapes.append((f"base, {TOKENS_OF_A_GPU:,} tokens", small))
    for name, shape in shapes:
        for kernels, has_graphs in itertools.product(_kernels(), (False, True)):
            with tempfile.TemporaryDirectory() as folder:
                loop = _loop(shape, folder, BATCHES, kernels=kernels, has_graphs=has_graphs)
                _pass(loop, 0)
                tokens, seconds, host = _pass(loop, BATCHES)
                rate, facts = tokens / seconds, loop.facts
                peak: Any = facts["peak_flops"]
                flops: Any = facts["flops_per_target_token"]
                peak = peak["bf16"]
                share = f"{rate * flops / peak:.1%} of the peak" if peak else "an unknown peak"
                most = torch.cuda.max_memory_allocated() / 2**30 if DEVICE.type == "cuda" else 0.0
                launches = "graphs" if has_graphs else "single launches"
                _say(
                    f"{name}, {kernels}, {launches}: {1_000 * seconds / BATCHES:.1f} ms a step, "
                    f"{1_000 * host / BATCHES:.1f} ms of the host, {rate:,.0f} target tokens/s, "
                    f"{share}, {most:.1f} GiB at most"
                )


def _pass(loop: OurLoop, first: int) -> tuple[int, float, float]:
    """Train on all batches; return their tokens, the seconds, and those until all is launched."""
    started = time.perf_counter()
    tokens = sum(loop.step("bf16", first + index).target_tokens for index in range(BATCHES))
    host = time.perf_counter() - started
    loop.finish()
    finish_work(DEVICE)
    return tokens, time.perf_counter() - started, host


def rooms() -> None:
    """What a new shape costs: the first computation, the recording, and the memory after each."""
    with tempfile.TemporaryDirectory() as folder:
        loop = _loop(SHAPES["base-25k"], folder, ROOMS, kernels=_kernels()[-1])
        engine = loop.engine("bf16")
        for number, batch in enumerate(loop.batches(ROOMS), 1):
            tensors = engine.on_device(batch.micro_batches[0])
            compute = functools.partial(engine.try_gradient, tensors)
            times = [_seconds(compute, 1, 0) for _ in range(2)]
            reserved = torch.cuda.memory_reserved() / 2**30 if DEVICE.type == "cuda" else 0.0
            first, again = (f"{1_000 * each:.0f} ms" for each in times)
            _say(
                f"Shape {number}: first {first}, with its recording; again {again}; "
                f"{reserved:.1f} GiB"
            )


def faults() -> None:
    """Whether training goes on after a recording that fails, and after a full memory."""
    with tempfile.TemporaryDirectory() as folder:
        loop = _loop(LAYER, folder, 1, kernels="torch")
        engine, (batch,) = loop.engine("bf16"), loop.batches(1)
        recorder = GraphRecorder(DEVICE)
        number, seen = torch.ones((), device=DEVICE), list[float]()
        recorder.compute(lambda: None)
        try:
            recorder.recorded(lambda: seen.append(number.item()))
            _say("A wait in a recording: nothing was refused")
        except (UserError, RuntimeError) as error:
            _say(f"A wait in a recording: {error}")
        try:
            _say(f"Training after it: norm {engine.compute(batch).read().norm:.4f}")
        except Exception as error:  # is what is to be found out
            _say(f"Training after it: {type(error).__name__}: {error}")
    if DEVICE.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(0.1)
        with tempfile.TemporaryDirectory() as folder:
            loop = _loop(SHAPES["base-25k"], folder, 1, kernels=_kernels()[-1])
            engine, (batch,) = loop.engine("bf16"), loop.batches(1)
            cut = BatchCut(TOKENS)
            found = gradient_within_memory(batch, cut, engine.compute, 300, 1)
            _say(f"A tenth of the memory: micro-batches of {found.max_tokens:,} tokens")


def sweeps() -> None:
    """The speed of each kernel with other tiles and numbers of warps."""
    if DEVICE.type != "cuda":
        _say("Not tried: it needs a GPU.")
        return
    from nmt_cli.model.triton_kernels import attention, sums
    from nmt_cli.training.gradient import loss

    for module, name, values in (
        (attention, "LARGEST_TILE", (32, 64, 128)),
        (attention, "BACKWARD_NUMBERS", (32 * 64, 64 * 64, 128 * 64)),
        (attention, "NUMBERS_OF_WARP", (512, 1_024)),
        (sums, "ROWS", (16, 32, 64, 128)),
        (loss, "KERNEL_CHUNK_ROWS", (4_096, 8_192, 16_384)),
    ):
        usual = getattr(module, name)
        for value in values:
            setattr(module, name, value)
            with tempfile.TemporaryDirectory() as folder:
                loop = _loop(SHAPES["base-25k"], folder, BATCHES, kernels="ours")
                _pass(loop, 0)
                _, seconds, _ = _pass(loop, BATCHES)
                _say(f"{name} = {value}: {1_000 * seconds / BATCHES:.2f} ms a step of base")
        setattr(module, name, usual)


def resumed() -> None:
    """A training of ten validations that is stopped and resumed: its memory and its losses."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _toy(folder)
        command = [sys.executable, "-m", "nmt_cli", "train", str(folder / "toy.yaml")]
        command += ["--prepared", str(folder / "prepared"), "--run-dir", str(folder / "run")]
        command += ["--set", "validation.every_steps=10", "--set", "checkpoints.every_steps=10"]
        for steps in (50, 100):
            more = ["--set", f"training.max_steps={steps}", *(["--resume"] if steps > 50 else [])]
            allowed = ["--allow-change", "training.max_steps"] if steps > 50 else []
            done = subprocess.run([*command, *more, *allowed], capture_output=True, text=True)
            _say(f"{steps} steps: status {done.returncode}; {done.stderr.strip().splitlines()[-1]}")


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
        loop = _loop(SHAPES["base-25k"], folder, BATCHES, kernels=_kernels()[-1])
        _pass(loop, 0)
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profiler:
            for index in range(BATCHES, BATCHES + 2):
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
    globals()[sys.argv[1]](*sys.argv[2:])
