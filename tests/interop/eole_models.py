"""Makes small random models with eole, and its log-probabilities of given translations.

    python eole_models.py OUTPUT

runs in an environment with eole. The tables of sinusoids, which eole computes anew if a file lacks
them, are left out: each has 5,000 rows.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from eole.config.inference import InferenceConfig  # type: ignore[import-not-found, unused-ignore]
from eole.config.run import TrainConfig  # type: ignore[import-not-found, unused-ignore]
from eole.inputters.inputter import (  # type: ignore[import-not-found, unused-ignore]
    build_vocab,
)
from eole.inputters.text_utils import (  # type: ignore[import-not-found, unused-ignore]
    Numericalizer,
)
from eole.models.model import get_model_class  # type: ignore[import-not-found, unused-ignore]
from eole.models.model_saver import (  # type: ignore[import-not-found, unused-ignore]
    TrainingModelSaver,
)

SOURCE, TARGET = (
    [f"s{number}" for number in range(9)],
    [f"t{number}" for number in range(14)],
)
PAIRS = [("s1 s2 s8 s0", "t3 t3 t10"), ("s7", "t0 t1 t2 t4 t5"), ("s5 never s6", "t7")]
SHARED_PAIRS = [("s1 s2 s8 s0", "s3 s3 s6"), ("s7", "s0 s1 s2 s4 s5"), ("s5 never s6", "s7")]
# The options of the section model, and of what has to do with text.
MODELS: dict[str, dict[str, Any]] = {
    "separate": {
        "model": {
            **{"mlp_activation_fn": "gelu", "norm_eps": 1e-3},
            **{"add_qkvbias": True, "add_final_linear_bias": True, "add_ffnbias": True},
            "encoder": {"encoder_type": "transformer", "layers": 1, "heads": 4},
            "decoder": {"decoder_type": "transformer", "layers": 2, "transformer_ff": 7},
        },
    },
    "shared": {
        "model": {
            **{"share_embeddings": True, "share_decoder_embeddings": True},
            **{"generator_bias": False, "mlp_activation_fn": "silu"},
        },
        "positions": {"position_encoding_type": "SinusoidalConcat"},
        "text": {"share_vocab": True, "decoder_start_token": "</s>"},
        "half": torch.float16,
    },
    "learned": {
        "model": {
            **{"mlp_activation_fn": "gelu-tanh", "share_decoder_embeddings": True},
            **{"head_dim": 5, "add_ffnbias": True},
        },
        "positions": {"position_encoding_type": "Learned", "n_positions": 20, "position_shift": 2},
        "half": torch.bfloat16,
    },
}


def make(name: str, options: dict[str, Any], output: Path) -> None:
    """Write a folder and ``scores.json`` into it."""
    torch.manual_seed(7)
    config = TrainConfig(
        **{"seed": 3, "src_vocab": "source.txt", "tgt_vocab": "target.txt", "save_data": "data"},
        data={"corpus_1": {"path_src": "train.source", "path_tgt": "train.target"}},
        training={"model_path": "saved", "compute_dtype": "fp32", "world_size": 1, "gpu_ranks": []},
        model={
            **{"architecture": "transformer", "hidden_size": 12, "layers": 1, "heads": 3},
            "transformer_ff": 10,
            **options["model"],
            "embeddings": {
                **{"word_vec_size": 12, "position_encoding": True},
                **options.get("positions", {}),
            },
        },
        **options.get("text", {}),
    )
    vocabularies = build_vocab(config, {"src": [], "tgt": []})
    model = get_model_class(config.model).for_training(
        config.model, vocabularies, config.training, device_id=None
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=0.3 if parameter.ndim == 1 else 0.0, std=0.4)
    model.to(options.get("half", torch.float32))
    saver = TrainingModelSaver(
        "saved", model, config, vocabularies, torch.optim.Adam(model.parameters()),
        keep_checkpoint=-1, save_format="safetensors",
    )  # fmt: skip
    saver.save(1)
    shutil.copytree("saved/step_1", output / name)
    shutil.rmtree("saved")
    (output / name / "optimizer.pt").unlink()
    path = output / name / "model.00.safetensors"
    tensors = safetensors.torch.load_file(path)
    kept = {key: each for key, each in tensors.items() if not key.endswith(".pe.pe")}
    safetensors.torch.save_file(kept, path)
    pairs = SHARED_PAIRS if options.get("text", {}).get("share_vocab") else PAIRS
    found = scores(output / name, pairs)
    (output / name / "scores.json").write_text(json.dumps(found, indent=1) + "\n")


@torch.no_grad()
def scores(folder: Path, pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the log-probabilities of each target's pieces and its end, from the saved model."""
    running = InferenceConfig(
        model_path=str(folder), compute_dtype="fp32", self_attn_backend="pytorch"
    )
    config = json.loads((folder / "config.json").read_text())["model"]
    kind = get_model_class(TrainConfig(**{"model": config, "data": {}, "src_vocab": "x"}).model)
    model, vocabularies, _ = kind.for_inference(running, device_id=-1)
    model.eval().float()
    numbers = Numericalizer(vocabularies)
    found = []
    for source, target in pairs:
        example = numbers({"src": {"src": source.split()}, "tgt": {"tgt": target.split()}})
        read, written = (torch.tensor([example[side][f"{side}_ids"]]) for side in ("src", "tgt"))
        result = model.compute_log_probs(read, written, torch.tensor([read.shape[1]]))
        values = result["token_log_probs"][0].tolist()
        found.append({"source": source, "target": target, "scores": values})
    return found


if __name__ == "__main__":
    here = Path(sys.argv[1]).resolve()
    here.mkdir(parents=True, exist_ok=True)
    os.chdir(here)
    for file, words in (("source.txt", SOURCE), ("target.txt", TARGET)):
        Path(file).write_text("".join(f"{word}\n" for word in words))
    for file in ("train.source", "train.target"):
        Path(file).write_text("\n")
    for model_name, model_options in MODELS.items():
        make(model_name, model_options, here)
    for file in ("source.txt", "target.txt", "train.source", "train.target"):
        Path(file).unlink()
