"""Translations of a memory in place of those of the model, and similar ones beside these."""

import pickle
import random

import pytest

from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.translating.interface.memory import LONGEST_COMPARED, TranslationMemory
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import MemoryMatch
from tests.fake_models import copying

PAIRS = {
    "A dog runs.": "Ein Hund läuft.",
    "我们有一只狗。": "لدينا كلب",
    "İstanbul güzel": "Istanbul ist schön",
    "cafe\u0301 au lait": "Milchkaffee",
    "%d files": "%d Dateien",
    "no target": "",
}
TU = (
    '<tu><tuv xml:lang="en-GB"><seg>{}</seg></tuv><tuv xml:lang="de-AT"><seg>{}</seg></tuv>'
    '<tuv xml:lang="fr"><seg>un</seg></tuv></tu>'
)


@pytest.fixture
def memory_of(tmp_path):
    def made(pairs, **options):
        path = tmp_path / "memory.tmx"
        units = "".join(TU.format(*pair) for pair in pairs.items())
        path.write_text(f"<tmx><body>{units}</body></tmx>")
        return TranslationMemory([path], **options)

    return made


def answers(monkeypatch, memory, lines, **options):
    constraints = Constraints(memory=memory, **options.pop("rules", {}))
    translator, model = copying(monkeypatch, constraints=constraints, **options)
    return list(translator.translate(lines)), model


def test_equal_segments_have_the_translation_of_the_memory(monkeypatch, memory_of):
    expected = {
        "A dog runs.": "Ein Hund läuft.",
        " A  dog\u00a0runs. ": "Ein Hund läuft.",
        "a dog runs.": None,
        "我们有一只狗。": "لدينا كلب",
        "caf\u00e9 au lait": "Milchkaffee",
        "": None,
        "no target": None,
    }
    found, model = answers(monkeypatch, memory_of(PAIRS), expected)
    assert [each.text for each in found] == [text or line for line, text in expected.items()]
    assert [each.has_equal_segments for each in found] == list(map(bool, expected.values()))
    assert found[0].memory == (MemoryMatch("A dog runs.", "Ein Hund läuft.", 100),)
    assert [each.score is None for each in found] == [True, True, False, True, True, True, False]
    assert model.num_sentences == 2


def test_each_sentence_and_block_has_its_own_translation(monkeypatch, memory_of):
    text = "A dog runs.  Nothing known. A dog runs."
    (found,), model = answers(monkeypatch, memory_of(PAIRS), [text], split_sentences=True)
    assert found.text == "Ein Hund läuft.  Nothing known. Ein Hund läuft."
    assert [match.similarity for match in found.memory] == [100, 100]
    assert model.num_sentences == 1
    page = "<p>A dog runs.</p><p>A <b>dog</b> runs.</p><li>%d files</li>"
    (found,), _ = answers(monkeypatch, memory_of(PAIRS), [page], markup="html")
    assert found.text.startswith("<p>Ein Hund läuft.</p><p>A ")  # its tags need the model
    assert found.text.endswith("</p><li>%d Dateien</li>")


def test_rules_of_a_line_come_before_the_memory(monkeypatch, memory_of):
    requests = [
        Request("%d files", banned=["x"]),
        Request("%d files", prefix="Zwei"),
        Request("%d files", required=["zz"]),
        Request("%d files", alignments=True),
        Request("%d files", protect=["placeholders"], protect_strict=True),
    ]
    found, _ = answers(monkeypatch, memory_of(PAIRS), requests)
    assert [each.has_equal_segments for each in found] == [False, False, False, True, True]
    assert [each.error for each in found] == [None] * 5
    assert found[3].alignment == ()
    with pytest.raises(WrongUsageError, match="--memory: a memory has text, but --keep-pieces"):
        answers(monkeypatch, memory_of(PAIRS), [], keep_pieces=True)


def test_languages_are_those_of_the_model_or_given(monkeypatch, memory_of):
    reversed_ = memory_of(PAIRS, languages=("de", "en"))
    (found,), _ = answers(monkeypatch, reversed_, ["Ein Hund läuft."])
    assert found.text == "A dog runs."
    with pytest.raises(UserError, match="has no pair of en and it: its languages are en-GB, de-AT"):
        answers(monkeypatch, memory_of(PAIRS, languages=("en", "it")), [])
    with pytest.raises(UserError, match="give those of the memory with --memory-languages"):
        memory_of(PAIRS).for_model(("und", "de"))


def test_a_file_without_translations_is_refused(tmp_path, memory_of):
    path = tmp_path / "fresh.po"
    path.write_text('msgid "one"\nmsgstr ""\n\nmsgid "two"\nmsgstr " "\n')
    with pytest.raises(UserError, match=r"every source or target in .*fresh\.po is empty"):
        TranslationMemory([path, *memory_of(PAIRS)._paths]).for_model(("en", "de"))


def test_of_equal_sources_the_last_one_counts(tmp_path, memory_of):
    memory = memory_of({"one": "eins", "one ": "ein"})
    assert memory.for_model(("en", "de")).equal("one") == MemoryMatch("one", "ein", 100)
    path = tmp_path / "more.po"
    path.write_text('msgid "one"\nmsgstr "1"\n')
    both = TranslationMemory([*memory._paths, path]).for_model(("en", "de"))
    assert both.equal("one") == MemoryMatch("one", "1", 100)


def distance(first, second):
    """The edit distance by the textbook."""
    row = list(range(len(second) + 1))
    for number, a in enumerate(first, 1):
        before, row[0] = row[0], number
        for place, b in enumerate(second, 1):
            before, row[place] = (
                row[place],
                min(before + (a != b), row[place] + 1, row[place - 1] + 1),
            )
    return row[-1]


@pytest.mark.parametrize("least", [1, 50, 75, 99])
def test_the_most_similar_segment_is_found(memory_of, least):
    generator = random.Random(least)

    def text():
        return "".join(generator.choices("ab我", k=generator.randint(1, 12)))

    pairs = {text(): text() for _ in range(60)}
    memory = memory_of(pairs, similar_from=least).for_model(("en", "de"))
    for segment in (text() for _ in range(60)):
        most = max(1 - distance(segment, key) / max(len(segment), len(key)) for key in pairs)
        found = memory.similar(segment)
        assert (found is not None) == (most >= least / 100)
        if found is not None:
            assert found.similarity == min(99, int(100 * most + 1e-9))
            assert pairs[found.source] == found.target


def test_similar_segments_are_shown_beside_the_output(monkeypatch, memory_of):
    memory = memory_of(PAIRS, similar_from=75)
    lines = ["A dog ran.", "A cat sat down.", "x" * (LONGEST_COMPARED + 1), "", "A dog runs."]
    found, _ = answers(monkeypatch, memory, lines)
    assert [each.text for each in found[:4]] == lines[:4]
    assert found[0].memory == (MemoryMatch("A dog runs.", "Ein Hund läuft.", 81),)
    assert [each.memory for each in found[1:4]] == [()] * 3
    assert found[4].memory[0].similarity == 100


def test_a_record_of_it_changes_with_its_files_and_options(memory_of):
    shown = [str(memory_of(PAIRS)), str(memory_of({**PAIRS, "a": "b"}))]
    shown += [str(memory_of(PAIRS, languages=("en", "fr"))), str(memory_of(PAIRS, similar_from=8))]
    assert len(set(shown)) == 4
    assert str(pickle.loads(pickle.dumps(memory_of(PAIRS)))) == shown[0]  # as workers get it


def test_a_whole_segment_comes_before_its_sentences(monkeypatch, memory_of):
    pairs = {
        "A dog runs. A cat sits.": "Beides.",
        "A dog runs.": "Ein Hund läuft.",
        "A cat sits.": "Eine Katze sitzt.",
        "1. One. Two.": "1. Eins. Zwei.",
    }
    memory, text = memory_of(pairs), "A dog runs. A cat sits."
    expected = {
        Request(text): "Beides.",
        Request(f" {text}\n"): " Beides.\n",
        Request("A dog runs. A bird sings. A cat sits."): (
            "Ein Hund läuft. A bird sings. Eine Katze sitzt."
        ),
        Request("1. One. Two."): "1. Eins. Zwei.",
        Request(f"<p>{text}</p><p>A cat sits.</p>", markup="html"): (
            "<p>Beides.</p><p>Eine Katze sitzt.</p>"
        ),
        Request(text, prefix="A"): text,
    }
    found, model = answers(monkeypatch, memory, expected, split_sentences=True)
    assert [each.text for each in found] == list(expected.values())
    assert [each.has_equal_segments for each in found] == [True] * 5 + [False]
    assert model.num_sentences == 3
    # Its tags need the model, which gets its sentences.
    tagged = Request("A <b>dog</b> runs. A cat sits.", markup="xml")
    _, model = answers(monkeypatch, memory, [tagged], split_sentences=True)
    assert model.num_sentences == 2


def test_codes_of_a_file_are_those_of_others(tmp_path):
    tmx = "<tmx><body><tu><tuv xml:lang='{}'><seg>one</seg></tuv><tuv xml:lang='{}'><seg>eins</seg>"
    tmx += "</tuv></tu></body></tmx>"
    xliff = (
        "<xliff version='1.2'><file source-language='{}' target-language='{}'><body><trans-unit>"
    )
    xliff += "<source>one</source><target>eins</target></trans-unit></body></file></xliff>"
    for codes in (("eng", "deu"), ("en_US", "de_DE"), ("EN-us", "ger"), ("eng-GB", "de")):
        for file in (tmx, xliff):
            path = tmp_path / "memory"
            path.write_text(file.format(*codes))
            for model in (("en", "de"), ("eng", "ger")):
                memory = TranslationMemory([path]).for_model(model)
                assert memory.equal("one") == MemoryMatch("one", "eins", 100)


def test_each_line_of_a_text_is_found_if_its_translation_has_as_many(tmp_path):
    path = tmp_path / "a.po"
    path.write_text(
        'msgid "one\\n\\ntwo\\n"\nmsgstr "eins\\n\\nzwei\\n"\n\n'
        'msgid "three\\nfour"\nmsgstr "drei vier"\n\nmsgid "two"\nmsgstr "zwo"\n'
    )
    memory = TranslationMemory([path]).for_model(("en", "de"))
    found = {each: memory.equal(each) for each in ("one", "two", "three", "one two")}
    assert {key: each and each.target for key, each in found.items()} == {
        "one": "eins",
        "two": "zwo",
        "three": None,
        "one two": "eins\n\nzwei",
    }


def test_marks_for_missing_targets_are_no_translations(tmp_path):
    path = tmp_path / "a.xlf"
    unit = "<trans-unit><source>{}</source><target>{}</target></trans-unit>"
    units = unit.format("one", "[NAB: NOT TRANSLATED]") + unit.format("two", "zwei")
    path.write_text(
        f"<xliff><file source-language='en' target-language='de'>{units}</file></xliff>"
    )
    memory = TranslationMemory([path]).for_model(("en", "de"))
    found = [memory.equal(each) for each in ("one", "two")]
    assert found == [None, MemoryMatch("two", "zwei", 100)]
