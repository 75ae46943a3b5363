"""Small models of every architecture, with random weights and a real tokenizer."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from nmt_cli.corpus.tokenizers import sentencepiece_tokenizer
from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer
from nmt_cli.corpus.tokenizers.normalization import Normalizer, Side
from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.messages import logs
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import read_settings
from nmt_cli.recipe.model_values import Architecture
from nmt_cli.saved.model_directory import save_model

FORMATS = Path(__file__).parents[1] / "formats/format_2"
AVERAGE = FORMATS / "sentencepiece/run/average"
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "the-papers": {},
    "wide-values": {"d_k": 3, "d_v": 5},
    "wide-keys-pre-norm": {"d_k": 7, "d_v": 4, "norm": "pre"},
    "learned-positions": {"positions": "learned", "max_positions": 90, "tied_embeddings": "none"},
    "pre-norm": {"norm": "pre", "tied_embeddings": "decoder"},
    "pre-norm-learned": {"norm": "pre", "positions": "learned", "max_positions": 90},
    "narrow-heads": {"d_k": 2, "d_v": 4, "tied_embeddings": "decoder"},
    "narrow-heads-pre-norm": {"d_k": 4, "d_v": 2, "norm": "pre", "tied_embeddings": "none"},
}


@pytest.fixture
def untried(monkeypatch):
    """Leave out the process that tries a SentencePiece model, which takes most of the time."""
    monkeypatch.setattr(sentencepiece_tokenizer, "python_command", lambda *_: ["true"])


@pytest.fixture
def make_model(tmp_path):
    """Return a function that writes a model directory and returns its path."""
    logs.configure(quiet=False)

    def make(
        tokenizer="sentencepiece", tokenizer_model=None, text=None, pieces=None, **architecture
    ):
        source = FORMATS / tokenizer / "run/average"
        settings = read_settings(source)
        files = tmp_path / "tokenizer"
        files.mkdir()
        shutil.copytree(source, files, dirs_exist_ok=True)
        if tokenizer_model is not None:
            (files / "tokenizer.model").write_bytes(tokenizer_model)
        text_settings = settings.text._replace(**(text or {}))
        source_size: int = architecture.get("source_vocabulary_size", 0)
        if pieces is None and not source_size:
            pieces = load_tokenizer(files, text_settings)
        elif pieces is None:
            text_settings = text_settings._replace(type="whitespace")
            words, own = ([*CONTROL, *map(str, range(3, n))] for n in (300, source_size))
            pieces = WhitespaceTokenizer(words, Normalizer(text_settings), None, own)
        sizes = {"num_layers": 2, "num_heads": 3, "d_model": 18, "d_ff": 11}
        settings = settings._replace(
            text=text_settings,
            decoding=settings.decoding.changed(max_extra_length=5),
            architecture=Architecture(**{**sizes, **architecture}),
            vocabulary_size=pieces.size,
        )
        torch.manual_seed(3)
        model = Transformer(settings.architecture, pieces.size)
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):  # not only ones and zeros
                torch.nn.init.normal_(parameter, mean=0.5, std=0.2)
        with directory_appearing_whole(tmp_path / "model") as partial:
            record = (source / "recipe.yaml").read_bytes()
            weights = {name: each.detach().numpy() for name, each in model.named_parameters()}
            save_model(partial, settings, record, pieces, weights)
            partial.manifest.update(kind="average")
        return tmp_path / "model"

    return make


@pytest.fixture
def tokenizer_without_bytes(tmp_path):
    """A SentencePiece model that has no <s> and no pieces for bytes."""
    return trained(tmp_path / "other", ["the cat sat on the mat", "a dog and the cat"])


@pytest.fixture(params=["shared", "separate"])
def two_models(tmp_path, request):
    """A tokenizer of two SentencePiece models, and what the architecture needs for it."""
    models: dict[Side, bytes] = {
        "source": trained(tmp_path / "source", ["the cat sat on the mat", "a dog and the cat"]),
        "target": trained(tmp_path / "target", ["die Katze auf der Matte", "ein Hund und eine"]),
    }
    marks = ["</s>", "<unk>"]
    pieces = {
        side: sentencepiece.SentencePieceProcessor(model_proto=model).id_to_piece(
            list(range(2, 24))
        )
        for side, model in models.items()
    }
    normalizer = Normalizer(read_settings(AVERAGE).text)
    source = [*marks, ">>deu<<", *pieces["source"]]
    target = [*marks, *pieces["target"]]
    start = {"decoder_start": "eos", "tied_embeddings": "decoder"}
    if request.param == "shared":
        both = list(dict.fromkeys([*source, *target]))
        ids = {piece: number for number, piece in enumerate(both)}
        start = {"decoder_start": "zeros", "activation": "swish"}
        return MappedSentencePieceTokenizer(models, ids, normalizer, "the tokenizer"), start
    of_sides = ({piece: n for n, piece in enumerate(side)} for side in (target, source))
    tokenizer = MappedSentencePieceTokenizer(
        models, next(of_sides), normalizer, "the tokenizer", next(of_sides)
    )
    return tokenizer, {**start, "source_vocabulary_size": len(source)}


def trained(prefix, sentences):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 9),
        model_prefix=str(prefix),
        vocab_size=24,
        model_type="bpe",
        bos_id=-1,
        pad_id=-1,
        unk_id=1,
        eos_id=0,
        minloglevel=2,
    )
    return prefix.with_suffix(".model").read_bytes()
