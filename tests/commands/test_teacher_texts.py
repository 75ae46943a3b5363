"""The lines that a teacher translates: each once, with what augmentation makes of it."""

from pathlib import Path

import pytest

from nmt_cli.commands.distilling.distillation import Distillation
from nmt_cli.commands.distilling.teaching import stages_of_teaching
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.training.options import TrainOptions

TEXTS = Path("run/distillation/texts")


def written(*overrides):
    """Return the texts to translate, each as pairs of a line and its reference."""
    file = read_recipe("./small.yaml", overrides)
    each = Distillation([], None, file, TrainOptions(run_dir=Path("run")))
    stages_of_teaching(each)[0].make(each, False)
    return {
        path.stem: list(
            zip(
                path.read_text(encoding="utf-8").splitlines(),
                path.with_suffix(".target").read_text(encoding="utf-8").splitlines(),
                strict=True,
            )
        )
        for path in TEXTS.glob("*.source")
    }


def test_repeated_and_blank_lines_are_left_out(corpus):
    corpus.write("data/a.en", ["one two", "", "one two", "你好 世界", "สวัสดี", "b", "\u200b"])
    corpus.write("data/a.de", ["eins", "x", "zwei", "hallo", "", "c\x85d", "y"])
    corpus.write("data/b,c.en", ["b", "مرحبا"])
    corpus.write("data/b.de", ["b", "hallo"])
    corpus.write("data/more.en.gz", ["b", "mer", "mer", " "])
    assert written("distillation.monolingual=[{source: data/more.en.gz}]") == {
        "train.0": [("one two", "eins"), ("你好 世界", "hallo"), ("สวัสดี", ""), ("b", "c d")],
        "train.1": [("مرحبا", "hallo")],
        "monolingual.0": [("mer", "")],
    }


def test_a_line_is_translated_into_each_language(corpus):
    """A tag is a part of what the teacher reads."""
    corpus.write("data/a.en", ["one", "two"])
    corpus.write("data/a.de", ["eins", "zwei"])
    corpus.write("data/b,c.en", ["one", "one"])
    corpus.write("data/b.de", ["un", "une"])
    tags = "data.train.0.tag=<2de>", "data.train.1.tag=<2fr>"
    texts = written(*tags)
    assert texts == {"train.0": [("one", "eins"), ("two", "zwei")], "train.1": [("one", "un")]}


def test_what_augmentation_makes_is_translated_too(corpus):
    """The reference changes as the line does; noise is left to the training."""
    augment = "data.train.0.augment={upper_case: 0.5, noise: 1.0}"
    once = written(augment)["train.0"]
    plain = [(source, target) for source, target in once if source.islower()]
    changed = [pair for pair in once if not pair[0].islower()]
    assert written()["train.0"] == plain
    assert 0.3 * len(plain) < len(changed) < 0.7 * len(plain)
    lower = {pair[0]: pair for pair in plain}
    assert all((s, t) == tuple(map(str.upper, lower[s.lower()])) for s, t in changed)
    assert written(augment) == written(augment)
    more = written(augment, "distillation.augmented_copies=5")["train.0"]
    assert len(changed) < len(more) - len(plain) <= len(plain)  # the same change only once
    assert written(augment, "distillation.augmented_copies=0")["train.0"] == plain


def test_lines_that_follow_are_merged(corpus):
    plain = written()["train.1"]
    merged = written("data.train.1.augment={merge: 1.0}")["train.1"]
    places = {pair: place for place, pair in enumerate(plain)}
    text = f"{' '.join(source for source, _ in plain)} "
    assert len(merged) == 2 * len(plain) - 1  # the last line has none to follow it
    for source, _ in merged:
        assert f"{source} " in text
    assert [pair for pair in merged if pair in places] == plain


def test_links_outside_a_sentence_are_named(corpus):
    corpus.write("data/links", ["0-99"] * 80)
    with pytest.raises(UserError, match=r"data/links: the link 0-99 is outside its sentence"):
        written(
            "data.train.0.alignments=data/links",
            "data.train.0.augment={terms: 1.0}",
            "tokenizer.user_defined_symbols=[<t>, </t>]",
        )
    assert not TEXTS.exists()


def test_a_memory_is_read_in_the_languages_of_the_recipe(corpus):
    unit = (
        '<tu><tuv xml:lang="de"><seg>eins</seg></tuv><tuv xml:lang="en"><seg>one</seg></tuv></tu>'
    )
    Path("data/a.tmx").write_text(f"<tmx><body>{unit}</body></tmx>")
    assert written("data.train=[{memory: data/a.tmx}]") == {"train.0": [("one", "eins")]}


def test_nothing_to_translate_is_an_error(corpus):
    for name, size in (("a", 80), ("b", 30)):
        corpus.write("data/a.en" if name == "a" else "data/b,c.en", [" "] * size)
    with pytest.raises(UserError, match=r"data/a\.en has no line to translate"):
        written()
