"""Two SentencePiece models with a vocabulary, against SentencePiece itself."""

import io
import json

import pytest
import sentencepiece

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.messages.errors import DamagedError, NoTextError, UserError
from nmt_cli.recipe.model_settings import settings_of
from tests.fake_models import tiny_recipe

RECIPE = tiny_recipe(tokenizer={"type": "sentencepiece", "vocabulary_size": 300})
TEXTS = {
    "source": ["the ants and the bees", "a cat is asleep", "the bee is awake"],
    "target": ["die Ameisen und die Bienen", "eine Katze schläft", "die Biene ist wach"],
}


def train(texts, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 5),
        model_writer=model,
        model_type="unigram",
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def models():
    return {side: train(texts, 40) for side, texts in TEXTS.items()}


@pytest.fixture(scope="module")
def processors(models):
    return {
        side: sentencepiece.SentencePieceProcessor(model_proto=model)
        for side, model in models.items()
    }


@pytest.fixture(scope="module")
def ids(processors):
    """A vocabulary in Marian's order, without some pieces of the source."""
    found = {"</s>", "<unk>"}
    for side, processor in processors.items():
        for text in TEXTS[side]:
            found.update(processor.encode(text, out_type=str))
    found -= {"<unk>", "</s>", "▁bee"}
    return {piece: n for n, piece in enumerate(["</s>", "<unk>", ">>deu<<", *sorted(found)])}


@pytest.fixture
def tokenizer(models, ids, tmp_path):
    made = MappedSentencePieceTokenizer(models, ids, Normalizer(RECIPE.data), "the folder")
    made.save(tmp_path)
    return load_tokenizer(tmp_path, settings_of(RECIPE, made.size).text)


def test_pieces_of_each_models_own_get_the_ids_of_the_vocabulary(tokenizer, processors, ids):
    num_unknown = 0
    for side, texts in TEXTS.items():
        for text, found in zip(texts, tokenizer.encode_batch(texts, side), strict=True):
            pieces = processors[side].encode(text, out_type=str)
            assert found == [ids.get(piece, ids["<unk>"]) for piece in pieces]
            num_unknown += found.count(ids["<unk>"])
            if side == "target":
                assert tokenizer.decode(found) == text
                assert tokenizer.pieces(found) == pieces
    assert num_unknown > 0
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (1, 0, 0)
    assert (tokenizer.size, tokenizer.source_size) == (len(ids), None)


def test_a_tag_in_front_of_the_source_is_one_piece(tokenizer, ids):
    plain = tokenizer.encode("a cat is asleep")
    assert tokenizer.encode(">>deu<< a cat is asleep") == [ids[">>deu<<"], *plain]
    assert tokenizer.encode(" >>deu<<a cat is asleep") == [ids[">>deu<<"], *plain]
    assert tokenizer.encode(">>fra<< a cat is asleep") == [ids["<unk>"], *plain]
    assert ids[">>deu<<"] not in tokenizer.encode("a cat >>deu<< is asleep")
    assert ids[">>deu<<"] not in tokenizer.encode(">>deu<< die Biene", "target")


def test_a_source_is_decoded_by_its_own_model(tokenizer):
    texts = [text for text in TEXTS["source"] if tokenizer.unk_id not in tokenizer.encode(text)]
    assert texts
    for text in (*texts, f">>deu<< {texts[0]}"):
        assert tokenizer.decode(tokenizer.encode(text), "source") == text


def test_each_language_may_have_a_vocabulary_of_its_own(models, ids, tmp_path):
    own = {"</s>": 0, "<unk>": 1, "▁cat": 2}
    made = MappedSentencePieceTokenizer(models, ids, Normalizer(RECIPE.data), "it", own)
    made.save(tmp_path)
    loaded = load_tokenizer(tmp_path, settings_of(RECIPE, made.size).text)
    assert loaded.source_size == 3
    assert loaded.encode("a cat") == made.encode("a cat")
    assert set(loaded.encode("a cat")) <= {1, 2}
    assert loaded.pieces([2], "source") == ["▁cat"]
    assert loaded.encode("die Biene", "target") == made.encode("die Biene", "target")


def test_what_has_no_text_is_named(tokenizer):
    with pytest.raises(NoTextError):
        tokenizer.decode([10_000])


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("{", DamagedError, "is not a JSON file"),
        ('["a"]', DamagedError, "not a number for each piece"),
        ("7", DamagedError, "is not a JSON file"),
        ('{"\\ud800": 1}', DamagedError, "is not a JSON file"),
        ('{"a": 1.0}', DamagedError, "not a number for each piece"),
        ('{"a": true}', DamagedError, "not a number for each piece"),
        ('{"<unk>": 0, "</s>": 2}', DamagedError, "must be 0 to 1, each once"),
        ('{"<unk>": 0, "</s>": 0}', DamagedError, "must be 0 to 1, each once"),
        ('{"<unk>": 0, "a": 1}', UserError, "has no piece </s>"),
        ("[" * 100_000, DamagedError, "is not a JSON file"),
    ],
)
def test_wrong_vocabularies_are_refused(tokenizer, tmp_path, content, error, message):
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(error, match=message):
        load_tokenizer(tmp_path, settings_of(RECIPE, 5).text)


@pytest.mark.parametrize("own", [{"</s>": 1, "<unk>": 0}, {"</s>": 0}])
def test_a_mark_at_two_places_is_refused(tokenizer, tmp_path, own):
    (tmp_path / "source_vocab.json").write_text(json.dumps(own))
    with pytest.raises(UserError, match="not at one place in both languages"):
        load_tokenizer(tmp_path, settings_of(RECIPE, 5).text)
