"""Writes a model as a folder that Hugging Face's transformers loads, and verifies it there.

Its classes have the sines of all frequencies before the cosines, where the paper has them in turn,
so every axis of d_model is permuted. Their attention has biases; ours may have none, so they are
zero. A decoder that starts with zeros reads one more piece, ``<pad>``, whose vector is zero and
whose logit is so low that it never has a probability. Their heads are d_model / num_heads wide;
narrower ones get zeros, and queries a factor, because the scale of the scores depends on the width.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch

from nmt_cli.files import file_names
from nmt_cli.interchange import exported_model as exports
from nmt_cli.interchange.exported_model import ExportedModel, TensorsMade
from nmt_cli.interchange.files import SIDES, Weights
from nmt_cli.interchange.tensor_names import names_of_stack, sines_first
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import importing
from nmt_cli.recipe.model_values import ModelShape

if TYPE_CHECKING:
    from nmt_cli.saved.model_directory import LoadedModel

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
QUANTIZATIONS = tuple(DTYPES)
# The names of transformers for our activations.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "swish": "silu"}
EPSILON = 1e-5  # of the norms of all classes
CLASSES = {"marian": "MarianMTModel", "pegasus": "PegasusForConditionalGeneration"}


def reasons_against(model: ExportedModel) -> Iterator[str]:
    """Yield the reasons why no class of transformers computes what the model computes."""
    ours = model.settings.architecture
    yield from exports.keys_not_exported(ours)
    positions = (ours.positions, ours.sinusoid_frequencies, ours.first_position)
    own = ours.source_vocabulary_size is not None
    codes = [piece for piece in model.pieces if piece.startswith(">>") and piece.endswith("<<")]
    if is_marian(model) and positions != ("sinusoidal", "paper", 0):
        yield "no class has post-norm and other positions than the paper's"
    if ours.norm_epsilon != EPSILON:
        yield f"norm_epsilon {ours.norm_epsilon:g} is not {EPSILON:g}"
    if ours.embedding_norm:
        yield "no class has embedding_norm"
    if own and has_pad(model):
        yield "no class has both decoder_start zeros and a vocabulary of the source's own"
    yield from _heads_without_a_class(ours)
    if own and not (is_marian(model) and model.has_two_spms):
        yield "a vocabulary of the source's own needs post-norm and two SentencePiece models"
    if not ours.source_eos:
        yield "its tokenizer would add </s> to the source"
    if model.settings.text.type != "sentencepiece":
        yield "no tokenizer reads text that is in pieces already"
    if codes and not model.has_two_spms:
        yield f"its tokenizer would cut language codes such as {codes[0]} off the text"


def _heads_without_a_class(ours: ModelShape) -> Iterator[str]:
    for shape in dict.fromkeys((ours.encoder_shape, ours.decoder_shape)):
        heads = shape.num_heads
        if ours.d_model % heads:
            yield f"num_heads {heads:,} does not divide d_model {ours.d_model:,}"
        for name, width in {"d_k": shape.key_width, "d_v": shape.value_width}.items():
            if width * heads > ours.d_model:
                yield f"{name} {width:,} is more than d_model / num_heads {heads:,}"


def write_huggingface(model: ExportedModel, folder: Path, quantization: str) -> None:
    """Write weights and settings into ``folder``, which exists; transformers is not needed."""
    dtype = DTYPES[quantization]
    tensors = {
        name: torch.from_numpy(array).to(dtype, copy=True)
        for name, array in huggingface_tensors(model).items()
    }
    with (folder / file_names.WEIGHTS).open("wb") as stream:
        stream.write(safetensors.torch.save(tensors, metadata={"format": "pt"}))
    _write_json(folder / file_names.CONFIG, _config(model, quantization))
    _write_json(folder / "generation_config.json", _generation_config(model))


def write_tokenizer(loaded: LoadedModel, folder: Path) -> None:
    """Write the files that AutoTokenizer loads; its ids are ours."""
    tokenizer, text = loaded.tokenizer, loaded.settings.text
    tokenizer.save(folder)
    pieces = tokenizer.pieces(range(tokenizer.size))
    pad = pieces[tokenizer.bos_id]  # which no text has; masked where it pads
    if loaded.settings.architecture.decoder_start == "zeros":
        pad = "<pad>"  # a new piece, with which the decoder starts
        while pad in pieces:
            pad += "_"
        pieces.append(pad)
    if (folder / file_names.SENTENCEPIECE_MODEL).exists():
        source = folder / file_names.SOURCE_SENTENCEPIECE
        model = (folder / file_names.SENTENCEPIECE_MODEL).rename(source)
        (folder / file_names.TARGET_SENTENCEPIECE).write_bytes(model.read_bytes())
    if tokenizer.source_size is None:
        _write_json(folder / "vocab.json", {piece: number for number, piece in enumerate(pieces)})
    else:
        (folder / file_names.TARGET_PIECES).rename(folder / "target_vocab.json")
        (folder / file_names.SOURCE_PIECES).rename(folder / "vocab.json")
    config = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": text.source_language,
        "target_lang": text.target_language,
        "unk_token": pieces[tokenizer.unk_id],
        "eos_token": pieces[tokenizer.eos_id],
        "pad_token": pad,
        "separate_vocabs": tokenizer.source_size is not None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": loaded.settings.max_length + 1,
    }
    _write_json(folder / "tokenizer_config.json", config)


def longest_output(model: ExportedModel) -> int:
    """Return the number of tokens, with both marks, after which ``generate`` stops."""
    settings = model.settings
    longest = settings.max_length + settings.decoding.max_extra_length + 2
    return min(longest, model.settings.num_positions)


def _config(model: ExportedModel, quantization: str) -> dict[str, Any]:
    architecture = model.settings.architecture
    kind = "marian" if is_marian(model) else "pegasus"
    tied = architecture.tied_embeddings
    sides: dict[str, int] = {}
    for side, shape in architecture.stack_shapes.items():
        sides[f"{side}_layers"] = shape.num_layers
        sides[f"{side}_attention_heads"] = shape.num_heads
        sides[f"{side}_ffn_dim"] = shape.d_ff
    config = {
        "architectures": [CLASSES[kind]],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": len(model.source_pieces) + has_pad(model),
        "d_model": architecture.d_model,
        **sides,
        "activation_function": ACTIVATIONS[architecture.activation],
        "dropout": 0.0,
        "scale_embedding": architecture.scale_embeddings,
        "max_position_embeddings": model.settings.num_positions,
        "tie_word_embeddings": tied == "all" or (tied == "decoder" and kind == "marian"),
        **_marks(model),
        "forced_eos_token_id": None,
        "dtype": quantization,
    }
    if kind == "marian":
        config |= {
            "decoder_vocab_size": len(model.pieces) + has_pad(model),
            "share_encoder_decoder_embeddings": tied == "all",
        }
    else:
        # Converters read these; the class itself has no such options.
        config |= {"normalize_before": True, "normalize_embedding": False}
    return config


def _generation_config(model: ExportedModel) -> dict[str, Any]:
    marks = _marks(model)
    forbidden = {model.start_id, marks["decoder_start_token_id"]} - {model.eos_id}
    return {
        **marks,
        **({"bad_words_ids": [[token] for token in sorted(forbidden)]} if forbidden else {}),
        "num_beams": model.settings.decoding.beam_size,
        "length_penalty": exports.nearest_exponent(model.settings.decoding.length_penalty),
        "max_length": longest_output(model),
        "early_stopping": False,
    }


def _marks(model: ExportedModel) -> dict[str, int]:
    pad, start = model.bos_id, model.start_id
    if has_pad(model):
        pad = start = len(model.pieces)
    return {
        "pad_token_id": pad,
        "bos_token_id": model.bos_id,
        "decoder_start_token_id": start,
        "eos_token_id": model.eos_id,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


USAGE = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForSeq2SeqLM.from_pretrained(".")
outputs = model.generate(**tokenizer(lines, return_tensors="pt", padding=True))
print(*tokenizer.batch_decode(outputs, skip_special_tokens=True), sep="\\n")"""


def card_of_huggingface(model: ExportedModel) -> exports.CardOf:
    """Return the card's parts for a model."""
    text, decoding = model.settings.text, model.settings.decoding
    languages = dict.fromkeys((text.source_language, text.target_language))
    front_matter = [
        "language:",
        *(f'- "{language}"' for language in languages),
        "library_name: transformers",
        "pipeline_tag: translation",
        "tags:",
        "- translation",
    ]
    start, end = model.pieces[model.bos_id], model.pieces[model.eos_id]
    padding = [f"`{start}` is also the padding, which the attention mask hides."]
    differences = [
        f"Outputs end after {longest_output(model):,} tokens; nmt-cli allows "
        f"{decoding.max_extra_length} pieces more than the source has.",
        f"The tokenizer reads `{start}` and `{end}` in a text as marks, and takes what is between "
        "`>>` and `<<` at the start of a line for one piece; nmt-cli reads both as text.",
        *([] if has_pad(model) else padding),
    ]
    return exports.CardOf("Hugging Face transformers", front_matter, USAGE, differences)


class HuggingFaceEngine:
    """An ``Engine`` that loads the exported folder as users do, by the Auto classes.

    Raises UserError if transformers is not installed, or finds other tensors than it needs.
    """

    def __init__(self, folder: Path, model: ExportedModel) -> None:
        otherwise = ", or leave the check out with --verify 0."
        with importing("transformers", "exports to Hugging Face are verified", otherwise):
            import transformers
        transformers.utils.logging.disable_progress_bar()
        self.name = f"transformers {transformers.__version__}"
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True
        )
        self._model: Any
        self._model, found = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            str(folder), local_files_only=True, dtype="auto", output_loading_info=True
        )
        self._model.eval()
        self._start_id, self._eos_id = self._model.config.decoder_start_token_id, model.eos_id
        wrong = sorted(f"{kind}: {names}" for kind, names in found.items() if names)
        if wrong:
            raise UserError(
                f"nothing was written, because {self.name} does not find the tensors that it "
                f"needs in the export ({'; '.join(wrong)})."
            )

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of the pieces of a normalized text, without ``</s>``."""
        ids: list[int] = self._tokenizer(text).input_ids
        return ids[:-1] if ids[-1] == self._eos_id else ids

    @torch.no_grad()
    def token_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Return the log-probability of each token of ``target``, then of ``</s>``."""
        logits = self._model(
            input_ids=torch.tensor([[*source, self._eos_id]]),
            decoder_input_ids=torch.tensor([[self._start_id, *target]]),
        ).logits[0]
        expected = torch.tensor([*target, self._eos_id])
        return logits.float().log_softmax(1).gather(1, expected[:, None]).squeeze(1).tolist()

    @torch.no_grad()
    def greedy(self, source: Sequence[int], longest: int) -> list[int]:
        """Return the greedy output, without ``</s>``: at most ``longest`` tokens."""
        tokens = torch.tensor([[*source, self._eos_id]])
        (output,) = self._model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            num_beams=1,
            do_sample=False,
            max_length=longest + 1,  # with the start mark
        ).tolist()
        found = output[1:]
        return found[: found.index(self._eos_id)] if self._eos_id in found else found


FORMAT = exports.Format(
    "Hugging Face",
    QUANTIZATIONS,
    reasons_against,
    write_huggingface,
    write_tokenizer,
    HuggingFaceEngine,
    card_of_huggingface,
)

NAMES = {side: names_of_stack(side, "model.") for side in SIDES}
SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
EMBEDDINGS = [f"model.{side}.embed_tokens.weight" for side in SIDES]
POSITIONS = [f"model.{side}.embed_positions.weight" for side in SIDES]
NEVER = -1e4  # the logit of <pad>; exp of it is 0


def is_marian(model: ExportedModel) -> bool:
    """Return whether the class is MarianMTModel, which has post-norm; Pegasus has pre-norm."""
    return model.settings.architecture.norm == "post"


def has_pad(model: ExportedModel) -> bool:
    """Return whether the vocabulary has ``<pad>`` behind the pieces of the model."""
    return model.settings.architecture.decoder_start == "zeros"


def huggingface_tensors(model: ExportedModel) -> Weights:
    """Return the tensors of ``model.safetensors``."""
    architecture = model.settings.architecture
    made = TensorsMade(model, sines_first(architecture.d_model), need_biases=True)
    _put_embeddings(made, model)
    bias = made.take_output_bias()
    if has_pad(model):
        bias = np.append(bias, np.float32(NEVER))
    made.found[BIAS] = bias[None]
    for (side, text_side), name in zip(SIDES.items(), POSITIONS, strict=True):
        shape = architecture.stack_shapes[side]
        positions = made.take_positions(text_side)
        if not is_marian(model):  # Marian computes them, and does not save them again
            made.found[name] = made.columns(positions)
        width = architecture.d_model // shape.num_heads
        made.put_stack(side, NAMES[side], width, (width / shape.key_width) ** 0.5)
    return made.made_of_all()


def _put_embeddings(made: TensorsMade, model: ExportedModel) -> None:
    tied = model.settings.architecture.tied_embeddings
    source, target = (made.take(f"{side}_embedding.weight") for side in SIDES.values())
    matrices = [source, target, made.take("output_weight")]
    if has_pad(model):
        matrices = [np.concatenate((matrix, np.zeros_like(matrix[:1]))) for matrix in matrices]
    of_source, of_target, output = map(made.columns, matrices)
    if tied == "all" or not is_marian(model):
        made.found[SHARED] = of_source
    if tied != "all":
        made.found |= dict(zip(EMBEDDINGS, (of_source, of_target), strict=True))
        if tied == "none" or not is_marian(model):
            made.found[OUTPUT] = output
