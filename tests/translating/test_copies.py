"""Protected text: what stands for it, how it comes into outputs, and when it is not copied."""

import random
import re
import tracemalloc
from collections import Counter
from dataclasses import replace

import pytest

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer
from nmt_cli.corpus.tokenizers.normalization import Normalizer, Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer, train_model
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.search import engine
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.encoding.copies import Copy, ProtectedText, SourceCopies, limits_of
from nmt_cli.translating.encoding.sentence_builder import FOR_SAMPLES
from nmt_cli.translating.encoding.target_phrases import TargetPhrases
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.protection import Match, Protection
from nmt_cli.translating.interface.request import KEEPS_PIECES, Request
from nmt_cli.translating.interface.translation import Alternative, Translation
from nmt_cli.translating.scheduling.line_processor import strict
from tests.corpus.test_mapped_sentencepiece import train
from tests.fake_models import CopyModel, tiny_recipe, translator_of

SMALL = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
TEXT = ["a cat sees the dog and the bee", "the dog, is old.", "x1 y2 (z)"] * 20
SPANS = [
    "{name}",
    "%s",
    "https://a.b/c?d=1",
    "v1.2.3",
    "1.2.3",
    "👍",
    "👍🏽",
    "👨‍👩‍👧",
    "${x}",
    "ﬁ①",
]
PATTERNS = ["common", "ﬁ①"]


def recipe_with(*symbols):
    return tiny_recipe(
        model=SMALL,
        data={"max_length": 60},
        tokenizer={
            "type": "sentencepiece",
            "vocabulary_size": 310,
            "user_defined_symbols": symbols,
        },
    )


def with_symbols(*symbols):
    recipe = recipe_with(*symbols)
    model = train_model(TEXT, recipe.tokenizer, len(TEXT), 1)
    return SentencePieceTokenizer(model, Normalizer(recipe.data), "test")


@pytest.fixture(scope="module")
def tokenizers():
    """Tokenizers with and without pieces for all bytes, with placeholders, and of words."""
    model = train(TEXT, 40)
    pieces = SentencePieceTokenizer(model, Normalizer(tiny_recipe().data), "test")
    ids = {piece: number for number, piece in enumerate(pieces.pieces(range(pieces.size)))}
    models: dict[Side, bytes] = {"source": model, "target": model}
    normalizer = Normalizer(tiny_recipe().data)
    words = sorted({word for line in TEXT for word in line.split()})
    return {
        "bytes": with_symbols(),
        "placeholder": with_symbols("<ph>"),
        "numbered": with_symbols("<ph1>", "<ph2>", "<url>", "<de>"),
        "unknown": MappedSentencePieceTokenizer(models, ids, normalizer, "test"),
        "words": WhitespaceTokenizer([*CONTROL, *words], normalizer, None),
    }


KINDS = ["bytes", "placeholder", "numbered", "unknown", "words"]


def copying(monkeypatch, tokenizer, **options):
    """Return a translator whose model writes its source again, and attends at random."""
    recipe = recipe_with()
    monkeypatch.setattr(engine, "step_model", lambda *_: CopyModel(tokenizer.size))
    model = Transformer(recipe.model, tokenizer.size)
    return translator_of(recipe, tokenizer, model, precision="fp32", **options)


def protected(tokenizer, text, *patterns):
    copies = SourceCopies(tokenizer, TargetPhrases(tokenizer))
    return copies.of(text, Protection(patterns or PATTERNS).found_in(text))


def random_line(rng):
    words = ["cat", "the", "dog", "bee.", "("]
    parts = []
    for _ in range(rng.randrange(1, 8)):
        parts.append(rng.choice(words if rng.random() < 0.5 else SPANS))
        parts.append(rng.choice([" ", " ", "  ", "", "\t"]))
    return "".join(parts)


@pytest.mark.parametrize("number", [25, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("markup", ["none", "html"])
@pytest.mark.parametrize("kind", KINDS)
def test_spans_of_random_lines_are_copied_or_named(monkeypatch, tokenizers, kind, markup, number):
    """An independent count finds what is not copied; few lines are of this kind."""
    rng = random.Random(7)
    lines = [random_line(rng) for _ in range(number)]
    if markup == "html":
        lines = [re.sub(r"(cat|dog|%s)", r"<b>\1</b>", line) for line in lines]
    translator = copying(
        monkeypatch, tokenizers[kind], beam_size=6, constraints=Constraints(protect=PATTERNS)
    )
    found = list(translator.translate(Request(line, markup=markup) for line in lines))
    num_named = 0
    for line, translation in zip(lines, found, strict=True):
        assert translation.error is None
        kept = [re.findall(r"</?b>", each) for each in (line, translation.text)]
        assert len(kept[0]) == len(kept[1])
        plain, text = (re.sub(r"</?b>", "", each) for each in (line, translation.text))
        spans = Counter(
            plain[match.begin : match.end] for match in Protection(PATTERNS).found_in(plain)
        )
        for span in sorted(spans, key=len, reverse=True):
            assert text.count(span) >= spans[span] or translation.not_copied
            text = text.replace(span, "-")
        num_named += bool(translation.not_copied)
    # In text in pieces, spans beside each other are one unknown word.
    assert num_named <= number * (0.8 if kind == "words" else 0.16)


def test_what_the_vocabulary_lacks_is_put_in_the_place_of_unknown_pieces(monkeypatch, tokenizers):
    translator = copying(monkeypatch, tokenizers["unknown"], beam_size=6)
    (found,) = translator.translate([Request("the a👍 cat", protect=["a👍"])])
    assert (found.text, found.not_copied) == ("the a👍 cat", ())
    assert "<unk>" in found.tokens
    (named,) = translator.translate([Request("the cat", protect=["cat"])])
    assert named.text == "the cat"


@pytest.mark.parametrize(
    ("kind", "text", "written"),
    [
        ("placeholder", "see {a} and {b} {a}", "see <ph> and <ph> <ph>"),
        ("placeholder", "see <ph> and {b}", "see <ph> and <ph>"),
        ("placeholder", "see (a b)", "see (a b)"),  # white space would change the number of words
        ("numbered", "see {a} and {b} {a} {c}", "see <ph1> and <ph2> <ph1> <ph2>"),
        ("numbered", "see www.a.de and <de> {a}", "see <url> and <de> <ph1>"),
        ("bytes", "see {a}", "see {a}"),
    ],
)
def test_placeholders_stand_for_spans_where_the_vocabulary_has_them(
    monkeypatch, tokenizers, kind, text, written
):
    patterns = ["common", r"\(a b\)"]
    found = protected(tokenizers[kind], text, *patterns)
    assert found.text == written
    translator = copying(monkeypatch, tokenizers[kind], beam_size=10)
    (translation,) = translator.translate([Request(text, protect=patterns)])
    assert translation.not_copied == ()
    assert Counter(translation.text.split()) == Counter(text.split())
    kept = [place for place in range(len(text)) if text[place] not in "{}<>()"]
    assert {found.source_place(place) for place in range(len(written) + 1)} <= set(
        range(len(text) + 1)
    )
    assert found.source_place(len(written)) == len(text)
    assert kept


def test_spans_beside_each_other_stay_there(monkeypatch, tokenizers):
    """Their pieces are bytes, which continue a word elsewhere."""
    translator = copying(monkeypatch, tokenizers["bytes"], beam_size=10)
    lines = ["the {a}{b} cat", "the 😀👍 cat", "the {a}, (%s) cat."]
    found = translator.translate(Request(line, protect=["common"]) for line in lines)
    assert [each.text for each in found] == lines


def test_parts_of_a_long_line_begin_and_end_outside_of_spans(monkeypatch, tokenizers):
    spans = [f"{{n{number} x}}" for number in range(9)] + ["{same}"] * 30
    line = " the cat ".join(spans)
    for kind in ("bytes", "placeholder", "unknown"):
        translator = copying(monkeypatch, tokenizers[kind], beam_size=4)
        (found,) = translator.translate([Request(line, protect=[r"\{.*?\}"])])
        assert found.num_parts > 3
        assert found.not_copied == ()
        assert [found.text.count(span) for span in [*spans[:9], "{same}"]] == [*[1] * 9, 30]


def test_no_sentence_ends_within_a_span(monkeypatch, tokenizers):
    translator = copying(monkeypatch, tokenizers["bytes"], beam_size=4, split_sentences=True)
    line = "The dog is old. {A cat. The bee.} the cat."
    (found,) = translator.translate([Request(line, protect=[r"\{.*?\}"])])
    assert (found.text, found.not_copied) == (line, ())


def test_a_text_of_nothing_else_is_not_translated(monkeypatch, tokenizers):
    translator = copying(
        monkeypatch, tokenizers["bytes"], constraints=Constraints(protect=PATTERNS)
    )
    lines = ["{a}  {b}", " 👍 ", "<p>{a}</p> <b>{b} </b>"]
    requests = [Request(line, markup="html" if "<" in line else "none") for line in lines]
    assert [each.text for each in translator.translate(requests)] == lines
    assert next(translator.translate(lines[:1])).score is None


def test_lines_whose_spans_are_not_copied_are_named_or_fail(monkeypatch, tokenizers):
    """The rules of these lines forbid what is protected, some only in the middle of the search."""
    requests = [
        Request("the {a} cat", protect=["common"], banned=["{a}"]),
        Request("the {a} cat {a}", protect=["common"], prefix="{a} {a} {a}"),
        Request("the 😀 cat", protect=["(", "common"]),
        Request("the cat", protect=["common"]),
    ]
    translator = copying(monkeypatch, tokenizers["bytes"], beam_size=4)
    banned, thrice, wrong, plain = translator.translate(requests)
    assert (banned.error, banned.not_copied) == (None, ("{a}",))
    assert banned.text.startswith("the")
    assert thrice.error is None
    assert thrice.not_copied == ("{a}",)
    assert wrong.error is not None
    assert wrong.error.startswith("protect: '(' is no regular expression")
    assert (plain.text, plain.not_copied) == ("the cat", ())
    with translator:
        submitted = [translator.submit(request).result() for request in requests]
        assert submitted == [banned, thrice, wrong, plain]
        strict = [request._replace(protect_strict=True) for request in requests]
        banned, thrice, _, plain = translator.translate(strict)
    assert banned.error == 'the required phrase "{a}" contains the banned phrase "{a}"'
    assert thrice.error is not None
    assert (plain.text, plain.error) == ("the cat", None)


def test_what_protected_text_excludes(monkeypatch, tokenizers):
    rules = Constraints(protect=["common"])
    with pytest.raises(WrongUsageError, match="leave out --protect or --sample"):
        copying(monkeypatch, tokenizers["bytes"], sampling=Sampling(), constraints=rules)
    with pytest.raises(WrongUsageError, match=r"--protect: .* --keep-pieces"):
        copying(monkeypatch, tokenizers["bytes"], keep_pieces=True, constraints=rules)
    with pytest.raises(WrongUsageError, match=r"--protect: '\(' is no regular expression"):
        copying(monkeypatch, tokenizers["bytes"], constraints=Constraints(protect=["("]))
    request = Request("{a}", protect=["common"])
    (found,) = copying(monkeypatch, tokenizers["bytes"], sampling=Sampling()).translate([request])
    assert found.error == FOR_SAMPLES
    (found,) = copying(monkeypatch, tokenizers["bytes"], keep_pieces=True).translate([request])
    assert found.error == KEEPS_PIECES


def test_only_outputs_that_copy_all_stay_if_a_line_is_strict():
    second, third, last = Alternative("b", -2.0), Alternative("c", -3.0), Alternative("d", -4.0)
    third = replace(third, not_copied=("%s",))
    first = Translation("a", -1.0, alternatives=(second, third, last), num_parts=2)
    assert strict(first) == replace(first, alternatives=(second, last))
    others = Translation("b", -2.0, alternatives=(last,), num_parts=2)
    assert strict(replace(first, not_copied=("%s",))) == others
    plain = replace(first, alternatives=(second, last))
    assert strict(plain) is plain


def test_places_within_a_placeholder_are_within_its_span():
    name = Copy(Match(4, 10, ""), "{name}", 4, "<ph>", (), is_exact=False)
    text = ProtectedText("see {name} now", [name], "see <ph> now")
    assert [text.source_place(place) for place in range(3, 10)] == [3, 4, 5, 6, 7, 10, 11]
    digit = Copy(Match(4, 5, ""), "5", 4, "<ph>", (), is_exact=False)
    text = ProtectedText("see 5 now", [digit], "see <ph> now")
    assert [text.source_place(place) for place in range(3, 10)] == [3, 4, 4, 4, 4, 5, 6]


def test_spans_are_counted_between_borders_of_words():
    def of(source, span, output):
        copies = protected(with_symbols(), source, re.escape(span)).copies
        return ProtectedText(source, copies[:1]).not_copied(output)

    assert of("5 of", "5", "5 von") == ()
    assert of("5 of", "5", "15 von") == ("5",)
    assert of("5 of", "5", "5, 5 von") == ("5",)
    assert of("5x of", "5", "5x von") == ()
    assert of("%s", "%s", "100%s, %s") == ("%s",)


def test_the_pieces_of_a_span_within_another_one_are_counted_in_addition(tokenizers):
    phrases = TargetPhrases(tokenizers["bytes"])
    copies = protected(tokenizers["bytes"], "👍🏽 👍🏽 👍 {x}").copies
    limits = limits_of(copies, phrases.continuing)
    by_text = {copy.text: limits[copy.forms] for copy in copies}
    assert by_text == {"👍🏽": (2, 2), "👍": (1, 3), "{x}": (1, 1)}


def test_nothing_is_kept_of_texts_that_were_looked_for():
    tracemalloc.start()
    for number in range(5):
        text = f"{number}{'x' * 20_000}"
        copy = Copy(Match(0, len(text), ""), text, 0, text, (), is_exact=True)
        found = ProtectedText(text, [copy]).not_copied(f"{text} {text}")
        assert found == (text,)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 200_000
