"""Trains tiny models with fairseq, and writes its log-probabilities of given translations.

    python fairseq_models.py OUTPUT

runs in an environment with fairseq. Four steps of training with a large rate leave no bias and no
norm as it starts.
"""

import json
import os
import random
import shutil
import sys
from functools import partial
from pathlib import Path

import torch

# fairseq reads its own checkpoints with the default of torch before 2.6.
torch.load = partial(torch.load, weights_only=False)

from fairseq import checkpoint_utils  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
from fairseq_cli import (  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
    preprocess,
    train,
)

CHECKPOINT = "checkpoint_last.pt"
PIECES = ["ka@@", "mo", "re@@", "ti", "su", "na@@", "lo", "ve"]
PAIRS = [("ka@@ mo su", "SU MO KA@@"), ("lo", "TI"), ("never ti ti re@@ lo", "LO RE@@ never TI"),
         ("ve", "VE KA@@ RE@@"), ("su " * 12, "VE SU " * 7)]  # fmt: skip
SIZES = {"embed-dim": 12, "ffn-embed-dim": 10, "layers": 1, "attention-heads": 2}
MODELS = {
    "post": ["--arch", "transformer_iwslt_de_en", "--encoder-layers", "2",
             "--decoder-attention-heads", "3", "--decoder-ffn-embed-dim", "14"],
    "pre": ["--arch", "transformer_wmt_en_de_big_t2t", "--share-all-embeddings",
            "--activation-fn", "gelu_accurate", "--encoder-attention-heads", "3"],
    "learned": ["--arch", "transformer", "--encoder-learned-pos", "--decoder-learned-pos",
                "--max-source-positions", "30", "--max-target-positions", "30",
                "--share-decoder-input-output-embed", "--layernorm-embedding",
                "--no-scale-embedding", "--activation-fn", "gelu"],
}  # fmt: skip
NORMS = {"encoder": ["self_attn", "final"], "decoder": ["self_attn", "encoder_attn", "final"]}


def run(program, name, *arguments):
    sys.argv = [name, *map(str, arguments)]
    program.cli_main()


def write_text():
    draw = random.Random(3)
    for split, count in (("train", 60), ("valid", 8)):
        lines = [draw.choices(PIECES, k=draw.randint(2, 6)) for _ in range(count)]
        for language, change in (("aa", str.lower), ("bb", str.upper)):
            text = "".join(f"{change(' '.join(line))}\n" for line in lines)
            Path(f"text/{split}.{language}").write_text(text)


def make(name, options):
    """Make the model in a folder of this name, and its vocabularies beside it."""
    joined = ["--joined-dictionary"] if "--share-all-embeddings" in options else []
    run(preprocess, "preprocess", "-s", "aa", "-t", "bb", "--trainpref", "text/train",
        "--validpref", "text/valid", "--destdir", "data", *joined)  # fmt: skip
    sizes = [
        part
        for side in NORMS
        for key, value in SIZES.items()
        for part in (f"--{side}-{key}", value)
    ]
    run(train, "train", "data", "-s", "aa", "-t", "bb", *sizes, *options, "--optimizer", "adam",
        "--lr", 0.05, "--max-tokens", 200, "--max-update", 4, "--save-dir", name, "--cpu",
        "--num-workers", 0, "--no-epoch-checkpoints", "--plasma-path", "plasma",
        "--no-save-optimizer-state")  # fmt: skip
    for path in Path("data").glob("dict.*"):
        shutil.copy(path, name)
    Path(name, "checkpoint_best.pt").unlink(missing_ok=True)
    shutil.rmtree("data")


def in_half_precision(content):
    content["model"] = {key: each.half() for key, each in content["model"].items()}


def as_old(content):
    """Give a checkpoint the form that it had in the first versions of fairseq."""
    content["args"] = content.pop("cfg")["model"]
    del content["args"]._name
    tensors = content["model"]
    for name in [each for each in tensors if ".version" in each or "k_proj" in each]:
        if "k_proj" not in name:
            del tensors[name]
            continue
        parts = [tensors.pop(name.replace("k_proj", f"{letter}_proj")) for letter in "qkv"]
        tensors[name.replace("k_proj.", "in_proj_")] = torch.cat(parts)
    for name in [each for each in tensors if "layer_norm" in each]:
        _, _, part = name.partition(".layers.")
        number, norm, kind = part.split(".")
        place = NORMS[name[:7]].index(norm.removesuffix("_layer_norm"))
        tensors[f"{name[:7]}.layers.{number}.layer_norms.{place}.{kind}"] = tensors.pop(name)
    tensors["decoder.embed_out"] = tensors.pop("decoder.output_projection.weight")
    for side in NORMS:
        tensors[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)


def copied(name, new, change):
    shutil.copytree(name, new)
    path = Path(new, CHECKPOINT)
    content = torch.load(path)
    change(content)
    torch.save(content, path)


@torch.no_grad()
def scores_of(folder):
    """Return the log-probabilities of the pieces of each translation and its end."""
    paths, data = [str(folder / CHECKPOINT)], {"data": str(folder)}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(paths, data)
    model.float().eval()
    found = []
    for source, target in PAIRS:
        ids = task.source_dictionary.encode_line(source, add_if_not_exist=False).long()
        wanted = task.target_dictionary.encode_line(target, add_if_not_exist=False).long()
        read = torch.cat((wanted[-1:], wanted[:-1]))  # the end is also the start
        output = model(ids[None], torch.tensor([len(ids)]), read[None])
        rows = model.get_normalized_probs(output, log_probs=True)[0]
        scores = rows.gather(1, wanted[:, None]).squeeze(1).tolist()
        found.append({"source": source, "target": target, "scores": scores})
    return found


if __name__ == "__main__":
    output = Path(sys.argv[1])
    output.mkdir(parents=True)
    os.chdir(output)
    Path("text").mkdir()
    write_text()
    for name, options in MODELS.items():
        make(name, options)
    copied("pre", "half", in_half_precision)
    copied("post", "old", as_old)
    shutil.rmtree("text")
    shutil.rmtree("pre")
    for folder in sorted(Path().iterdir()):
        content = json.dumps(scores_of(folder), indent=1)
        (folder / "scores.json").write_text(f"{content}\n")
