"""A toy experiment: sentences of small words; the target is the source reversed."""

# The process that hands out the tests loads this file too: torch is imported where it is used.
from __future__ import annotations

import gc
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import settings

from nmt_cli.messages import logs
from tests.browser import CHROMIUM, Browser
from tests.loopback_server import Server, running_server

if TYPE_CHECKING:
    from nmt_cli.corpus.prepared import PreparedCorpus
    from nmt_cli.model.compiled.c_library import Library
    from nmt_cli.recipe.schema import Recipe

# nohup, and a shell that runs the tests in the background, have them ignore signals, and with them
# the commands that they start. With a handler here, those commands do not ignore them.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, lambda *_: None),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

WORDS = [
    "ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lark", "mole"
]  # fmt: skip

RECIPE = """\
description: A toy.
data:
  source_language: en
  target_language: de
  train: [{{source: {folder}/train.en, target: {folder}/train.de}}]
  validation: {{source: {folder}/validation.en, target: {folder}/validation.de}}
  max_length: 30
tokenizer: {{type: whitespace}}
model: {{num_layers: 1, d_model: 20, d_ff: 28, num_heads: 5, dropout: 0.1}}
training: {{tokens_per_step: 120, max_steps: 12, warmup_steps: 4, peak_learning_rate: 5e-3}}
validation: {{every_steps: 6, bleu: greedy}}
checkpoints: {{every_steps: 3, keep_for_average: 2}}
decoding: {{beam_size: 2}}
"""


class ToyExperiment(NamedTuple):
    """A recipe file with its text and prepared corpus."""

    recipe_path: Path
    recipe: Recipe
    prepared: Path
    corpus: PreparedCorpus


def pytest_configure(config: pytest.Config) -> None:
    # All other tests compare with what a CPU computes, and --device auto would take a GPU. So only
    # exactly -m gpu, as in make gpu, sees one.
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        # Our kernels run in Triton's interpreter. Triton reads this when it is imported, which
        # any test may do, as torch imports it for some of its functions.
        os.environ["TRITON_INTERPRET"] = "1"
    settings.register_profile("thorough", max_examples=300, deadline=None)
    settings.register_profile("quick", max_examples=30, deadline=None)
    settings.load_profile("quick" if config.option.markexpr else "thorough")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Let the collector of garbage pass over all that is imported: most of the objects stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


def pytest_collection_modifyitems() -> None:
    from nmt_cli.hardware.cpu import set_num_threads

    # Toy models are faster on one thread, and pytest runs as many workers as there are cores.
    set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    import torch

    # A test draws the same weights alone, after others and in any worker. Without a GPU,
    # torch.manual_seed takes half a millisecond.
    torch.default_generator.manual_seed(1)
    if item.get_closest_marker("gpu"):
        if not torch.cuda.is_available():
            pytest.skip("only make gpu uses a GPU, and only where there is one")
        torch.manual_seed(1)


@pytest.fixture(autouse=True, scope="session")
def _products_by_mkl() -> Iterator[None]:
    """Let MKL multiply on every CPU: oneDNN would compile a program for each shape of a product.

    It also has spare rows, with which dropout draws other numbers.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt_cli.hardware.fp32_products.FASTER_BY_ONEDNN", frozenset())
        yield


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running file server; downloads that fail are repeated without a pause."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("nmt_cli.datasets.download.FIRST_PAUSE", 0.0)
    monkeypatch.setattr("nmt_cli.datasets.assembly.PAUSE_SECONDS", 0.0)
    logs.configure(quiet=True)
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A Chromium; its tests have the mark ``needs_chromium``."""
    started = Browser(CHROMIUM, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


def write_pairs(folder: Path, name: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    sources = [[rng.choice(WORDS) for _ in range(rng.randint(1, 9))] for _ in range(count)]
    for side, sentences in (("en", sources), ("de", [words[::-1] for words in sources])):
        text = "".join(" ".join(words) + "\n" for words in sentences)
        (folder / f"{name}.{side}").write_text(text)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyExperiment:
    """A prepared corpus of 150 pairs; tests may read it, not change it."""
    from nmt_cli.commands import preprocess
    from nmt_cli.corpus.prepared import open_prepared
    from nmt_cli.recipe.reading.reader import read_recipe

    folder = tmp_path_factory.mktemp("toy")
    write_pairs(folder, "train", 150, seed=1)
    write_pairs(folder, "validation", 11, seed=2)
    recipe_path = folder / "toy.yaml"
    recipe_path.write_text(RECIPE.format(folder=folder))
    logs.configure(quiet=True)
    preprocess.run(recipe=str(recipe_path), output=folder / "prepared", workers=1)
    recipe = read_recipe(str(recipe_path)).recipe
    corpus = open_prepared(folder / "prepared", recipe, "nmt-cli preprocess toy")
    return ToyExperiment(recipe_path, recipe, folder / "prepared", corpus)


@pytest.fixture(scope="session")
def library() -> Library:
    """Return the library for CPUs; only a machine without a compiler may lack it."""
    from nmt_cli.model.compiled.c_library import LIBRARY, load_library

    if not LIBRARY.exists() and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("there is no C compiler")
    return load_library()


@pytest.fixture(params=["library", "torch"])
def searched_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library for CPUs search tables, and then torch and numpy."""
    from tests.fake_models import TableModel

    if request.param == "library":
        monkeypatch.setattr(TableModel, "c_library", request.getfixturevalue("library"))


@pytest.fixture
def torch_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch translate, as where the library for CPUs could not be built."""
    from nmt_cli.search import loading, torch_models

    for module in (loading, torch_models):
        monkeypatch.setattr(module, "library_for", lambda device: None)
