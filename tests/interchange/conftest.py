"""Small models of every architecture, with random weights and a real tokenizer."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from nmt_cli import logs
from nmt_cli.atomic_files import directory_appearing_whole, read_manifest
from nmt_cli.corpus.tokenizer import load_tokenizer
from nmt_cli.model.transformer import Transformer
from nmt_cli.model_directory import save_model
from nmt_cli.model_settings import read_settings
from nmt_cli.recipe.model_config import ModelConfig

FORMATS = Path(__file__).parents[1] / "formats/format_2"
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
def make_model(tmp_path):
    """Return a function that writes a model directory and returns its path."""
    logs.configure(quiet=False)

    def make(tokenizer="sentencepiece", tokenizer_model=None, text=None, **architecture):
        source = FORMATS / tokenizer / "run/average"
        settings = read_settings(source, read_manifest(source))
        files = tmp_path / "tokenizer"
        files.mkdir()
        shutil.copytree(source, files, dirs_exist_ok=True)
        if tokenizer_model is not None:
            (files / "tokenizer.model").write_bytes(tokenizer_model)
        text_settings = settings.text._replace(**(text or {}))
        pieces = load_tokenizer(files, text_settings)
        sizes = {"num_layers": 2, "num_heads": 3, "d_model": 18, "d_ff": 11, "dropout": 0.0}
        settings = settings._replace(
            text=text_settings,
            decoding=settings.decoding.model_copy(update={"max_extra_length": 5}),
            architecture=ModelConfig.model_validate({**sizes, **architecture}),
            vocabulary_size=pieces.size,
        )
        torch.manual_seed(3)
        model = Transformer(settings.architecture, pieces.size)
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):  # not only ones and zeros
                torch.nn.init.normal_(parameter, mean=0.5, std=0.2)
        with directory_appearing_whole(tmp_path / "model") as partial:
            record = (source / "recipe.yaml").read_bytes()
            save_model(partial, settings, record, pieces, dict(model.named_parameters()))
            partial.facts.update(kind="average")
        return tmp_path / "model"

    return make


@pytest.fixture
def tokenizer_without_bytes(tmp_path):
    """A SentencePiece model that has no <s> and no pieces for bytes."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "a dog and the cat"] * 9),
        model_prefix=str(tmp_path / "other"),
        vocab_size=24,
        model_type="bpe",
        bos_id=-1,
        pad_id=-1,
        unk_id=1,
        eos_id=0,
        minloglevel=2,
    )
    return (tmp_path / "other.model").read_bytes()
