"""How a model is exported to another program, and the README.md about its use there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.interchange.verification import Engine, Verification
from nmt_cli.model_directory import LoadedModel
from nmt_cli.recipe.model_settings import ModelSettings

CARD = "README.md"
EXACT = "float32"
TYPICAL_LENGTH = 25  # pieces of an output at which length penalties are compared


def nearest_exponent(alpha: float) -> float:
    """Return the p for which length^p, the penalty of other programs, grows as ours does."""
    return round(alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH), 3)


class Format(NamedTuple):
    """How models are exported to a program."""

    program: str
    quantizations: tuple[str, ...]
    reasons_against: Callable[[ExportedModel], Iterable[str]]
    write: Callable[[ExportedModel, Path, str], None]
    write_tokenizer: Callable[[LoadedModel, Path], None]
    engine: Callable[[Path, ExportedModel], Engine]
    card: Callable[[ExportedModel], CardOf]


class CardOf(NamedTuple):
    """What a format has in its card."""

    program: str
    front_matter: Sequence[str]  # lines of YAML; none: no front matter
    usage: str  # Python
    differences: Sequence[str]  # sentences, about the program


def model_card(
    model: ExportedModel, card: CardOf, quantization: str, verification: Verification | None
) -> str:
    """Return the text of README.md."""
    settings, text = model.settings, model.settings.text
    was_verified = "It was not verified."
    if verification is not None:
        was_verified = verification.as_sentence()
    made = "trained"
    if model.imported_from is not None:
        made = f"imported (`--from {model.imported_from}`)"
    blocks = [
        "\n".join(["---", *card.front_matter, "---"]) if card.front_matter else "",
        f"# {text.source_language} to {text.target_language}, for {card.program}",
        f"A Transformer that nmt-cli {made} and exported, with weights in {quantization}. "
        f"{was_verified}",
        "## Use",
        f"```python\n{card.usage}\n```",
        "## The text",
        _listed(_about_text(model)),
        "## What differs from nmt-cli translate",
        _listed([_about_length_penalty(settings), *card.differences]),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _about_text(model: ExportedModel) -> list[str]:
    settings, done = model.settings, []
    text = settings.text
    untouched = "The text was not normalized in training."
    if model.imported_from is not None:
        untouched = "How the text was normalized in training is not known here."
    if text.normalization.fold:
        done.append(
            "folded: without characters that nobody sees, such as soft hyphens and directional "
            "marks, and with full-width letters, ligatures and other forms of letters as plain ones"
        )
    if text.normalization.nfc:
        done.append("composed to Unicode NFC")
    if text.normalization.punctuation:
        done.append(
            "changed by the Moses normalization of punctuation (sacremoses, MosesPunctNormalizer) "
            "for its language"
        )
    facts = [
        f"In training, the text was first {' and then '.join(done)}. Do the same with the source."
        if done
        else untouched,
        "Tabs and other white space have to become single spaces.",
    ]
    if text.type == "whitespace":
        facts.append("The source has to be in pieces as in training, with spaces between them.")
        if text.joiner is not None:
            facts.append(
                f"A piece that ends in `{text.joiner}` continues in the next piece: remove "
                f"`{text.joiner} ` to get words."
            )
    if settings.trees is not None:
        facts.append(
            "The model parses: the source is a sentence, and the output is its tree with brackets "
            "as pieces. Nothing here makes outputs well-formed, as nmt-cli does."
        )
    return facts


def _about_length_penalty(settings: ModelSettings) -> str:
    alpha = settings.decoding.length_penalty
    return (
        "Length penalty: nmt-cli divides log-probabilities by ((5 + length) / 6)^"
        f"{alpha:g}, this program by length^p. At {TYPICAL_LENGTH} pieces the nearest p is "
        f"{nearest_exponent(alpha):g}; the translations of a beam search may differ."
    )


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
