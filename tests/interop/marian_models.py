"""Makes random models with Marian itself, and writes its scores of given translations.

python -m tests.interop.marian_models PYTHON FOLDER

PYTHON is the interpreter of an environment in which pymarian is installed; FOLDER gets a folder for
each model.
"""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import sentencepiece

VERSION = "1.12.42"
COMMON = "--after-batches 4 --learn-rate 0.1 --mini-batch 8 --cpu-threads 1 --workspace 99 --seed 5"
SIZES = "--dim-emb 8 --transformer-heads 2 --transformer-dim-ffn 12 --dec-depth 1"
EIGHT_BITS = "student-8-bit"
# Marian transposes only matrices whose sizes are multiples of 16 when it writes integers.
SIZES_OF_EIGHT_BITS = SIZES.replace("emb 8", "emb 16").replace("ffn 12", "ffn 32")
MODELS = {
    "separate": "--vocabs source.yml target.yml --enc-depth 2 --tied-embeddings",
    "shared": "--vocabs both.yml both.yml --enc-depth 1 --tied-embeddings-all "
    "--transformer-ffn-activation relu --transformer-decoder-dim-ffn 10 "
    "--transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n "
    "--transformer-postprocess-emb dn",
    "sentencepiece": "--vocabs both.spm both.spm --enc-depth 1 --tied-embeddings-src "
    "--transformer-ffn-activation gelu",
    "student": "--vocabs source.yml target.yml --enc-depth 2 --tied-embeddings "
    "--transformer-decoder-autoreg rnn --dec-cell ssru",
    EIGHT_BITS: "--vocabs source.yml target.yml --enc-depth 1 --tied-embeddings "
    "--transformer-decoder-autoreg rnn --dec-cell ssru",
}
# Pieces that YAML may take for something else than words.
SOURCE_WORDS = ["yes", "~", "-", "#", '"', "'", ":", "&a", "*a", "\u00e9t\u00e9", "0x1F", "null"]
TARGET_WORDS = [
    "on",
    "?",
    "[",
    "{",
    "!",
    "|",
    "1e3",
    "...",
    "a:",
    "\u4e2d\u6587",
    "12",
    "<<",
    "a'b",
]


def read_scores(folder: Path) -> tuple[list[tuple[str, str]], list[list[float]]]:
    """Return the pairs of lines beside a model, and Marian's scores of their target tokens."""
    source, target = (
        (folder / f"{name}.txt").read_text().splitlines() for name in ("source", "target")
    )
    expected = json.loads((folder / "scores.json").read_text())
    assert len(expected) == len(source) == 10
    return list(zip(source, target, strict=True)), expected


def make_models(python: Path, folder: Path) -> None:
    """Make all models; ``python`` has pymarian."""
    for name, options in MODELS.items():
        target = folder / name
        target.mkdir(parents=True)
        _write_texts(target, are_words="spm" not in options)
        sizes = SIZES_OF_EIGHT_BITS if name == EIGHT_BITS else SIZES
        _run(python, "train", target, f"--type transformer {COMMON} {sizes} {options}",
             "--train-sets", "source.txt", "target.txt", "--model", "model.npz")  # fmt: skip
        if "spm" in options:
            _make_norms_small(target / "model.npz")
        for unused in ("npz.optimizer.npz", "npz.progress.yml", "npz.yml"):
            (target / f"model.{unused}").unlink()
        if name == EIGHT_BITS:
            _run(python, "convert", target, "-f model.npz -t model.bin --gemm-type intgemm8")
            _round_matrices(target / "model.npz")
            (target / "model.npz.decoder.yml").rename(target / "decoder.yml")
        _write_scores(python, target, options.split()[1:3])
        if name == EIGHT_BITS:
            (target / "model.npz").unlink()


def _write_texts(folder: Path, *, are_words: bool) -> None:
    draws = random.Random(3)
    texts = []
    for words in (SOURCE_WORDS, TARGET_WORDS):
        if not are_words:
            words = ["the", "cat", "a", "dog", "and", "mat", "on", "sat"]
        lines = [" ".join(draws.choices(words, k=draws.randint(1, 7))) for _ in range(40)]
        texts.append("".join(f"{line}\n" for line in lines))
    for name, text in zip(("source", "target"), texts, strict=True):
        (folder / f"{name}.txt").write_text(text)
    if not are_words:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter("".join(texts).splitlines()),
            model_prefix=str(folder / "both"), model_type="bpe", vocab_size=28,
            normalization_rule_name="identity",  # the default one takes 240 kB
            bos_id=-1, eos_id=0, unk_id=1, minloglevel=2,
        )  # fmt: skip
        (folder / "both.model").rename(folder / "both.spm")
        (folder / "both.vocab").unlink()


def _make_norms_small(path: Path) -> None:
    """Make the variances that later norms divide by so small that their epsilon counts."""
    with np.load(path) as file:
        tensors = dict(file)
    for name in tensors:
        if name.endswith(("self_Wo_ln_scale", "_context_Wv", "_ffn_W2")):
            tensors[name] *= np.float32(1e-3)
        if name.endswith(("self_Wo_ln_bias", "_context_bv", "_context_bo", "_ffn_b2")):
            tensors[name] *= np.float32(0)
    np.savez(path, **tensors)


def _round_matrices(path: Path) -> None:
    """Round the matrices of layers to 255 values, as the conversion does."""
    with np.load(path) as file:
        tensors = dict(file)
    for name, array in tensors.items():
        if re.search("_W.?$", name):
            step = np.abs(array).max() / np.float32(127)
            tensors[name] = np.rint(array / step) * step
    np.savez(path, **tensors)


def _write_scores(python: Path, folder: Path, vocabularies: list[str]) -> None:
    """Keep ten pairs, and write the log-probability of each piece of their targets."""
    for name in ("source.txt", "target.txt"):
        lines = (folder / name).read_text().splitlines(keepends=True)[:10]
        (folder / name).write_text("".join(lines))
    output = _run(
        python, "score", folder, "--word-scores --cpu-threads 1 --workspace 100 --quiet",
        "--model", "model.npz", "--vocabs", *vocabularies,
        "--train-sets", "source.txt", "target.txt",
    )  # fmt: skip
    scores = [
        [float(score) for score in line.partition("WordScores=")[2].split()]
        for line in output.splitlines()
    ]
    text = ",\n".join(json.dumps(each) for each in scores)
    (folder / "scores.json").write_text(f"[\n{text}\n]\n")


def _run(python: Path, command: str, folder: Path, options: str, *more: str) -> str:
    arguments = [str(python), "-m", "pymarian", command, *options.split(), *more]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    make_models(Path(sys.argv[1]).absolute(), Path(sys.argv[2]))
