"""The filters of data.filters and the scores of corpora, in preprocess."""

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.corpus import chunk_pool
from nmt_cli.corpus.prepared import changed_text, refuse_stale
from nmt_cli.corpus.text import parallel_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.recipe.reading.reader import read_recipe

WHITESPACE = "tokenizer={type: whitespace}"
ONE_CORPUS = "data.train=[{source: data/a.en, target: data/a.de}]"
SCORED = "data.train=[{{source: data/a.en, target: data/a.de, scores: {{{}}}}}]".format
WORDS = ["house", "river", "green", "yellow", "walks", "12", "7", "Haus", "Fluss", "Berg"]
EVERY_FILTER = {
    "min_words": 2,
    "max_words": 12,
    "max_words_ratio": 3,
    "min_characters": 6,
    "max_characters": 90,
    "max_characters_ratio": 4,
    "max_word_length": 20,
    "remove_copies": True,
    "min_letters": 0.5,
    "min_script": 0.6,
    "min_equal_digits": 0.5,
    "remove_different_urls": True,
    "max_urls": 0.4,
    "max_repeated_ngrams": 0.4,
    "min_language": 1e-3,
    "remove_held_out": True,
    "remove_held_out_sentences": True,
    "remove_duplicates": True,
    "remove_duplicate_sources": True,
    "remove_duplicate_targets": True,
    "min_length": 3,
    "max_length_ratio": 2,
}
ORDER = [
    *("empty", "scores", "min_characters", "max_characters", "max_characters_ratio"),
    *("min_words", "max_words", "max_words_ratio", "max_word_length", "remove_copies"),
    *("min_letters", "min_script", "min_equal_digits", "remove_different_urls", "max_urls"),
    *("max_repeated_ngrams", "min_language", "remove_held_out"),
    *("remove_held_out_sentences", "too_long", "too_short", "length_ratio"),
    *("duplicate", "remove_duplicate_sources", "remove_duplicate_targets"),
]


def write_pairs(corpus, name, pairs):
    for side, suffix in enumerate(("en", "de")):
        corpus.write(f"data/{name}.{suffix}", [pair[side] for pair in pairs])


def manifest():
    return json.loads(Path("prepared/small/manifest.json").read_text())


def lines_dropped(report):
    """The line numbers that each rule dropped."""
    return {
        rule: facts["first_lines"] for rule, facts in report["dropped"].items() if facts["count"]
    }


def kept_lines(report):
    gone = {line for lines in lines_dropped(report).values() for line in lines}
    return sorted(set(range(1, report["pairs_read"] + 1)) - gone)


def dirty_pairs(number, seed):
    generator = random.Random(seed)
    dirt = [
        "http://a.de/x",
        "мир",
        "!!!",
        "",
        "x" * 25,
        "one one one one one one",
        "?",
        "\u202e\x07",
    ]

    def text():
        words = generator.choices(WORDS, k=generator.randrange(1, 14))
        if generator.random() < 0.3:
            words.insert(0, generator.choice(dirt))
        return " ".join(words) if generator.random() < 0.95 else generator.choice(dirt)

    pairs = [(text(), text()) for _ in range(number)]
    for place in range(0, number, 10):
        source, target = pairs[place]
        pairs[place + 1], pairs[place + 2] = (source, text()), (text(), target)
        pairs[place + 3] = generator.choice([(source, target), (source, source)])
    pairs[7:9] = [("http://a.de/xyz house", "http://a.de/xyz Haus"), ("!!! ??? --", "(( ;;; ))")]
    return pairs


def test_workers_and_chunks_do_not_change_what_is_dropped(corpus, monkeypatch):
    for seed, name in enumerate(("a", "b")):
        write_pairs(corpus, name, dirty_pairs(400, seed))
        generator = random.Random(seed)
        corpus.write(f"data/{name}.s.gz", [f"{generator.random():.2f}" for _ in range(400)])
    held_out = dirty_pairs(400, 0)[5::40] + dirty_pairs(400, 1)[7::40]
    write_pairs(corpus, "val", held_out[::2])
    write_pairs(corpus, "test", [(s.upper() + "!", f"3. {t}") for s, t in held_out[1::2]])
    corpora = ", ".join(
        f"{{source: data/{name}.en, target: data/{name}.de, scores: {{file: data/{name}.s.gz, "
        "at_least: 0.05}}"
        for name in "ab"
    )
    settings = [
        f"data.train=[{corpora}]",
        "data.test={source: data/test.en, target: data/test.de}",
        *(f"data.filters.{key}={json.dumps(value)}" for key, value in EVERY_FILTER.items()),
        "data.max_length=11",
        WHITESPACE,
    ]
    first = corpus.prepare(*settings, workers=1)
    reports = manifest()["train"]
    dropped = {rule for report in reports for rule in lines_dropped(report)}
    assert dropped == set(ORDER)
    for report in reports:
        found = list(report["dropped"])
        assert found == [rule for rule in ORDER if rule in found]
        counts = [facts["count"] for facts in report["dropped"].values()]
        assert report["pairs_read"] == 400 == report["pairs_kept"] + sum(counts)
        assert report["pairs_kept"] == len(kept_lines(report)) > 20
    monkeypatch.setattr(chunk_pool, "PAIRS_IN_CHUNK", 90)
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 90)
    monkeypatch.setattr("nmt_cli.files.lines.READ_AT_ONCE", 3000)
    assert corpus.prepare(*settings, workers=2, force=True) == first


def test_filters_that_are_not_used_leave_no_trace(corpus):
    corpus.prepare(WHITESPACE)
    facts = manifest()
    report = facts["train"][0]
    assert list(report["dropped"]) == [
        "empty",
        "too_long",
        "too_short",
        "length_ratio",
        "duplicate",
    ]
    assert all(list(rule) == ["count", "first_lines"] for rule in report["dropped"].values())
    assert list(report["found"])[-1] == "lines_with_invalid_utf8"
    assert set(facts["versions"]) == {"sentencepiece", "unicode"}


def test_keys_that_a_manifest_lacks_have_the_default(corpus):
    corpus.prepare(WHITESPACE)
    facts = manifest()
    first = ("max_length_ratio", "min_length", "remove_duplicates")  # of the first version
    facts["data"]["filters"] = {name: facts["data"]["filters"][name] for name in first}
    for files in facts["data"]["train"]:
        for name in files.keys() - {"source", "target"}:
            del files[name]
    for name in ("shared", "byte_fallback", "split_digits", "sampling"):
        del facts["tokenizer"][name]
    for name in ("test", "prepared", "mixing", "stages"):
        del facts["data"][name]
    same, other = ([WHITESPACE], [WHITESPACE, "data.filters.min_words=2"])
    refuse_stale(corpus.output, facts, read_recipe("./small.yaml", same).recipe, "")
    with pytest.raises(UserError, match=r"was made with filters\.min_words null, .* says 2\."):
        refuse_stale(corpus.output, facts, read_recipe("./small.yaml", other).recipe, "")


def test_keys_and_values_of_a_newer_version_make_a_manifest_stale(corpus):
    corpus.prepare(WHITESPACE)
    facts, recipe = manifest(), read_recipe("./small.yaml", [WHITESPACE]).recipe
    facts["data"]["filters"]["most_fun"] = 0.5
    with pytest.raises(UserError, match=r"this version does not have: filters\.most_fun\. Make"):
        refuse_stale(corpus.output, facts, recipe, "")
    del facts["data"]["filters"]["most_fun"]
    facts["tokenizer"]["type"] = "unheard_of"
    with pytest.raises(UserError, match=r"this version does not have: type\. Make it again"):
        refuse_stale(corpus.output, facts, recipe, "")


def test_filtered_pairs_are_neither_in_the_vocabulary_nor_first_of_repeated_ones(corpus):
    pairs = [
        ("rare 12", "selten 13"),
        ("a b", "c d"),
        ("a b", "e f"),
        ("g h", "e f"),
        ("a b", "c d"),
    ]
    write_pairs(corpus, "a", pairs)
    corpus.write("data/s", ["0.9", "0.1", "0.5", "0.5", "0.7"])
    settings = [
        SCORED("file: data/s, at_least: 0.2"),
        "data.filters.min_equal_digits=1",
        "data.filters.remove_duplicates=true",
        WHITESPACE,
    ]
    corpus.prepare(*settings)
    report = manifest()["train"][0]
    assert lines_dropped(report) == {"scores": [2], "min_equal_digits": [1]}
    pieces = Path("prepared/small/vocabulary.txt").read_text().split()
    assert "rare" not in pieces
    assert {"a", "b", "c", "d", "e", "f", "g", "h"} <= set(pieces)
    assert report["dropped"]["min_equal_digits"]["examples"] == [
        {"line": 1, "source": "rare 12", "target": "selten 13"}
    ]
    assert report["found"]["duplicates"] == 0


def test_of_repeated_sides_the_best_pair_stays(corpus):
    generator = random.Random(1)
    sides = [(f"s{generator.randrange(12)}", f"t{generator.randrange(12)}") for _ in range(60)]
    scores = [generator.randrange(5) for _ in range(40)]
    write_pairs(corpus, "a", sides[:40])
    write_pairs(corpus, "b", sides[40:])
    corpus.write("data/s", [str(score) for score in scores])
    scored = "{source: data/a.en, target: data/a.de, scores: {file: data/s}}"
    settings = [f"data.train=[{scored}, {{source: data/b.en, target: data/b.de}}]", WHITESPACE]
    better = [*scores, *[99] * 20]  # a corpus without scores is trusted

    def best(compared):
        groups: dict[str, list[int]] = {}
        for index, pair in enumerate(sides):
            groups.setdefault(compared(pair), []).append(index)
        return {max(group, key=lambda index: (better[index], -index)) for group in groups.values()}

    of_sources, of_targets = best(lambda pair: pair[0]), best(lambda pair: pair[1])
    for keys, expected in [
        (["sources"], of_sources),
        (["targets"], of_targets),
        (["sources", "targets"], of_sources & of_targets),
    ]:
        flags = [f"data.filters.remove_duplicate_{key}=true" for key in keys]
        corpus.prepare(*settings, *flags, force=True)
        a, b = manifest()["train"]
        kept = [line - 1 for line in kept_lines(a)] + [39 + line for line in kept_lines(b)]
        assert kept == sorted(expected)
        assert corpus.opened(*settings, *flags).corpus_sizes == (
            len(kept_lines(a)),
            len(kept_lines(b)),
        )
    assert of_sources != of_targets != of_sources & of_targets
    flags = ["data.filters.remove_duplicates=true", "data.filters.remove_duplicate_sources=true"]
    corpus.prepare(*settings, *flags, force=True)
    assert sum(corpus.opened(*settings, *flags).corpus_sizes) == len(of_sources)


def length_rule(source, target):
    """The rule about lengths that a pair of words breaks by the limits 8, 2 and 3, or None."""
    longer, shorter = sorted((len(source.split()), len(target.split())), reverse=True)
    if longer > 8:
        return "too_long"
    if shorter < 2:
        return "too_short"
    return "length_ratio" if longer > 3 * shorter else None


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "keys",
    [
        ["remove_duplicates"],
        ["remove_duplicate_sources"],
        ["remove_duplicate_targets"],
        ["remove_duplicates", "remove_duplicate_sources", "remove_duplicate_targets"],
    ],
)
def test_a_pair_is_left_out_only_for_a_repeated_one_that_stays(corpus, monkeypatch, keys, workers):
    """First what each pair is worth alone, by its lengths too, then what repeats."""
    monkeypatch.setattr("nmt_cli.corpus.text.cleaning.RECORDS_IN_MEMORY", 50)
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 40)
    monkeypatch.setattr(chunk_pool, "PAIRS_IN_CHUNK", 40)
    generator = random.Random(len(keys))

    def text(number):
        return " ".join(
            f"w{number}x{place}" for place in range(random.Random(number).randint(1, 9))
        )

    pairs = [(text(generator.randrange(60)), text(generator.randrange(90))) for _ in range(240)]
    pairs[200:220] = pairs[:20]
    scores = [generator.randrange(5) for _ in pairs]
    write_pairs(corpus, "a", pairs[:170])
    write_pairs(corpus, "b", pairs[170:])
    corpora = []
    for name, part in {"a": slice(170), "b": slice(170, None)}.items():
        corpus.write(f"data/{name}.s", [str(score) for score in scores[part]])
        files = f"source: data/{name}.en, target: data/{name}.de"
        corpora.append(f"{{{files}, scores: {{file: data/{name}.s}}}}")
    filters = ", ".join(["min_length: 2", "max_length_ratio: 3", *(f"{key}: true" for key in keys)])
    settings = [f"data.train=[{', '.join(corpora)}]", "data.max_length=8"]
    settings += [
        f"data.filters={{{filters}}}",
        "tokenizer={type: whitespace, vocabulary_size: 9999}",
    ]
    corpus.prepare(*settings, workers=workers)
    expected = dict[int, str | None]()
    for index, pair in enumerate(pairs):
        expected[index] = length_rule(*pair)
    compared = {
        "remove_duplicates": lambda pair: pair,
        "remove_duplicate_sources": lambda pair: pair[0],
        "remove_duplicate_targets": lambda pair: pair[1],
    }
    worth = [index for index, rule in expected.items() if rule is None]
    for key in keys:
        groups: dict[object, list[int]] = {}
        for index in worth:
            groups.setdefault(compared[key](pairs[index]), []).append(index)
        for group in groups.values():
            best = max(group, key=lambda index: (scores[index], -index))
            for index in group:
                if index != best and expected[index] is None:
                    expected[index] = "duplicate" if key == "remove_duplicates" else key
    reports = manifest()["train"]
    found = {
        line - 1 + first: rule
        for report, first in zip(reports, (0, 170), strict=True)
        for rule, lines in lines_dropped(report).items()
        for line in lines
    }
    assert found == {index: rule for index, rule in expected.items() if rule is not None}
    kept = [index for index, rule in expected.items() if rule is None]
    assert sum(report["pairs_kept"] for report in reports) == len(kept) > 20
    assert manifest()["unknown"]["train"] == {"source": 0, "target": 0}
    prepared = corpus.opened(*settings)
    for place, side in enumerate((prepared.source, prepared.target)):
        sentences = side.gather(np.arange(len(kept))).lists()
        words = [prepared.tokenizer.decode(ids[:-1], keep_pieces=True) for ids in sentences]
        assert words == [pairs[index][place] for index in kept]


def test_the_good_translation_of_a_repeated_source_stays_in_pieces_too(corpus):
    """The first translation of each source is too long, too short or too unequal in pieces."""
    words = [f"{word}{number}" for number, word in enumerate(WORDS)]
    bad = ["Wort " * 60, "x", "Haus " * 17]
    pairs = [(f"the {word} is a house", bad[number % 3]) for number, word in enumerate(words)]
    pairs += [(f"the {word} is a house", f"{word} ist ein Haus") for word in words]
    write_pairs(corpus, "a", pairs)
    settings = [
        ONE_CORPUS,
        "data.filters={remove_duplicate_sources: true, min_length: 3, max_length_ratio: 1.9}",
        "data.max_length=40",
        "tokenizer={vocabulary_size: 330, byte_fallback: true}",
    ]
    corpus.prepare(*settings)
    report = manifest()["train"][0]
    assert kept_lines(report) == [*range(11, 21)]
    assert "remove_duplicate_sources" not in report["dropped"]
    assert report["found"]["duplicates"] is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["1"] * 79,
            r"^data/s has 79 lines but data/a\.en has 80; line n of one must be the score ",
        ),
        (["1"] * 81, r"^data/s has 81 lines but data/a\.en has 80; "),
        ([], r"^data/s has 0 lines but data/a\.en has 80; "),
        (
            ["1"] * 70 + ["x" * 99] + ["1"] * 9,
            r"^line 71 of data/s is 'x{40}'; it must be a number",
        ),
        (["1"] * 79 + [""], r"^line 80 of data/s is ''; "),
        (["1"] * 79 + ["1_000"], r"^line 80 of data/s is '1_000'; it must be a number"),
        (["1"] * 79 + ["\u0661"], r"^line 80 of data/s is '\u0661'; "),
        (["nan"] + ["1"] * 79, r"^line 1 of data/s is 'nan'; "),
        (["1"] * 79 + ["-inf"], r"^line 80 of data/s is '-inf'; "),
        (["0.5\t0.7"] * 80, r"^line 1 of data/s is '0\.5\\t0\.7'; "),
        (None, r"^data/s "),
    ],
)
def test_wrong_scores_are_one_line(corpus, monkeypatch, lines, message):
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 30)
    if lines is not None:
        corpus.write("data/s", lines)
    with pytest.raises(UserError, match=message) as error:
        corpus.prepare(SCORED("file: data/s"), WHITESPACE, workers=1)
    assert "\n" not in str(error.value)
    assert not Path("prepared").exists()


def test_wrong_scores_are_found_by_any_process(corpus, monkeypatch):
    monkeypatch.setattr(chunk_pool, "PAIRS_IN_CHUNK", 30)
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 30)
    corpus.write("data/s", ["1"] * 79 + ["one"])
    with pytest.raises(UserError, match=r"^line 80 of data/s is 'one'; "):
        corpus.prepare(SCORED("file: data/s"), WHITESPACE, workers=2)
    assert not Path("prepared").exists()


def test_scores_may_be_written_in_several_ways(corpus):
    texts = ["0.5\r", "1e-3", " 7 ", "-2", "+.25", "\ufeff1"[1:], *["0"] * 74]
    corpus.write("data/s", texts)
    corpus.prepare(SCORED("file: data/s, at_least: 0.25"), WHITESPACE)
    report = manifest()["train"][0]
    assert kept_lines(report) == [1, 3, 5, 6]
    assert report["dropped"]["scores"]["count"] == 76
    assert report["scores"] == "data/s"


def test_pairs_of_the_test_and_validation_text_are_named_and_can_be_dropped(
    corpus, monkeypatch, capsys
):
    logs.configure(quiet=False)
    pairs = list(zip(corpus.sentences(80, 0), corpus.sentences(80, 1), strict=True))
    similar = [(source.upper() + " 5.", f"- {target}") for source, target in pairs]
    write_pairs(corpus, "val", [pairs[3], similar[4], ("x", pairs[5][1])])
    write_pairs(corpus, "test", [similar[50], (similar[51][0], "y")])
    settings = [
        ONE_CORPUS,
        "data.test={source: data/test.en, target: data/test.de}",
        WHITESPACE,
    ]
    corpus.prepare(*settings)
    found = manifest()["train"][0]["found"]
    assert found["also_in_validation"] == 1
    assert found["like_validation"]["first_lines"] == [4, 5]
    assert found["like_test"] == {
        "count": 1,
        "first_lines": [51],
        "examples": [{"line": 51, "source": pairs[50][0], "target": pairs[50][1]}],
    }
    assert manifest()["train"][0]["pairs_kept"] == 80
    said = capsys.readouterr().err
    assert (
        "the validation set holds 1 pair of data/a.en and data/a.de too, and 1 that differ" in said
    )
    assert "holds 1 pair of data/a.en and data/a.de that differ at most in case, digits, " in said
    removed = [*settings, "data.filters.remove_held_out=true"]
    corpus.prepare(*removed, force=True)
    assert lines_dropped(manifest()["train"][0]) == {"remove_held_out": [4, 5, 51]}
    said = capsys.readouterr().err
    assert "3 by remove_held_out (lines in manifest.json)" in said
    assert "Warning: the test text" not in said


def test_pairs_with_a_sentence_of_held_out_text_are_counted_and_can_be_dropped(corpus, capsys):
    logs.configure(quiet=False)
    pairs = list(zip(corpus.sentences(80, 0), corpus.sentences(80, 1), strict=True))
    others = [(f"left {'a' * number}", f"right {'b' * number}") for number in range(2, 9)]
    write_pairs(corpus, "val", [pairs[3], (pairs[4][0].upper() + "!", "right a"), *others])
    write_pairs(corpus, "test", [*((f"new {'c' * n}", pairs[n][1]) for n in (6, 7, 8)), pairs[9]])
    settings = [
        ONE_CORPUS,
        "data.test={source: data/test.en, target: data/test.de}",
        WHITESPACE,
    ]
    corpus.prepare(*settings)
    said = capsys.readouterr().err
    assert (
        "2 of 9 validation sources are sources of the training text too, and 1 targets (case, "
        "digits, punctuation and spaces do not count), so scores will be too high; "
        "data.filters.remove_held_out_sentences: true leaves out the 2 pairs with such a side."
    ) in said
    assert "4 of 4 test targets are targets of the training text too, and 1 sources" in said
    corpus.prepare(*settings, "data.filters.remove_held_out_sentences=true", force=True)
    removed = {"remove_held_out_sentences": [4, 5, 7, 8, 9, 10]}
    assert lines_dropped(manifest()["train"][0]) == removed
    assert "of the training text too" not in capsys.readouterr().err
    both = ["data.filters.remove_held_out_sentences=true", "data.filters.remove_held_out=true"]
    corpus.prepare(*settings, *both, force=True)
    assert lines_dropped(manifest()["train"][0]) == {
        "remove_held_out": [4, 10],
        "remove_held_out_sentences": [5, 7, 8, 9],
    }


def test_the_prepared_text_depends_on_the_test_text_whose_pairs_are_dropped(corpus):
    settings = ["data.filters.remove_held_out=true", WHITESPACE]
    shutil.copy("data/val.en", "data/test.en")
    shutil.copy("data/val.de", "data/test.de")
    test = "data.test={source: data/test.en, target: data/test.de}"
    corpus.prepare(*settings, test)
    assert corpus.opened(*settings, test)
    with pytest.raises(UserError, match=r"was made with test\.source data/test\.en"):
        corpus.opened(*settings)
    prepared = Path("prepared/small")
    assert changed_text(prepared, manifest()) == []
    corpus.write("data/test.de", ["something else"] * 20)
    assert changed_text(prepared, manifest()) == [Path("data/test.de")]
    corpus.write("data/test.de", ["one line"])
    with pytest.raises(UserError, match=r"^data/test\.en has 20 lines but data/test\.de has 1; "):
        corpus.prepare(*settings, test, force=True)


def test_changed_scores_are_noticed(corpus):
    corpus.write("data/s", ["0.5"] * 80)
    corpus.prepare(SCORED("file: data/s"), WHITESPACE)
    assert changed_text(Path("prepared/small"), manifest()) == []
    corpus.write("data/s", ["0.6"] * 80)
    os.utime("data/s", (2**31, 2**31))
    assert changed_text(Path("prepared/small"), manifest()) == [Path("data/s")]


def test_more_held_out_pairs_than_can_be_compared_are_refused(corpus, monkeypatch):
    monkeypatch.setattr("nmt_cli.corpus.text.cleaning.MOST_PAIRS", 19)
    monkeypatch.setattr("nmt_cli.commands.preprocess.MOST_PAIRS", 19)
    corpus.prepare(WHITESPACE)
    with pytest.raises(UserError, match=r"at most 19 pairs, but data\.validation has more; give "):
        corpus.prepare(WHITESPACE, "data.filters.remove_held_out=true", force=True)


def test_filters_of_text_are_refused_beside_a_treebank(corpus):
    settings = ["data.treebank={}", "validation.bleu=off", WHITESPACE]
    with pytest.raises(RecipeError) as error:
        corpus.prepare(
            *settings, "data.filters={'min_letters': 0.5, 'max_words': 3}", SCORED("file: s")
        )
    for key in ("filters.min_letters", "filters.max_words", "train.0.scores"):
        assert f"data.{key}: is for text; leave it out beside treebank" in str(error.value)


def test_limits_that_no_pair_can_meet_are_refused(corpus):
    with pytest.raises(RecipeError) as error:
        corpus.prepare("data.filters={'min_words': 9, 'max_words': 8, 'max_characters': 2}")
    assert "data.filters.min_words: must be at most max_words 8, but is 9" in str(error.value)
    with pytest.raises(RecipeError, match="min_characters: must be at most max_characters 2, but"):
        corpus.prepare("data.filters={'min_characters': 3, 'max_characters': 2}")


def test_a_filter_of_text_that_drops_most_pairs_is_named(corpus, capsys):
    logs.configure(quiet=False)
    corpus.prepare(WHITESPACE, "data.filters.min_words=7")
    assert "; correct the text or data.filters.min_words if that is too many." in (
        capsys.readouterr().err
    )
    corpus.write("data/s", ["0.1"] * 79 + ["1"])
    corpus.prepare(WHITESPACE, SCORED("file: data/s, at_least: 0.5"), force=True)
    assert "79 by scores); correct the text or data.train.scores if" in capsys.readouterr().err


def test_nothing_left_names_the_filters(corpus):
    with pytest.raises(UserError, match=r"110 by min_characters\).* data\.filters"):
        corpus.prepare(WHITESPACE, "data.filters.min_characters=5000")


def test_pairs_of_every_named_set_are_removed(corpus):
    sets = []
    for name, line in {"news": 3, "talks": 50, "more": 9}.items():
        write_pairs(corpus, name, [(corpus.sentences(80, 0)[line], corpus.sentences(80, 1)[line])])
        sets.append(f"{{name: {name}, source: data/{name}.en, target: data/{name}.de}}")
    settings = [
        f"data.test=[{sets[0]}, {sets[1]}]",
        f"data.validation=[{{name: val, source: data/val.en, target: data/val.de}}, {sets[2]}]",
        "data.filters.remove_held_out=true",
        WHITESPACE,
    ]
    corpus.prepare(*settings)
    assert lines_dropped(manifest()["train"][0]) == {"remove_held_out": [4, 10, 51]}
    assert [entry["name"] for entry in manifest()["test"]] == ["news", "talks"]
    assert changed_text(Path("prepared/small"), manifest()) == []
    corpus.write("data/talks.de", ["another text"])
    assert changed_text(Path("prepared/small"), manifest()) == [Path("data/talks.de")]
    missing = settings[0].replace("data/talks.en", "data/none.en")
    with pytest.raises(UserError, match=r"^data/none\.en not found"):
        corpus.prepare(missing, *settings[1:], force=True)
