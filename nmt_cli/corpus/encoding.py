"""Encodes text pairs as token ids in several processes, in order and in bounded memory."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.text.cleaning import KEPT, LengthLimits, rules_broken
from nmt_cli.corpus.text.parallel_corpora import TextPair
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.model_settings import TextSettings

PAIRS_IN_CHUNK = 1000
CHARACTERS_IN_CHUNK = 1_000_000
CHUNKS_IN_FLIGHT = 3  # for each worker: one in its queue, one being encoded, one done
PAIRS_WORTH_A_WORKER = 20_000  # encoding them takes about as long as starting a process


class _Text(NamedTuple):
    """The two sides of some pairs as plain lists.

    Sending them to another process takes a third of the time that a list of pairs takes.
    """

    sources: list[str]
    targets: list[str]


class EncodedSide(NamedTuple):
    """Sentences of one side, one after the other, each with its ``</s>``."""

    tokens: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.uint32]
    num_unknown: int


class EncodedPairs(NamedTuple):
    """Encoded pairs: the rule that each pair broke, and the tokens of pairs that broke none."""

    broken: npt.NDArray[np.int8]
    source: EncodedSide
    target: EncodedSide


class EncodingJob(NamedTuple):
    """What an encoding process needs: the folder and settings of the tokenizer, and the limits."""

    directory: Path
    text: TextSettings
    limits: LengthLimits


def useful_workers(asked_for: int | None, num_pairs: int) -> int:
    """Return how many processes to use: those asked for, or as many as save time."""
    if asked_for is not None:
        return min(asked_for, -(-num_pairs // PAIRS_IN_CHUNK))
    return min(len(os.sched_getaffinity(0)), 1 + num_pairs // PAIRS_WORTH_A_WORKER)


def encode_pairs(text: _Text, tokenizer: Tokenizer, limits: LengthLimits) -> EncodedPairs:
    """Return the pairs as token ids, without those that are too long, too short or too unequal."""
    sources = tokenizer.encode_batch(text.sources, "source")
    targets = tokenizer.encode_batch(text.targets, "target")
    broken = rules_broken(_lengths(sources), _lengths(targets), limits)
    kept = np.flatnonzero(broken == KEPT)
    return EncodedPairs(
        broken, _encoded_side(sources, kept, tokenizer), _encoded_side(targets, kept, tokenizer)
    )


def encode_in_order(
    pairs: Iterable[TextPair], job: EncodingJob, workers: int
) -> Iterator[tuple[list[TextPair], EncodedPairs]]:
    """Yield chunks of pairs with their encoding; ``workers`` does not change the result.

    With one worker, this process encodes. Raises UserError if an encoding process dies.
    """
    if workers > 1:
        yield from _encode_in_pool(_chunks(pairs), job, workers)
        return
    tokenizer = load_tokenizer(job.directory, job.text)
    for chunk in _chunks(pairs):
        yield chunk, encode_pairs(_text(chunk), tokenizer, job.limits)


def _encode_in_pool(
    chunks: Iterable[list[TextPair]], job: EncodingJob, workers: int
) -> Iterator[tuple[list[TextPair], EncodedPairs]]:
    # A forked process would inherit locks that threads of numpy and sentencepiece hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(job,))
    waiting: deque[tuple[list[TextPair], Future[EncodedPairs]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(_encode_in_worker, _text(chunk))))
            if len(waiting) >= CHUNKS_IN_FLIGHT * workers:
                done, encoded = waiting.popleft()
                yield done, encoded.result()
        for done, encoded in waiting:
            yield done, encoded.result()
    except BrokenProcessPool:
        raise UserError(
            f"one of {workers} encoding processes died, perhaps because memory was full; "
            "run again with fewer --workers."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """What an encoding process keeps between chunks."""

    tokenizer: Tokenizer
    limits: LengthLimits


def _start_worker(job: EncodingJob) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # they reach all; the parent ends the pool
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Worker.tokenizer = load_tokenizer(job.directory, job.text)
    _Worker.limits = job.limits


def _end_with_parent() -> None:
    """End this process when the parent is killed; nothing else would end it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _encode_in_worker(text: _Text) -> EncodedPairs:
    return encode_pairs(text, _Worker.tokenizer, _Worker.limits)


def _chunks(pairs: Iterable[TextPair]) -> Iterator[list[TextPair]]:
    chunk: list[TextPair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) == PAIRS_IN_CHUNK or characters > CHARACTERS_IN_CHUNK:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _text(pairs: Sequence[TextPair]) -> _Text:
    return _Text([pair.source for pair in pairs], [pair.target for pair in pairs])


def _lengths(encoded: list[list[int]]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))


def _encoded_side(
    encoded: list[list[int]], kept: npt.NDArray[np.intp], tokenizer: Tokenizer
) -> EncodedSide:
    end, sentences = tokenizer.eos_id, [encoded[place] for place in kept]
    for sentence in sentences:
        sentence.append(end)
    lengths = _lengths(sentences)
    tokens = np.fromiter(chain.from_iterable(sentences), np.uint32, count=int(lengths.sum()))
    num_unknown = int((tokens == tokenizer.unk_id).sum())
    return EncodedSide(tokens, lengths.astype(np.uint32), num_unknown)
