import random
import unicodedata

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.tokenizers import sentencepiece_tokenizer
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.tokenizer import (
    load_tokenizer,
    most_pieces,
    sampled_copies,
    shares_of_sample,
    train_tokenizer,
)
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import (
    CONTROL,
    WhitespaceTokenizer,
    joined_pieces,
)
from nmt_cli.files import text_files
from nmt_cli.files.file_names import VOCABULARY
from nmt_cli.messages.errors import DamagedError, NoTextError, UserError
from nmt_cli.recipe.model_settings import text_settings
from nmt_cli.recipe.sections.data import DataConfig
from nmt_cli.recipe.sections.tokenizer import TokenizerConfig
from tests.listed_pairs import ListedPairs

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß"
WORDS = [
    "".join(random.Random(seed).choices(LETTERS, k=2 + seed % 6)) for seed in range(200)
]  # fmt: skip
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "▁", "<0x41>", " ⁇ ", "@@", "|||", "\0", "\r", "\u2028"]


def data(**settings):
    files = {"source": "text.en", "target": "text.de"}
    return DataConfig.model_validate(
        {
            "source_language": "en",
            "target_language": "de",
            "train": [files],
            "validation": files,
            **settings,
        }
    )


def text_pairs(num_pairs=150, seed=1):
    generator = random.Random(seed)
    sentence = lambda: " ".join(generator.choices(WORDS, k=generator.randint(1, 8)))  # noqa: E731
    return [(sentence(), sentence()) for _ in range(num_pairs)]


def train(config, pairs=None, normalization=None, seed=1):
    pairs = text_pairs() if pairs is None else pairs
    settings = {"normalization": normalization} if normalization else {}
    return train_tokenizer(config, data(**settings), ListedPairs(pairs), [len(pairs)], seed)


def config(**settings):
    return TokenizerConfig.model_validate({"vocabulary_size": 400, **settings})


def refusal(*args, **settings):
    with pytest.raises(UserError) as caught:
        train(*args, **settings)
    assert "\n" not in str(caught.value)
    assert ".cc" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return train(config(algorithm=request.param))


@pytest.fixture(scope="module")
def bpe():
    return train(config())


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from([*SPECIAL, *WORDS]))).map("".join))
def test_any_text_comes_back_with_its_white_space_made_spaces(tokenizer, text):
    ids = tokenizer.encode(text)
    assert not {0, 1, 2} & set(ids)
    assert " ".join(text.replace("▁", " ").split()) == tokenizer.decode(ids)


def test_white_space_of_any_kind_is_a_space_and_blank_text_has_no_pieces(tokenizer):
    expected = tokenizer.encode("ab cd")
    for separator in ("  ", "\t", "\r", "\u2028", "\x85", "\u3000", "\u00a0", " ▁"):
        assert tokenizer.encode(f" ab{separator}cd ") == expected
    assert tokenizer.encode(" \u3000\r") == tokenizer.encode("") == []


def test_a_batch_is_its_sentences(tokenizer):
    texts = [text for pair in text_pairs(20, seed=5) for text in pair]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_sentencepiece_itself_reads_the_saved_model_alike(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    witness = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    loaded = load_tokenizer(tmp_path, text_settings(config(), data()))
    for text, _ in text_pairs(50, seed=7):
        assert loaded.encode(text) == tokenizer.encode(text) == witness.encode(text)
        assert loaded.pieces(loaded.encode(text)) == witness.encode(text, out_type=str)
    assert (loaded.size, loaded.unk_id, loaded.bos_id, loaded.eos_id) == (400, 0, 1, 2)
    assert loaded.pieces([0, 1, 2]) == ["<unk>", "<s>", "</s>"]


def test_pieces_can_be_kept(tokenizer):
    ids = tokenizer.encode(WORDS[3])
    assert tokenizer.decode(ids, keep_pieces=True) == " ".join(tokenizer.pieces(ids))


def test_any_ids_decode(tokenizer):
    generator = random.Random(3)
    for _ in range(500):
        ids = generator.choices(range(tokenizer.size), k=generator.randint(0, 12))
        tokenizer.decode(ids).encode()  # strict: no lone surrogates


def test_ids_without_a_piece_have_no_text(bpe):
    for tokenizer in (bpe, train(whitespace(), [("a b", "c")])):
        for method in (tokenizer.decode, tokenizer.pieces):
            with pytest.raises(NoTextError) as caught:
                method([3, 70_000])
            assert str(caught.value).startswith("the id 70,000 has no text; the tokenizer has ")


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_the_same_text_and_seed_give_the_same_bytes(algorithm, tmp_path):
    models = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        train(config(algorithm=algorithm, training_sentences=200)).save(tmp_path / name)
        models.append((tmp_path / name / "tokenizer.model").read_bytes())
    assert models[0] == models[1]
    assert str(tmp_path).encode() not in models[0]


def test_at_most_the_asked_for_sentences_are_sampled_by_seed(monkeypatch):
    seen = []

    def take(sentences, *_):
        seen.append(list(sentences))
        return b""  # which no tokenizer can be made of

    monkeypatch.setattr(sentencepiece_tokenizer, "train_model", take)
    pairs = [(f"s{i}", f"t{i}") for i in range(1000)]
    for seed in (1, 1, 2):
        with pytest.raises(DamagedError):
            train(config(training_sentences=101), pairs, seed=seed)
    assert [len(sentences) for sentences in seen] == [100, 100, 100]
    assert seen[0] == seen[1] != seen[2]
    numbers = [int(sentence[1:]) for sentence in seen[0][::2]]
    assert numbers == sorted(set(numbers))
    assert [f"t{i}" for i in numbers] == seen[0][1::2]
    assert max(numbers) > 900  # not the first ones


def test_user_defined_symbols_are_one_piece_wherever_they_stand():
    symbols = ("(NP", "<de>", "a,b", "))")
    tokenizer = train(config(user_defined_symbols=symbols))
    for symbol in symbols:
        pieces = tokenizer.pieces(tokenizer.encode(f"ab{symbol}cd {symbol}"))
        assert pieces.count(symbol) == 2
    assert tokenizer.decode(tokenizer.encode("(NP a,b ))")) == "(NP a,b ))"


def test_long_lines_and_marked_ones_train_too():
    rare = "ж" * 5000 + " " + "щ" * 5000
    tokenizer = train(config(), [*text_pairs(), ("▅ ъ", rare)])
    assert {"ж", "щ", "ъ"} <= {piece[-1] for piece in tokenizer.pieces(range(400))}


def test_a_vocabulary_that_the_text_cannot_fill_names_the_largest_that_works():
    pairs = text_pairs(4)
    text = refusal(config(vocabulary_size=5000), pairs)
    start = "tokenizer.vocabulary_size 5,000 is more than this text allows; the largest that works "
    assert text.startswith(start)
    largest = int(text.removeprefix(start + "is ").rstrip(".").replace(",", ""))
    assert train(config(vocabulary_size=largest), pairs).size == largest
    refusal(config(vocabulary_size=largest + 1), pairs)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
@pytest.mark.parametrize("letters", ["abcdefgh", "我们有一只狗他在", "กขคงจฉชซ", "aaaab"])
@pytest.mark.parametrize("size", [1, 4, 40])
def test_no_text_allows_more_pieces_than_its_limit(algorithm, letters, size):
    draw = random.Random(size)
    words = ["".join(draw.choices(letters, k=draw.randint(1, 20))) for _ in range(5 * size)]
    pairs = [(" ".join(draw.choices(words, k=4)), " ".join(words[:9])) for _ in range(size)]
    wanted = config(algorithm=algorithm, vocabulary_size=100_000)
    most = most_pieces(wanted, data(), lambda: pairs)
    assert most is not None
    largest = refusal(wanted, pairs).partition("the largest that works is ")[2].rstrip(".")
    assert int(largest.replace(",", "")) <= most
    wanted = config(algorithm=algorithm, vocabulary_size=most)
    assert most_pieces(wanted, data(), lambda: pairs) is None


def test_most_text_is_not_read_to_see_that_a_vocabulary_fits():
    read: list[int] = []

    def pairs():
        for number in range(10_000):
            read.append(number)
            yield f"word{number}", f"Wort{number}"

    for shared in (True, False):
        assert most_pieces(config(vocabulary_size=2000, shared=shared), data(), pairs) is None
    assert len(read) < 1000


def test_a_vocabulary_too_small_for_the_characters_names_the_smallest():
    text = refusal(config(vocabulary_size=270))
    assert text.startswith(
        "tokenizer.vocabulary_size 270 is too small for the characters of this text. Raise it to "
    )
    smallest = int(text.partition("Raise it to ")[2].partition(" ")[0])
    assert train(config(vocabulary_size=smallest)).size == smallest


def test_what_cannot_be_trained_on_is_reported_in_one_line():
    assert refusal(config(user_defined_symbols=["<0x41>"])) == (
        "tokenizer.user_defined_symbols: <0x41> is a piece of every model already; remove it."
    )
    blank = "there is no text to train the tokenizer on; every line is blank."
    assert refusal(config(), []) == refusal(config(), [("", "\u2028")]) == blank
    assert refusal(TokenizerConfig(type="whitespace"), [(" ", "")]) == (
        "there is no text to make a vocabulary of; every line is blank."
    )


def test_an_error_while_reading_is_not_lost_in_the_trainer():
    def broken():
        yield from text_pairs()
        raise UserError("text.en.gz is damaged.")

    with pytest.raises(UserError, match=r"^text\.en\.gz is damaged\.$"):
        train_tokenizer(config(), data(), ListedPairs(broken()), [10**6], seed=1)


def test_nfc_makes_two_spellings_one():
    composed = ["für Öl und Käse", "ab über"] * 3
    pairs = [(unicodedata.normalize("NFD", text), text) for text in composed]
    plain, nfc = (
        train(config(vocabulary_size=280), pairs, {"nfc": nfc_wanted})
        for nfc_wanted in (False, True)
    )
    decomposed = unicodedata.normalize("NFD", "Käse")
    assert nfc.encode(decomposed) == nfc.encode("Käse")
    assert plain.encode(decomposed) != plain.encode("Käse")
    assert plain.decode(plain.encode(decomposed)) == decomposed


def test_punctuation_is_normalized_by_the_rules_of_each_side():
    tokenizer = train(config(), normalization={"punctuation": True})
    assert tokenizer.decode(tokenizer.encode("„so“ …")) == '"so" ...'
    number = "3\u00a0000"
    assert tokenizer.decode(tokenizer.encode(number, "source")) == "3.000"
    assert tokenizer.decode(tokenizer.encode(number, "target")) == "3,000"


def test_an_existing_model_keeps_its_ids(bpe, tmp_path):
    bpe.save(tmp_path)
    path = tmp_path / "tokenizer.model"
    existing = train(TokenizerConfig(model=path), [])
    assert existing.encode(WORDS[0]) == bpe.encode(WORDS[0])
    message = refusal(TokenizerConfig(model=path, user_defined_symbols=("<de>",)), [])
    assert message.startswith(f"{path} has no piece <de>, which tokenizer.user_defined_symbols ")


def test_an_existing_model_without_start_begins_with_the_end(tmp_path):
    path = tmp_path / "own.model"
    with path.open("wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(text for pair in text_pairs() for text in pair),
            model_writer=stream,
            vocab_size=120,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            minloglevel=2,
        )
    tokenizer = train(TokenizerConfig(model=path), [])
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (1, 1, 2)


def test_damaged_models_are_refused_and_never_crash(bpe, tmp_path):
    bpe.save(tmp_path)
    path = tmp_path / "tokenizer.model"
    whole = path.read_bytes()
    generator = random.Random(1)
    for cut in (0, 1, 10, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DamagedError, match=r"tokenizer\.model is not a SentencePiece model"):
            load_tokenizer(tmp_path, text_settings(config(), data()))
    for _ in range(50):
        flipped = bytearray(whole)
        flipped[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        path.write_bytes(flipped)
        try:
            load_tokenizer(tmp_path, text_settings(config(), data()))
        except UserError as error:
            assert str(path) in str(error)  # noqa: PT017
    path.write_bytes(b"not a model")
    assert refusal(TokenizerConfig(model=path), []).startswith(f"{path} is not a SentencePiece ")


def test_files_too_large_or_missing_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.model"
    message = f"{path} not found."
    assert refusal(TokenizerConfig(model=path), []) == message
    monkeypatch.setattr(text_files, "LARGEST_FILE", 1 << 20)
    path.write_bytes(bytes((1 << 20) + 1))
    assert refusal(TokenizerConfig(model=path), []).startswith(f"{path} is larger than 1 MB;")


def whitespace(**settings):
    return TokenizerConfig.model_validate({"type": "whitespace", **settings})


def test_whitespace_vocabulary_is_by_frequency_and_capped(tmp_path):
    pairs = [("b a c", "b a"), ("b\u2028z", "(S d\tc")]
    tokenizer = train(whitespace(user_defined_symbols=["(S", "(NP"]), pairs)
    tokenizer.save(tmp_path)
    assert (tmp_path / "vocabulary.txt").read_bytes() == (
        b"<unk>\n<s>\n</s>\n(S\n(NP\nb\na\nc\nd\nz\n"
    )
    assert tokenizer.encode("a (NP new") == [6, 4, 0]
    capped = train(whitespace(vocabulary_size=5), pairs)
    assert capped.pieces(range(capped.size)) == ["<unk>", "<s>", "</s>", "b", "a"]


def test_a_whitespace_vocabulary_has_room_for_its_symbols():
    wanted = whitespace(user_defined_symbols=["(S", "(NP"], vocabulary_size=5)
    assert refusal(wanted) == (
        "tokenizer.vocabulary_size 5 leaves no room for pieces beside 3 control pieces "
        "and 2 user_defined_symbols; raise it."
    )
    assert train(whitespace(user_defined_symbols=["(S", "(NP"], vocabulary_size=6)).size == 6


def test_whitespace_pieces_spelt_like_control_pieces_are_pieces(tmp_path):
    tokenizer = train(whitespace(), [("<s> a </s>", "<unk> <s>")])
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path, text_settings(whitespace(), data()))
    ids = loaded.encode("<unk> <s> a </s>")
    assert min(ids) > 2
    assert loaded.decode(ids) == "<unk> <s> a </s>"
    assert loaded.decode([1, *ids, 2, 0]) == "<unk> <s> a </s> <unk>"


@pytest.mark.parametrize(
    ("pieces", "joined"),
    [
        ("a@@ b", "ab"),
        ("a@@ b@@ c d", "abc d"),
        ("a b@@", "a b"),
        ("@@ a", "a"),
        ("a@@b c", "a@@b c"),
        ("a @@ b", "a b"),
        ("", ""),
    ],
)
def test_the_joiner_is_undone_unless_pieces_are_kept(pieces, joined):
    tokenizer = train(whitespace(joiner="@@"), [(pieces, "x")])
    ids = tokenizer.encode(pieces)
    assert tokenizer.decode(ids) == joined
    assert tokenizer.decode(ids, keep_pieces=True) == pieces
    assert joined_pieces(pieces, "@@") == joined


def test_text_without_a_joiner_is_left_as_it_is():
    text = "a@@  b\u2028 c@@"
    assert joined_pieces(text, None) == text


def test_any_text_in_pieces_comes_back(tmp_path):
    text = "a \ufeffb c\x00 ▁ \u200b \U0001f600 é"
    tokenizer = train(whitespace(), [(text, text)])
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path, text_settings(whitespace(), data()))
    assert loaded.decode(loaded.encode(text)) == text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a\nb\nc\n",
        b"<unk>\n<s>\n</s>\na",
        b"<unk>\n<s>\n</s>\n\n",
        b"\xff\n",
        b"<unk>\n<s>\n</s>\na\na\n",
        b"<unk>\n<s>\n</s>\na b\n",
        "<unk>\n<s>\n</s>\n\x85\n".encode(),
    ],
)
def test_damaged_vocabularies_are_refused(tmp_path, content):
    path = tmp_path / VOCABULARY
    path.write_bytes(content)
    with pytest.raises(DamagedError) as caught:
        load_tokenizer(tmp_path, text_settings(whitespace(), data()))
    assert str(path) in str(caught.value)
    assert "damaged" in str(caught.value)


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(143)])
def test_a_signal_while_the_tokenizer_is_trained_stays_one(signal):
    def sentences():
        yield "one"
        raise signal

    with pytest.raises(type(signal)):
        sentencepiece_tokenizer.train_model(sentences(), config(), 2, 1)


def test_text_in_pieces_is_decoded_by_the_vocabulary_of_its_side():
    own = [*CONTROL, "one", "two"]
    tokenizer = WhitespaceTokenizer([*CONTROL, "eins", "zwei"], Normalizer(data()), None, own)
    assert tokenizer.decode([3, 4], "source") == "one two"
    assert tokenizer.decode([3, 4]) == tokenizer.decode([3, 4], "target") == "eins zwei"


@pytest.mark.parametrize(
    ("settings", "sizes", "num_sampled", "shares"),
    [
        ({}, [900, 100], 1000, [900, 100]),
        ({}, [900, 100], 101, [91, 10]),
        ({"weights": [1, 9]}, [900, 100], 1000, [500, 500]),
        ({"weights": [0, 1]}, [900, 100], 1000, [0, 1000]),
        ({"weights": [0, 0]}, [900, 100], 1000, [900, 100]),
        ({"weights": [1, 1]}, [0, 0], 0, [0, 0]),
        ({"mixing": {"temperature": 1_000_000}}, [900, 100], 1000, [500, 500]),
        ({"mixing": {"temperature": 2}}, [900, 100], 1000, [750, 250]),
        # The mean of 500 and 500, and of all and none.
        ({"stages": [{"c0": 1, "c1": 9}, {"c0": 1, "c1": 0}]}, [900, 100], 1000, [750, 250]),
    ],
)
def test_corpora_have_their_shares_of_training_in_the_sample(settings, sizes, num_sampled, shares):
    weights = settings.pop("weights", [1, 1])
    stages = [{"weights": each} for each in settings.pop("stages", [])]
    for stage in stages[:-1]:
        stage["until"] = {"steps": 10}
    corpora = [
        {"source": f"{n}.en", "target": f"{n}.de", "name": f"c{n}", "weight": weight}
        for n, weight in enumerate(weights)
    ]
    found = shares_of_sample(data(train=corpora, stages=stages, **settings), sizes, num_sampled)
    assert found == shares
    copies = list(sampled_copies(sizes, shares, seed=1))
    of_each = copies[: sizes[0]], copies[sizes[0] :]
    assert [*map(sum, of_each)] == shares
    assert all(max(each) - min(each) <= 1 for each in of_each if each)
    assert not 0 < shares[0] < sizes[0] or 0 in of_each[0][: sizes[0] // 2]
