"""Makes small random models with OpenNMT-py, and its log-probabilities of given translations.

    python opennmt_models.py OUTPUT

runs in an environment with OpenNMT-py: its command trains for one step, and then all weights become
random numbers. The tables of sinusoids, of 5,000 rows each, and the state of the optimizer are left
out of the files.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml
from onmt.inputters.inputter import (  # type: ignore[import-not-found, unused-ignore]
    dict_to_vocabs,
)
from onmt.inputters.text_utils import (  # type: ignore[import-not-found, unused-ignore]
    numericalize,
)
from onmt.model_builder import (  # type: ignore[import-not-found, unused-ignore]
    build_base_model,
)

SOURCE, TARGET = [f"s{number}" for number in range(9)], [f"t{number}" for number in range(14)]
PAIRS = [("s1 s2 s8 s0", "t3 t3 t10"), ("s7", "t0 t1 t2 t4 t5"), ("s5 never s6", "t7")]
SHARED_PAIRS = [("s1 s2 s8 s0", "s3 s3 s6"), ("s7", "s0 s1 s2 s4 s5"), ("s5 never s6", "s7")]
COMMON = {
    **{"src_vocab": "source.txt", "tgt_vocab": "target.txt", "save_model": "saved"},
    "data": {"corpus": {"path_src": "train.source", "path_tgt": "train.target"}},
    **{"train_steps": 1, "save_checkpoint_steps": 1, "batch_size": 2, "batch_type": "sents"},
    **{"bucket_size": 2, "num_workers": 0, "encoder_type": "transformer"},
    **{"decoder_type": "transformer", "position_encoding": True, "hidden_size": 12},
    **{"word_vec_size": 12, "heads": 3, "transformer_ff": 10, "layers": 1},
}
MODELS: dict[str, dict[str, Any]] = {
    "separate": {
        **{"enc_layers": 1, "dec_layers": 2, "layers": -1, "add_qkvbias": True},
        **{"add_ffnbias": True, "pos_ffn_activation_fn": "gelu", "heads": 4},
    },
    "shared": {
        **{"share_vocab": True, "share_embeddings": True, "share_decoder_embeddings": True},
        **{"position_encoding_type": "SinusoidalConcat", "decoder_start_token": "</s>"},
        "norm_eps": 1e-3,
    },
    "half": {"add_ffnbias": True, "save_format": "safetensors"},
}


def make(name: str, options: dict[str, Any], output: Path) -> None:
    """Write ``NAME.pt`` and ``NAME.json``, the scores."""
    Path("config.yaml").write_text(yaml.safe_dump(COMMON | options))
    command = [str(Path(sys.executable).parent / "onmt_train"), "-config", "config.yaml"]
    subprocess.run(command, check=True)
    is_apart = options.get("save_format") == "safetensors"
    checkpoint = torch.load("saved_step_1.pt", weights_only=False)
    checkpoint["optim"] = {}
    vocabularies = dict_to_vocabs(checkpoint["vocab"])
    model = build_base_model(checkpoint["opt"], vocabularies)
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=0.3 if parameter.ndim == 1 else 0.0, std=0.4)
    if name == "half":
        model.half()
    tensors = {key: each for key, each in model.state_dict().items() if not key.endswith(".pe.pe")}
    if is_apart:
        tensors = {key: each.clone() for key, each in tensors.items()}
        safetensors.torch.save_file(tensors, output / f"{name}.safetensors")
    else:
        checkpoint["model"] = {key: each for key, each in tensors.items() if "generator" not in key}
        checkpoint["generator"] = model.generator.state_dict()
    torch.save(checkpoint, output / f"{name}.pt")
    pairs = SHARED_PAIRS if options.get("share_vocab") else PAIRS
    found = [scores(model.float().eval(), vocabularies, *pair) for pair in pairs]
    (output / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


@torch.no_grad()
def scores(model: Any, vocabularies: Any, source: str, target: str) -> dict[str, Any]:
    """Return the log-probabilities of the target's pieces and its end."""
    for module in model.modules():
        if hasattr(module, "dropout_p"):
            module.dropout_p = 0.0
    example = {"src": {"src": source}, "tgt": {"tgt": target}}
    numbers = numericalize(vocabularies, example)
    read, written = (
        torch.tensor(numbers[side][f"{side}_ids"])[None, :, None] for side in ("src", "tgt")
    )
    rows, _ = model(read, written, torch.tensor([read.shape[1]]))
    wanted = written[0, 1:]
    values = model.generator(rows[0]).log_softmax(1).gather(1, wanted).squeeze(1)
    return {"source": source, "target": target, "scores": values.tolist()}


if __name__ == "__main__":
    here = Path(sys.argv[1]).resolve()
    here.mkdir(parents=True, exist_ok=True)
    os.chdir(here)
    for file, words in (("source.txt", SOURCE), ("target.txt", TARGET)):
        Path(file).write_text("".join(f"{word}\n" for word in words))
        Path(f"train.{file.removesuffix('.txt')}").write_text(f"{' '.join(words[:5])}\n" * 2)
    for model_name, model_options in MODELS.items():
        make(model_name, model_options, here)
    for file in ("source.txt", "target.txt", "train.source", "train.target", "config.yaml"):
        Path(file).unlink()
    for path in here.glob("saved_step_1*"):
        path.unlink()
