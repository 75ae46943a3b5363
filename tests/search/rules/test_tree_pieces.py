"""Brackets and tags among the pieces of real tokenizers."""

from functools import cache

import pytest

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer, train_model
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.linearization import Tag
from nmt_cli.parsing.tree import Close, Open
from nmt_cli.recipe.sections.tokenizer import TokenizerConfig
from nmt_cli.search.rules.tree_pieces import tree_pieces
from tests.fake_models import tiny_recipe
from tests.random_trees import PIECES, linearization

LABELS = Labels(frozenset({"S", "NP"}), frozenset({"NN", "VB"}))
SENTENCES = ["(see the dog) (see the cat)", "the dog and the cat see unk", "rain falls in May"]
ANGLES = ("(S", "(NP", "<NN>", "<VB>", ")NP", ")S")
WANTED = {Open("S"), Open("NP"), Tag("NN"), Tag("VB"), Close("NP"), Close("S")}
WITH_WORDS = linearization(LABELS, words="kept")
BRACKETS = linearization(LABELS, notation="brackets")
SLASHES = linearization(LABELS, notation="slashes")
PLAIN = linearization(closing="plain")


@cache
def sentencepiece(*symbols):
    config = TokenizerConfig(
        type="sentencepiece",
        algorithm="bpe",
        vocabulary_size=310 + len(symbols),
        user_defined_symbols=symbols,
    )
    return SentencePieceTokenizer(
        train_model(SENTENCES * 5, config, len(SENTENCES), 1), no_normalization(), "toy"
    )


def whitespace(*pieces):
    return WhitespaceTokenizer([*CONTROL, *pieces, "the", "dog"], no_normalization(), None)


def no_normalization():
    return Normalizer(tiny_recipe().data)


def spaced(*symbols):
    return [f"\u2581{symbol}" for symbol in symbols]


@pytest.mark.parametrize(
    ("tokenizer", "form", "has_space", "distance"),
    [
        (lambda: sentencepiece(*ANGLES), PIECES, True, 1),
        (lambda: sentencepiece("(S", "(NP", "NN", "VB", ")NP", ")S"), BRACKETS, True, 2),
        (lambda: sentencepiece(*spaced("(S", "(NP", "NN", "VB", ")NP", ")S")), BRACKETS, False, 1),
        (lambda: sentencepiece(*spaced("S", "NP", "NN", "VB", "/NP", "/S")), SLASHES, False, 1),
        (lambda: whitespace("S", "NP", "NN", "VB", "/NP", "/S"), SLASHES, False, 1),
        (lambda: whitespace(*ANGLES), PIECES, False, 1),
        (lambda: whitespace(*ANGLES), WITH_WORDS, False, 1),
        (lambda: sentencepiece(*spaced(*ANGLES)), WITH_WORDS, False, 1),
    ],
)
def test_a_tree_has_the_pieces_that_encoding_gives(tokenizer, form, has_space, distance):
    tokenizer = tokenizer()
    pieces = tree_pieces(tokenizer, form)
    assert set(pieces.symbols.values()) == WANTED
    assert (pieces.space_id is not None, pieces.distance) == (has_space, distance)
    if has_space:
        assert tokenizer.pieces([pieces.space_id]) == ["\u2581"]
    written = dict(
        zip([str(symbol) for symbol in pieces.symbols.values()], pieces.symbols, strict=True)
    )
    tree = [Open("S"), Open("NP"), Tag("NN"), Close("NP"), Tag("VB"), Close("S")]
    texts = {"angles": "(S (NP <NN> )NP <VB> )S", "brackets": "(S (NP NN )NP VB )S"}
    text = texts.get(form.notation, "S NP NN /NP VB /S")
    if form == PIECES and has_space:
        text = text.replace(" ", "")
    encoded = tokenizer.encode(text, "target")
    assert encoded[pieces.first :: pieces.distance] == [written[str(symbol)] for symbol in tree]
    assert set(encoded) - set(pieces.symbols) == ({pieces.space_id} if has_space else set())
    assert pieces.num_pieces(len(tree)) == len(encoded)


def test_bytes_marks_and_words_are_no_tags_and_half_a_constituent_is_none():
    tokenizer = sentencepiece(*ANGLES, "(VP", ")PP")
    everything = tokenizer.pieces(range(tokenizer.size))
    assert {"<unk>", "<0x0A>", "(VP", ")PP"} <= set(everything)
    assert set(tree_pieces(tokenizer, PIECES).symbols.values()) == WANTED


def test_a_tag_that_encoding_turns_into_another_one_is_not_used():
    composed, decomposed = "<\u00e9>", "<e\u0301>"
    normalizer = Normalizer(tiny_recipe(data={"normalization": {"nfc": True}}).data)
    vocabulary = [*CONTROL, composed, decomposed, "(S", ")S"]
    pieces = tree_pieces(WhitespaceTokenizer(vocabulary, normalizer, None), PIECES)
    assert set(pieces.symbols.values()) == {Open("S"), Close("S"), Tag("\u00e9")}


def test_one_closing_bracket_closes_every_label():
    pieces = tree_pieces(whitespace("(S", "(NP", "<NN>", ")"), PLAIN)
    assert set(pieces.symbols.values()) == {Open("S"), Open("NP"), Tag("NN"), Close("")}


def test_labels_that_the_model_does_not_know_are_left_out():
    known = linearization(Labels(frozenset({"S"}), frozenset({"NN"})))
    pieces = tree_pieces(sentencepiece(*ANGLES), known)
    assert set(pieces.symbols.values()) == {Open("S"), Close("S"), Tag("NN")}


@pytest.mark.parametrize(
    ("tokenizer", "form", "reason"),
    [
        (lambda: sentencepiece(*ANGLES), WITH_WORDS, "cuts trees into other pieces"),
        (lambda: whitespace(*ANGLES), linearization(notation="brackets"), "its tags are unknown"),
        (lambda: whitespace("(S", "<NN>"), PIECES, "not have brackets and tags as pieces"),
        (lambda: whitespace("(S", ")S"), PIECES, "not have brackets and tags as pieces"),
        (lambda: sentencepiece(), PIECES, "not have brackets and tags as pieces"),
    ],
)
def test_models_that_cannot_be_restricted_are_refused(tokenizer, form, reason):
    with pytest.raises(UserError, match=f"well-formed trees: .*{reason}"):
        tree_pieces(tokenizer(), form)
