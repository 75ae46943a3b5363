"""Texts with characters that a model does not know are those without them, or in known ones."""

from dataclasses import replace

import pytest

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer
from nmt_cli.corpus.tokenizers.normalization import Normalizer, Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer, train_model
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.model.transformer import Transformer
from nmt_cli.translating.encoding.known_text import KnownText
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from tests.corpus.test_mapped_sentencepiece import train
from tests.fake_models import tiny_recipe, translator_of, untrained

TEXT = ["a man rides a bike in a café", "the firefighter, who is old."] * 20
CLEAN = "a man rides a bike in a café."
UNCLEAN = [
    "a man ri\u00addes a bike in a café.",
    "\ufeffa man rides a bike in a café.\u200b",
    "\u202aa man\u2060 rides a bike in a café\u202c.",
    "a man rides a bi\ufe0fke in a café.",
    "ａ ｍａｎ rides a bike in a café．",
    "a man rides a bike in a cafe\u0301.",
    "a man rides a bike in a café.\x07",
]
JOINED = "a fire\u200cfighter \U0001f468\u200d\U0001f469"
SMALL = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}


def tokenizers(text=TEXT, **normalization):
    """Tokenizers with and without pieces for bytes, of words, and one that normalizes itself."""
    recipe = tiny_recipe(
        data={"normalization": normalization},
        tokenizer={"type": "sentencepiece", "vocabulary_size": 300},
    )
    normalizer = Normalizer(recipe.data)
    without_bytes = recipe.tokenizer.model_copy(
        update={"byte_fallback": False, "vocabulary_size": 50}
    )
    pieces, characters = (
        SentencePieceTokenizer(train_model(text, each, len(text), 1), normalizer, "test")
        for each in (recipe.tokenizer, without_bytes)
    )
    words = sorted({word for line in text for word in line.replace(".", " .").split()})
    own = train(text, 50)  # its normalization is nmt_nfkc
    vocabulary = SentencePieceTokenizer(own, normalizer, "test")
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces(range(vocabulary.size)))}
    models: dict[Side, bytes] = {"source": own, "target": own}
    return {
        "bytes": pieces,
        "unknown": characters,
        "words": WhitespaceTokenizer([*CONTROL, *words], normalizer, None),
        "normalizing": MappedSentencePieceTokenizer(models, ids, normalizer, "test"),
    }


@pytest.mark.parametrize("kind", ["bytes", "unknown", "words", "normalizing"])
def test_what_is_not_known_reads_as_if_it_were_clean(kind):
    tokenizer = tokenizers()[kind]
    known, space = KnownText(tokenizer, folds=False), " " if kind == "words" else ""
    expected = tokenizer.encode(CLEAN.replace(".", f"{space}."))
    for text in UNCLEAN:
        found = known(text.replace(".", f"{space}.").replace("．", f"{space}．"))
        assert tokenizer.encode(found) == expected, ascii(text)
    assert known(CLEAN) == CLEAN
    assert known(JOINED) == JOINED


@pytest.mark.parametrize("kind", ["bytes", "unknown", "words"])
def test_what_is_known_stays(kind):
    odd = [*TEXT, "ｆ \u200b x\u00ady ﬁ e\u0301 ， \u200e"]
    known = KnownText(tokenizers(odd)[kind], folds=False)
    assert known(odd[-1]) == odd[-1]
    assert not known.drops_from(odd[-1])
    assert known("x\u2060y ＡＢＣ") in {"xy ＡＢＣ", "xy ABC"}  # A, B and C may be unknown, too


def test_a_character_whose_other_form_is_unknown_stays():
    known = KnownText(tokenizers()["bytes"], folds=False)
    assert known("ﷲ ｚ ㎏") == "ﷲ ｚ ㎏"
    assert known("A\u0301 z\u0323") == "\u00c1 ẓ"  # the same characters, composed


def test_a_folding_tokenizer_has_what_is_left_out_reported():
    odd = [*TEXT, "x\u00ady"]
    for folds in (False, True):
        known = KnownText(tokenizers(odd, fold=folds)["bytes"], folds=folds)
        assert known.drops_from("x\u00ady") == folds
        assert known.drops_from("x\u2060y")
        assert not known.drops_from("ﬁ ｆ xy")


def untrained_pieces(**options):
    tokenizer, recipe = tokenizers()["bytes"], tiny_recipe(model=SMALL)
    model = Transformer(recipe.model, tokenizer.size)
    return translator_of(recipe, tokenizer, model, precision="fp32", **options)


def test_translations_are_those_of_the_clean_text():
    markup = "<p>a man <b>rides</b> a <i>bike</i> in a café.</p>"
    unclean = "<p>a man <b>ri&shy;des</b> a <i>bi\u200bke</i> in a &#x202d;cafe\u0301.</p>"
    translator = untrained_pieces(constraints=Constraints(min_length=6))
    clean, *found = translator.translate([CLEAN, *UNCLEAN])
    assert {replace(each, drops_invisible=False) for each in found} == {clean}
    assert [each.drops_invisible for each in found] == [True] * 4 + [False] * 2 + [True]
    requests = [Request(text, markup="html") for text in (markup, unclean)]
    clean, found_in_markup = translator.translate(requests)
    assert found_in_markup == replace(clean, drops_invisible=True)


def test_parts_of_long_lines_and_terms_are_clean_too():
    recipe = tiny_recipe(model=SMALL, data={"max_length": 4})
    translator = untrained(
        ["ant", "bee", "cat", "dog"], recipe, constraints=Constraints(min_length=3)
    )
    glossary = Glossary.of({"bee": "dog"})
    long = "ant bee cat ant bee cat ant"
    requests = [Request(text, glossary=glossary) for text in (long, long.replace("ee", "e\u00ade"))]
    clean, found = translator.translate(requests)
    assert clean.num_parts > 1
    assert clean.text.count("dog") >= 2
    assert found == replace(clean, drops_invisible=True)


@pytest.mark.parametrize("line", ["\u200b", "\ufeff\u00ad", "\x00\x1f", "\u202e \u2066", "\u3164"])
def test_a_line_in_which_nothing_is_seen_is_blank(line):
    for split in (False, True):
        (found,) = untrained_pieces(split_sentences=split).translate([line])
        assert (found.text, found.score, found.error) == ("", None, None)
