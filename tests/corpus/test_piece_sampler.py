"""The pieces drawn for a batch: of the same text, as probable as they should be, by the seed."""

import gc
import itertools
import math
import random
import threading
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.augmenter import PieceSampler
from nmt_cli.corpus.binarized import Sentences
from nmt_cli.corpus.tokenizers import subword_sampling
from nmt_cli.corpus.tokenizers.subword_sampling import BpeDropout, Piece, UnigramSampling
from nmt_cli.corpus.tokenizers.tokenizer import train_tokenizer
from nmt_cli.files.file_names import SENTENCEPIECE_MODEL
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.tokenizer import TokenizerConfig
from tests.corpus.test_tokenizer import SPECIAL, data
from tests.listed_pairs import ListedPairs

SYLLABLES = ["ba", "do", "kin", "lu", "me", "no", "pü", "ra", "sil", "ta", "ve", "zo"]
WORDS = ["".join(random.Random(seed).choices(SYLLABLES, k=1 + seed % 3)) for seed in range(150)]
SYMBOLS = ["<bt>", "(S"]
STRENGTH = 0.3
DRAWS = 4000


def text_pairs(num_pairs):
    generator = random.Random(num_pairs)
    sentence = lambda: " ".join(generator.choices(WORDS, k=generator.randint(1, 8)))  # noqa: E731
    return [(sentence(), sentence()) for _ in range(num_pairs)]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def algorithm(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(algorithm):
    settings = {"vocabulary_size": 340, "algorithm": algorithm, "user_defined_symbols": SYMBOLS}
    config = TokenizerConfig.model_validate(settings)
    pairs = text_pairs(150)
    return train_tokenizer(config, data(), ListedPairs(pairs), [len(pairs)], seed=1)


@pytest.fixture(scope="module")
def scores(tokenizer, tmp_path_factory):
    """The score of each piece that is text, as SentencePiece itself reads it from the model."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save(folder)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / SENTENCEPIECE_MODEL))
    ids = [i for i in range(len(model)) if not (model.is_byte(i) or model.is_control(i))]
    return {model.id_to_piece(i): model.get_score(i) for i in ids if i != model.unk_id()}


def side_of(tokenizer, texts):
    sentences = [[*tokenizer.encode(text), tokenizer.eos_id] for text in texts]
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    return Sentences(np.array([*itertools.chain(*sentences)], dtype=np.int64), lengths)


def sentences_of(side):
    return [part.tolist() for part in np.split(side.tokens, np.cumsum(side.lengths)[:-1])]


def sampler_of(tokenizer, *, strength=STRENGTH, seed=3, longest=999):
    return PieceSampler(tokenizer.subword_sampling(strength, "the model"), seed, longest)


def with_dropout(word, scores, strength):
    """Return the probability of each way to cut ``word`` by BPE with dropout, by trying all ways.

    The best pair is merged first. Each time a pair is about to be merged, it is left out with the
    probability ``strength``; it never comes back.
    """

    def ways(spans, agenda, probability):
        live = [(a, b, c) for a, b, c in agenda if {(a, b), (b, c)} <= set(spans)]
        if not live:
            found[tuple(word[start:end] for start, end in spans)] += probability
            return
        a, b, c = best = max(live, key=lambda pair: (scores[word[pair[0] : pair[2]]], -pair[0]))
        ways(spans, agenda - {best}, probability * strength)
        merged = sorted({*spans, (a, c)} - {(a, b), (b, c)})
        ways(merged, (agenda - {best}) | pairs(merged, (a, c)), probability * (1 - strength))

    def pairs(spans, of=None):
        neighbours = [p for p in itertools.pairwise(spans) if of is None or of in p]
        return {(a, b, c) for (a, b), (_, c) in neighbours if word[a:c] in scores}

    found: Counter[tuple[str, ...]] = Counter()
    letters = [(i, i + 1) for i in range(len(word))]
    ways(letters, pairs(letters), 1.0)
    return found


def with_alpha(word, scores, strength):
    """Return the probability of each way to cut ``word`` into pieces of a unigram model."""
    weights = {}
    for places in itertools.product([False, True], repeat=len(word) - 1):
        cuts = [0, *(i + 1 for i, is_cut in enumerate(places) if is_cut), len(word)]
        pieces = tuple(word[a:b] for a, b in itertools.pairwise(cuts))
        if all(piece in scores for piece in pieces):
            weights[pieces] = math.exp(strength * sum(scores[piece] for piece in pieces))
    return {pieces: weight / sum(weights.values()) for pieces, weight in weights.items()}


def test_each_way_to_cut_a_word_is_drawn_as_often_as_the_formula_says(tokenizer, algorithm, scores):
    formula, strength = {"bpe": (with_dropout, 0.3), "unigram": (with_alpha, 0.1)}[algorithm]
    word = "kinlupü"
    drawn = sampler_of(tokenizer, strength=strength).sample(
        side_of(tokenizer, [word] * DRAWS), 0, "source"
    )
    counts = Counter(tuple(tokenizer.pieces(ids[:-1])) for ids in sentences_of(drawn))
    expected = formula(f"▁{word}", scores, strength)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 3
    assert max(expected.values()) < 0.8
    assert set(counts) <= set(expected)
    for pieces, probability in expected.items():
        tolerance = 1 + 4.5 * math.sqrt(DRAWS * probability * (1 - probability))
        assert abs(counts[pieces] - DRAWS * probability) < tolerance, pieces


texts = st.lists(
    st.one_of(st.text(max_size=6), st.sampled_from([*SPECIAL, *SYMBOLS, *WORDS, " "]))
).map("".join)


@given(
    st.lists(texts, min_size=5, max_size=15),
    st.sampled_from([0.1, STRENGTH]),
    st.integers(0, 10**9),
)
def test_any_text_stays_the_same_and_its_symbols_whole(tokenizer, texts, strength, seed):
    """The text is that of the ids: decoded and encoded again, they are the same ids."""
    plain = side_of(tokenizer, [text for text in texts if tokenizer.encode(text)])
    symbols = [tokenizer.encode(symbol)[-1] for symbol in SYMBOLS]
    assert tokenizer.pieces(symbols) == SYMBOLS
    sampler = sampler_of(tokenizer, strength=strength, seed=seed)
    drawn = sampler.sample(plain, 0, "source")
    for before, after in zip(sentences_of(plain), sentences_of(drawn), strict=True):
        text = tokenizer.decode(before[:-1])
        assert tokenizer.encode(text) == before[:-1]
        assert tokenizer.decode(after[:-1]) == text
        assert not {0, 1, 2} & set(after[:-1])
        for symbol in symbols:
            assert after.count(symbol) == before.count(symbol)


def test_what_is_no_plain_text_stays_as_it_is(tokenizer):
    texts = ["(S (S ba<bt>dokin (S", *([f"<bt> (S {' '.join(WORDS[:5])} \u4e2d\u6587 x"] * 20)]
    side = side_of(tokenizer, texts)
    pieces = tokenizer.pieces(range(tokenizer.size))
    fixed = {i for i, piece in enumerate(pieces) if piece in SYMBOLS or piece.startswith("<0x")}
    side.tokens[3] = tokenizer.unk_id

    def fixed_of(sentences):
        return [[token for token in ids if token in {*fixed, 0, 1, 2}] for ids in sentences]

    before = sentences_of(side)
    after = sentences_of(sampler_of(tokenizer, strength=0.1).sample(side, 0, "source"))
    assert fixed_of(after) == fixed_of(before)
    assert sum(map(len, fixed_of(before))) > 20 * (2 + 6)
    assert any(old != new for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (BpeDropout, "▁a bc ▁ab c ▁abc ▁abc ▁abc ▁ ab c ▁abc ▁ abc ▁ab c ▁a b c ▁ a bc ▁abc"),
        (
            UnigramSampling,
            "▁ abc ▁ a bc ▁ a bc ▁a bc ▁ a b c ▁ abc ▁ a bc ▁ ab c ▁ a bc ▁ a bc ▁abc ▁ abc",
        ),
    ],
)
def test_the_draws_are_those_of_every_other_process(kind, expected):
    """Another process wrote the expected ones, so that a training resumed in a new one goes on."""
    texts = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁ab", "▁abc"]
    pieces = {text: Piece(i, -0.5 * i) for i, text in enumerate(texts)}
    sentence, end = [texts.index("▁abc")] * 12, len(texts)
    side = Sentences(np.array([*sentence, end]), np.array([13]))
    drawn = PieceSampler(kind(pieces, 0.4), seed=1, longest=99).sample(side, 7, "target")
    assert "".join(texts[i] for i in drawn.tokens[:-1]) == "▁abc" * 12
    assert " ".join(texts[i] for i in drawn.tokens[:-1]) == expected


def test_pieces_that_reach_over_spaces_are_drawn_too():
    texts = ["▁", "a", "b", "▁a", "▁b", "▁a▁b"]
    pieces = {text: Piece(i, -0.1 * i) for i, text in enumerate(texts)}
    side = Sentences(np.array([3, 4, 9] * 50), np.array([3] * 50))
    drawn = PieceSampler(UnigramSampling(pieces, 0.1), 1, longest=99).sample(side, 0, "source")
    assert {tuple(ids[:-1]) for ids in sentences_of(drawn)} == {
        (5,), (3, 4), (0, 1, 4), (3, 0, 2), (0, 1, 0, 2)
    }  # fmt: skip


def test_a_character_that_is_no_piece_is_never_left_alone():
    pieces = {"▁": Piece(0, 0.0), "xy": Piece(1, -1.0)}
    side = Sentences(np.array([0, 1, 9] * 50), np.array([3] * 50))
    drawn = PieceSampler(BpeDropout(pieces, 0.5), 1, longest=99).sample(side, 0, "source")
    assert drawn.tokens.tolist() == side.tokens.tolist()


def test_the_draws_depend_on_nothing_but_seed_batch_and_side(tokenizer):
    """Not on what was drawn before in any thread."""
    sampler = sampler_of(tokenizer)
    side = side_of(tokenizer, [text for pair in text_pairs(20) for text in pair])
    calls = [(batch, name) for batch in (0, 1, 7, 2**40) for name in ("source", "target")]

    def draw_all(order):
        return {call: sentences_of(sampler.sample(side, *call)) for call in order}

    drawn = draw_all(calls)
    again: list[dict[tuple[int, str], list[list[int]]]] = []
    thread = threading.Thread(target=lambda: again.append(draw_all(calls[::-1])))
    thread.start()
    others = draw_all(calls[::2])
    thread.join()
    assert again == [drawn]
    assert others == {call: drawn[call] for call in calls[::2]}
    assert len({str(sentences) for sentences in drawn.values()}) == len(calls)
    other_seed = sampler_of(tokenizer, seed=4).sample(side, *calls[0])
    assert sentences_of(other_seed) != drawn[calls[0]]


CHINESE = [chr(code) for code in range(0x4E00, 0x4E00 + 300)]


def random_texts(alphabet, shortest, longest):
    """Return texts of so many parts. Each is one word for a sampler; hardly any two are equal."""
    draw = random.Random(longest)
    sizes = [draw.randint(shortest, longest) for _ in range(900)]
    return ["▁" + "".join(draw.choices(alphabet, k=size)) for size in sizes]


@pytest.mark.parametrize("kind", [BpeDropout, UnigramSampling])
@pytest.mark.parametrize("text", [(CHINESE, 5, 60), (SYLLABLES, 4, 7)], ids=["Chinese", "Latin"])
def test_what_is_kept_of_a_text_takes_at_most_the_memory_that_it_may(kind, text, monkeypatch):
    """The witness is Python's own count of its memory."""
    limit = 120_000
    monkeypatch.setattr(subword_sampling, "BYTES_KEPT", limit)
    texts, parts = random_texts(*text), ["▁", *CHINESE]
    parts += {part[:end] for part in SYLLABLES for end in range(1, 4)}
    parts += {pair for text in texts for pair in map("".join, itertools.pairwise(text[:6]))}
    pieces = {part: Piece(number, -number / 1000) for number, part in enumerate(parts)}
    ways, draw, most = kind(pieces, 0.1), random.Random(1).random, 0
    tracemalloc.start()
    for number, text in enumerate(texts):
        ways.draw(text[:-1], (0,), draw)  # a text that nothing else keeps
        if number % 150 == 149:
            gc.collect()  # also frees what Python holds for new objects
            most = max(most, tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert 0.6 * limit < most < limit


def test_a_word_that_comes_again_and_again_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(subword_sampling, "BYTES_KEPT", 20_000)
    made: list[int] = []

    def make(key: int) -> int:
        made.append(key)
        return -key

    recent = subword_sampling.RecentResults(make, lambda *_: 100)
    for number in range(1, 2000):
        assert recent[number] == -number
        assert recent[1 + number % 7] == -1 - number % 7
    assert sorted(made) == list(range(1, 2000))
    assert recent[1000] == -1000
    assert made.count(1000) == 2


def test_a_sentence_that_gets_too_long_keeps_its_pieces(tokenizer):
    side = side_of(tokenizer, [text for pair in text_pairs(40) for text in pair])
    longest = int(np.quantile(side.lengths, 0.9))
    before, after, free = (
        sentences_of(each)
        for each in (
            side,
            sampler_of(tokenizer, longest=longest).sample(side, 0, "source"),
            sampler_of(tokenizer).sample(side, 0, "source"),
        )
    )
    changed = [new for old, new in zip(before, after, strict=True) if new != old]
    assert len(changed) > 10
    assert max(map(len, changed)) <= longest < max(map(len, before))
    assert all(sentence[-1] == tokenizer.eos_id for sentence in after)
    for old, new, possible in zip(before, after, free, strict=True):
        assert new == (old if len(possible) > longest else possible)


def test_a_model_of_words_cannot_sample(tmp_path):
    model = tmp_path / "word"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text for pair in text_pairs(50) for text in pair),
        model_prefix=str(model),
        model_type="word",
        vocab_size=60,
        minloglevel=2,
    )
    file = f"{model}.model"
    config = {"model": file, "vocabulary_size": None}
    of_file, no_text = TokenizerConfig.model_validate(config), ListedPairs([])
    assert train_tokenizer(of_file, data(), no_text, [0], seed=1).size == 60
    sampling = TokenizerConfig.model_validate({**config, "sampling": 0.1})
    with pytest.raises(UserError) as caught:
        train_tokenizer(sampling, data(), no_text, [0], seed=1)
    assert str(caught.value) == (
        f"{file} is neither a bpe nor a unigram model, and tokenizer.sampling needs one of them; "
        "give another model, or tokenizer.sampling: null."
    )
