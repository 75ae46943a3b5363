"""Sentences of a line are translated each by itself; what is between them stays as it is."""

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.text import sentences as text_sentences
from nmt_cli.files.lines import is_blank
from nmt_cli.messages.errors import UserError
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.outputs.translation_builder import best_sums
from nmt_cli.translating.scheduling.line_processor import NO_SENTENCE
from nmt_cli.translating.segmentation.segmenter import LANGUAGE_MISSING
from nmt_cli.translating.segmentation.segments import Output, Segments, sentences
from nmt_cli.translating.translator import Translator
from tests import fake_models
from tests.fake_models import tiny_recipe

SMALL = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
WORDS = ["Ant.", "Bee.", "Cat!", "dog", "Eel?", "fox"]
BLANKS = [
    " ",
    "  ",
    "\t",
    "\r",
    "\r\n",
    "\n\n",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\x85",
    "\u202f \u200b",
]
TEXTS = [
    "No end at all",
    "One. Two!  Three?\tFour.\u00a0Five.",
    "  Blanks before. And after. \t ",
    "A paragraph.\r\n\r\nAnother one.\r",
    "A separator.\u2028Between them.\x85Next.\u3000Last.",
    "مرحبا بك.  كيف حالك؟\u200f\tبخير.",
    "これは。\u3000あれは！うん",
    "Only Mr. Smith, Dr. Who and 3.5 other people.",
    'He said: "Go. Now."  Then he left (quietly).',
    "...  !?  .",
]


def copying(monkeypatch, *, fails=lambda sources: None, data=(), **options):
    options = {"split_sentences": True, **options}
    return fake_models.copying(monkeypatch, fails, tiny_recipe(data=dict(data)), **options)


def untrained(**options):
    return fake_models.untrained(WORDS, tiny_recipe(model=SMALL), **options)


def test_what_is_not_translated_stays_as_it_is_to_the_character(monkeypatch):
    translator, model = copying(monkeypatch)
    lines = [*TEXTS, "", "  \t", "\u200b \r", "\n"]
    found = list(translator.translate(lines))
    assert [each.text for each in found] == ["" if line == "\u200b \r" else line for line in lines]
    assert {each.error for each in found} == {None}
    assert model.num_sentences > 25
    assert [each.score is None for each in found] == [is_blank(line) for line in lines]


@given(st.lists(st.sampled_from([*WORDS, *BLANKS, "z.B.", "« Oui. »", "。", "😀", "\0"])))
def test_sentences_and_gaps_are_the_text(parts):
    text = "".join(parts)
    for language in ("en", "de", "ja", "no such language"):
        found = sentences(text, language)
        assert found.filled([Output(each) for each in found.texts]) == text
        assert all(each == each.strip() and not is_blank(each) for each in found.texts)
        assert all(is_blank(gap) for gap in found.gaps)


def test_what_nobody_sees_between_sentences_belongs_to_none():
    found = sentences("\ufeff Dog. \u200b\u00adDog\u00adfox.\u200b \u200eCat\u200d \u200f", "en")
    assert found.texts == ["Dog.", "Dog\u00adfox.", "Cat\u200d"]
    assert found.gaps == ["\ufeff ", " \u200b\u00ad", "\u200b \u200e", " \u200f"]


@given(
    length=st.integers(10_200, 10_250),
    filler=st.sampled_from(["A dog runs.\n\n", "A dog runs. ", "a", "狗跑了。", "กา", "\u0301"]),
    gap=st.sampled_from(["\n\n", "\r\n\r\n", "\n\r\r\n", "\n\n\n", "\u2028", "\r", " ", ""]),
    rest=st.text(st.sampled_from('aB .!?。؟\n\r\u2028\u0301\u200dกم"()')),
)
def test_documents_keep_every_character(length, filler, gap, rest):
    text = (filler * length).encode()[:length].decode(errors="ignore") + gap + rest + filler * 9
    found = sentences(text, "en")
    assert found.filled([Output(each) for each in found.texts]) == text


def test_long_documents_are_cut_as_their_paragraphs_are(monkeypatch):
    quoted = 'Mr. Smith said: "Go. Now." He left at 3.5 (or so). '
    paragraphs = [quoted * 3, "One. Two! ", "word " * 900 + "end. ", quoted * 300, "他跑了。" * 900]
    alone = [text for each in paragraphs for text in sentences(each, "en").texts]
    assert len(alone) == 6 + 2 + 1 + 600 + 900
    assert sentences("\n\n".join(paragraphs), "en").texts == alone
    for opening, closing in ("“”", "«»", "「」", '""'):
        quoted = f"Mr. Smith said: {opening}Go. Now.{closing} He left. "
        for start in range(len(quoted)):  # a window ends at each place
            found = sentences("a" * start + "b! " + quoted * 100, "en").texts
            assert found[-200:] == [quoted[:-10].strip(), "He left."] * 100
    for window in range(200, 252):  # it ends at each place of a sentence
        monkeypatch.setattr(text_sentences, "WINDOW", window)
        found = sentences("He left (at 3.5). Who is Mr. Smith? " * 50, "en").texts
        assert found == ["He left (at 3.5).", "Who is Mr. Smith?"] * 50


def test_texts_of_open_quotations_are_cut_in_short_windows(monkeypatch):
    import sentencex

    sizes, segment = list[int](), sentencex.segment

    def counting(code, text):
        sizes.append(len(text))
        return segment(code, text)

    monkeypatch.setattr(sentencex, "segment", counting)
    for text in ('"(a. ' * 5_000, 'He said: "Go. ' * 3_000, "word " * 8_000):
        sizes.clear()
        sentences(text, "en")
        assert max(sizes) <= 4_000
        assert sum(sizes) < 2 * len(text)


def test_a_text_without_an_end_of_a_sentence_is_one_segment():
    for text in ("a" * 100_000, "word " * 20_000, "ก" * 5_000):
        assert sentences(text, "en").texts == [text.strip()]


class PanicError(BaseException):
    """A panic of Rust is no Exception."""


@pytest.mark.parametrize(
    "segment",
    [
        lambda _, text: ["One.", "Two."],  # without what is between them
        lambda _, text: [],
        lambda _, text: [1],
        lambda _, text: text.index("Three"),
        lambda _, text: (_ for _ in ()).throw(PanicError),
    ],
)
def test_a_text_that_is_changed_or_refused_is_one_segment(monkeypatch, segment):
    import sentencex

    monkeypatch.setattr(sentencex, "segment", segment)
    assert sentences(" One. Two. ", "en") == Segments(["One. Two."], [" ", " "])


def test_ten_thousand_sentences_of_one_line(monkeypatch):
    translator, model = copying(monkeypatch, beam_size=1, max_tokens_per_device=100_000)
    line = "".join(f"{number}!{' ' * (1 + number % 3)}" for number in range(10_000))
    (found,) = translator.translate([line])
    assert found.text == line
    assert (found.num_parts, model.num_sentences) == (1, 10_000)


def test_each_sentence_is_translated_as_it_is_alone():
    line = "dog fox Ant.  Eel? dog dog Cat! fox"
    alone = untrained(n_best=1)
    expected = [
        each.text for each in alone.translate(["dog fox Ant.", "Eel?", "dog dog Cat!", "fox"])
    ]
    (found,) = untrained(split_sentences=True).translate([line])
    assert found.text == "{}  {} {} {}".format(*expected)
    (asked, not_asked) = untrained().translate([Request(line, split=True), line])
    assert asked == found
    assert not_asked == next(
        untrained(split_sentences=True).translate([Request(line, split=False)])
    )
    assert not_asked.text != found.text
    with untrained(split_sentences=True) as translator:
        assert translator.submit(line).result() == found
        assert translator.submit("  ").result().text == "  "


def test_the_n_best_are_the_best_of_all_choices():
    line, sources = "dog fox Ant.\tEel? dog dog Cat!", ["dog fox Ant.", "Eel?", "dog dog Cat!"]
    options = {"beam_size": 5, "n_best": 5, "token_scores": True}
    (found,) = untrained(split_sentences=True, **options).translate([line])
    of_each = [each.ranked for each in untrained(**options).translate(sources)]
    choices = sorted(
        itertools.product(*of_each), key=lambda choice: -sum(each.score for each in choice)
    )
    for one, choice in zip(found.ranked, choices[:5], strict=True):
        assert one.text == "{}\t{} {}".format(*(each.text for each in choice))
        assert one.score == pytest.approx(sum(each.score for each in choice))
        assert one.tokens == tuple(token for each in choice for token in each.tokens)
        assert sum(one.token_scores) == pytest.approx(one.log_probability, abs=1e-5)


def test_each_sentence_is_chosen_as_it_is_alone():
    line, sources = "dog fox Ant.\tEel? dog dog Cat!", ["dog fox Ant.", "Eel?", "dog dog Cat!"]
    options = {"beam_size": 5, "n_best": 5}
    (plain,) = untrained(split_sentences=True, **options).translate([line])
    (found,) = untrained(split_sentences=True, choose="mbr", **options).translate([line])
    alone = list(untrained(choose="mbr", **options).translate(sources))
    assert found.text == "{}\t{} {}".format(*(each.text for each in alone)) != plain.text
    assert found.score == pytest.approx(sum(each.score for each in alone))


def test_the_best_sums_are_those_of_all_choices():
    rng = random.Random(2)
    for _ in range(50):
        rankings = [
            sorted((-rng.random() for _ in range(size)), reverse=True)
            for size in rng.choices(range(1, 5), k=rng.randrange(1, 5))
        ]
        sums = sorted(map(sum, itertools.product(*rankings)))[::-1]
        for most in (1, 3, 7):
            found = list(best_sums(rankings, most, float))
            assert list(map(sum, found)) == pytest.approx(sums[:most])
            assert all(len(each) == len(rankings) for each in found)


def test_a_line_with_its_own_length_penalty_gets_the_choices_that_this_ranks_best():
    line, options = "dog fox Ant.  Eel? dog dog Cat!", {"beam_size": 5, "n_best": 5}
    for penalty in (0.0, 3.0):
        (found,) = untrained(split_sentences=True, length_penalty=1.0, **options).translate(
            [Request(line, length_penalty=penalty)]
        )
        expected = next(
            untrained(split_sentences=True, length_penalty=penalty, **options).translate([line])
        )
        assert [each.tokens for each in found.ranked] == [each.tokens for each in expected.ranked]
        scores = [each.score for each in found.ranked]
        assert scores == sorted(scores, reverse=True)


def test_samples_are_joined_in_the_order_drawn():
    line = "dog fox Ant.  Eel? dog dog Cat!"
    options = {"sampling": Sampling(seed=5), "n_best": 4, "split_sentences": True}
    (found,) = untrained(**options).translate([line])
    (first,) = untrained(**{**options, "n_best": 1}).translate([line])
    assert len(found.ranked) == 4
    assert found.text == first.text
    assert len({each.text for each in found.ranked}) > 1


def test_alignments_count_the_words_of_the_line():
    line = "dog fox Ant.  Eel? dog dog Cat!"
    (found,) = untrained(split_sentences=True, alignments=True).translate([line])
    alone = list(untrained(alignments=True).translate(["dog fox Ant.", "Eel?", "dog dog Cat!"]))
    expected, target = [], 0
    for each, source in zip(alone, (0, 3, 4), strict=True):
        expected += [(source + one, target + other) for one, other in each.alignment]
        target += len(each.tokens)
    assert found.alignment == tuple(expected)


def test_sentences_that_are_lost_are_noticed_if_they_were_not_cut():
    lines = ["Ant. Bee. Cat! Eel? Ant. Bee.", "Ant. Bee. Cat!"]
    short = Constraints(max_length=1)
    for markup, split, expected in (
        (None, False, True),
        ("html", False, True),
        (None, True, False),
    ):
        options = {"markup": markup, "split_sentences": split, "constraints": short}
        found = untrained(**options).translate(lines)
        assert [each.lacks_sentences for each in found] == [expected, False]


def test_a_line_may_ask_for_its_alignments():
    line, *others = "dog fox Ant.  Eel? dog dog Cat!", "dog fox", "<b>Eel</b>"
    with_alignments = Request(line, alignments=True)
    wrong = Request(line, markup="xml", alignments=True)
    found = list(untrained(split_sentences=True).translate([with_alignments, *others, wrong]))
    (expected,) = untrained(split_sentences=True, alignments=True).translate([line])
    assert expected.alignment
    assert (found[0].text, found[0].alignment) == (expected.text, expected.alignment)
    assert not found[1].alignment
    assert found[3].error == "alignments count the words of a text without tags"


def test_a_sentence_that_fails_makes_the_line_fail(monkeypatch):
    def fails(sources):
        if any(b"Bad"[0] + 3 in source for source in sources):
            raise FloatingPointError("it is no number")

    translator, _ = copying(monkeypatch, fails=fails)
    good, bad, last = translator.translate(["One. Two.", "One. Bad one. Two.", "Last. One."])
    assert (good.text, last.text) == ("One. Two.", "Last. One.")
    assert (bad.text, bad.error) == ("", "it is no number")


def test_long_sentences_and_rules(monkeypatch):
    translator, _ = copying(monkeypatch, data={"max_length": 12})
    short, long = translator.translate(["Short. Short.", "Short.\tFar too long. "])
    assert (short.num_parts, long.num_parts) == (1, 2)
    assert long.text == "Short.\tFar too long. "
    strict, _ = copying(monkeypatch, data={"max_length": 12}, too_long="error")
    (failed,) = strict.translate(["Short.\tFar too long. "])
    assert (failed.text, failed.error and failed.error[:17]) == ("", "it has 13 pieces,")
    ruled = untrained(split_sentences=True, constraints=Constraints(prefix="fox", min_length=2))
    several, one = ruled.translate(["dog Ant.  dog Cat!", Request("dog Ant.", required=["Eel?"])])
    first, second = several.text.split("  ")
    assert first.startswith("fox")
    assert min(len(first.split()), len(second.split())) >= 2
    assert "Eel?" in one.text
    (failed,) = ruled.translate([Request("dog Ant. dog Cat!", required=["Eel?"])])
    assert failed.error == NO_SENTENCE


def test_the_language_is_the_models_or_the_one_given(monkeypatch):
    text = "Das ist z.B. gut. Ja."
    unknown = {"source_language": "und"}
    with pytest.raises(UserError) as error:
        copying(monkeypatch, data=unknown)
    assert str(error.value) == f"--split-sentences: {LANGUAGE_MISSING}."
    translator, _ = copying(monkeypatch, data=unknown, split_sentences=False)
    plain, asked = translator.translate([text, Request(text, split=True)])
    assert (plain.text, asked.error) == (text, LANGUAGE_MISSING)
    translator, model = copying(monkeypatch, data=unknown, source_language="de")
    assert next(translator.translate([text])).text == text
    assert model.num_sentences == 2


def test_a_model_that_parses_takes_a_sentence_a_line():
    path = Path(__file__).parents[1] / "formats/format_3/treebank/run/average"
    with pytest.raises(UserError, match="--split-sentences: this model parses"):
        Translator.load(path, device="cpu", precision="fp32", split_sentences=True)
