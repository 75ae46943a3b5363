"""What is rehearsed: the real training and decoding, each on a fake GPU in a process of its own."""

import functools
import itertools
import json
import multiprocessing
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist

from nmt_cli.commands import export as export_command
from nmt_cli.commands import translate as translate_command
from nmt_cli.commands.lines import line_windows
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus, open_prepared
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.hardware.device import Precision, Sender
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.machine_options import Kernels
from nmt_cli.hardware.ranks import ALONE, PeerLostError, Ranks
from nmt_cli.interchange.exported_model import CARD
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model import triton_support
from nmt_cli.model.skip_init import SkipInit
from nmt_cli.model.transformer import Transformer
from nmt_cli.optimization import Adam
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.training import GuidedAlignmentConfig
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.loading import EnsembleMember
from nmt_cli.search.search import Search
from nmt_cli.search.sentences import Sampling
from nmt_cli.training import kernel_choice, starting, trainer
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient import engine as gradient_engine
from nmt_cli.training.gradient import gradient_sum, kernel_trials
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.starting import prepare_training
from nmt_cli.training.trainer import Trainer
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.rescorer import Rescorer
from nmt_cli.translating.scheduling.line_processor import LineProcessor
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers.worker_process import LINES_OF_A_TEXT, MostLines
from tests.benchmarks.data import NEWS, random_corpus, write_batches
from tests.benchmarks.ours import OurLoop, model_config
from tests.benchmarks.shapes import SHAPES, Setup, Shape
from tests.fake_models import save_as_model
from tests.gpu import measure as timed
from tests.interchange.test_verification import Imitation
from tests.rehearsal import driver, faults
from tests.rehearsal.driver import be_the_driver
from tests.rehearsal.fake_cuda import CUDA, Event, FakeCuda
from tests.trainers import changed
from tests.translating.test_worker_starter import Forked

VOCABULARY = 8003  # of the models that translate: enough for all ways to find the best pieces
STEPS = 2  # of a training, which then validates and saves
OUTPUT = 4  # steps until all hypotheses of a search have ended


class Report(NamedTuple):
    """What a rehearsal noted."""

    events: list[Event]
    illegal: list[str]
    error: str | None  # that ended the work
    result: Any

    def between(self, begins: str, ends: str) -> list[list[Event]]:
        """Return the events of each part of the work between these marks."""
        parts, part = list[list[Event]](), None
        for event in self.events:
            if event == Event("mark", begins, ""):
                part = list[Event]()
            elif event == Event("mark", ends, "") and part is not None:
                parts.append(part)
                part = None
            elif part is not None:
                part.append(event)
        return parts


class Toy(NamedTuple):
    """The toy experiment, as it is found in another process."""

    recipe_path: Path
    prepared: Path

    def open(self) -> tuple[Recipe, PreparedCorpus]:
        recipe = changed(
            read_recipe(str(self.recipe_path)).recipe,
            model={"d_model": 32, "d_ff": 64, "num_heads": 4},  # heads that FlashAttention takes
            training={"max_steps": STEPS},
            validation={"every_steps": STEPS},
            checkpoints={"every_steps": STEPS},
        )
        return recipe, open_prepared(self.prepared, recipe, "nmt-cli preprocess toy")


def rehearse(
    name: str, toy: Toy, run_dir: Path, options: dict[str, Any], fault: str | None = None
) -> Report:
    """Return the report of the scenario ``name``, in which a ``fault`` may be planted."""
    torch.set_num_threads(1)
    logs.configure(quiet=True)
    if fault is not None:
        faults.plant(fault)
    mode = FakeCuda()
    be_the_driver(mode)
    error = result = None
    recipe, corpus = toy.open()
    try:
        with mode:
            result = SCENARIOS[name](mode, recipe, corpus, run_dir, **options)
    except Exception as raised:
        cause = raised.__cause__ or raised
        error = f"{type(cause).__name__}: {cause}"
    if name == "translate" and torch.backends.cuda.cudnn_sdp_enabled():
        mode.illegal.append("attention by cuDNN, which makes a plan for each shape")
    return Report(mode.events, mode.illegal, error, result)


def _marked(mode: FakeCuda, owner: Any, name: str, mark: str) -> None:
    """Mark where each call of the function ``name`` of ``owner`` begins and ends."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def marking(*args: Any, **kwargs: Any) -> Any:
        mode.mark(f"{mark} begins")
        try:
            return function(*args, **kwargs)
        finally:
            mode.mark(f"{mark} ends")

    setattr(owner, name, marking)


def _ending_soon(mode: FakeCuda, eos_id: int) -> Callable[[torch.Tensor], object]:
    """Return what invents the tokens that a search reads, so that its hypotheses end."""
    reports = itertools.count(1)

    def invent(tensor: torch.Tensor) -> None:
        tensor.zero_()
        if tensor.dtype is torch.int64:  # candidates of a step
            tensor.fill_(eos_id if next(reports) % OUTPUT == 0 else 5)
        elif tensor.dtype is torch.int32 and tensor.dim() == 2:  # the report of a graph's step
            beam_size = (tensor.shape[1] - 2) // 3
            assert 3 * beam_size + 2 == tensor.shape[1]
            tensor[:, 2 * beam_size : 3 * beam_size] = 5  # tokens
            if next(reports) % (2 * OUTPUT) >= OUTPUT:  # no hypothesis lives
                tensor[:, :beam_size] = torch.tensor(-torch.inf).view(torch.int32)
            tensor[:, -1] = 8 * OUTPUT  # places of the past
        elif tensor.dtype is torch.float64 and tensor.dim() == 3:  # the hypotheses that have ended
            tensor[:, 0] = torch.tensor([-1.0, -2.0, 3.0 * tensor.shape[1]])  # one of two tokens
            tensor[:, 1:, 0] = -torch.inf

    return invent


def train(
    mode: FakeCuda,
    recipe: Recipe,
    corpus: PreparedCorpus,
    run_dir: Path,
    *,
    precision: str = "bf16",
    changes: dict[str, dict[str, Any]] | None = None,
    ranks: int = 1,
    resumes: bool = False,
    only_a_step: bool = False,
    exchange: Precision = "fp32",
    is_guided: bool = False,
    by_triton: bool = False,
) -> dict[str, Any]:
    """Train to the end of the recipe, and resume with a full memory in a step if it ``resumes``.

    If it does ``only_a_step``, or ``resumes``, it does not probe the memory, which takes as long.
    If it ``is_guided``, a head learns that the first words of each pair belong together. If it is
    done ``by_triton``, our kernels compute what they can.
    """
    recipe = changed(recipe, training={"clip_norm": 1.0, "ema_decay": 0.99})
    if is_guided:
        recipe = changed(recipe, training={"guided_alignment": GuidedAlignmentConfig()})
        lengths = np.full(len(corpus.source), 2, np.uint16)
        links = BinarizedText(np.zeros(2 * len(lengths), np.uint16), lengths)
        corpus = corpus._replace(links=links)
    recipe = changed(recipe, **(changes or {}))
    if ranks > 1:
        _stub_collectives(mode, ranks)
    group = Ranks(0, ranks) if ranks > 1 else ALONE
    machine = Machine(torch.device("cuda"), precision, group, exchange=exchange)
    _marked(mode, Trainer, "_step", "step")
    mode.invent = _ending_soon(mode, corpus.tokenizer.eos_id)
    _take_kernels_untimed("ours" if by_triton else "torch")
    if by_triton:
        driver.bring_triton(mode)
        _admit_all_kernels()
    cut = BatchCut(80, ranks)  # two micro-batches a step
    if only_a_step or resumes:
        _take_cut_unprobed()
    training = prepare_training(recipe, corpus, run_dir, machine, cut)
    if only_a_step:
        training.state.model.train()
        training.state.optimizer.make_moments()
        stepping = Trainer(training)
        stepping._step(stepping._batches())
        stepping._read_launched()
        return {}
    Trainer(training).train(StopRequest())
    if resumes:
        _fill_memory_once()
        recipe = changed(recipe, training={"max_steps": STEPS + 2})
        training = prepare_training(recipe, corpus, run_dir, machine, cut, is_resumed=True)
        Trainer(training).train(StopRequest())
    return {
        "step": training.state.progress.step,
        "max_tokens": training.cut.max_tokens,
        "checkpoints": sorted(path.name for path in (run_dir / "checkpoints").iterdir()),
    }


def _take_kernels_untimed(wanted: Kernels = "torch") -> None:
    """Let the kernels ``wanted`` be the faster ones; torch's are taken where Triton is missing."""
    untimed: Any = kernel_choice
    untimed._faster = lambda *_: wanted


def _admit_all_kernels() -> None:
    """Let a short trial admit kernels whose numbers are invented."""
    tried: Any = kernel_trials
    of_all: Any = triton_support
    tried.DEVIATIONS = of_all.MOST = 1e9
    tried.LENGTHS = tried.LENGTHS[:1]


def _take_cut_unprobed() -> None:
    """Let micro-batches be as large as is asked for, without a trial of the memory."""
    unprobed: Any = starting
    unprobed.fit_to_memory = lambda cut, *_: cut


def choose_kernels(
    mode: FakeCuda,
    recipe: Recipe,
    corpus: PreparedCorpus,
    run_dir: Path,
    *,
    costs: list[dict[str, float]],
    forgets: int = 0,
    cannot_record: int = 0,
    is_deterministic: bool = False,
) -> dict[str, Any]:
    """Train a step in each of several sessions, in which kernels have these ``costs``.

    The session ``forgets`` saves a checkpoint that names no kernels, as on a CPU. In the session
    ``cannot_record`` no CUDA graph can be recorded, and the next one has none.
    """
    lines: list[str] = []
    driver.bring_triton(mode)
    _admit_all_kernels()
    replaced: Any = kernel_choice
    replaced.perf_counter = lambda: mode.seconds
    replaced.logs = SimpleNamespace(info=lines.append, warning=lines.append)
    replaced.NUM_BATCHES, replaced.TURNS = 1, 2
    _take_cut_unprobed()
    of_engine: Any = GradientEngine
    arithmetic = GradientEngine.arithmetic

    def nameless(engine: GradientEngine) -> dict[str, Any]:
        return engine.machine.arithmetic()

    def no_graph(*_: Any, **__: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    cuda: Any = torch.cuda
    graph = cuda.graph
    machine, cut = Machine(torch.device("cuda"), "bf16"), BatchCut(80)
    machine = machine._replace(is_deterministic=is_deterministic)
    recipe = changed(recipe, validation={"bleu": "off"}, checkpoints={"every_steps": 1})
    _marked(mode, Trainer, "_step", "step")
    for step, mode.costs in enumerate(costs, 1):
        of_engine.arithmetic = nameless if step == forgets else arithmetic
        cuda.graph = no_graph if step == cannot_record else graph
        machine = machine._replace(has_graphs=step - 1 != cannot_record or not cannot_record)
        recipe = changed(recipe, training={"max_steps": step})
        try:
            training = prepare_training(
                recipe, corpus, run_dir, machine, cut, is_resumed=bool(list_checkpoints(run_dir))
            )
            Trainer(training).train(StopRequest())
        except UserError as error:
            lines.append(str(error))
    saved = list_checkpoints(run_dir)
    facts_of = {
        name: [each.manifest.get(name) for each in saved] for name in ("kernels", "cuda_graphs")
    }
    return {"lines": lines, **facts_of}


def measure(
    mode: FakeCuda, recipe: Recipe, corpus: PreparedCorpus, run_dir: Path
) -> dict[str, Any]:
    """Train as ``make gpu`` measures it."""
    mode.invent = _ending_soon(mode, corpus.tokenizer.eos_id)
    vocabulary_size, tokens = 300, 200
    write_batches(random_corpus(run_dir, 60, vocabulary_size, NEWS), tokens, STEPS)
    _marked(mode, OurLoop, "step", "step")
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    shape = Shape(1, 256, 1024, 4, vocabulary_size, tokens)
    loop = OurLoop(Setup(shape, str(run_dir), 1), reads_late=True)
    for index in range(STEPS):
        loop.step("bf16", index)
    loop.finish()
    lines: list[str] = []
    replaced: Any = timed
    replaced.DEVICE, replaced.SHAPES, replaced._say = CUDA, {"toy-25k": shape}, lines.append
    replaced.TOKENS, replaced.PAIRS, replaced.BATCHES = tokens, 60, STEPS
    cuda.max_memory_allocated = lambda: 0
    timed.training("toy")
    return {"lines": lines}


def compute_base(
    mode: FakeCuda,
    recipe: Recipe,
    corpus: PreparedCorpus,
    run_dir: Path,
    *,
    by_triton: bool = False,
) -> dict[str, Any]:
    """Compute the gradient of two micro-batches of the model base, which have the same room."""
    shape = SHAPES["base-25k"]
    with SkipInit():
        model = Transformer(model_config(shape), shape.vocabulary_size).to("cuda")
    engine = GradientEngine.of(model, 1, 0.1, 1, Machine(CUDA, "bf16"))
    if by_triton:
        driver.bring_triton(mode)
    engine = engine.with_kernels("ours" if by_triton else "torch")
    sides = (text.gather(np.arange(100)) for text in (corpus.source, corpus.target))
    batch = Batch(0, (SentencePairs(*sides),))
    for _ in range(2):
        sent = engine.sent_ahead(batch, Sender(CUDA))
        mode.mark("micro-batch begins")
        engine.launch(sent)
        mode.mark("micro-batch ends")
    return {}


def lose_a_rank(
    mode: FakeCuda, recipe: Recipe, corpus: PreparedCorpus, run_dir: Path, *, step: int
) -> dict[str, Any]:
    """Train on two ranks, of which the other dies in ``step``."""
    recipe = changed(recipe, training={"max_steps": 9, "ema_decay": 0.99})
    recipe = changed(recipe, checkpoints={"every_steps": 9}, validation={"every_steps": 9})
    _stub_collectives(mode, 2, dies_in_step=step)
    _take_kernels_untimed()
    _take_cut_unprobed()
    machine = Machine(torch.device("cuda"), "bf16", Ranks(0, 2))
    training = prepare_training(recipe, corpus, run_dir, machine, BatchCut(80, 2))
    optimizer: Any = Adam
    has_completed = optimizer.has_completed
    # It waits, but the number of steps that it then compares is invented.
    optimizer.has_completed = lambda *arguments: [has_completed(*arguments)] != []
    try:
        Trainer(training).train(StopRequest())
    except PeerLostError as error:
        progress, kept = training.state.progress, (run_dir / "checkpoints").iterdir()
        counts = (progress.step, progress.batch_index)
        return {"error": str(error), "counts": counts, "checkpoints": [p.name for p in kept]}
    return {}


def _stub_collectives(mode: FakeCuda, ranks: int, dies_in_step: int | None = None) -> None:
    """Let the other ranks send the same as this one, until they die.

    Then the stream that waits for them waits forever, as with NCCL.
    """
    collectives: Any = dist
    impatient: Any = trainer
    recording: Any = gradient_sum  # which waits before a graph is recorded
    steps = itertools.count(1)

    def wait() -> None:
        if next(steps) == dies_in_step:
            mode.stuck = mode.stream
            impatient.TIMEOUT_SECONDS = impatient.GRACE_SECONDS = 0.01
            recording.TIMEOUT_SECONDS = 0.01

    def noted(tensor: torch.Tensor, *_: Any, **__: Any) -> Any:
        mode.mark(f"collective on {tensor.device.type}")
        return SimpleNamespace(wait=wait)

    def gathered(values: list[Any], value: Any) -> None:
        values[:] = [value] * ranks

    collectives.all_reduce = collectives.broadcast = noted
    collectives.broadcast_object_list = lambda values, **_: None
    collectives.all_gather_object = gathered


def _fill_memory_once() -> None:
    """Let the first micro-batch of a step find no memory."""
    accumulate, calls = gradient_engine.GradientEngine._accumulate, itertools.count()

    def full_at_first(engine: Any, batch: Any) -> Any:
        if next(calls) == 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return accumulate(engine, batch)

    gradient_engine.GradientEngine._accumulate = full_at_first  # type: ignore[method-assign, assignment]


def translate(
    mode: FakeCuda,
    recipe: Recipe,
    corpus: PreparedCorpus,
    run_dir: Path,
    *,
    kind: str = "graphed",
    precision: str = "bf16",
    num_lines: int = 6,
    decoder: str = "attention",
    by_triton: bool = False,
) -> dict[str, Any]:
    """Translate lines by each way to search; ``kind`` says which."""
    if by_triton:
        driver.bring_triton(mode)
        tried: Any = triton_support
        tried.MOST = 1e9  # numbers are invented
    decoding = {"beam_size": 4, "max_extra_length": 5}
    recipe = changed(recipe, decoding=decoding, model={"decoder": decoder})
    model, other = (Transformer(recipe.model, VOCABULARY).to("cuda") for _ in range(2))
    settings, tokenizer = settings_of(recipe, corpus.tokenizer.size), corpus.tokenizer
    options: dict[str, dict[str, Any]] = {
        "graphed": {},
        "submit": {},
        "plain": {"no_cuda_graphs": True},
        "nucleus": {"sampling": Sampling(top_p=0.9), "n_best": 2},
        "top k": {"sampling": Sampling(top_k=5)},
        "a phrase": {},
        "rules": {"constraints": Constraints(min_length=2, no_repeat_ngram=3)},
        "alignments": {"alignments": True},
        "ensemble": {"ensemble": [EnsembleMember(settings, other)]},
    }
    _marked(mode, Search, "step", "step")
    mode.invent = _ending_soon(mode, tokenizer.eos_id)
    lines = [" ".join(["ant", "bee", "cat"] * (1 + number % 3)) for number in range(num_lines)]
    requests: list[str | Request] = list(lines)
    if kind == "a phrase":
        requests[1] = Request(lines[1], banned=["bee"])
    if kind == "rescoring":
        rescorer = Rescorer(settings, tokenizer, model, precision=precision)
        found = list(rescorer.rescore(zip(lines, lines, strict=True)))
        return {"lines": len(found), "errors": [each.error for each in found if each.error]}
    translator = Translator(
        settings, tokenizer, model, precision=precision, max_tokens_per_device=1200, **options[kind]
    )
    if kind == "submit":
        futures = [translator.submit(request) for request in requests]
        translations = [future.result(timeout=60) for future in futures]
        translator.close()
    else:
        translations = list(translator.translate(requests))
    errors = [each.error for each in translations if each.error]
    return {"lines": len(translations), "errors": errors}


def share_a_text(
    mode: FakeCuda, recipe: Recipe, corpus: PreparedCorpus, run_dir: Path, *, lines: list[str]
) -> dict[str, Any]:
    """Translate ``lines`` by the command with ``--devices 2``, two lines a window."""
    cuda, processes, tokenizer = torch.cuda, cast(Any, subprocess), corpus.tokenizer
    cuda.device_count = lambda: 2
    processes.Popen = Forked  # so that the workers have this mode, too
    line_windows.MOST_LINES["cuda"] = 2
    model = Transformer(recipe.model, tokenizer.size)
    with directory_appearing_whole(run_dir / "model") as partial:
        save_as_model(partial, recipe, tokenizer, model)
        partial.manifest["kind"] = "average"
    (run_dir / "in").write_text("".join(f"{line}\n" for line in lines))
    mode.invent = _ending_soon(mode, tokenizer.eos_id)
    all_have_one = multiprocessing.get_context("fork").Barrier(2)  # so that each gets lines
    LINES_OF_A_TEXT["cuda"] = MostLines(2, 2)
    whole, seen = LineProcessor.prepare, list[str]()

    def noting(processor: LineProcessor, request: Any) -> Any:
        if not seen:
            all_have_one.wait(timeout=60)
        seen.append(request.text)
        prepared = whole(processor, request)
        noted = {"lines": seen, "devices": sorted(mode.devices), "illegal": mode.illegal}
        (run_dir / f"worker-{os.getpid()}").write_text(json.dumps(noted))
        return prepared

    LineProcessor.prepare = noting  # type: ignore[method-assign, assignment]
    output = run_dir / "out"
    status = translate_command.run(
        run_dir / "model",
        input_path=run_dir / "in",
        output_path=output,
        device="cuda",
        devices=2,
        precision="bf16",
    )
    workers = [json.loads(path.read_text()) for path in run_dir.glob("worker-*")]
    return {"status": status, "output": output.read_text().splitlines(), "workers": workers}


def export(
    mode: FakeCuda,
    recipe: Recipe,
    corpus: PreparedCorpus,
    run_dir: Path,
    *,
    output_format: str,
    imitated: bool,
) -> dict[str, Any]:
    """Export a model and verify it on a machine with a GPU.

    If it is ``imitated``, our own model takes the place of the other program.
    """
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    model = Path(__file__).parents[1] / "formats/format_2/sentencepiece/run/average"
    if imitated:
        chosen = export_command.FORMATS[output_format]
        export_command.FORMATS[output_format] = chosen._replace(
            engine=lambda *_: Imitation(load_model(model))
        )
    card = run_dir / "out" / CARD
    export_command.run(
        model, output_format=output_format, output=card.parent, quantization="float32", verify=3
    )
    return {"card": card.read_text()}


SCENARIOS: dict[str, Callable[..., dict[str, Any]]] = {
    "train": train,
    "choose kernels": choose_kernels,
    "compute base": compute_base,
    "lose a rank": lose_a_rank,
    "measure": measure,
    "translate": translate,
    "share a text": share_a_text,
    "export": export,
}
