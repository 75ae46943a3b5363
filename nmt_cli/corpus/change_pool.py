"""Changes the pairs of batches in processes, several batches at a time.

A core takes about 55 ms to augment a batch of 25,000 tokens, and 210 ms to draw its pieces; a GPU
takes a step of base in 20 to 50 ms.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.augmenter import changes_of
from nmt_cli.corpus.binarized import BinarizedText, Sentences
from nmt_cli.corpus.chunk_pool import start_worker
from nmt_cli.corpus.loader import PairChange, PlannedBatch, SentencePairs
from nmt_cli.corpus.prepared import LINKS, PreparedCorpus
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.schema import Recipe

MOST_PROCESSES = 16


class _Changing(NamedTuple):
    """What a process needs to change pairs as ``changes_of`` does."""

    recipe: Recipe
    corpus: PreparedCorpus  # without texts
    glossaries: Mapping[Path, Glossary]
    has_links: bool  # whether the corpus has
    with_links: bool  # whether the pairs have


class ChangePool:
    """Processes that change batches; they end with the ``with`` block, or with this process.

    What they return depends on the batch only, as what ``changes_of`` returns.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpus: PreparedCorpus,
        glossaries: Mapping[Path, Glossary],
        number: int,
        *,
        with_links: bool,
    ) -> None:
        """``with_links``, the pairs have links of words."""
        # A process maps the files itself: they would be sent as a whole.
        none: Any = None
        without = corpus._replace(source=none, target=none, validation=(), links=None)
        has_links = corpus.links is not None
        self._changing = _Changing(recipe, without, glossaries, has_links, with_links)
        self.number = number

    def __enter__(self) -> "ChangePool":
        """Start the processes from this thread: they end when it does."""
        # A forked process would inherit the state of the GPU, and locks of other threads.
        context = multiprocessing.get_context("spawn")
        given = os.getpid(), self._changing
        self._pool = ProcessPoolExecutor(self.number, context, _start, given)
        for _ in range(self.number):
            self._pool.submit(os.getpid)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, planned: PlannedBatch) -> Callable[[], SentencePairs]:
        """Let a process change the pairs of a batch; return what waits for them.

        That raises UserError if a process has died.
        """
        with self._naming_deaths():
            return partial(self._result, self._pool.submit(_changed, planned))

    def _result(self, future: "Future[SentencePairs]") -> SentencePairs:
        with self._naming_deaths():
            return future.result()

    @contextmanager
    def _naming_deaths(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool:
            raise UserError(
                f"one of {self.number} processes that augment or sample batches died, perhaps "
                "because memory was full; free memory and run again with --resume."
            ) from None


def num_useful_processes(cores: int) -> int:
    """Return how many processes a training may use beside itself on so many cores; 0: none."""
    return max(0, min(MOST_PROCESSES, cores - 1))


_given = list[_Changing]()  # one, in a process of the pool


def _start(parent: int, changing: _Changing) -> None:
    start_worker(parent)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the parent saves a checkpoint first
    _given.append(changing)


@lru_cache(maxsize=1)
def _opened() -> tuple[list[BinarizedText], PairChange]:
    recipe, corpus, glossaries, has_links, with_links = _given[0]
    source, target = (BinarizedText.open(corpus.directory, f"train.{side}") for side in SIDES)
    links = BinarizedText.open(corpus.directory, LINKS) if has_links else None
    corpus = corpus._replace(source=source, target=target, links=links)
    change = changes_of(recipe, corpus, glossaries)
    assert change is not None
    return [source, target, *([links] if with_links and links is not None else [])], change


def _changed(planned: PlannedBatch) -> SentencePairs:
    texts, change = _opened()
    pairs = change(SentencePairs(*(text.gather(planned.pairs) for text in texts)), planned)
    # Unchanged ones may be on the disk; here they are read.
    return SentencePairs(*(Sentences(each.tokens, each.lengths) for each in pairs.columns))
