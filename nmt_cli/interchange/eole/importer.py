"""Imports a Transformer of eole, the successor of OpenNMT-py.

Its folder has config.json, vocab.json and the weights in model.00.safetensors and further parts.
Its sources have no mark of the end.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt_cli.corpus.normalization import Side
from nmt_cli.errors import DamagedError, UserError
from nmt_cli.interchange.eole.options import read_configuration
from nmt_cli.interchange.files import CONFIG, NO_FILES, SIDES, TextFiles, read_config, read_parts
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.layers_taken import LayerNames, dotted
from nmt_cli.interchange.opennmt.model import make_model
from nmt_cli.interchange.opennmt.vocabularies import Tokens
from nmt_cli.interchange.opennmt.weights import Names, attention_names
from nmt_cli.interchange.options import refusing
from nmt_cli.interchange.sentencepiece_files import read_models, read_named_models

WEIGHTS, VOCABULARY = "model.00.safetensors", "vocab.json"
PARTS = "model.*.safetensors"
FOLDER = "${MODEL_PATH}/"  # before the names of files in config.json
SPECIALS = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}  # unless vocab.json has others
LISTS = ("src", "tgt")  # in vocab.json
SUBWORD_MODELS: dict[Side, str] = {"source": "src_subword_model", "target": "tgt_subword_model"}


def import_eole(folder: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of ``folder``.

    Raises UserError with all reasons if it is none that can be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_vocabularies("eole")
    for name in (CONFIG, VOCABULARY, WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}; give the folder of a model of eole.")
    config = read_config(folder)
    with refusing(folder):
        configuration = read_configuration(config)
        tensors = read_parts(sorted(folder.glob(PARTS)))
        models = read_named_models(files) or _own_sentencepiece(folder, config)
        return make_model(tensors, NAMES, configuration, _read_vocabularies(folder), models)


def _read_vocabularies(folder: Path) -> Tokens:
    """Return the tokens. Raises ValueError if the model lacks a mark."""
    content = read_config(folder, VOCABULARY)
    source, target = (_texts(folder, content, key) for key in LISTS)
    specials = content.get("specials")
    if not isinstance(specials, dict):
        specials = {}
    unknown, other_start, end = (
        specials.get(f"{key}_token", default) for key, default in SPECIALS.items()
    )
    start = content.get("decoder_start_token", SPECIALS["bos"])
    if other_start is None:  # which only a decoder that starts with the end needs
        other_start = SPECIALS["bos"]
    marks = {"unk_token": unknown, "bos_token": other_start, "eos_token": end}
    marks["decoder_start_token"] = start
    wrong = [key for key, mark in marks.items() if not isinstance(mark, str) or not mark]
    if wrong:
        raise ValueError(f"{VOCABULARY} names no token as {', '.join(wrong)}")
    return Tokens(source, target, unknown, end, start, other_start)


def _texts(folder: Path, content: Mapping[str, Any], key: str) -> list[str]:
    tokens = content.get(key)
    try:
        if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
            raise ValueError("it is not a list")
        "".join(tokens).encode()  # a token may hold half a character
    except ValueError:
        path = folder / VOCABULARY
        raise DamagedError(f"{path} is damaged: {key} is not a list of texts.") from None
    return tokens


def _own_sentencepiece(folder: Path, config: Mapping[str, Any]) -> dict[Side, bytes] | None:
    """Return the SentencePiece models that eole saved in the folder; None if there are none.

    Raises ValueError if the configuration names a file elsewhere.
    """
    transforms = config.get("transforms_configs")
    section = transforms.get("sentencepiece") if isinstance(transforms, dict) else None
    if not isinstance(section, dict) or "sentencepiece" not in _transforms(config):
        return None
    paths: dict[Side, Path] = {}
    for side, key in SUBWORD_MODELS.items():
        value = section.get(key)
        if value is None and paths:
            paths[side] = paths["source"]
            continue
        if not isinstance(value, str) or not value.startswith(FOLDER):
            return None
        name = value.removeprefix(FOLDER)
        if Path(name).name != name:
            raise ValueError(f"its {key} {value!a} is not a file in its folder")
        if not (folder / name).is_file():
            return None
        paths[side] = folder / name
    return read_models(paths)


def _transforms(config: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the names of all steps between text and pieces."""
    corpora = config.get("data")
    sections = [config, *(corpora.values() if isinstance(corpora, dict) else ())]
    for section in sections:
        names = section.get("transforms") if isinstance(section, dict) else None
        yield from names if isinstance(names, list) else ()


def _layer(side: str, number: int) -> LayerNames:
    layer = f"{side}.transformer_layers.{number}"
    return LayerNames(
        attention_names(f"{layer}.self_attn", f"{layer}.input_layernorm"),
        attention_names(f"{layer}.context_attn", f"{layer}.precontext_layernorm")
        if side == "decoder"
        else None,
        dotted(f"{layer}.mlp.gate_up_proj"),
        dotted(f"{layer}.mlp.down_proj"),
        dotted(f"{layer}.post_attention_layernorm"),
        # Only layers without attention to an encoder multiply by this number.
        unused=(f"{layer}.layer_scalar",) if side == "decoder" else (),
    )


_PREFIXES = dict(zip(SIDES, LISTS, strict=True))
NAMES = Names(
    embeddings={side: f"{name}_emb.embeddings.weight" for side, name in _PREFIXES.items()},
    sinusoids={side: f"{name}_emb.pe.pe" for side, name in _PREFIXES.items()},
    learned={side: f"{name}_emb.pe.weight" for side, name in _PREFIXES.items()},
    output=dotted("generator"),
    norms={side: dotted(f"{side}.layer_norm") for side in SIDES},
    layer=_layer,
)
