"""Writes a model for another program, and verifies it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.folders import EXPORT
from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.interchange.model_card import CardOf, model_card
from nmt_cli.interchange.verification import Engine, Verification, verification_texts, verify
from nmt_cli.messages.errors import UserError
from nmt_cli.model_directory import LoadedModel

CARD = "README.md"
EXACT = "float32"


class Format(NamedTuple):
    """How models are exported to a program."""

    name: str  # as --format has it
    program: str
    quantizations: tuple[str, ...]
    reasons_against: Callable[[ExportedModel], Iterable[str]]
    write: Callable[[ExportedModel, Path, str], None]
    write_tokenizer: Callable[[LoadedModel, Path], None]
    engine: Callable[[Path, ExportedModel], Engine]
    card: Callable[[ExportedModel], CardOf]


def write_export(
    chosen: Format,
    loaded: LoadedModel,
    output: Path,
    *,
    quantization: str = EXACT,
    verify_on: int,
    sentences: Path | None = None,
    replace: bool,
) -> Verification | None:
    """Write ``loaded`` as the folder ``output``, after ``verify_on`` sentences were compared.

    Returns None without sentences to compare. Raises UserError if the format cannot represent the
    model, or if the results differ.
    """
    exported = ExportedModel.of(loaded)
    if reasons := list(chosen.reasons_against(exported)):
        raise UserError(
            f"{loaded.path} cannot be exported to {chosen.program}: {'; '.join(reasons)}."
        )
    texts = verification_texts(loaded, sentences, verify_on) if verify_on else []
    verification = None
    with directory_appearing_whole(output, replace=replace) as partial:
        folder = partial.path
        chosen.write(exported, folder, quantization)
        chosen.write_tokenizer(loaded, folder)
        if texts:
            engine = chosen.engine(folder, exported)
            verification = verify(loaded, engine, texts, is_exact=quantization == EXACT)
        card = model_card(exported, chosen.card(exported), quantization, verification)
        (folder / CARD).write_text(card, encoding="utf-8")
        partial.facts.update(kind=EXPORT, format=chosen.name, quantization=quantization)
    return verification
