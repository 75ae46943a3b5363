"""Compares an exported model, loaded again by the other program, with the model itself."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import BYTE_PIECE, SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.lines import is_blank, read_lines
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import TextSettings, length_limits
from nmt_cli.saved.model_directory import LoadedModel
from nmt_cli.search.driver import Driver
from nmt_cli.search.incremental import CachedTransformer
from nmt_cli.search.search import Search
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import Failure, SearchSettings, Sentence, SentencePair
from nmt_cli.search.torch_models import TorchForcing

TOLERANCE = 1e-4  # of a log-probability, in fp32
# Each of two tokens may be off by the tolerance, in opposite directions.
NEAR_TIE = 2 * TOLERANCE
SLOTS = 16
LONGEST_SHOWN = 80  # characters


class Engine(Protocol):
    """Another program with the exported folder."""

    name: str

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of the pieces of a normalized text, without ``</s>``."""

    def token_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Return the log-probability of each token of ``target``, then of ``</s>``."""

    def greedy(self, source: Sequence[int], longest: int) -> list[int]:
        """Return the greedy output, without ``</s>``: at most ``longest`` tokens."""


class Verification(NamedTuple):
    """How far the other program's results are from ours."""

    engine: str
    num_sentences: int
    num_tokens: int  # whose log-probabilities were compared, with </s>
    largest: float  # difference of two log-probabilities of a token
    mean: float
    num_identical: int  # greedy outputs
    is_exact: bool  # whether differences were limited: exports in fp32

    def as_sentence(self) -> str:
        """Return a sentence for users."""
        limit = f" (allowed: {TOLERANCE:g})" if self.is_exact else ""
        same = f"{self.num_identical:,} of the {counted(self.num_sentences, 'greedy output')} are"
        if self.num_identical == self.num_sentences:
            same = "all greedy outputs are"
        others = self.is_exact and self.num_identical < self.num_sentences
        ties = " and the others differ after a near tie" if others else ""
        return (
            f"Verified with {self.engine} on {counted(self.num_sentences, 'sentence')}: the pieces "
            f"are the same, the log-probabilities of {self.num_tokens:,} tokens differ by at most "
            f"{self.largest:.1e} ({self.mean:.1e} on average){limit}, and {same} identical{ties}."
        )


def verify(
    loaded: LoadedModel, engine: Engine, texts: Sequence[str], *, is_exact: bool
) -> Verification:
    """Compare pieces, log-probabilities and greedy outputs of ``texts``; none is blank.

    With ``is_exact``, log-probabilities may differ by ``TOLERANCE``, and greedy outputs only from a
    near tie on. Raises UserError if the results differ by more, or are not numbers.
    """
    tokenizer = loaded.tokenizer
    sources = tokenizer.encode_batch(texts)
    for text, source in zip(texts, sources, strict=True):
        read = as_other_programs_read(loaded.settings.text, text)
        if (ids := engine.source_ids(read)) != source:
            why = f"the pieces of {_shown(read)} have the ids {ids} instead of {source}"
            raise _refused(engine, why)
    limits = [_longest_output(loaded, source) for source in sources]
    outputs = _greedy_outputs(loaded, sources, limits)
    pairs = [SentencePair(*pair) for pair in zip(sources, outputs, strict=True)]
    ours = TorchForcing(loaded.model, tokenizer).token_scores(pairs)
    differences: list[float] = []
    num_identical = 0
    with logs.progress(f"Verifying with {engine.name}", "sentences", len(pairs)) as counter:
        for number, pair in enumerate(pairs):
            differences += np.abs(np.subtract(ours[number], engine.token_scores(*pair))).tolist()
            if not max(differences) <= (TOLERANCE if is_exact else float("inf")):
                raise _refused(
                    engine,
                    f"log-probabilities of the translation of {_shown(texts[number])} differ by "
                    f"{max(differences):.1e}, and {TOLERANCE:g} is allowed",
                )
            output = engine.greedy(pair.source, limits[number])
            num_identical += output == list(pair.target)
            if is_exact and not _is_near_tie(loaded.model, tokenizer, pair, output):
                raise _refused(engine, f"the greedy translations of {_shown(texts[number])} differ")
            counter.advance()
    return Verification(
        engine.name,
        len(texts),
        len(differences),
        max(differences),
        sum(differences) / len(differences),
        num_identical,
        is_exact,
    )


def as_other_programs_read(settings: TextSettings, text: str) -> str:
    """Return ``text`` as other programs have to get it: normalized, with single spaces."""
    text = Normalizer(settings)(text, "source")
    if settings.type == "sentencepiece":
        text = text.replace(SPACE_IN_PIECES, " ")
    return " ".join(text.split())


def _shown(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def _longest_output(loaded: LoadedModel, source: Sequence[int]) -> int:
    longest = len(source) + loaded.settings.decoding.max_extra_length
    return min(longest, length_limits(loaded.settings).target or longest)


def _greedy_outputs(
    loaded: LoadedModel, sources: Sequence[Sequence[int]], limits: Sequence[int]
) -> list[list[int]]:
    tokenizer = loaded.tokenizer
    architecture = loaded.settings.architecture
    start, end = start_id(architecture, tokenizer), source_end(architecture, tokenizer)
    settings = SearchSettings(1, 0.0, 1, start, tokenizer.eos_id)
    sentences = [
        Sentence([*source, *end], longest) for source, longest in zip(sources, limits, strict=True)
    ]
    model = CachedTransformer(loaded.model)
    driver = Driver[int](
        lambda first, _: Search(model, len(first), settings), SearchSize(SLOTS), lambda sentence: 1
    )
    outputs = []
    found = driver.run(partial(next, enumerate(sentences), None), is_text=True)
    for number, outcome in sorted(found, key=itemgetter(0)):
        if isinstance(outcome, Failure):
            if outcome.bug is not None:
                raise outcome.bug
            raise UserError(f"the model cannot translate sentence {number + 1}: {outcome.reason}.")
        outputs.append(list(outcome[0].tokens))
    return outputs


def _is_near_tie(
    model: Transformer, tokenizer: Tokenizer, pair: SentencePair, output: Sequence[int]
) -> bool:
    """Return whether ``output`` is our translation, or leaves it where two tokens are as likely."""
    if list(pair.target) == list(output):
        return True
    ours, theirs = [*pair.target, tokenizer.eos_id], [*output, tokenizer.eos_id]
    place = next(n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    scores = TorchForcing(model, tokenizer).token_scores([pair, SentencePair(pair.source, output)])
    return abs(scores[0][place] - scores[1][place]) <= NEAR_TIE


def _refused(engine: Engine, what: str) -> UserError:
    return UserError(
        f"nothing was written, because {engine.name} with the export is not the model: {what}."
    )


LONGEST_DRAWN = 20  # pieces
SEED = 1
MOST_ATTEMPTS = 1_000


def verification_texts(loaded: LoadedModel, path: Path | None, number: int) -> list[str]:
    """Return the first ``number`` sentences of the file ``path`` that the model takes.

    Without a file, sentences are made of random pieces of the vocabulary. Raises UserError if the
    file cannot be read or has no such sentence.
    """
    texts = _drawn(loaded) if path is None else _lines_of(path)
    limit = length_limits(loaded.settings).source
    fitting = (text for text in texts if 0 < len(loaded.tokenizer.encode(text)) <= limit)
    chosen = list(islice(fitting, number))
    if not chosen:
        where, advice = "the vocabulary", "give --sentences FILE"
        if path is not None:
            where, advice = str(path), "give a file with others"
        raise UserError(f"{where} has no sentence that the model can translate; {advice}.")
    return chosen


def _lines_of(path: Path) -> Iterator[str]:
    with open_text(path) as stream:
        for line in read_lines(stream):
            if not is_blank(line.text):
                yield line.text


def _drawn(loaded: LoadedModel) -> Iterator[str]:
    tokenizer, rng = loaded.tokenizer, random.Random(SEED)
    marks = {tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}
    size = tokenizer.source_size or tokenizer.size
    pieces = [
        piece
        for token, piece in enumerate(tokenizer.pieces(range(size), side="source"))
        if token not in marks and not BYTE_PIECE.fullmatch(piece)
    ]
    is_in_pieces = loaded.settings.text.type == "whitespace"
    for _ in range(MOST_ATTEMPTS if pieces else 0):
        drawn = [rng.choice(pieces) for _ in range(rng.randint(1, LONGEST_DRAWN))]
        text = " ".join(drawn)
        if not is_in_pieces:
            text = "".join(drawn).replace(SPACE_IN_PIECES, " ")
        if not is_blank(text):
            yield text
