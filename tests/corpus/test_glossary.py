"""Terms: their file, where they occur, and translations that have them."""

import gzip

import pytest

from nmt_cli.corpus.text.glossary import Glossary, Term
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.encoding.sentence_builder import FOR_SAMPLES
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import ONLY_TEXT, Request
from nmt_cli.translating.interface.soft_glossary import SoftGlossary
from tests.translating import test_wanted_translations
from tests.translating.test_wanted_translations import WORDS, of_words


def found(text, *sources, case=None):
    glossary = Glossary(Term(source, ("x",), case) for source in sources)
    return [term.source for term in glossary.found_in(text)]


def test_the_longest_term_is_found_at_word_borders():
    terms = ("New York", "New York City", "York", "cat")
    assert found("From New York City to York, (cat) concat cats", *terms) == [
        "New York City",
        "York",
        "cat",
    ]
    assert found("New York Cit", *terms) == ["New York"]
    assert found("C++ or x-cat's C++17", "C++", "cat") == ["C++", "cat"]
    assert found("cat cat", "cat") == ["cat"]
    assert found("我爱猫和狗", "猫", "狗") == ["猫", "狗"]  # no spaces between words
    assert found("naïve cafe\u0301", "na", "cafe") == []  # an accent is part of its word


def test_terms_in_small_letters_are_found_in_any_case():
    assert found("Cat CAT Apple APPLE apple", "cat", "Apple") == ["cat", "Apple"]
    assert found("CAT", "cat", case="exact") == []
    assert found("APPLE", "Apple", case="any") == ["Apple"]
    assert found("İstanbul ISTANBUL", "istanbul") == ["istanbul"]
    both = Glossary([Term("us", ("wir",), "exact"), Term("US", ("USA",), "any")])
    assert [term.targets for term in both.found_in("us Us US")] == [("wir",), ("USA",)]


def test_a_term_longer_than_the_rest_of_a_text_is_not_found():
    assert found("the cat", "cat", "cat and dog") == ["cat"]


def test_only_terms_with_the_first_word_of_a_place_are_looked_for_there(monkeypatch):
    asked = []
    term_at = Glossary._term_at

    def asking(*arguments):
        asked.append(arguments[1:3])
        return term_at(*arguments)

    monkeypatch.setattr(Glossary, "_term_at", asking)
    many = [f"{'x' * n} y" for n in range(1, 500)]
    assert found("a dog xx y Cat", *many, "dog bowl", "Cat", "cat", "CAT") == ["xx y", "Cat"]
    assert asked == [(2, 10), (6, 10), (11, 14)]


def test_a_file_has_terms_forms_and_cases(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text(
        "# English\tGerman\n\nMrs Smith\tFrau Schmidt ||| Frau Schmidts\r\nIT\tEDV\tany\n"
    )
    glossary = Glossary.read(path)
    assert list(glossary.terms.values()) == [
        Term("Mrs Smith", ("Frau Schmidt", "Frau Schmidts")),
        Term("IT", ("EDV",), "any"),
    ]
    same = Glossary(glossary.terms.values())
    assert str(glossary) == str(same)
    assert str(glossary) != str(Glossary([]))


def test_white_space_and_compositions_are_equal():
    assert found("a New\u00a0 York caf\u00e9", "New York", "cafe\u0301") == [
        "New York",
        "cafe\u0301",
    ]
    assert Term("x", ("Caf\u00e9 au  lait",)).form_in("ein Cafe\u0301 au lait")


def test_a_file_may_be_compressed_and_another_encoding_is_named(tmp_path):
    packed, other = tmp_path / "terms.tsv.gz", tmp_path / "terms.tsv"
    packed.write_bytes(gzip.compress(b"cat\tKatze\n"))
    assert [term.source for term in Glossary.read(packed).found_in("a cat")] == ["cat"]
    other.write_bytes("cat\tKatze\n".encode("utf-16"))
    with pytest.raises(UserError, match="is UTF-16 text; convert it to UTF-8"):
        Glossary.read(other)
    other.write_bytes(packed.read_bytes())
    with pytest.raises(UserError, match=r"\.gz"):
        Glossary.read(other)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("\ufeffcat\tKatze\r\n", encoding="utf-8")
    assert [term.source for term in Glossary.read(path).found_in("a cat")] == ["cat"]


def test_bad_lines_are_one_message(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text(
        "cat\n\tKatze\ncat\t \ncat\tKatze\ncat\tKater\tany\ncat\tKater\ndog\tHund\tno\nx\n"
    )
    with pytest.raises(UserError) as caught:
        Glossary.read(path)
    columns = "a line has 2 or 3 columns with a tab between them (source, target forms, case)"
    assert str(caught.value) == (
        f"{path}:1: {columns}, but this one has 1; {path}:2: the source is blank; "
        f"{path}:3: a target form of 'cat' is blank; {path}:6: the term 'cat' is given twice; "
        f"{path}:7: the case is 'no', but must be exact or any; and 1 more problem."
    )


@pytest.mark.parametrize("text", ["", "\n", "# English\tGerman\n\n"])
def test_a_file_without_terms_is_named(tmp_path, monkeypatch, text):
    warnings: list[str] = []
    monkeypatch.setattr(logs, "warning", warnings.append)
    path = tmp_path / "terms.tsv"
    path.write_text(text)
    assert not Glossary.read(path).terms
    path.write_text("cat\tKatze\n")
    assert len(Glossary.read(path).terms) == 1
    assert warnings == [f"{path} has no terms."]


GLOSSARY = Glossary([Term("cat", ("hen gnu", "bee")), Term("dog", ("fox",))])


def test_lines_with_a_term_have_its_translation():
    lines = [
        "cat ant",
        "eel ant",
        "eel dog cat",
        Request("gnu cat", glossary={"gnu": "dog", "cat": "ant"}),
    ]
    translator = of_words(constraints=Constraints(glossary=GLOSSARY), beam_size=4)
    cat, plain, both, own = translator.translate(lines)
    assert "hen gnu" in cat.text or "bee" in cat.tokens
    assert "fox" in both.tokens
    assert "hen gnu" in both.text or "bee" in both.tokens
    assert {"dog", "ant"} <= set(own.tokens)
    (unchanged,) = of_words(beam_size=4).translate(["eel ant"])
    assert plain.tokens == unchanged.tokens


def test_each_part_of_a_long_line_has_its_own_terms():
    line = "cat ant eel gnu dog ant eel gnu ant eel"
    (whole,) = of_words(max_length=4, constraints=Constraints(glossary=GLOSSARY)).translate([line])
    assert whole.num_parts > 1
    assert "fox" in whole.tokens
    assert "hen gnu" in whole.text or "bee" in whole.tokens
    assert whole.tokens.count("fox") < whole.num_parts


def test_terms_that_contradict_other_rules_are_an_error_of_the_line():
    rules = Constraints(glossary=GLOSSARY, banned=["fox"])
    good, bad, wrong = of_words(constraints=rules).translate(
        ["cat", "dog", Request("cat", glossary={"cat": []})]
    )
    assert good.error is None
    assert bad.error == 'the required phrase "fox" contains the banned phrase "fox"'
    assert wrong.error == "a target form of 'cat' is blank"


def test_terms_are_not_for_samples():
    with pytest.raises(WrongUsageError, match=FOR_SAMPLES):
        of_words(sampling=Sampling(), constraints=Constraints(glossary=GLOSSARY))
    (failed,) = of_words(sampling=Sampling()).translate([Request("cat", glossary={"cat": "bee"})])
    assert failed.error == FOR_SAMPLES


def test_terms_of_a_soft_glossary_are_shown_to_the_model_in_tags(monkeypatch):
    """The witness is the translation of a line in which the tags are written by hand."""
    monkeypatch.setattr(test_wanted_translations, "WORDS", [*WORDS, "<t>", "</t>"])
    lines = ["cat ant", "ant eel", "eel dog cat", "cat."]
    by_hand = [
        "cat <t> hen gnu </t> ant",
        "ant eel",
        "eel dog <t> fox </t> cat <t> hen gnu </t>",
        "cat <t> hen gnu </t>.",
    ]
    shown = of_words(constraints=Constraints(soft_glossary=SoftGlossary(GLOSSARY)))
    found, expected = list(shown.translate(lines)), list(of_words().translate(by_hand))
    assert [(each.text, each.score) for each in found] == [(e.text, e.score) for e in expected]
    refused = [Request("cat", markup="html"), Request("cat", alignments=True)]
    assert [each.error for each in shown.translate(refused)] == [ONLY_TEXT] * 2


def test_a_soft_glossary_needs_a_model_with_its_tags_and_text_as_it_is():
    for tag in ("<end>", "bee bee"):
        rules = Constraints(soft_glossary=SoftGlossary(GLOSSARY, ("ant", tag)))
        with pytest.raises(UserError, match=f"the tag '{tag}' is not one piece in the vocabulary"):
            of_words(constraints=rules)
    rules = Constraints(soft_glossary=SoftGlossary(GLOSSARY, ("ant", "bee")))
    for options in ({"markup": "html"}, {"alignments": True}):
        with pytest.raises(WrongUsageError, match=ONLY_TEXT):
            of_words(constraints=rules, **options)
    with pytest.raises(WrongUsageError, match=ONLY_TEXT):
        of_words(constraints=rules._replace(protect=["x"]))
