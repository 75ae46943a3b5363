"""The model card of an export to CTranslate2."""

from nmt_cli.file_names import SOURCE_SENTENCEPIECE, TARGET_SENTENCEPIECE
from nmt_cli.interchange.ctranslate2.exporter import EXPORTED_SENTENCEPIECE, renamed_pieces
from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.interchange.length_penalties import nearest_length_penalty
from nmt_cli.interchange.model_card import CardOf

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


def card_of_ctranslate2(model: ExportedModel) -> CardOf:
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
    length_penalty={nearest_length_penalty(settings):g},
    max_decoding_length={settings.decoding.max_extra_length + 100},{never}
)
print(*{JOINED[kind]}, sep="\\n")"""
    differences = [
        "The length in the penalty does not count `</s>`.",
        "The longest output is a number of pieces, whatever the source; nmt-cli allows "
        f"{settings.decoding.max_extra_length} pieces more than the source has.",
        "Sources of more than 1,024 pieces are cut (`max_input_length`), and the search ends when "
        "as many translations as the beam has have ended.",
        f"No sentence may have more than {model.num_positions - 1:,} pieces.",
    ]
    differences += [
        f"The word `{piece}` of the text is the piece `{name}`."
        for piece, name in renamed_pieces(model.source_pieces).items()
    ]
    if model.has_two_spms:
        differences.append(
            "A tag such as `>>deu<<` in front of a source is one piece: cut the text behind it."
        )
    return CardOf("CTranslate2", (), usage, differences)
