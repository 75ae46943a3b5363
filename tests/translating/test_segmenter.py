"""Text without letters, and the marks of lists, stay as they are; the sentence is translated."""

import itertools
import string

import pytest

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.lines import is_blank
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.encoding.sentence_builder import Wanted
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.segmentation.list_marks import mark_before
from nmt_cli.translating.segmentation.segmenter import needs_no_model, with_marks
from nmt_cli.translating.segmentation.segments import sentences, whole
from tests.fake_models import tiny_recipe, translator_of, untrained

SMALL = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
WORDS = ["ant", "bee", "cat.", "Dog", "dog", "eel", "fox", "12:30"]
KEPT = [
    "12,345.67",
    "12:30",
    "—",
    "...",
    "3.14 %",
    "٣٫١٤",
    "１２",
    "①",
    "👨\u200d👩\u200d👧",
    "\u0301",
    "▁",
]
LONG = Constraints(min_length=4)  # else this model writes nothing


def translator(words=WORDS, **options):
    return untrained(words, tiny_recipe(model=SMALL), **options)


def texts_of(translated):
    return [each.text for each in translated]


@pytest.mark.parametrize(
    "text",
    [
        *KEPT,
        " 12:30\t",
        "1.",
        "a)",
        "a.",
        "(i)",
        "(iv)",
        "iv.",
        "II.",
        "§ 5.",
        "§ 4a",
        "一、",
        "（二十）",
    ],
)
def test_what_needs_no_model(text):
    assert needs_no_model(text)


@pytest.mark.parametrize(
    "text",
    ["a", "12 a", "5 km", "三", "١ كلب", "º", "A.", "X.", "1st", "<s>", "mix.", "(株)", "(civil)"],
)
def test_what_needs_one(text):
    assert not needs_no_model(text)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("1. A dog.", ["1."]),
        ("  10.\tA dog.", ["10."]),
        ("a) A dog.", ["a)"]),
        ("(1) A dog.", ["(1)"]),
        ("- A dog.", ["-"]),
        ("• 1. A dog.", ["•", "1."]),
        ("II. A dog.", ["II."]),
        ("(ii) A dog.", ["(ii)"]),
        ("(a) A dog.", ["(a)"]),
        ("i) A dog.", ["i)"]),
        ("iv. A man rides a bike.", ["iv."]),
        ("xxxix. a dog", ["xxxix."]),
        ("IV) A dog.", ["IV)"]),
        ("(i) the dog", ["(i)"]),
        ("(x) A dog.", ["(x)"]),
        ("a. A dog.", ["a."]),
        ("b. open the door", ["b."]),
        ("1.2.3 A dog.", ["1.2.3"]),
        ("(1.2) A dog.", ["(1.2)"]),
        ("12b) A dog.", ["12b)"]),
        ("[1] A dog.", ["[1]"]),
        ("[ ] [x] A dog.", ["[ ]", "[x]"]),
        ("§ 4 A dog.", ["§ 4"]),
        ("§4a. A dog.", ["§4a."]),
        ("1 - A dog.", ["1 -"]),
        ("1.- A dog.", ["1.-"]),
        ("2/ A dog.", ["2/"]),
        ("☑️ 1️⃣ A dog.", ["☑️", "1️⃣"]),
        ("\uf0b7\tA dog.", ["\uf0b7"]),
        ("б) Собака", ["б)"]),
        ("γ) σκύλος", ["γ)"]),
        ("가) 개", ["가)"]),
        ("ก) หมา", ["ก)"]),
        ("(๑) หมา", ["(๑)"]),
        ("๑. หมา", ["๑."]),
        ("1.คน", ["1."]),
        ("א) כלב", ["א)"]),
        ("(أ) كلب", ["(أ)"]),
        ("أ- كلب", ["أ-"]),
        ("١- كلب", ["١-"]),
        ("一、一个人。", ["一、"]),
        ("二十一、人。", ["二十一、"]),
        ("（一）一个人。", ["（一）"]),
        ("(1)一个人。", ["(1)"]),
        ("（二）API 的文档。", ["（二）"]),
        ("【3】２匹の犬。", ["【3】"]),
        ("1.一个人。", ["1."]),
        ("１．犬が走る。", ["１．"]),
        ("（ア）犬が走る。", ["（ア）"]),
        ("①犬が走る。", ["①"]),
        ("⑵ A dog.", ["⑵"]),
        ("・犬が走る。", ["・"]),
        ("Ⅳ．犬が走る。", ["Ⅳ．"]),
        ("Ⅱ. A dog.", ["Ⅱ."]),
        ("§ 5. A dog.", ["§ 5."]),
        ("1.2. A dog.", ["1.2."]),
        ("1、一个人。", ["1、"]),
        ("（1） 一个人。", ["（1）"]),
        ("١. كلب", ["١."]),
        ("1. \u200b\u00a0A dog.", ["1."]),
        ("\ufeff1. A dog.", ["1."]),
        ("1.5 dogs.", []),
        ("2020. A dog.", []),
        ("-5 dogs", []),
        ("- 5 -", []),
        ("A. Smith", []),
        ("I. Newton", []),
        ("V. Smith said", []),
        ("(I) am here", []),
        ("（x） is positive", []),
        ("12. 30", []),
        ("一、二年级", []),
        ("十二、一月", []),
        ("二、一二年级", []),
        ("①と②を比べる", []),
        ("1.5亿人", []),
        ("๑.๕ ล้าน", []),
        ("(株)日立", []),
        ("(주) 개", []),
        ("*警告*: 犬", []),
        ("(1)API 的文档。", []),
        ("（x）is positive", []),
        ("mix. Then stir", []),
        ("civil. Then", []),
        ("I. A dog", []),
        ("Vi. A dog", []),
        ("iiii. A dog", []),
        ("i. e. a dog", []),
        ("p. ex: a dog", []),
        ("c. 1850 dogs", []),
        ("5 - 10 dogs", []),
        ("2 - dogs", []),
        ("§ 4 says", []),
        ("1.2.3 has dogs", []),
        ("24.12.19 Christmas", []),
        ("", []),
    ],
)
def test_marks_are_segments_of_their_own(text, marks):
    segments = with_marks(text, whole, "en", Wanted())
    assert segments.texts[:-1] == marks
    joined = "".join(a + b for a, b in zip(segments.gaps, [*segments.texts, ""], strict=True))
    assert joined == text
    assert all(map(is_blank, segments.gaps))


def test_small_and_capital_numerals_are_marks_and_other_words_of_their_letters_are_not():
    tens, ones = (
        ["", "x", "xx", "xxx"],
        ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"],
    )
    numerals = {ten + one for ten in tens for one in ones if len(ten + one) > 1}
    words = {"".join(word) for n in range(2, 7) for word in itertools.product("ivx", repeat=n)}
    for word in words:
        for text in (f"{word}. A dog", f"{word.upper()}) A dog", f"({word}) a dog"):
            assert (mark_before(text, "en") is not None) == (word in numerals), text


@pytest.mark.parametrize("language", ["sv", "it", "hr", "und"])
def test_vi_is_no_mark_where_it_is_a_word(language):
    assert mark_before("vi. Men", language) is None
    assert mark_before("(vi) Men", language) is not None
    assert mark_before("iv. Men", language) is not None


def test_the_sentences_of_an_item_are_cut_too():
    text = "• A dog runs. Two men sit.\n\n(2) A cat. 12:30. - A bee."
    segments = with_marks(text, lambda each: sentences(each, "en"), "en", Wanted())
    assert segments.texts == [
        *("•", "A dog runs.", "Two men sit."),
        *("(2)", "A cat.", "12:30.", "- A bee."),
    ]
    joined = "".join(a + b for a, b in zip(segments.gaps, [*segments.texts, ""], strict=True))
    assert joined == text


@pytest.mark.parametrize("language", ["de", "nb", "cs", "hu", "tr", "und", "de-AT", "DE_ch"])
def test_numbers_that_may_be_ordinals_stay_in_their_sentence(language):
    for text in ("1. Mai 2020", "II. Weltkrieg", "v. Chr. war das"):
        assert with_marks(text, whole, language, Wanted()).texts == [text]
    for mark in ("1)", "iv.", "1.2.3"):
        assert with_marks(f"{mark} Mai", whole, language, Wanted()).texts == [mark, "Mai"]


def test_a_mark_within_protected_text_is_not_cut_off():
    wanted = Wanted(protection=Protection([r"1\. FC"]))
    assert with_marks("1. FC dog", whole, "en", wanted).texts == ["1. FC dog"]
    assert with_marks("1. A dog", whole, "en", wanted).texts == ["1.", "A dog"]


def test_a_mark_within_a_term_is_not_cut_off():
    wanted = Wanted(glossary=Glossary.of({"1. FC": "fox", "-": "ant", "A": "eel"}))
    assert with_marks("1. FC A", whole, "en", wanted).texts == ["1. FC A"]
    assert with_marks("- 1. \tFC A", whole, "en", wanted).texts == ["-", "1. \tFC A"]
    assert with_marks("1. A 1. FC", whole, "en", wanted).texts == ["1.", "A 1. FC"]
    (found,) = translator().translate([Request("- dog fox", glossary={"- dog": "ant bee"})])
    assert "ant bee" in found.text


def test_lines_without_letters_come_out_as_they_are():
    found = list(translator(n_best=2).translate([*KEPT, "ant bee"]))
    assert texts_of(found[:-1]) == KEPT
    assert {(each.score, each.tokens, each.alternatives) for each in found[:-1]} == {(None, (), ())}
    assert len(found[-1].ranked) == 2
    everything = list(translator(translate_everything=True).translate(KEPT))
    assert all(each.score is not None for each in everything)


@pytest.mark.parametrize("options", [{}, {"split_sentences": True}, {"sampling": Sampling(seed=3)}])
def test_the_sentence_behind_a_mark_is_translated_as_it_is_alone(options):
    # Of samples, the number of the line decides.
    sentences = [Request(text, line=1) for text in ("ant bee cat.", "dog eel")]
    both = list(zip(["1.", "iv."], sentences, strict=True))
    marked = [each._replace(text=f" {mark} {each.text} ") for mark, each in both]
    found, alone = (list(translator(**options).translate(lines)) for lines in (marked, sentences))
    assert texts_of(found) == [f" 1. {alone[0].text} ", f" iv. {alone[1].text} "]
    assert [each.score for each in found] == [each.score for each in alone]


def test_in_markup_marks_and_cells_stay():
    line = "<li>1. ant <b>bee</b> cat.</li><td>12:30</td><p>- <i>12</i></p>"
    (sentence,) = translator(markup="html", constraints=LONG).translate(
        ["<li>ant <b>bee</b> cat.</li>"]
    )
    (found,) = translator(markup="html", constraints=LONG).translate([line])
    rest = "<td>12:30</td><p>- <i>12</i></p>"
    assert found.text == sentence.text.replace("<li>", "<li>1. ") + rest


@pytest.mark.parametrize(
    "markup",
    [
        "<td>10<sup>3</sup></td>",
        "<td>12,5<sup>1)</sup> + 3<sub>1</sub></td>",
        "<td>1,<wbr>000</td>",
        "<p>[<a href='x'>1</a>]-[<a href='y'>2</a>]</p>",
        "<p>\u00a9 12<b>\u0663</b>\u00ad<i>\U0001f600</i></p>",
    ],
)
def test_tags_stay_at_their_characters_in_what_stays(markup):
    (found,) = translator(markup="html").translate([markup])
    assert found.text == markup


def test_tags_stay_at_their_characters_in_marks():
    line = "<p><b>1</b>. (<i>a</i>) ant bee</p>"
    (found,) = translator(markup="html", constraints=LONG).translate([line])
    assert found.text.startswith("<p><b>1</b>. (<i>a</i>) ")


def test_alignments_count_what_stays():
    line = "• 1. ant bee cat.  12:30.  Dog eel"
    options = {"alignments": True, "constraints": LONG}
    (found,) = translator(split_sentences=True, **options).translate([line])
    first, second = translator(**options).translate(["ant bee cat.", "Dog eel"])
    num_words = len(first.text.split())
    expected = [(0, 0), (1, 1), *((s + 2, t + 2) for s, t in first.alignment)]
    expected += [(5, num_words + 2)]
    expected += [(s + 6, t + num_words + 3) for s, t in second.alignment]
    assert found.alignment == tuple(expected)
    kept, with_null = translator(alignments=True).translate(["12 : 30", "12 \0 : 30"])
    assert kept.alignment == ((0, 0), (1, 1), (2, 2))
    assert with_null.alignment == ((0, 0), (2, 1), (3, 2))  # of "12   : 30"


def test_alignments_count_words_that_nobody_sees():
    options = {"alignments": True, "constraints": LONG}
    lines = ["dog eel fox", "\u200b dog \u00ad \u200b eel fox \u200b", "1. \u200b dog eel fox"]
    plain, unseen, marked = translator(**options).translate(lines)
    places = [1, 4, 5]  # of the words of the first line in the second
    assert len(plain.text.split()) == len(plain.alignment) > 0
    assert [unseen.text.strip(" \u200b"), marked.text] == [plain.text, f"1. \u200b {plain.text}"]
    shift = unseen.text.split().index(plain.text.split()[0])
    assert unseen.alignment == tuple((places[s], t + shift) for s, t in plain.alignment)
    assert marked.alignment == ((0, 0), *((s + 2, t + 2) for s, t in plain.alignment))


@pytest.mark.parametrize("gap", ["\u00ad", "\u200b"])
def test_words_go_on_behind_a_gap_without_white_space(gap):
    language = {"data": {"source_language": "zh"}}
    recipe = tiny_recipe(model=SMALL, **language)
    options = {"alignments": True, "constraints": LONG}
    (plain,) = untrained(WORDS, recipe, **options).translate(["dog fox"])
    (found,) = untrained(WORDS, recipe, **options).translate([f"\u4e00\u3001{gap}dog fox"])
    assert found.text == f"\u4e00\u3001{gap}{plain.text}"
    assert found.alignment == tuple(dict.fromkeys([(0, 0), *plain.alignment]))


def test_what_an_output_must_have_comes_from_the_model():
    glossary = Glossary.of({"12:30": "fox"})
    requests = [
        Request("12:30", prefix="dog"),
        Request("1. ant", prefix="dog"),
        Request("12:30", required=["dog"]),
        Request("12:30", glossary=glossary),
        Request("1. ant", required=["dog"]),
    ]
    prefixed, marked, required, term, sentence = texts_of(translator().translate(requests))
    assert prefixed.startswith("dog")
    (whole_line,) = translator(translate_everything=True).translate([requests[1]])
    assert marked == whole_line.text
    assert "dog" in required.split()
    assert "fox" in term.split()
    assert sentence.startswith("1. ")
    assert "dog" in sentence.split()


def test_banned_phrases_are_banned_from_what_would_stay():
    requests = [
        Request("12:30", banned=["12:30"]),
        Request("1. ant", banned=["1."]),
        Request("<td>12:30</td>", banned=["12:30"], markup="html"),
    ]
    translated = translator(words=[*WORDS, "1."]).translate(requests)
    for found, request in zip(translated, requests, strict=True):
        assert found.error is None
        assert request.banned[0] not in found.text
    of_all = translator(constraints=Constraints(banned=("12:30",)))
    assert "12:30" not in texts_of(of_all.translate(["12:30"]))


def test_pieces_are_not_joined_in_what_keeps_them():
    recipe = tiny_recipe(model=SMALL, tokenizer={"joiner": "@@"})
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), "@@")
    model = Transformer(recipe.model, tokenizer.size)
    joined = translator_of(recipe, tokenizer, model, precision="fp32")
    assert texts_of(joined.translate(["12@@ : 30"])) == ["12: 30"]
    pieces = translator_of(recipe, tokenizer, model, precision="fp32", keep_pieces=True)
    (found,) = pieces.translate(["12@@ : 30"])
    assert found.score is not None


def test_a_model_of_text_without_letters_translates_it():
    digits = translator(words=[*string.digits, "+", "<2de>"])
    lines = ["1 + 2", "3", "1. 2"]
    assert all(each.score is not None for each in digits.translate(lines))


def test_a_kept_line_is_one_for_every_reader():
    (found,) = translator().translate(["12\u20283\x854\x00"])
    assert found.text == "12 3 4 "
