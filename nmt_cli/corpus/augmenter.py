"""What training changes in the pairs of a batch: their text, and then the pieces of that text."""

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.batching import derived_bits
from nmt_cli.corpus.binarized import Indices, Sentences
from nmt_cli.corpus.loader import PairChange, PlannedBatch, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.corpus.text.augmentation import MOST_MERGED, Augmenting, TextPair
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import (
    SPACE_IN_PIECES,
    SentencePieceTokenizer,
)
from nmt_cli.corpus.tokenizers.subword_sampling import Draw, SubwordSampling
from nmt_cli.corpus.tokenizers.tokenizer import tag_ids
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.files.file_names import SENTENCEPIECE_MODEL
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.schema import Recipe

# A pair to change: its place in the batch, what changes it and how, random numbers, and the numbers
# of the pair and of those that are merged with it.
Chosen = tuple[int, Augmenting, list[str], random.Random, range]


class Augmenter:
    """Changes the text of some pairs of a batch, as ``augment`` of their corpora asks for.

    What a pair becomes depends only on the seed, its corpus, its place there, the epoch, and which
    of its copies in the epoch it is, so a resumed training, or one on more ranks, trains on the
    same text. Only changed sides are cut into
    pieces again. A pair stays as it is if a side would be empty, or longer than the longest
    sentence, or if it has or would get ``<unk>``. Threads may share an instance.
    """

    def __init__(
        self,
        corpus: PreparedCorpus,
        augments: Sequence[Augmenting],  # of each corpus
        seed: int,
    ) -> None:
        self._corpus, self._augments, self._seed = corpus, augments, seed
        self._longest = max(corpus.source.longest, corpus.target.longest)  # with its </s>
        self._is_in_pieces = isinstance(corpus.tokenizer, WhitespaceTokenizer)

    def change(self, pairs: SentencePairs, planned: PlannedBatch) -> SentencePairs:
        """Return the pairs of a batch, with other text in some of them, and links of its words."""
        chosen = list(self._chosen(planned))
        if not chosen:
            return pairs
        numbers = chain.from_iterable(of_pair for *_, of_pair in chosen)
        texts = self._read(np.fromiter(numbers, np.int64))
        before, after = dict[int, TextPair](), dict[int, TextPair]()
        for place, augmenting, kinds, draw, of_pair in chosen:
            own, *following = islice(texts, len(of_pair))
            if own is None:
                continue
            others = [each for each in following if each is not None]
            before[place] = own
            after[place] = augmenting.changed(own, kinds, others, draw)
        source, target = (self._encoded_changes(side, before, after) for side in SIDES)
        kept = {
            place
            for place, ids in chain(source.items(), target.items())
            if len(ids) > self._longest or self._have_no_text(ids)
        }
        links = pairs.links
        if links is not None:
            numbers_of = {place: [*chain(*pair.links)] for place, pair in after.items()}
            links = _with_others(links, numbers_of, kept)
        return SentencePairs(
            _with_others(pairs.source, source, kept),
            _with_others(pairs.target, target, kept),
            links,
        )

    def _chosen(self, planned: PlannedBatch) -> Iterator[Chosen]:
        """Yield the pairs that are to be changed."""
        first = 0
        for corpus, augmenting in enumerate(self._augments):
            size = self._corpus.corpus_sizes[corpus]
            end = first + size
            places = np.flatnonzero((planned.pairs >= first) & (planned.pairs < end))
            if augmenting.probabilities and len(places):
                lines = planned.pairs[places] - first
                listed = lines + planned.copies[places] * size
                drawn = drawn_changes(augmenting, listed, (self._seed, corpus, planned.epoch))
                for at, kinds, draw in drawn:
                    number = first + int(lines[at])
                    others = draw.randint(1, MOST_MERGED) if "merge" in kinds else 0
                    numbers = range(number, min(number + 1 + others, end))
                    yield int(places[at]), augmenting, kinds, draw, numbers
            first = end

    def _read(self, numbers: Indices) -> Iterator[TextPair | None]:
        """Yield the text of each pair; None if some of its pieces stand for no text."""
        corpus = self._corpus
        source, target = corpus.source.gather(numbers), corpus.target.gather(numbers)
        links = (
            [[]] * len(numbers) if corpus.links is None else corpus.links.gather(numbers).lists()
        )
        texts = self._words(source, "source"), self._words(target, "target"), links
        for of_source, of_target, of_pair in zip(*texts, strict=True):
            if of_source is None or of_target is None:
                yield None
            else:
                pairs = zip(of_pair[::2], of_pair[1::2], strict=True)
                yield TextPair(of_source, of_target, [*pairs])

    def _have_no_text(self, ids: Sequence[int]) -> bool:
        """Return whether some pieces stand for no text; in text in pieces, all are text."""
        return self._corpus.tokenizer.unk_id in ids and not self._is_in_pieces

    def _words(self, sentences: Sentences, side: Side) -> Iterator[list[str] | None]:
        tokenizer, is_in_pieces = self._corpus.tokenizer, self._is_in_pieces
        for *ids, _ in sentences.lists():
            if self._have_no_text(ids):
                yield None
            else:
                yield tokenizer.decode(ids, side, keep_pieces=is_in_pieces).split()

    def _encoded_changes(
        self, side: Side, before: Mapping[int, TextPair], after: Mapping[int, TextPair]
    ) -> dict[int, list[int]]:
        """Return the pieces of the texts of one side that are changed, each with its ``</s>``."""
        changed = {
            place: " ".join(getattr(pair, side))
            for place, pair in after.items()
            if getattr(pair, side) != getattr(before[place], side)
        }
        tokenizer = self._corpus.tokenizer
        encoded = tokenizer.encode_batch(list(changed.values()), side)
        return {
            place: [*ids, tokenizer.eos_id] for place, ids in zip(changed, encoded, strict=True)
        }


def drawn_changes(
    augmenting: Augmenting, lines: Indices, key: tuple[object, ...]
) -> Iterator[tuple[int, list[str], random.Random]]:
    """Yield the place in ``lines`` of each pair to change, its kinds, and its random numbers.

    ``key`` is the seed, the number of the corpus, and the epoch.
    """
    kinds = defaultdict[int, list[str]](list)
    for kind, probability in augmenting.probabilities.items():
        drawn = (random_bits(derived_bits(*key, kind), lines) >> np.uint64(11)) * 2.0**-53
        for at in np.flatnonzero(drawn < probability).tolist():
            kinds[at].append(kind)
    bits = random_bits(derived_bits(*key, "how"), lines)
    for at, of_pair in kinds.items():
        yield at, of_pair, random.Random(int(bits[at]))


def random_bits(seed: int, places: Indices) -> npt.NDArray[np.uint64]:
    """Return the numbers at ``places`` of SplitMix64's sequence of 64 random bits from ``seed``."""
    bits = (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits += np.uint64(seed)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _with_others(side: Sentences, others: Mapping[int, list[int]], kept: set[int]) -> Sentences:
    """Return the sentences of ``side``, with ``others`` at their places except those ``kept``."""
    replaced = sorted(others.keys() - kept)
    ends = np.cumsum(side.lengths)
    parts, lengths, start = [], side.lengths.copy(), 0
    for place in replaced:
        other = np.array(others[place], dtype=np.int64)
        parts += [side.tokens[start : ends[place] - side.lengths[place]], other]
        lengths[place], start = len(others[place]), ends[place]
    return Sentences(np.concatenate([*parts, side.tokens[start:]]), lengths)


def changes_of(
    recipe: Recipe, corpus: PreparedCorpus, glossaries: Mapping[Path, Glossary]
) -> PairChange | None:
    """Return the function that changes the pairs of a batch; None if the recipe changes none.

    Raises UserError if the tokenizer cannot sample.
    """
    augmenter, sampler = augmenter_of(recipe, corpus, glossaries), sampler_of(recipe, corpus)
    changes = [each.change for each in (augmenter, sampler) if each is not None]
    if not changes:
        return None

    def change(pairs: SentencePairs, planned: PlannedBatch) -> SentencePairs:
        for each in changes:
            pairs = each(pairs, planned)
        return pairs

    return change


def read_glossaries(recipe: Recipe) -> dict[Path, Glossary]:
    """Return each glossary of the recipe by its path.

    Raises UserError, which names the key, if one cannot be read.
    """
    found: dict[Path, Glossary] = {}
    for number, each in enumerate(recipe.data.train):
        path = each.augment.glossary
        if path is None or path in found or each.augment.terms == 0:
            continue
        try:
            found[path] = Glossary.read(path)
        except UserError as error:
            raise UserError(f"data.train.{number}.augment.glossary: {error}") from None
    return found


def augmenter_of(
    recipe: Recipe, corpus: PreparedCorpus, glossaries: Mapping[Path, Glossary]
) -> Augmenter | None:
    """Return what changes the text as the recipe asks for; None if it asks for no changes."""
    if not recipe.data.is_augmented:
        return None
    symbols = recipe.tokenizer.user_defined_symbols
    is_in_pieces = recipe.tokenizer.type == "whitespace"
    augments = []
    for each in recipe.data.train:
        path = each.augment.glossary
        glossary = None if path is None else glossaries.get(path)
        augments.append(
            Augmenting(each.augment, symbols, glossary, each.tag, is_in_pieces=is_in_pieces)
        )
    return Augmenter(corpus, augments, recipe.training.seed)


class PieceSampler:
    """Cuts the text of a batch into pieces at random, as ``tokenizer.sampling`` asks for.

    The pieces depend only on the seed, the number of the batch and its pairs: each epoch draws
    other pieces, and a resumed training, or one on more ranks, draws the same ones. What is no
    plain text stays as it is, such as bytes, ``<unk>``, user-defined symbols and the pieces in
    ``tags``. A sentence keeps its pieces if it would get more of them than the longest sentence
    has. Threads may share a sampler.
    """

    def __init__(
        self, sampling: SubwordSampling, seed: int, longest: int, tags: Collection[int] = ()
    ) -> None:
        self._sampling, self._seed = sampling, seed
        self._longest = longest  # tokens of the longest sentence, with its </s>
        self._texts = {piece.id: t for t, piece in sampling.pieces.items() if piece.id not in tags}
        # Words are cut on their own, unless pieces reach over a space.
        if any(SPACE_IN_PIECES in text[1:] for text in sampling.pieces):
            self._word_beginnings = frozenset[int]()
        else:
            texts = self._texts.items()
            self._word_beginnings = frozenset(i for i, text in texts if text[0] == SPACE_IN_PIECES)

    def change(self, pairs: SentencePairs, planned: PlannedBatch) -> SentencePairs:
        """Return the pairs of a batch in other pieces of the same text."""
        source = self.sample(pairs.source, planned.number, "source")
        target = self.sample(pairs.target, planned.number, "target")
        return pairs._replace(source=source, target=target)

    def sample(self, side: Sentences, batch_index: int, name: str) -> Sentences:
        """Return the sentences of the side ``name`` of a batch in other pieces of the same text."""
        draw = random.Random(derived_bits(self._seed, batch_index, name)).random
        chosen = []
        for *sentence, end in side.lists():
            drawn = self._drawn(sentence, draw)
            chosen.append([*(drawn if len(drawn) < self._longest else sentence), end])
        lengths = np.fromiter(map(len, chosen), np.int64, count=len(chosen))
        together = np.fromiter(chain.from_iterable(chosen), np.int64, count=int(lengths.sum()))
        return Sentences(together, lengths)

    def _drawn(self, sentence: list[int], draw: Draw) -> list[int]:
        drawn: list[int] = []
        for word in self._words(sentence):
            if word[0] in self._texts:
                text = "".join([self._texts[piece] for piece in word])
                drawn.extend(self._sampling.draw(text, word, draw))
            else:
                drawn.extend(word)
        return drawn

    def _words(self, sentence: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield parts of plain text that are cut on their own, and the tokens between them."""
        start = 0
        for place in range(1, len(sentence)):
            before, after = sentence[place - 1 : place + 1]
            is_inside = before in self._texts and after in self._texts
            if not is_inside or after in self._word_beginnings:
                yield tuple(sentence[start:place])
                start = place
        if sentence:
            yield tuple(sentence[start:])


def sampler_of(recipe: Recipe, corpus: PreparedCorpus) -> PieceSampler | None:
    """Return the sampler that the recipe asks for; None if each text always has the same pieces.

    Raises UserError if the tokenizer of the corpus cannot sample.
    """
    strength = recipe.tokenizer.sampling
    if strength is None:
        return None
    if not isinstance(corpus.tokenizer, SentencePieceTokenizer):
        raise UserError(
            f"tokenizer.sampling needs one SentencePiece model, but {recipe.origin} has two of "
            "them and a vocabulary; remove tokenizer.sampling."
        )
    model_file = str(corpus.directory / SENTENCEPIECE_MODEL)
    sampling = corpus.tokenizer.subword_sampling(strength, model_file)
    longest = max(corpus.source.longest, corpus.target.longest)
    found = [tag_ids(tag, corpus.tokenizer) or [] for tag in recipe.data.tags.values()]
    tags = {ids[-1] for ids in found if ids}
    return PieceSampler(sampling, recipe.training.seed, longest, tags)
