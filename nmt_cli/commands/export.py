"""``nmt-cli export``: writes a model for another program, and verifies it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.folders import EXPORT, refuse_output
from nmt_cli.files.locks import claimed
from nmt_cli.hardware.device import set_num_threads
from nmt_cli.interchange.ctranslate2 import exporter as ctranslate2_export
from nmt_cli.interchange.ctranslate2.exporter import CTranslate2Engine, card_of_ctranslate2
from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.interchange.huggingface import exporter as huggingface_export
from nmt_cli.interchange.huggingface.exporter import HuggingFaceEngine, card_of_huggingface
from nmt_cli.interchange.model_card import CardOf, model_card
from nmt_cli.interchange.verification import Engine, Verification, verification_texts, verify
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.model_directory import LoadedModel, load_model

CARD = "README.md"
EXACT = "float32"


class Format(NamedTuple):
    """How models are exported to a program."""

    program: str
    quantizations: tuple[str, ...]
    reasons_against: Callable[[ExportedModel], Iterable[str]]
    write: Callable[[ExportedModel, Path, str], None]
    write_tokenizer: Callable[[LoadedModel, Path], None]
    engine: Callable[[Path, ExportedModel], Engine]
    card: Callable[[ExportedModel], CardOf]


FORMATS = {
    "ctranslate2": Format(
        "CTranslate2",
        ctranslate2_export.QUANTIZATIONS,
        ctranslate2_export.reasons_against,
        ctranslate2_export.write_ctranslate2,
        ctranslate2_export.write_tokenizer,
        CTranslate2Engine,
        card_of_ctranslate2,
    ),
    "huggingface": Format(
        "Hugging Face",
        huggingface_export.QUANTIZATIONS,
        huggingface_export.reasons_against,
        huggingface_export.write_huggingface,
        huggingface_export.write_tokenizer,
        HuggingFaceEngine,
        card_of_huggingface,
    ),
}


def run(  # noqa: PLR0913 - the options of a command are its parameters
    model: Path,
    *,
    output_format: str,
    output: Path,
    quantization: str,
    verify: int,
    sentences: Path | None = None,
    force: bool = False,
    threads: int | None = None,
) -> None:
    """Write ``model`` as the folder ``output``, after ``verify`` sentences were compared.

    Raises UserError if the format cannot represent the model, if the results differ or if
    ``output`` exists without ``force``.
    """
    chosen = FORMATS[output_format]
    if quantization not in chosen.quantizations:
        raise WrongUsageError(
            f"--quantization {quantization} is not one of {chosen.program}; give one of "
            f"{', '.join(chosen.quantizations)}."
        )
    if threads is not None:
        set_num_threads(threads)
    refuse_output(output, EXPORT, "an export", force=force)
    with claimed(output, "--output"):
        loaded = load_model(model)
        exported = ExportedModel.of(loaded)
        if reasons := "; ".join(chosen.reasons_against(exported)):
            raise UserError(f"{loaded.path} cannot be exported to {chosen.program}: {reasons}.")
        texts = verification_texts(loaded, sentences, verify) if verify else []
        with directory_appearing_whole(output, replace=force) as partial:
            verification = _write(chosen, loaded, exported, partial.path, quantization, texts)
            partial.facts.update(kind=EXPORT, format=output_format, quantization=quantization)
    if verification is None:
        logs.warning("the export was not verified (--verify 0).")
    else:
        logs.info(verification.as_sentence())
    logs.info(f"Wrote {output}; {output / CARD} says how to use it.")


def _write(
    chosen: Format,
    loaded: LoadedModel,
    exported: ExportedModel,
    folder: Path,
    quantization: str,
    texts: list[str],
) -> Verification | None:
    chosen.write(exported, folder, quantization)
    chosen.write_tokenizer(loaded, folder)
    verification = None
    if texts:
        engine = chosen.engine(folder, exported)
        verification = verify(loaded, engine, texts, is_exact=quantization == EXACT)
    card = model_card(exported, chosen.card(exported), quantization, verification)
    (folder / CARD).write_text(card, encoding="utf-8")
    return verification
