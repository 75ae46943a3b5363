"""The dictionaries of fairseq, and a SentencePiece model, are the tokenizer of an import."""

import pytest

from nmt_cli.corpus.tokenizers import sentencepiece_tokenizer
from nmt_cli.interchange.fairseq.importer import import_fairseq
from nmt_cli.interchange.files import TextFiles
from nmt_cli.messages.errors import DamagedError, UserError
from tests.interchange.conftest import trained
from tests.interchange.fairseq_files import (
    MARKS,
    TASK,
    WORDS,
    options_with,
    write_dictionary,
    write_model,
)


def pieces_of(path, **files):
    return import_fairseq(path, TextFiles(**files)).pieces[4:]


def test_words_of_a_dictionary(tmp_path):
    path, _ = write_model(tmp_path)
    vocabulary = tmp_path / "dict.bb.txt"
    lines = (
        "a 5\rb b 4\r\n</s> 1 #fairseq:overwrite\na 1 #fairseq:overwrite\n\u00a0 1\nc -1\n@@ 0\n"
    )
    vocabulary.write_bytes(lines.encode())
    found = import_fairseq(path)
    assert found.pieces == [
        *("<unk>", "<s>", "</s>", "<pad>"),
        *("<unreachable:4>", "<unreachable:5>", "</s>", "a", "<unreachable:8>", "c", "@@"),
    ]
    assert found.source_pieces == ["<unk>", "<s>", "</s>", "<pad>", *WORDS["source"]]
    assert found.joiner == "@@"
    tokenizer = found.tokenizer(found.settings("und", "und"))
    assert tokenizer.encode("a </s> c x b", "target") == [7, 6, 9, 0, 0]
    assert tokenizer.decode([10, 9]) == "c"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a 5\nb\n", r"dict\.bb\.txt:2 is 'b'; each line has a word, a space and a count"),
        (b"a 5\n7\n", r"dict\.bb\.txt:2 is '7'"),
        (b"a 5\n\nb 3\n", r"dict\.bb\.txt:2 is ''"),
        (b"a 5\na 3\n", r"dict\.bb\.txt:2 holds 'a' again, without #fairseq:overwrite"),
        (b"<pad> 5\n", r"dict\.bb\.txt:1 holds '<pad>' again"),
        (b"a x\n", r"dict\.bb\.txt:1 is 'a x'"),
        (b"\xff 5\n", "is not UTF-8 text"),
    ],
)
def test_a_damaged_dictionary_is_refused(tmp_path, content, reason):
    path, _ = write_model(tmp_path)
    (tmp_path / "dict.bb.txt").write_bytes(content)
    with pytest.raises(DamagedError, match=reason) as caught:
        import_fairseq(path)
    assert "\n" not in str(caught.value)


def test_dictionaries_are_beside_the_checkpoint_or_named(tmp_path):
    path, tensors = write_model(tmp_path)
    ours = tmp_path / "ours.txt"
    (tmp_path / "dict.bb.txt").rename(ours)
    with pytest.raises(UserError, match=r"dict\.bb\.txt not found; .*--target-vocabulary"):
        import_fairseq(path)
    assert pieces_of(path, target_vocabulary=ours) == WORDS["target"]
    with pytest.raises(
        UserError, match=r"source vocabulary has 11 pieces with its 4 marks, enc.* 13"
    ):
        import_fairseq(path, TextFiles(source_vocabulary=ours))  # of both sides
    with pytest.raises(UserError, match=r"target-sentencepiece .* needs --sentencepiece"):
        import_fairseq(path, TextFiles(target_sentencepiece=ours))
    for name in ("../bb", "/bb", "", "b\0b", None, ["bb"], "b" * 101):
        write_model(tmp_path, tensors=tensors, task={**TASK, "target_lang": name})
        with pytest.raises(UserError, match="does not name its target language, so its vocab"):
            import_fairseq(path)


@pytest.mark.parametrize("words", [WORDS["source"], WORDS["target"][::-1]])
def test_shared_embeddings_have_one_vocabulary(tmp_path, words):
    options = options_with(share_all_embeddings=True)
    path, _ = write_model(tmp_path, options=options)
    assert import_fairseq(path).source_pieces is None
    write_dictionary(tmp_path / "dict.aa.txt", words)
    with pytest.raises(UserError, match="its sides share their embeddings, but not the vocabul"):
        import_fairseq(path)


def test_a_sentencepiece_model_cuts_text_into_the_words_of_the_dictionary(tmp_path, untried):
    trained(tmp_path / "both", ["the cat sat on the mat", "a dog and the cat"])
    model = tmp_path / "both.model"
    processor = sentencepiece_tokenizer.load_processor(model.read_bytes(), "it")
    words = processor.id_to_piece(list(range(4, 24)))  # some are not in the dictionary
    words.append("x@@")
    path, _ = write_model(tmp_path / "theirs", words=dict.fromkeys(WORDS, words))
    found = import_fairseq(path, TextFiles(sentencepiece=model))
    tokenizer = found.tokenizer(found.settings("und", "und"))
    expected = [
        words.index(piece) + len(MARKS) if piece in words else 0
        for piece in processor.encode("the dog sat", out_type=str)
    ]
    assert tokenizer.encode("the dog sat") == expected
    assert found.joiner is None
