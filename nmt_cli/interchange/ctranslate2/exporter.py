"""Writes a model as a folder that CTranslate2 loads, and verifies it there.

Its matrices are [out, in] as ours are. Q, K and V of self-attention are one matrix, as are K and V
of the attention to the encoder's output.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import TAG
from nmt_cli.files.file_names import (
    EXPORTED_SENTENCEPIECE,
    SENTENCEPIECE_MODEL,
    SOURCE_SENTENCEPIECE,
    TARGET_SENTENCEPIECE,
)
from nmt_cli.interchange import exported_model as exports
from nmt_cli.interchange.ctranslate2.files import read_vocabulary
from nmt_cli.interchange.exported_model import ExportedModel, TensorsMade
from nmt_cli.interchange.files import SIDES, Weights
from nmt_cli.interchange.tensor_names import Pair, StackNames, parts_of_layer
from nmt_cli.messages.extras import importing
from nmt_cli.recipe.model_values import StackShape

if TYPE_CHECKING:
    from nmt_cli.saved.model_directory import LoadedModel

NO_LIMIT = 0


def _names_of_stack(side: str) -> StackNames:
    def attention(name: str, num_inputs: int) -> list[str]:
        linears = [f"{name}/linear_{number}/{{}}" for number in range(num_inputs + 1)]
        return [*linears, f"{name}/layer_norm/{{}}"]

    def norm(name: str) -> Pair:
        return Pair(f"{side}/{name}/gamma", f"{side}/{name}/beta")

    memory = attention("attention", 2) if side == "decoder" else []
    feed_forward = "ffn/linear_0/{}", "ffn/linear_1/{}", "ffn/layer_norm/{}"
    return StackNames(
        f"{side}/layer_{{}}/",
        parts_of_layer(attention("self_attention", 1), memory, *feed_forward),
        last_norm=norm("layer_norm"),
        embedding_norm=norm("layernorm_embedding"),
        norm=Pair("gamma", "beta"),
    )


OUTPUT = Pair("decoder/projection/weight", "decoder/projection/bias")
NAMES = {side: _names_of_stack(side) for side in SIDES}


def head_width(shape: StackShape, d_model: int) -> int | None:
    """Return the width of a head if it is not d_model / num_heads, which is the default.

    CTranslate2's keys are as wide as its values, so the narrower ones get zeros.
    """
    width = max(shape.key_width, shape.value_width)
    return width if width * shape.num_heads != d_model else None


def ctranslate2_variables(model: ExportedModel) -> Weights:
    """Return the variables; equal ones are not merged."""
    architecture = model.settings.architecture
    made = TensorsMade(model, need_biases=False)
    for side, text_side in SIDES.items():
        shape = architecture.stack_shapes[side]
        embeddings = "encoder/embeddings_0" if side == "encoder" else "decoder/embeddings"
        made.found[f"{embeddings}/weight"] = made.take(f"{text_side}_embedding.weight")
        made.found[f"{side}/position_encodings/encodings"] = made.take_positions(text_side)
        width = max(shape.key_width, shape.value_width)
        made.put_stack(side, NAMES[side], width)
        if head_width(shape, architecture.d_model) is None and shape.key_width == width:
            continue
        for number in range(shape.num_layers):
            for name in ("self_attention", "attention")[: 1 if side == "encoder" else 2]:
                scale = np.array(np.float32(shape.key_width**-0.5))
                made.found[f"{side}/layer_{number}/{name}/queries_scale"] = scale
    made.found[OUTPUT.weight] = made.take("output_weight")
    if architecture.output_bias:
        made.found[OUTPUT.bias] = made.take_output_bias()
    return made.made_of_all()


QUANTIZATIONS = (
    *("float32", "float16", "bfloat16"),
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"),
)
# The names of CTranslate2 for our activations.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH"}


def write_ctranslate2(model: ExportedModel, folder: Path, quantization: str) -> None:
    """Write the model and its vocabulary into ``folder``, which exists.

    Raises UserError if ctranslate2 is not installed.
    """
    with importing("ctranslate2", "models are exported to CTranslate2"):
        from ctranslate2.specs import common_spec, model_spec, transformer_spec
    architecture = model.settings.architecture
    specs = (
        kind(
            shape.num_layers,
            shape.num_heads,
            pre_norm=architecture.norm == "pre",
            activation=common_spec.Activation[ACTIVATIONS[architecture.activation]],
            layernorm_embedding=architecture.embedding_norm,
            head_dim=head_width(shape, architecture.d_model),
        )
        for kind, shape in (
            (transformer_spec.TransformerEncoderSpec, architecture.encoder_shape),
            (transformer_spec.TransformerDecoderSpec, architecture.decoder_shape),
        )
    )
    spec: Any = transformer_spec.TransformerSpec(*specs)
    for name, array in ctranslate2_variables(model).items():
        scope, _, attribute = name.rpartition("/")
        # A copy, because quantization may overwrite it.
        setattr(model_spec.index_spec(spec, scope), attribute, np.array(array, order="C"))
    for side in SIDES:
        getattr(spec, side).scale_embeddings = architecture.scale_embeddings
    spec.decoder.start_from_zero_embedding = architecture.decoder_start == "zeros"
    vocabulary = vocabulary_of(model.pieces)
    spec.register_source_vocabulary(vocabulary_of(model.source_pieces))
    spec.register_target_vocabulary(vocabulary)
    spec.config.unk_token = vocabulary[model.unk_id]
    spec.config.bos_token = vocabulary[model.bos_id]
    spec.config.decoder_start_token = vocabulary[model.start_id]
    spec.config.eos_token = vocabulary[model.eos_id]
    spec.config.add_source_eos = architecture.source_eos
    spec.config.layer_norm_epsilon = architecture.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def write_tokenizer(loaded: LoadedModel, folder: Path) -> None:
    """Write the files of the tokenizer.

    A SentencePiece model gets the name that users of CTranslate2 expect. The vocabulary that
    CTranslate2 reads is written with the model.
    """
    loaded.tokenizer.save(folder)
    if (folder / SENTENCEPIECE_MODEL).exists():
        (folder / SENTENCEPIECE_MODEL).rename(folder / EXPORTED_SENTENCEPIECE)


def vocabulary_of(pieces: Sequence[str]) -> list[str]:
    """Return ``pieces`` with another spelling for the later ones of equal pieces.

    A text that is in pieces may contain ``</s>`` as a word, which is not the end of a sentence;
    CTranslate2 finds pieces by their spelling only.
    """
    taken, vocabulary = set(pieces), []
    used: set[str] = set()
    for piece in pieces:
        name, number = piece, 1
        while name in used or (number > 1 and name in taken):
            number += 1
            name = f"{piece}_{number}"
        used.add(name)
        vocabulary.append(name)
    return vocabulary


def renamed_pieces(pieces: Sequence[str]) -> dict[str, str]:
    """Return the pieces of a text that ``vocabulary_of`` spells otherwise, with that spelling."""
    pairs = zip(pieces, vocabulary_of(pieces), strict=True)
    return {piece: name for piece, name in pairs if piece != name}


WITH_SENTENCEPIECE = f"""\
import sentencepiece

text = sentencepiece.SentencePieceProcessor(model_file="{EXPORTED_SENTENCEPIECE}")
pieces = [text.encode(line, out_type=str) for line in lines]"""
WITH_TWO_MODELS = f"""\
import sentencepiece

source, text = (
    sentencepiece.SentencePieceProcessor(model_file=name)
    for name in ("{SOURCE_SENTENCEPIECE}", "{TARGET_SENTENCEPIECE}")
)
pieces = [source.encode(line, out_type=str) for line in lines]"""
WITH_SPACES = """\
pieces = [line.split() for line in lines]"""
JOINED = {
    "sentencepiece": "[text.decode(result.hypotheses[0]) for result in results]",
    "whitespace": '[" ".join(result.hypotheses[0]) for result in results]',
}


def card_of_ctranslate2(model: ExportedModel) -> exports.CardOf:
    """Return the card's parts for a model."""
    settings = model.settings
    kind = settings.text.type
    start = model.pieces[model.start_id]
    never = f'\n    suppress_sequences=[["{start}"]],' if model.start_id != model.eos_id else ""
    cutting = WITH_SENTENCEPIECE if kind == "sentencepiece" else WITH_SPACES
    if model.has_two_spms:
        cutting = WITH_TWO_MODELS
    usage = f"""\
import ctranslate2
{cutting}

translator = ctranslate2.Translator(".")
results = translator.translate_batch(
    pieces,
    beam_size={settings.decoding.beam_size},
    length_penalty={exports.nearest_exponent(settings.decoding.length_penalty):g},
    max_decoding_length={settings.decoding.max_extra_length + 100},{never}
)
print(*{JOINED[kind]}, sep="\\n")"""
    differences = [
        "The length in the penalty does not count `</s>`.",
        "The longest output is a number of pieces, whatever the source; nmt-cli allows "
        f"{settings.decoding.max_extra_length} pieces more than the source has.",
        "Sources of more than 1,024 pieces are cut (`max_input_length`), and the search ends when "
        "as many translations as the beam has have ended.",
        f"No sentence may have more than {model.settings.num_positions - 1:,} pieces.",
    ]
    differences += [
        f"The word `{piece}` of the text is the piece `{name}`."
        for piece, name in renamed_pieces(model.source_pieces).items()
    ]
    if model.has_two_spms:
        differences.append(
            "A tag such as `>>deu<<` in front of a source is one piece: cut the text behind it."
        )
    return exports.CardOf("CTranslate2", (), usage, differences)


class CTranslate2Engine:
    """An ``Engine`` that reads everything from the exported folder.

    Raises UserError if ctranslate2 is not installed.
    """

    def __init__(self, folder: Path, model: ExportedModel) -> None:
        with importing("ctranslate2", "exports to CTranslate2 are verified"):
            import ctranslate2
        # No warning where this CPU computes in another type than the weights have: ``name`` has it.
        ctranslate2.set_log_level(logging.ERROR)
        self._translator: Any = ctranslate2.Translator(
            str(folder), device="cpu", inter_threads=1, intra_threads=torch.get_num_threads()
        )
        computed_in = self._translator.compute_type
        self.name = f"ctranslate2 {ctranslate2.__version__} in {computed_in}"
        self._source_pieces, self._target_pieces = (
            read_vocabulary(folder, side) or read_vocabulary(folder, "shared") or []
            for side in SIDES.values()
        )
        self._source_ids, self._target_ids = (
            {piece: number for number, piece in enumerate(pieces)}
            for pieces in (self._source_pieces, self._target_pieces)
        )
        self._model = model
        self._split = _splitter(folder, model)

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of the pieces of a normalized text, cut by what is in the folder."""
        return [self._source_ids.get(piece, self._model.unk_id) for piece in self._split(text)]

    def token_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Return the log-probability of each token of ``target``, then of ``</s>``."""
        (result,) = self._translator.score_batch(
            [[self._source_pieces[token] for token in source]],
            [[self._target_pieces[token] for token in target]],
            max_input_length=NO_LIMIT,
        )
        return list(result.log_probs)

    def greedy(self, source: Sequence[int], longest: int) -> list[int]:
        """Return the tokens that follow each other with the highest probability."""
        never = [[self._target_pieces[self._model.start_id]]]
        if self._model.start_id == self._model.eos_id:
            never = []
        (result,) = self._translator.translate_batch(
            [[self._source_pieces[token] for token in source]],
            beam_size=1,
            max_input_length=NO_LIMIT,
            max_decoding_length=longest,
            min_decoding_length=0,
            suppress_sequences=never,
        )
        return [self._target_ids[piece] for piece in result.hypotheses[0]]


def _splitter(folder: Path, model: ExportedModel) -> Callable[[str], list[str]]:
    """Return what cuts a normalized text into the pieces of the exported vocabulary."""
    if model.settings.text.type == "whitespace":
        renamed = renamed_pieces(model.source_pieces)
        return lambda line: [renamed.get(piece, piece) for piece in line.split()]
    import sentencepiece

    name = SOURCE_SENTENCEPIECE if model.has_two_spms else EXPORTED_SENTENCEPIECE
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / name))

    def pieces_of(line: str) -> list[str]:
        tag = TAG.match(line) if model.has_two_spms else None
        pieces: list[str] = processor.encode(line[tag.end() :] if tag else line, out_type=str)
        return [tag[1], *pieces] if tag else pieces

    return pieces_of


FORMAT = exports.Format(
    "CTranslate2",
    QUANTIZATIONS,
    lambda model: exports.keys_not_exported(model.settings.architecture),
    write_ctranslate2,
    write_tokenizer,
    CTranslate2Engine,
    card_of_ctranslate2,
)
