import io
import random

import pytest
import sentencepiece as spm
import torch

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer
from nmt_cli.corpus.tokenizers.tokenizer import train_tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole, sha256
from nmt_cli.files.file_names import WEIGHTS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.warm_start import start_from
from tests.fake_models import save_as_model
from tests.listed_pairs import ListedPairs

MATRICES = ("source_embedding.weight", "target_embedding.weight", "output_weight")
WORDS = ["hummel", "biene", "ameise", "kater", "hund", "aal", "fuchs", "gnu", "henne", "esel"]


def changed(recipe, **model):
    return recipe.model_copy(update={"model": recipe.model.model_copy(update=model)})


def new_model(recipe, tokenizer, seed):
    torch.manual_seed(seed)
    return Transformer(recipe.model, tokenizer.size)


def write_parent(directory, recipe, tokenizer):
    model = new_model(recipe, tokenizer, seed=1)
    with directory_appearing_whole(directory) as partial:
        save_as_model(partial, recipe, tokenizer, model)
        partial.manifest.update(kind="average")
    return model


def whitespace(recipe, pieces):
    return WhitespaceTokenizer([*CONTROL, *pieces], Normalizer(recipe.data), None)


def sentencepiece(recipe, words, seed):
    """Return a recipe and its SentencePiece tokenizer, trained on sentences of ``words``."""
    settings = {"type": "sentencepiece", "vocabulary_size": 300}
    config = type(recipe.tokenizer).model_validate(settings)
    generator = random.Random(seed)
    texts = [" ".join(generator.choices(words, k=6)) for _ in range(200)]
    pairs = list(zip(texts, texts, strict=True))
    tokenizer = train_tokenizer(config, recipe.data, ListedPairs(pairs), [len(pairs)], seed)
    return recipe.model_copy(update={"tokenizer": config}), tokenizer


def existing_tokenizer_without_start(recipe, words):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(words * 20),
        model_writer=model,
        vocab_size=270,
        model_type="bpe",
        byte_fallback=True,
        bos_id=-1,
        eos_id=1,
        minloglevel=2,
    )
    return SentencePieceTokenizer(model.getvalue(), Normalizer(recipe.data), "the model")


def matrices(model):
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {name: parameters[name].detach().clone() for name in MATRICES}


def others(model):
    return {name: p for name, p in model.named_parameters() if name not in MATRICES}


def assert_rows_by_name(model, tokenizer, parent, parent_tokenizer, fresh):
    """Compare piece by piece, the marks at their known places; return how many were known."""
    ours, theirs, untouched = matrices(model), matrices(parent), matrices(fresh)
    known, marks = 0, range(len(CONTROL))
    their_pieces = parent_tokenizer.pieces(range(parent_tokenizer.size))
    for token, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
        there = token if token in marks else None
        if there is None and piece in their_pieces[len(marks) :]:
            there = their_pieces.index(piece, len(marks))
        known += there is not None
        for name in MATRICES:
            expected = untouched[name][token] if there is None else theirs[name][there]
            assert torch.equal(ours[name][token], expected), (piece, name)
    for name, parameter in others(model).items():
        assert torch.equal(parameter, others(parent)[name])
    return known


def test_the_same_vocabulary_gives_the_same_model(toy, tmp_path):
    tokenizer = toy.corpus.tokenizer
    parent = write_parent(tmp_path / "parent", toy.recipe, tokenizer)
    model = new_model(toy.recipe, tokenizer, seed=2)
    report = start_from(tmp_path / "parent", model, tokenizer)
    for name, parameter in parent.named_parameters():
        assert torch.equal(dict(model.named_parameters())[name], parameter)
        assert dict(model.named_parameters())[name].requires_grad
    assert report["pieces_matched"] == report["vocabulary_size"] == tokenizer.size
    assert report == {
        "path": str(tmp_path / "parent"),
        "weights_sha256": sha256(tmp_path / "parent" / WEIGHTS),
        "pieces_matched": tokenizer.size,
        "vocabulary_size": tokenizer.size,
    }


@pytest.mark.parametrize("tied", ["all", "decoder", "none"])
def test_pieces_are_matched_by_name(toy, tmp_path, capsys, tied):
    logs.configure(quiet=False)
    recipe = changed(toy.recipe, tied_embeddings=tied)
    theirs = whitespace(recipe, ["ant", "bee", "<s>", "cat", "dog", "eel"])
    ours = whitespace(recipe, ["owl", "eel", "cat", "<s>", "</s>", "yak", "ant"])
    parent = write_parent(tmp_path / "parent", recipe, theirs)
    model, fresh = (new_model(recipe, ours, seed=2) for _ in range(2))
    report = start_from(tmp_path / "parent", model, ours)
    known = assert_rows_by_name(model, ours, parent, theirs, fresh)
    assert known == report["pieces_matched"] == 3 + len({"eel", "cat", "<s>", "ant"})
    reported = f"Starting from {tmp_path / 'parent'}, which has 7 of the 10 pieces."
    assert capsys.readouterr().err == f"{reported}\n"


def test_the_output_bias_of_a_piece_is_found_by_its_name(toy, tmp_path):
    recipe = changed(toy.recipe, output_bias=True, embedding_norm=True)
    theirs = whitespace(recipe, ["ant", "bee"])
    ours = whitespace(recipe, ["owl", "bee", "ant"])
    parent = new_model(recipe, theirs, seed=1)
    with torch.no_grad():
        parent.output_bias.copy_(torch.arange(5))
    with directory_appearing_whole(tmp_path / "parent") as partial:
        save_as_model(partial, recipe, theirs, parent)
        partial.manifest.update(kind="average")
    model = new_model(recipe, ours, seed=2)
    start_from(tmp_path / "parent", model, ours)
    assert model.output_bias.tolist() == [0, 1, 2, 0, 4, 3]


def test_a_parent_whose_source_has_a_vocabulary_of_its_own(toy, tmp_path):
    own = [*CONTROL, "owl", "cat", "ant"]
    separate = {"tied_embeddings": "decoder", "source_vocabulary_size": len(own)}
    recipe = changed(toy.recipe, **separate)
    theirs = WhitespaceTokenizer([*CONTROL, "bee", "ant"], Normalizer(recipe.data), None, own)
    parent = write_parent(tmp_path / "parent", recipe, theirs)
    child = changed(toy.recipe, tied_embeddings="decoder")
    ours = whitespace(child, ["ant", "bee", "cat"])
    model = new_model(child, ours, seed=2)
    fresh = matrices(model)
    assert start_from(tmp_path / "parent", model, ours)["pieces_matched"] == 5
    found, wanted = matrices(model), matrices(parent)
    source, target = (f"{side}_embedding.weight" for side in ("source", "target"))
    assert torch.equal(found[source][[0, 1, 2, 3, 5]], wanted[source][[0, 1, 2, 5, 4]])
    assert torch.equal(found[target][[0, 1, 2, 3, 4]], wanted[target][[0, 1, 2, 4, 3]])
    assert torch.equal(found[source][4], fresh[source][4])


def test_sentencepiece_pieces_are_matched_by_name(toy, tmp_path):
    recipe, theirs = sentencepiece(toy.recipe, WORDS[:7], seed=1)
    _, ours = sentencepiece(toy.recipe, WORDS[3:], seed=2)
    parent = write_parent(tmp_path / "parent", recipe, theirs)
    model, fresh = (new_model(recipe, ours, seed=2) for _ in range(2))
    report = start_from(tmp_path / "parent", model, ours)
    known = assert_rows_by_name(model, ours, parent, theirs, fresh)
    assert known == report["pieces_matched"]
    assert 259 < known < ours.size  # all bytes and marks, some pieces


@pytest.mark.parametrize(("there", "here"), [("</s>", "<s>"), ("<s>", "</s>")])
def test_where_one_has_no_mark_of_the_start_its_end_stands_for_it(toy, tmp_path, there, here):
    recipe, with_start = sentencepiece(toy.recipe, WORDS[:7], seed=1)
    without_start = existing_tokenizer_without_start(recipe, WORDS[:2])
    assert without_start.bos_id == without_start.eos_id != with_start.eos_id
    tokenizers = {"<s>": with_start, "</s>": without_start}
    theirs, ours = tokenizers[there], tokenizers[here]
    parent = write_parent(tmp_path / "parent", recipe, theirs)
    model = new_model(recipe, ours, seed=2)
    start_from(tmp_path / "parent", model, ours)
    assert torch.equal(model.output_weight[ours.eos_id], parent.output_weight[theirs.eos_id])
    if here == "<s>":
        assert torch.equal(model.output_weight[ours.bos_id], parent.output_weight[theirs.bos_id])


def test_one_matrix_becomes_three_equal_ones(toy, tmp_path):
    tokenizer = toy.corpus.tokenizer
    parent = write_parent(tmp_path / "parent", toy.recipe, tokenizer)
    model = new_model(changed(toy.recipe, tied_embeddings="none"), tokenizer, seed=2)
    start_from(tmp_path / "parent", model, tokenizer)
    assert sorted(dict(model.named_parameters()).keys() & set(MATRICES)) == sorted(MATRICES)
    for name, matrix in matrices(model).items():
        assert torch.equal(matrix, matrices(parent)[name])


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"d_ff": 32}, "was trained with d_ff 28, but the recipe's model has d_ff 32"),
        (
            {"num_heads": 4},
            "num_heads 5, d_k 4, d_v 4, but the recipe's model has num_heads 4, d_k 5",
        ),
        (
            {"num_layers": 2, "d_model": 10, "d_ff": 3},
            "num_layers 1, d_model 20, d_ff 28, but the recipe's model has num_layers 2, d_model",
        ),
        (
            {"decoder_num_layers": 2},
            "with decoder_num_layers null, decoder_d_ff null, decoder_num_heads null, but the "
            "recipe's model has decoder_num_layers 2, decoder_d_ff 28, decoder_num_heads 5",
        ),
        ({"norm": "pre"}, "was trained with norm post, but the recipe's model has norm pre"),
        (
            {"positions": "learned"},
            "with positions sinusoidal, max_positions null, but the recipe's",
        ),
    ],
)
def test_another_architecture_is_refused(toy, tmp_path, settings, found):
    tokenizer = toy.corpus.tokenizer
    write_parent(tmp_path / "parent", toy.recipe, tokenizer)
    model = new_model(changed(toy.recipe, **settings), tokenizer, seed=2)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(UserError) as caught:
        start_from(tmp_path / "parent", model, tokenizer)
    assert found in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'parent'} was trained with ")
    assert "\n" not in str(caught.value)
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)


def test_learned_positions_of_another_length_are_refused(toy, tmp_path):
    learned = changed(toy.recipe, positions="learned", max_positions=40)
    tokenizer = toy.corpus.tokenizer
    write_parent(tmp_path / "parent", learned, tokenizer)
    model = new_model(changed(learned, max_positions=50), tokenizer, seed=2)
    with pytest.raises(
        UserError, match="with max_positions 40, but the recipe's model has max_posi"
    ):
        start_from(tmp_path / "parent", model, tokenizer)


@pytest.mark.parametrize(
    ("there", "here"), [("none", "all"), ("none", "decoder"), ("decoder", "all")]
)
def test_different_matrices_do_not_become_one(toy, tmp_path, there, here):
    tokenizer = toy.corpus.tokenizer
    write_parent(tmp_path / "parent", changed(toy.recipe, tied_embeddings=there), tokenizer)
    model = new_model(changed(toy.recipe, tied_embeddings=here), tokenizer, seed=2)
    with pytest.raises(
        UserError, match=f"tied_embeddings {there}, but the recipe's model has {here}"
    ):
        start_from(tmp_path / "parent", model, tokenizer)


def test_dropout_may_differ(toy, tmp_path):
    tokenizer = toy.corpus.tokenizer
    parent = write_parent(tmp_path / "parent", toy.recipe, tokenizer)
    recipe = changed(toy.recipe, dropout=0.3, attention_dropout=0.1, relu_dropout=0.2)
    model = new_model(recipe, tokenizer, seed=2)
    start_from(tmp_path / "parent", model, tokenizer)
    for found, expected in zip(model.parameters(), parent.parameters(), strict=True):
        assert torch.equal(found, expected)
