import json
import shutil

import numpy as np
import pytest

from nmt_cli.commands import preprocess
from nmt_cli.corpus import binarized
from nmt_cli.corpus.binarized import (
    BLOCK,
    BinarizedText,
    dtype_holding,
    map_numbers,
    writing_binarized,
    writing_numbers,
)
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.files.atomic_files import write_manifest
from nmt_cli.files.file_names import MANIFEST
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.recipe.reading.reader import read_recipe

RECIPE = """
description: words
data:
  source_language: en
  target_language: de
  train: [{source: text.en, target: text.de}]
  validation: {source: text.en, target: text.de}
tokenizer: {type: whitespace}
"""


@pytest.fixture
def sentences():
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 9, 3 * BLOCK + 5)
    return [rng.integers(0, 70_000, length) for length in lengths]


def write(directory, sentences, vocabulary_size=70_000, longest=8):
    with writing_binarized(directory, "train.source", vocabulary_size, longest) as writer:
        for part in (sentences[:10], sentences[:0], sentences[10:]):
            writer.append(
                np.concatenate([*part, np.empty(0, np.int64)]), np.array(list(map(len, part)))
            )


def test_gathered_sentences_are_those_written(tmp_path, sentences, monkeypatch):
    monkeypatch.setattr(binarized, "BLOCKS_AT_ONCE", 2)
    monkeypatch.setattr(binarized, "INDICES_AT_ONCE", 10)
    write(tmp_path, sentences)
    text = BinarizedText.open(tmp_path, "train.source")
    assert len(text) == len(sentences)
    assert text.num_tokens == sum(map(len, sentences))
    assert text.longest == max(map(len, sentences))
    assert text.lengths.tolist() == list(map(len, sentences))
    rng = np.random.default_rng(4)
    for indices in (
        np.arange(len(sentences)),
        rng.permutation(len(sentences)),
        np.array([len(sentences) - 1, 0, 0, BLOCK, BLOCK - 1]),
        np.array([], dtype=np.int64),
    ):
        tokens, lengths = text.gather(indices)
        assert tokens.dtype == lengths.dtype == np.int64
        assert lengths.tolist() == [len(sentences[i]) for i in indices]
        assert tokens.tolist() == [token for i in indices for token in sentences[i].tolist()]


@pytest.mark.parametrize("num_sentences", [0, 1, BLOCK, BLOCK + 1])
def test_any_number_of_sentences_can_be_read(tmp_path, sentences, num_sentences):
    write(tmp_path, sentences[:num_sentences])
    text = BinarizedText.open(tmp_path, "train.source")
    tokens, _ = text.gather(np.arange(num_sentences))
    assert tokens.tolist() == [token for s in sentences[:num_sentences] for token in s.tolist()]
    assert text.longest == max(map(len, sentences[:num_sentences]), default=0)


def test_tokens_take_two_bytes_where_they_can(tmp_path):
    assert dtype_holding(65_535).itemsize == 2
    assert dtype_holding(65_536).itemsize == 4
    write(tmp_path, [np.array([65_535, 0])], vocabulary_size=65_536)
    assert (tmp_path / "train.source.tokens").stat().st_size == 64 + 2 * 2
    assert BinarizedText.open(tmp_path, "train.source").gather(np.array([0])).tokens.tolist() == [
        65_535,
        0,
    ]


def test_reading_keeps_the_file_on_disk(tmp_path, sentences):
    write(tmp_path, sentences)
    assert isinstance(map_numbers(tmp_path / "train.source.tokens"), np.memmap)


def test_every_flipped_byte_of_a_header_is_noticed(tmp_path):
    path = tmp_path / "numbers"
    with writing_numbers(path, dtype_holding(9)) as writer:
        writer.append(np.arange(9))
    whole = path.read_bytes()
    for place in range(24):  # magic, version, bytes of a number, count
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(DamagedError) as caught:
            map_numbers(path)
        assert str(caught.value).startswith(f"{path} ")
    for wrong in (b"", whole[:30], whole[:-1], whole + b"\0", whole[:64]):
        path.write_bytes(wrong)
        with pytest.raises(DamagedError, match="damaged"):
            map_numbers(path)


def test_lengths_that_do_not_add_up_are_noticed(tmp_path, sentences):
    write(tmp_path, sentences)
    with writing_numbers(tmp_path / "train.source.lengths", dtype_holding(9)) as writer:
        writer.append(np.array([1, 2, 3]))
    with pytest.raises(DamagedError, match=r"tokens, but the lengths beside it add up to 6"):
        BinarizedText.open(tmp_path, "train.source")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    lines = [f"word{i % 7} word{i % 5} word{i}\n" for i in range(40)]
    (folder / "text.en").write_text("".join(lines))
    (folder / "text.de").write_text("".join(lines[1:] + lines[:1]))
    (folder / "words.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        preprocess.run(recipe="./words.yaml")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy" / "prepared" / "words"


def opened(directory, *overrides):
    recipe = read_recipe("./words.yaml", overrides).recipe
    return open_prepared(directory, recipe, "nmt-cli preprocess words")


def refusal(directory, *overrides):
    with pytest.raises(UserError) as caught:
        opened(directory, *overrides)
    return str(caught.value)


def test_a_prepared_corpus_holds_its_text(folder):
    corpus = opened(folder)
    tokens, lengths = corpus.target.gather(np.array([1]))
    assert corpus.tokenizer.pieces(tokens.tolist()) == ["word2", "word2", "word2", "</s>"]
    assert lengths.tolist() == [4]
    assert corpus.corpus_sizes == (40,)
    (measured,) = corpus.validation
    assert measured.name is None
    assert len(measured.source) == len(measured.lines("source")) == 40
    assert measured.lines("target")[1] == "word2 word2 word2"


def test_a_missing_corpus_names_the_command(tmp_path, folder):
    assert refusal(tmp_path / "base") == (
        f"{tmp_path / 'base'} not found. Run: nmt-cli preprocess words"
    )


def test_a_link_to_nothing_is_no_missing_corpus(tmp_path, folder):
    (tmp_path / "link").symlink_to("gone")
    assert "link is a link to gone, which does not exist; remove" in refusal(tmp_path / "link")


def test_a_stale_corpus_shows_what_differs(folder):
    assert refusal(folder, "tokenizer.vocabulary_size=37000") == (
        f"{folder} was made with vocabulary_size null, the recipe says 37,000. "
        "Correct the recipe or make it again: nmt-cli preprocess words --force"
    )
    assert refusal(folder, "data.normalization.nfc=true", "data.max_length=2000") == (
        f"{folder} was made with normalization.nfc false and max_length 1,024, "
        "the recipe says true and 2,000. "
        "Correct the recipe or make it again: nmt-cli preprocess words --force"
    )
    message = refusal(folder, "data.validation.source=other.en")
    assert "was made with validation.source text.en, the recipe says other.en. " in message


def test_what_does_not_decide_the_tokens_does_not_make_them_stale(folder):
    opened(
        folder,
        "data.test={source: a, target: b}",
        "data.prepared=elsewhere",
        "training.seed=5",
        "model.num_layers=2",
    )
    text = (folder.parent.parent / "words.yaml").read_text()
    (folder.parent.parent / "words.yaml").write_text(
        text.replace("text.de}]", "text.de, weight: 2}]")
    )
    assert opened(folder).corpus_sizes == (40,)


def test_every_changed_byte_of_a_prepared_corpus_is_noticed(folder):
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        places = {*range(0, len(whole), max(1, len(whole) // 25)), len(whole) - 1}
        for place in places:
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(DamagedError) as caught:
                opened(folder)
            assert str(path) in str(caught.value) or path.name == MANIFEST
            assert str(caught.value).endswith(" Run: nmt-cli preprocess words --force")
        path.write_bytes(whole)
    opened(folder)


def test_missing_files_and_foreign_folders_are_noticed(folder):
    for path in sorted(folder.iterdir()):
        aside = path.rename(folder.parent / "aside")
        assert str(folder) in refusal(folder)
        aside.rename(path)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    facts = {key: manifest[key] for key in ("data", "tokenizer", "corpus_sizes")}
    write_manifest(folder, {**facts, "kind": "regular"})
    assert refusal(folder) == (
        f"{folder} is a checkpoint, not a prepared corpus; give the folder that preprocess wrote."
    )
    write_manifest(folder, {**facts, "kind": "prepared", "corpus_sizes": [39]})
    assert refusal(folder).startswith(f"{folder} is damaged: 40 source and 40 target sentences.")
