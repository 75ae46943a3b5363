"""The model card of an export to Hugging Face."""

from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.interchange.huggingface.exporter import longest_output
from nmt_cli.interchange.huggingface.layout import has_pad
from nmt_cli.interchange.model_card import CardOf

USAGE = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForSeq2SeqLM.from_pretrained(".")
outputs = model.generate(**tokenizer(lines, return_tensors="pt", padding=True))
print(*tokenizer.batch_decode(outputs, skip_special_tokens=True), sep="\\n")"""


def card_of_huggingface(model: ExportedModel) -> CardOf:
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
    return CardOf("Hugging Face transformers", front_matter, USAGE, differences)
