"""A vocabulary for each language, text without byte fallback, and digits on their own."""

import io
from collections import Counter

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.recipe.model_settings import text_settings
from tests.corpus.test_tokenizer import SPECIAL, WORDS, config, data, text_pairs, train

PAIRS = [(source, target.upper()) for source, target in text_pairs()]


@pytest.fixture(scope="module")
def separate():
    return train(config(shared=False), PAIRS)


def trained_alone(side):
    """Return SentencePiece trained on one side, with the settings that recipes have."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([pair[side] for pair in PAIRS]), model_writer=model,
        model_type="bpe", vocab_size=400, character_coverage=1.0, byte_fallback=True,
        normalization_rule_name="identity", unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def test_each_language_has_the_pieces_that_its_own_text_gives(separate, tmp_path):
    separate.save(tmp_path)
    loaded = load_tokenizer(tmp_path, text_settings(config(), data()))
    assert (loaded.size, loaded.source_size) == (400, 400)
    assert (loaded.unk_id, loaded.bos_id, loaded.eos_id) == (0, 1, 2)
    for place, side in enumerate(SIDES):
        witness = trained_alone(place)
        assert loaded.pieces(range(400), side) == witness.id_to_piece(list(range(400)))
        for pair in PAIRS[:20]:
            assert loaded.encode(pair[place], side) == witness.encode(pair[place])
    assert loaded.pieces(range(400), "source") != loaded.pieces(range(400), "target")


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from([*SPECIAL, *WORDS]))).map("".join))
def test_any_text_of_two_vocabularies_comes_back(separate, text):
    ids = separate.encode(text, "target")
    assert not {0, 1, 2} & set(ids)
    assert " ".join(text.replace("▁", " ").split()) == separate.decode(ids)


def test_a_text_that_begins_like_a_tag_is_text_unless_the_vocabulary_has_tags(separate):
    assert 0 not in separate.encode(">>deu<< word")
    tagged = train(config(shared=False, user_defined_symbols=[">>deu<<"]), PAIRS)
    first, *rest = tagged.encode(">>deu<< word")
    assert tagged.pieces([first], "source") == [">>deu<<"]
    assert rest == tagged.encode("word")


def test_pieces_of_text_in_pieces_are_those_of_each_side():
    pairs = [("a b a", "x y"), ("a c", "x x a")]
    separate = train(config(type="whitespace", vocabulary_size=5, shared=False), pairs)
    for place, side in enumerate(SIDES):
        counts = Counter(" ".join(pair[place] for pair in pairs).split())
        frequent = [piece for piece, _ in counts.most_common(1)]
        found = separate.pieces(range(5), side)
        assert found[:4] == ["<unk>", "<s>", "</s>", *frequent]
        assert found[4] in counts
    assert separate.source_size == separate.size == 5
    assert separate.encode("x") == [0]


@pytest.mark.parametrize("shared", [True, False])
def test_without_byte_fallback_unknown_characters_have_no_piece(shared):
    tokenizer = train(config(byte_fallback=False, shared=shared), PAIRS)
    assert not any(piece.startswith("<0x") for piece in tokenizer.pieces(range(tokenizer.size)))
    assert 0 in tokenizer.encode("中", "target")
    assert 0 not in train(config(shared=shared), PAIRS).encode("中", "target")


def test_digits_are_pieces_of_their_own_if_the_recipe_asks_for_it():
    pairs = [(f"{word} 19{place % 7}7", f"19{place % 5}7") for place, word in enumerate(WORDS)]
    together, alone = (train(config(split_digits=splits), pairs) for splits in (False, True))
    most_digits = [
        max(sum(letter.isdigit() for letter in piece) for piece in each.pieces(range(259, 400)))
        for each in (together, alone)
    ]
    assert most_digits[0] > 1
    assert most_digits[1] == 1
    assert alone.decode(alone.encode("in 1999 or 2525")) == "in 1999 or 2525"
