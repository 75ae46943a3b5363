"""Rules about outputs in the translation of lines, with a real model that has not learnt."""

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer, train_model
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.compiled_logits import CompiledBeams, CompiledLogits
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.scheduling.line_processor import NO_PLACE
from tests.fake_models import tiny_recipe, translator_of

SMALL = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
TEXT = ["der alte Mann liest ein Buch", "das Haus ist alt", "ein Hausboot", "das Buch"] * 20


def translator(tokenizer, recipe, **options):
    torch.manual_seed(3)
    model = Transformer(recipe.model, tokenizer.size)
    return translator_of(recipe, tokenizer, model, precision="fp32", **options)


def of_words(*, max_length=100, model=SMALL, **options):
    recipe = tiny_recipe(data={"max_length": max_length}, model=model)
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), None)
    return translator(tokenizer, recipe, **options)


@pytest.fixture(scope="module")
def pieces():
    """A recipe and a tokenizer whose pieces are parts of words."""
    symbols = ("<de>",)
    recipe = tiny_recipe(
        model=SMALL,
        tokenizer={
            "type": "sentencepiece",
            "vocabulary_size": 320,
            "user_defined_symbols": symbols,
        },
    )
    model = train_model(TEXT, recipe.tokenizer, len(TEXT), 1)
    return recipe, SentencePieceTokenizer(model, Normalizer(recipe.data), "test")


@pytest.mark.parametrize(
    "rule", [{"required": ["bee"]}, {"banned": ["ant"]}, {"prefix": "hen"}, {"no_repeat_ngram": 2}]
)
def test_lines_without_rules_take_no_longer_after_one_with_rules(library, monkeypatch, rule):
    """As counted by calls; the library continues all hypotheses of a step in one."""
    del library
    calls = Counter[str]()

    def count(kind, name):
        real = getattr(kind, name)

        def counted(*arguments):
            calls[name] += 1
            return real(*arguments)

        monkeypatch.setattr(kind, name, counted)

    count(CompiledTransformer, "make_steps")
    count(CompiledBeams, "advance")
    count(CompiledLogits, "restrict")
    of_all, plain = of_words(), ["cat dog eel", "fox", "gnu ant"]

    def calls_of(lines):
        calls.clear()
        found = list(of_all.translate(lines))
        return found, dict(calls)

    expected, before = calls_of(plain)
    assert before["make_steps"] > 0
    assert before["advance"] == 1  # that of the first tokens
    with_rules, beside = calls_of([Request("cat", **rule), *plain])
    assert beside["advance"] > 1  # while the line with rules is in the search
    assert with_rules[1:] == expected
    assert calls_of(plain) == (expected, before)


def test_parts_of_a_long_line_share_the_rules_but_not_the_prefix():
    line = "cat dog eel fox " * 3
    rules = Constraints(min_length=3, max_length=4, banned=["ant"], prefix="hen gnu")
    for sampling in (None, Sampling()):
        options = {"max_length": 4, "sampling": sampling, "constraints": rules}
        short_line = Request("cat", required=["bee"] if sampling is None else ())
        long, short = of_words(**options).translate([line, short_line])
        assert long.num_parts == 4
        assert 12 <= len(long.tokens) <= 16
        assert long.tokens[:2] == ("hen", "gnu")
        assert "ant" not in long.tokens
        assert "ant" not in short.tokens
        assert sampling is not None or "bee" in short.tokens
    (failed,) = of_words(max_length=4).translate([Request(line, required=["bee"])])
    assert failed.error == NO_PLACE
    (cut,) = of_words(max_length=4, too_long="truncate").translate(
        [Request(line, required=["bee"])]
    )
    assert "bee" in cut.tokens


def test_a_truncated_line_is_translated_as_its_start_is():
    """Nothing of what is cut off is forced, and no half of a term or of a copy."""
    rng = random.Random(1)
    options = {"constraints": Constraints(min_length=3, protect=["gnu hen", "fox"])}
    terms = {"bee": "hen ant", "dog eel": "gnu", "cat": "eel"}
    lines = [" ".join(rng.choices(WORDS, k=rng.randrange(5, 9))) for _ in range(40)]
    lines += ["ant bee dog gnu hen", "cat fox eel gnu hen gnu hen"]
    starts = [line.split()[:4] for line in lines]
    for line, start in zip(lines, starts, strict=True):  # a copy that is cut is not there
        if line.split()[3:5] == ["gnu", "hen"]:
            start.pop()
    cut, whole = (
        list(each.translate(Request(text, glossary=terms, protect_strict=True) for text in texts))
        for each, texts in (
            (of_words(max_length=4, too_long="truncate", **options), lines),
            (of_words(max_length=4, **options), map(" ".join, starts)),
        )
    )
    assert all(each.truncated for each in cut)
    assert [replace(each, truncated=False) for each in cut] == whole


def test_a_copy_that_is_longer_than_a_truncated_line_is_not_forced():
    options = {"max_length": 3, "too_long": "truncate"}
    rules = Constraints(min_length=3, protect=["dog eel fox gnu"])
    (found,) = of_words(constraints=rules, **options).translate(["dog eel fox gnu bee"])
    (plain,) = of_words(constraints=Constraints(min_length=3), **options).translate(["dog eel fox"])
    assert (found.text, found.not_copied) == (plain.text, ())


def test_a_term_that_is_a_part_of_the_word_that_is_cut_is_not_forced(pieces):
    recipe, tokenizer = pieces
    text = "das Hauswart"
    size = len(tokenizer.encode("das Haus"))
    assert tokenizer.encode(text)[:size] == tokenizer.encode("das Haus")
    recipe = tiny_recipe(model=SMALL, data={"max_length": size})
    options = {"too_long": "truncate", "constraints": Constraints(min_length=9)}
    alone, with_term, with_word = translator(tokenizer, recipe, **options).translate(
        [text, Request(text, glossary={"Haus": "liest"}), Request(text, glossary={"das": "liest"})]
    )
    assert alone == with_term
    assert "liest" in with_word.text


def test_the_positions_of_a_model_limit_what_may_be_forced():
    model = {**SMALL, "positions": "learned", "max_positions": 6}
    few = of_words(model=model, max_length=5)
    good, bad = few.translate(
        [Request("cat", prefix="ant " * 5), Request("cat", prefix="ant " * 6)]
    )
    assert good.text == "ant ant ant ant ant"
    assert bad.error == (
        "the prefix and the required phrases need 6 pieces, but an output has at most 5"
    )
    with pytest.raises(UserError, match="--min-length asks for 6 pieces, but an output has at mo"):
        of_words(model=model, max_length=5, constraints=Constraints(min_length=6))


def test_texts_become_the_pieces_of_the_tokenizer(pieces):
    recipe, tokenizer = pieces
    rules = Constraints(prefix="<de> das", banned=["Haus"], no_repeat_ngram=2)
    for sampling in (None, Sampling(2.0)):
        request = Request("das Haus", required=["Buch"] if sampling is None else (), n_best=2)
        options = translator(tokenizer, recipe, sampling=sampling, constraints=rules)
        (found,) = options.translate([request])
        for each in (found, *found.alternatives):
            assert each.text.startswith("<de> das")
            assert "▁Haus" not in each.tokens
            book = " ".join(tokenizer.pieces(tokenizer.encode("Buch", "target")))
            assert sampling is not None or book in " ".join(each.tokens)
    plain = translator(tokenizer, recipe)
    first, second = plain.translate(
        [Request("das", prefix=["▁", "B"]), Request("das", prefix=["▁no-piece"])]
    )
    assert first.tokens[:2] == ("▁", "B")
    assert second.error == 'the vocabulary has no piece "▁no-piece"'


def test_the_score_includes_the_prefix():
    free = of_words(beam_size=200, n_best=200, max_extra_length=1)
    (best,) = free.translate(["cat"])
    scores = {each.tokens: each.score for each in (best, *best.alternatives)}
    forced = of_words(constraints=Constraints(prefix="dog"), max_extra_length=1)
    (translation,) = forced.translate(["cat"])
    assert translation.tokens[0] == "dog"
    assert translation.score == pytest.approx(scores[translation.tokens], abs=1e-4)


def words(number):
    chance = random.Random(number)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 8))) for _ in range(number)]


@pytest.mark.parametrize("is_submitted", [False, True])
def test_a_line_with_its_own_beam_and_length_penalty_gets_what_it_gets_alone(is_submitted):
    options: dict[str, Any] = {"beam_size": 5, "token_scores": True, "max_length": 5}
    pairs = [(None, None), (1, None), (2, 0.0), (None, 2.0), (5, 0.3), (3, 10)]
    own = [(text, *pairs[n % len(pairs)]) for n, text in enumerate(words(40))]
    requests = [
        Request(text, beam_size=beam_size, length_penalty=alpha) for text, beam_size, alpha in own
    ]
    with of_words(**options) as together:
        if is_submitted:
            found = [future.result() for future in [together.submit(each) for each in requests]]
        else:
            found = together.translate_window(requests)
    alone_with = {
        (beam_size, alpha): of_words(
            **{**options, "beam_size": beam_size or 5, "length_penalty": alpha}
        )
        for beam_size, alpha in pairs
    }
    for (text, beam_size, alpha), translation in zip(own, found, strict=True):
        (alone,) = alone_with[beam_size, alpha].translate([text])
        assert translation.tokens == alone.tokens
        assert translation.score == pytest.approx(alone.score, abs=1e-5)
        assert translation.token_scores == pytest.approx(alone.token_scores, abs=1e-5)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"beam_size": 5}, "beam_size must be from 1 to that of all lines, 4, but is 5"),
        ({"beam_size": 0}, "beam_size must be from 1 to that of all lines, 4, but is 0"),
        ({"beam_size": 2, "n_best": 3}, "n_best must be from 1 to 2, the beam size, but is 3"),
        ({"length_penalty": -0.1}, "length_penalty must be at least 0 and at most 10, but is -0.1"),
        ({"length_penalty": math.nan}, "length_penalty must be at least 0 and at most 10, but is"),
        ({"length_penalty": 10**400}, "length_penalty must be at least 0 and at most 10, but is"),
    ],
)
def test_numbers_that_a_line_cannot_have_are_its_error(asked, error):
    bad, good = of_words(beam_size=4).translate([Request("cat", **asked), "cat"])
    assert bad.error is not None
    assert bad.error.startswith(error)
    assert good.error is None


def test_samples_have_no_beam():
    (bad,) = of_words(sampling=Sampling()).translate([Request("cat", beam_size=1)])
    assert bad.error == "beam_size is not for samples"
