"""Writes models in the files of OpenNMT-py: those of eole with other names and options."""

import re
from argparse import Namespace
from typing import Any

import numpy as np
import torch

from tests.interchange.eole_files import EoleModel

RENAMED = [
    (r"src_emb\.embeddings", "encoder.embeddings.make_embedding.emb_luts.0"),
    (r"tgt_emb\.embeddings", "decoder.embeddings.make_embedding.emb_luts.0"),
    (r"src_emb\.pe", "encoder.embeddings.make_embedding.pe"),
    (r"tgt_emb\.pe", "decoder.embeddings.make_embedding.pe"),
    (r"encoder\.transformer_layers", "encoder.transformer"),
    (r"(encoder\..*)input_layernorm", r"\1layer_norm"),
    (r"(decoder\..*)input_layernorm", r"\1layer_norm_1"),
    ("precontext_layernorm", "layer_norm_2"),
    ("post_attention_layernorm", "feed_forward.layer_norm"),
    (r"mlp\.gate_up_proj", "feed_forward.w_1"),
    (r"mlp\.down_proj", "feed_forward.w_2"),
]


def renamed(name):
    """Return the name that OpenNMT-py gives to a tensor of eole."""
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


class OpenNmtModel:
    """A random model; what is in its ``checkpoint`` can be changed."""

    def __init__(self, **options):
        self.theirs = EoleModel(**options)
        model = self.theirs.config["model"]
        vocabulary = {**self.theirs.vocabulary, "data_task": "seq2seq"}
        tensors = {
            renamed(name): torch.from_numpy(np.array(array))
            for name, array in self.theirs.tensors.items()
            if "layer_scalar" not in name
        }
        opt = {
            **{"encoder_type": "transformer", "decoder_type": "transformer", "model_type": "text"},
            **{"model_task": "seq2seq", "position_encoding": True, "layers": model["layers"]},
            **{"position_encoding_type": self.theirs.positions, "hidden_size": 12, "heads": 3},
            **{"transformer_ff": 7, "norm_eps": model.get("norm_eps", 1e-5), "num_kv": 0},
            "pos_ffn_activation_fn": model.get("mlp_activation_fn", "relu"),
            **{key: True for key in model if key.startswith("share_")},
            **{"_all_transform": {"sentencepiece", "filtertoolong"}, "data": {"one": {}}},
        }
        self.checkpoint: dict[str, Any] = {
            "model": {key: each for key, each in tensors.items() if "generator" not in key},
            "generator": {
                key.removeprefix("generator."): each
                for key, each in tensors.items()
                if "generator" in key
            },
            **{"vocab": vocabulary, "opt": Namespace(**opt), "optim": {"training_step": 1}},
        }

    def write(self, path):
        """Write the checkpoint; return its path."""
        torch.save(self.checkpoint, path)
        return path
