"""Writes checkpoints and dictionaries as fairseq documents them, with random weights."""

from argparse import Namespace
from collections import defaultdict

import numpy as np
import torch

MARKS = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = {"source": [f"s{n}" for n in range(9)], "target": [f"t{n}" for n in range(7)]}
# What fairseq assumes, with small sizes.
OPTIONS = {
    "arch": "transformer", "_name": "transformer", "activation_fn": "relu",
    "encoder_embed_dim": 12, "decoder_embed_dim": 12, "decoder_output_dim": 12,
    "encoder_ffn_embed_dim": 5, "decoder_ffn_embed_dim": 7,
    "encoder_layers": 2, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 3,
    "encoder_normalize_before": False, "decoder_normalize_before": False,
    "encoder_learned_pos": False, "decoder_learned_pos": False,
    "share_all_embeddings": False, "share_decoder_input_output_embed": False,
    "layernorm_embedding": False, "no_scale_embedding": False,
    "adaptive_softmax_cutoff": None, "encoder_layers_to_keep": None,
}  # fmt: skip
TASK = {"_name": "translation", "source_lang": "aa", "target_lang": "bb"}


def options_with(**changes):
    return {**OPTIONS, **changes}


def positions(count, d_model):
    """The sines of all frequencies, then the cosines; the first token is at position 2."""
    half = d_model // 2
    rates = np.exp(np.arange(half) * -(np.log(10_000) / (half - 1)))
    angles = np.arange(2, 2 + count)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def random_tensors(options, sizes):
    """Return the tensors of a model; ``sizes`` are the rows of the embeddings of each side."""
    draw, d = torch.Generator().manual_seed(5), options["encoder_embed_dim"]
    shapes: dict[str, tuple[int, ...]] = {}
    for side, size in zip(("encoder", "decoder"), sizes, strict=True):
        shapes |= _shapes_of_side(side, size, options)
    shapes["decoder.output_projection.weight"] = (sizes[1], d)
    found = {name: torch.randn(*shape, generator=draw) * 0.4 for name, shape in shapes.items()}
    for side in ("encoder", "decoder"):
        found[f"{side}.version"] = torch.tensor([3.0])
    if options["share_all_embeddings"]:
        found["encoder.embed_tokens.weight"] = found["decoder.embed_tokens.weight"]
    if options["share_all_embeddings"] or options["share_decoder_input_output_embed"]:
        found["decoder.output_projection.weight"] = found["decoder.embed_tokens.weight"]
    return found


def _shapes_of_side(side, size, options):
    d, d_ff = options["encoder_embed_dim"], options[f"{side}_ffn_embed_dim"]
    shapes: dict[str, tuple[int, ...]] = {f"{side}.embed_tokens.weight": (size, d)}
    if options[f"{side}_learned_pos"]:
        shapes[f"{side}.embed_positions.weight"] = (22, d)
    linears: dict[str, tuple[int, ...]] = {}
    norms = []
    if options["layernorm_embedding"]:
        norms.append(f"{side}.layernorm_embedding")
    if options[f"{side}_normalize_before"]:
        norms.append(f"{side}.layer_norm")
    for number in range(options[f"{side}_layers"]):
        layer = f"{side}.layers.{number}"
        for attention in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
            for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
                linears[f"{layer}.{attention}.{part}"] = (d, d)
            norms.append(f"{layer}.{attention}_layer_norm")
        linears |= {f"{layer}.fc1": (d_ff, d), f"{layer}.fc2": (d, d_ff)}
        norms.append(f"{layer}.final_layer_norm")
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (d,), f"{name}.bias": (d,)}
    return shapes


def write_dictionary(path, words):
    path.write_text("".join(f"{word} {9 - place}\n" for place, word in enumerate(words)))


def write_model(folder, *, options=OPTIONS, task=TASK, tensors=None, words=WORDS):
    """Write a checkpoint and its dictionaries; return the checkpoint and the tensors."""
    if options["share_all_embeddings"]:
        words = dict.fromkeys(words, words["target"])
    if tensors is None:
        tensors = random_tensors(options, [len(MARKS) + len(words[side]) for side in words])
    folder.mkdir(exist_ok=True)
    for language, side in zip(("aa", "bb"), words, strict=True):
        write_dictionary(folder / f"dict.{language}.txt", words[side])
    cfg = {"_name": None, "model": Namespace(**options), "task": task}
    path = folder / "checkpoint.pt"
    figures = {"best": np.float64(1.5), "counts": defaultdict(list, {"loss": [np.float32(2)]})}
    state = {"state": {0: {"step": 3, "exp_avg": torch.ones(2, 3)}}}
    content = {"args": None, "cfg": cfg, "model": tensors}
    torch.save({**content, "extra_state": figures, "last_optimizer_state": state}, path)
    return path, tensors
