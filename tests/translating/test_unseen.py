"""Characters that a model never saw come into translations once, and change nothing else."""

import json
import random
import time

import pytest

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import as_json, common_characters, read_config, settings_of
from nmt_cli.search import engine
from nmt_cli.search.sentences import Attended, Sampling
from nmt_cli.translating.encoding.known_text import KnownText
from nmt_cli.translating.encoding.unseen import runs_in
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.outputs.attention_to_source import AttentionToSource
from nmt_cli.translating.outputs.unseen_placement import place_runs
from nmt_cli.translating.segmentation.segmenter import knows_letters
from nmt_cli.translating.segmentation.segments import Output, Span
from nmt_cli.translating.translator import Translator
from tests.fake_models import ByteTokenizer, CopyModel, tiny_recipe
from tests.translating.test_known_text import SMALL, TEXT, tokenizers

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
KNOWN = LETTERS | frozenset("é0123456.,!?-'\"()")
_FACES = [chr(code) for code in (*range(0x1F600, 0x1F640), *range(0x1F400, 0x1F450))]
_TONES = [f"{hand}{chr(tone)}" for hand in "👍👋🤝👏" for tone in range(0x1F3FB, 0x1F400)]
_FLAGS = [
    "".join(chr(0x1F1A5 + ord(letter)) for letter in code) for code in ("DE", "FR", "JP", "UA")
]
_JOINED = ["👨‍👩‍👧", "👩‍🚀", "👩🏽‍🚒", "🧑🏿‍🤝‍🧑🏻", "🏳️‍🌈", "🏴‍☠️", "❤️‍🔥", "👁️‍🗨️", "🐻‍❄️", "🤷🏾‍♀️"]
_SELECTED = [
    f"{each}{selector}" for each in "❤☀✌☎✈⚠♻☕⌚⏱" for selector in ("", "\ufe0e", "\ufe0f")
]
_KEYCAPS = [f"{each}{selector}\u20e3" for each in "012#*" for selector in ("", "\ufe0f")]
_OF_PARTS = ["🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"]  # flags of parts of a country, by tags
EMOJI = [*_FACES, *_TONES, *_FLAGS, *_JOINED, *_SELECTED, *_KEYCAPS, *_OF_PARTS]
SYMBOLS = "→←↑↓⇒↔№™®©℠§¶†‡•◦▪■□▲▶◆●○★☆✓✔✗✘♪♫♥♦♣♠∞≈≠≤≥±×÷√∑∂∫∆Ω℃℉€£¥₹¢$%&#@=+*~^|<>…—–“„«»‰µªº½²①Ⅳ"
WORDS = [
    "東京",
    "東京タワーへ",
    "Москва",
    "привет, мир",
    "القاهرة",
    "كتاب ٣٤",
    "שלום",
    "नमस्ते",
    "ห้ามเข้า",
    "서울에서",
    "Ελλάδα",
    "Dvořák",
    "Ångström",
    "ẞtraße",
    "x̱ʷ",
    "Hawaiʻi",
    "A7",
]


class Reversing(CopyModel):
    """Outputs the pieces of the source from its end to its beginning."""

    def encode(self, sentences, start_mark):
        return sentences, super().encode([self._reversed(each) for each in sentences], 1)[1]

    def start(self, slots, sentences):
        super().start(slots, [self._reversed(each) for each in sentences])

    @staticmethod
    def _reversed(sentence):
        return [*reversed(sentence[:-1]), sentence[-1]]


def translator(monkeypatch, kind="words", *, model=CopyModel, characters=KNOWN, **options):
    """Return a translator that copies or reverses, and attends to what it copies."""

    def complete(self, results, sentences):
        for found, sentence in zip(results, sentences, strict=True):
            places = tuple(range(len(sentence.tokens) - 1))
            if model is Reversing:
                places = places[::-1]
            attended = Attended(places, places, len(places), places, places)
            yield tuple(one._replace(attended=attended) for one in found)

    recipe = tiny_recipe(model=SMALL)
    words = ["a", "man", "rides", "the", "bike", ".", ",", "ant", "bee", "cat", "dog"]
    tokenizer = (
        WhitespaceTokenizer([*CONTROL, *words], Normalizer(recipe.data), None)
        if kind == "words"
        else tokenizers()[kind]
    )
    monkeypatch.setattr(engine, "step_model", lambda *_: model(tokenizer.size))
    if kind == "words":
        monkeypatch.setattr(AttentionToSource, "complete", complete)
    settings = settings_of(recipe, tokenizer.size, None, characters)
    transformer = Transformer(recipe.model, tokenizer.size)
    options = {"precision": "fp32", "beam_size": 2, **options}
    return Translator(settings, tokenizer, transformer, **options)


def copied(monkeypatch, lines, *arguments, **options):
    return [each.text for each in translator(monkeypatch, *arguments, **options).translate(lines)]


def test_emoji_symbols_and_words_stay_in_their_places(monkeypatch):
    """The model copies, so each line must be its own translation."""
    unseen = [*EMOJI, *SYMBOLS, *WORDS]
    assert len(set(EMOJI)) > 200
    assert len(SYMBOLS) > 50
    forms = ["a man {} rides .", "a man rides the bike {}", "{} a man rides", "the {}bike ."]
    lines = [forms[number % len(forms)].format(each) for number, each in enumerate(unseen)]
    assert copied(monkeypatch, lines) == lines


def test_the_model_gets_the_text_without_them(monkeypatch):
    """All else of the translation is that of the line without them, by another search."""
    unseen = random.Random(3).sample([*EMOJI, *SYMBOLS, *WORDS], 60)
    for kind in ("bytes", "unknown"):
        search = translator(monkeypatch, kind, characters=None)
        (clean,) = search.translate(["a man rides a bike."])
        for form in ("{} a man rides a bike.", "a man {} rides a bike.", "a man rides a bike {}."):
            found = search.translate(form.format(each) for each in unseen)
            for each, translation in zip(unseen, found, strict=True):
                assert translation.text.count(each) == 1
                rest = translation.text.replace(each, "")
                assert "".join(rest.split()) == "".join(clean.text.split())
                assert (translation.score, translation.tokens) == (clean.score, clean.tokens)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ant 👍 bee cat", "cat bee ant 👍"),
        ("ant bee 👍 cat", "cat bee 👍 ant"),
        ("👍 ant bee → ", "👍 bee ant →"),
        ("ant №bee cat", "cat №bee ant"),
        ("ant… bee cat", "cat bee ant…"),
        ("ant “bee” cat", "cat “bee” ant"),
        ("ant  😀  bee cat", "cat bee ant  😀"),
        ("ant 😀 👍 bee", "bee ant 😀 👍"),
        ("ant 東京 привет bee", "bee ant 東京 привет"),
        ("ant (東京) bee", "bee ant (東京)"),
        ("ant 👍, bee", "bee , ant 👍"),  # text in pieces
        ("ant→bee cat", "cat bee ant→"),
        ("😀! ant bee", "😀! bee ant"),
    ],
)
def test_they_follow_the_words_beside_them(monkeypatch, line, expected):
    pieces = line.replace(",", " ,")
    assert copied(monkeypatch, [pieces], model=Reversing) == [expected]


def text_of(text, known=KNOWN):
    """Return the text without its runs, as the model gets it, and the runs."""
    unknown = {each for each in text if not (each in known or each.isspace())}
    runs = runs_in(text, unknown, lambda character: character in known)
    parts, place = [], 0
    for run in runs:
        parts += [text[place : run.first], run.written]
        place = run.last
    return "".join([*parts, text[place:]]), [text[run.begin : run.end] for run in runs]


@pytest.mark.parametrize(
    ("text", "rest", "runs"),
    [
        ("a man 👍 rides.", "a man rides.", ["👍"]),
        ("a man rides 👍.", "a man rides.", ["👍"]),
        ("a man rides. 👍", "a man rides.", ["👍"]),
        ("a man rides 👍, 😀!", "a man rides!", ["👍, 😀"]),
        ("a man rides 👍. 😀", "a man rides.", ["👍", "😀"]),
        ("man👍rides", "man rides", ["👍"]),
        ("我👍你 a", "a", ["我👍你"]),
        ("dvořák's bike", "'s bike", ["dvořák"]),
        ("the man’s bike", "the man’s bike", []),  # which becomes an apostrophe
        ("the ‘man’ rides", "the man rides", ["‘", "’"]),
        ("cafe\u0301 a", "cafe\u0301 a", []),  # known as é
        ("man\u0301 a", "a", ["man\u0301"]),
        ("a 7 man 17", "a man", ["7", "17"]),
        ("a ٣٤ man", "a man", ["٣٤"]),
        ("(東京) a", "a", ["(東京)"]),
        ("he said привет, мир! and", "he said! and", ["привет, мир"]),
        ("в 2016 году a", "a", ["в 2016 году"]),
        ("1️⃣ a man 1 👩‍🚀", "a man 1", ["1️⃣", "👩‍🚀"]),
    ],
)
def test_what_is_a_run(text, rest, runs):
    assert text_of(text) == (rest, runs)


def test_alignments_count_their_words(monkeypatch):
    lines = ["ant 👍 bee cat", "😀 ant bee dog👍", "ant→bee", "ant 東京 да bee .", "bee 👍 👍 ."]
    of_copies = translator(monkeypatch, alignments=True).translate(lines)
    for line, found in zip(lines, of_copies, strict=True):
        assert found.text == line
        assert found.alignment == tuple((place, place) for place in range(len(line.split())))
    (found,) = translator(monkeypatch, model=Reversing, alignments=True).translate(lines[:1])
    assert found.text == "cat bee ant 👍"
    assert found.alignment == ((3, 0), (2, 1), (0, 2), (1, 3))


def test_all_ways_of_search_copy_them(monkeypatch):
    line = "ant 👍 bee"
    for options in (
        {"sampling": Sampling(seed=1), "beam_size": None},
        {"n_best": 2, "choose": "mbr"},
        {"too_long": "truncate"},
        {"constraints": Constraints(protect=["common"], protect_strict=True)},
        {"constraints": Constraints(protect=["👍"])},
        {"constraints": Constraints(prefix="ant")},
        {"constraints": Constraints(no_repeat_ngram=3)},
        {"constraints": Constraints(required=["bee"])},
        {"split_sentences": True, "source_language": "en"},
    ):
        (found,) = translator(monkeypatch, **options).translate([line])
        assert (found.text, found.error, found.not_copied) == (line, None, ()), options
        assert all(each.text.count("👍") == 1 for each in found.alternatives)
    (long,) = copied(monkeypatch, ["ant 👍 bee " * 600])
    assert long == " ".join(["ant 👍 bee"] * 600)


def test_markup_keeps_them_with_their_tags(monkeypatch):
    lines = ["<p>ant <b>👍</b> bee <i>cat</i></p>", "<p>👍 <b>ant</b></p><p>東京</p>"]
    lines.append("<b>ant👍</b> bee")
    found = translator(monkeypatch, markup="html").translate(lines)
    assert [each.text for each in found] == lines


def test_what_the_user_asks_for_comes_first(monkeypatch):
    glossary = Glossary.of({"👍": "bee"})
    requests = [
        Request("ant 👍 cat", glossary=glossary),  # a term has a translation
        Request("ant 👍 cat", prefix="ant"),
        Request("ant 👍 cat", banned=["👍"]),
    ]
    least = Constraints(min_length=5)
    search = translator(monkeypatch, "bytes", characters=None, constraints=least)
    of_term, _, banned = search.translate(requests)
    assert "👍" not in banned.text
    assert "bee" in of_term.text
    (kept,) = translator(monkeypatch, translate_everything=True).translate(["ant 👍 bee"])
    assert kept.tokens == ("ant", "<unk>", "bee")
    (replaced,) = translator(monkeypatch, replace_unknown=True).translate(["ant 👍 bee"])
    assert (replaced.text, replaced.tokens) == ("ant 👍 bee", ("ant", "<unk>", "bee"))
    (in_pieces,) = translator(monkeypatch, keep_pieces=True).translate(["ant 👍 bee"])
    assert in_pieces.text == "ant <unk> bee"


def test_a_segment_of_unseen_letters_is_copied_and_counted(monkeypatch):
    lines = ["東京は大きい。", "ant", "👍", "привет, 12!", "ant привет", ""]
    found = list(translator(monkeypatch).translate(lines))
    assert [each.text for each in found] == lines
    assert [each.copies_unseen for each in found] == [True, False, False, True, False, False]
    assert [each.score is None for each in found] == [True, False, True, True, False, True]
    search = translator(monkeypatch, constraints=Constraints(prefix="bee"))
    assert [each.tokens[:1] for each in search.translate(lines[:1])] == [("bee",)]


def test_the_set_decides_where_the_tokenizer_has_bytes():
    """A tokenizer of bytes has no piece for any character; all were in training but one."""
    tokenizer = tokenizers()["bytes"]
    learnt = KnownText(tokenizer, folds=False, characters=LETTERS | {"я", "é"})
    assert learnt.unknown_in("a я ы é ’") == {"ы", "’"}
    assert learnt.unknown_in("é ａ ​️‍") == {"́"}  # é is known, and a
    without = KnownText(tokenizer, folds=False)
    assert without.unknown_in("a я b") == {"я"}
    assert without.unknown_in("a b") == set()
    writes_tm = tokenizers([*TEXT, "the TM"])["normalizing"]
    for characters, unknown in ((LETTERS | {"T", "M"}, set()), (LETTERS, {"™"})):
        found = KnownText(writes_tm, folds=False, characters=characters)
        assert found.unknown_in("a™") == unknown


class BytesOnly(ByteTokenizer):
    """Has a tag, too."""

    def pieces(self, ids, side="target"):
        names = ["<unk>", "<de>"]
        return [names[each] if each < 2 else f"<0x{each % 256:02X}>" for each in ids]


def test_a_tokenizer_of_bytes_knows_letters_if_its_training_text_had_some():
    assert not knows_letters(BytesOnly(), frozenset())
    assert not knows_letters(BytesOnly(), frozenset("<de>12"))
    assert knows_letters(BytesOnly(), frozenset("<de>12a"))


def test_apostrophes_and_hyphens_of_typography_are_those_of_keyboards():
    known = KnownText(tokenizers([*TEXT, "a man's bike, re-used"])["bytes"], folds=False)
    assert known("a man’s bike, re‑used") == "a man's bike, re-used"
    learnt = KnownText(tokenizers([*TEXT, "a man’s bike"])["bytes"], folds=False)
    assert learnt("a man’s bike") == "a man’s bike"


def test_settings_keep_the_characters(tmp_path):
    recipe = tiny_recipe()
    settings = settings_of(recipe, 9, None, frozenset("ab👍\u0301\u2028\0\\'"))
    path = tmp_path / "config.json"
    path.write_text(as_json(settings), encoding="utf-8")
    assert read_config(path) == settings
    without = settings_of(recipe, 9)
    assert "characters" not in json.loads(as_json(without))
    others = settings._replace(characters=frozenset("bc"))
    assert common_characters(settings, others, without) == frozenset("b")
    assert common_characters(without) is None


def test_runs_of_a_long_line_take_linear_time():
    """With a square of the time, they would take minutes."""
    for form in ("a👍", "áб", "(👍)", "“a” ", "привет 1, ", '"👍'):
        text = form * (20_000 // len(form.encode()))
        unknown = {each for each in text if not each.isascii()}
        started = time.process_time()
        runs = runs_in(text, unknown, str.isascii)
        words = [Span(place, place + 1, place, place + 1) for place in range(len(text))]
        placed = place_runs(text, runs, Output(text, words))
        assert placed.text
        assert time.process_time() - started < 10


@pytest.mark.parametrize("line", ["word [(👍)] word", "word “(→)” word", "“→” [👍] (”)”"])
def test_brackets_that_the_model_never_saw_are_copied_once(line):
    unknown = set("[]“”👍→") & set(line)
    runs = runs_in(line, unknown, str.isascii)
    ends = [place for run in runs for place in (run.begin, run.end)]
    assert ends == sorted(ends)
    assert all(run.first <= run.begin <= run.end <= run.last for run in runs)
    inside = {place for run in runs for place in range(run.begin, run.end)}
    assert {place for place, each in enumerate(line) if each in unknown} <= inside


def test_a_banned_phrase_forbids_words_and_no_letters_in_them(monkeypatch):
    search = translator(monkeypatch, "words")
    lines = ["ant Dvořák cat", "ant ořá cat", "ant 👍 cat"]
    requests = [Request(line, banned=["a", "ant bee"]) for line in lines]
    assert [each.text for each in search.translate(requests)] == lines


def test_matches_beside_unseen_letters_take_linear_time(monkeypatch):
    search = translator(monkeypatch, "words")
    line = "ant " + "&ж;" * 3_000 + " cat"
    started = time.monotonic()
    (found,) = search.translate([Request(line, protect=[r"&#?\w+;"])])
    assert time.monotonic() - started < 20
    assert found.text.count("ж") == 3_000


@pytest.mark.parametrize(
    "line",
    [
        '<a href="u">→</a><b>😀</b> ant bee',
        "ant <b>→</b> <i>😀</i>",
        "ant <b>→</b> <i>😀</i> bee",
        "<i>😀</i> <b>→</b> ant",
        "😀 <b>→</b> ant",
        "ant <b>при<i>вет</i></b> cat",
    ],
)
def test_each_character_stays_in_its_own_element(monkeypatch, line):
    assert copied(monkeypatch, [line], markup="html") == [line]


def test_what_is_only_unseen_is_copied_beside_other_banned_phrases(monkeypatch):
    search = translator(monkeypatch, "words")
    texts = ["😀", "Привет мир", "ant 😀"]
    requests = [Request(text, banned=["bee"]) for text in texts]
    assert [each.text for each in search.translate(requests)] == texts


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("→", "Pfeil"),
        ("→ 5", "Pfeil 5"),
        ("ant → bee → cat", "ant Pfeil bee Pfeil cat"),
        ("ant ☎ 😀 cat", "ant Telefon 😀 cat"),
        ("ant мир bee", "ant Welt bee"),
        ("ant миру bee", "ant миру bee"),
        ("Мир, мир", "Welt, Welt"),
        ("<b>→</b>", "<b>Pfeil</b>"),
        ("ant <b>→</b> bee", "ant <b>Pfeil</b> bee"),
    ],
)
def test_terms_of_unseen_characters_are_translated_where_they_are(monkeypatch, line, expected):
    glossary = {"→": "Pfeil", "☎": "Telefon", "мир": "Welt"}
    request = Request(line, glossary=glossary, markup="html" if "<" in line else "none")
    (found,) = translator(monkeypatch, "words").translate([request])
    assert (found.text, found.error) == (expected, None)
