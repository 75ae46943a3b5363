"""``nmt-cli export``: writes a model for another program, and verifies it there."""

from pathlib import Path

from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.folders import EXPORT, refuse_output
from nmt_cli.files.locks import claimed
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.interchange.ctranslate2 import exporter as ctranslate2
from nmt_cli.interchange.exported_model import CARD, EXACT, ExportedModel, model_card
from nmt_cli.interchange.huggingface import exporter as huggingface
from nmt_cli.interchange.verification import verification_texts
from nmt_cli.interchange.verification import verify as compared
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.saved.model_directory import load_model

FORMATS = {"ctranslate2": ctranslate2.FORMAT, "huggingface": huggingface.FORMAT}


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
    set_num_threads(threads)
    refuse_output(output, EXPORT, "an export", force=force)
    with claimed(output, "--output"):
        loaded = load_model(model)
        exported = ExportedModel.of(loaded)
        if reasons := list(chosen.reasons_against(exported)):
            raise UserError(
                f"{loaded.path} cannot be exported to {chosen.program}: {'; '.join(reasons)}."
            )
        texts = verification_texts(loaded, sentences, verify) if verify else []
        verification = None
        with directory_appearing_whole(output, replace=force) as partial:
            folder = partial.path
            chosen.write(exported, folder, quantization)
            chosen.write_tokenizer(loaded, folder)
            if texts:
                engine = chosen.engine(folder, exported)
                verification = compared(loaded, engine, texts, is_exact=quantization == EXACT)
            card = model_card(exported, chosen.card(exported), quantization, verification)
            (folder / CARD).write_text(card, encoding="utf-8")
            partial.manifest.update(kind=EXPORT, format=output_format, quantization=quantization)
    if verification is None:
        logs.warning("the export was not verified (--verify 0).")
    else:
        logs.info(verification.as_sentence())
    logs.info(f"Wrote {output}; {output / CARD} says how to use it.")
