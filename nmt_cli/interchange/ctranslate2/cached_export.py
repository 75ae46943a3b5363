"""The folder that ``translate --engine ctranslate2`` reads: an export, or one in the cache.

A model is exported once. Finding the export needs no torch, making it does.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.checkpoints import fingerprint, read_model
from nmt_cli.files.atomic_files import read_manifest, verify
from nmt_cli.files.file_names import (
    CACHE_VARIABLE,
    CONFIG,
    CTRANSLATE2_MODEL,
    FURTHER_TOKENIZER_FILES,
    RECIPE,
    SETTINGS,
    TOKENIZER_FILES,
    WEIGHTS,
    cache_folder,
)
from nmt_cli.files.folders import EXPORT, kind_of
from nmt_cli.files.locks import OutputInUseError, UnwritableOutputError, claimed, restore_replaced
from nmt_cli.hardware.choices import CTRANSLATE2
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.extras import importing
from nmt_cli.messages.proposals import command, unused_name

LAYOUT = 1  # counted up when exports change, so that those of before are no longer used
NEEDED = {WEIGHTS, CONFIG, *TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES}
EXACT = "float32"
SENTENCES = 16  # that are compared before an export appears
SECONDS_BETWEEN_LOOKS = 0.5


class ExportedFolder(NamedTuple):
    """A folder that CTranslate2 loads, with our tokenizer and settings."""

    path: Path
    quantization: str
    fingerprint: str  # of the model that was exported


def exported_folder(path: Path) -> ExportedFolder:
    """Return the export ``path``, or that of the model that ``path`` means.

    Raises UserError if there is no model, if CTranslate2 cannot represent it or if something is
    missing in an export, and DamagedError if a file is damaged.
    """
    restore_replaced(path)
    if (path / CTRANSLATE2_MODEL).is_file() and kind_of(path) in {None, EXPORT}:
        return _given(path)
    model, manifest = read_model(path, lambda folder: (folder, read_manifest(folder)))
    folder = exports_folder() / name_of(manifest)
    while not _is_whole(folder):
        _make(model, folder)
    return ExportedFolder(folder, EXACT, fingerprint(manifest))


def exports_folder() -> Path:
    """Return the folder of the exports that were made for ``translate``."""
    return cache_folder() / CTRANSLATE2


def _given(path: Path) -> ExportedFolder:
    if not (path / SETTINGS).is_file():
        again = command(
            "nmt-cli", "export", "MODEL", "--format", CTRANSLATE2, "--output", unused_name(path)
        )
        raise UserError(
            f"{path} has no {SETTINGS}, the settings of its text and its search; export its model "
            f"again: {again}"
        )
    manifest = verify(path)
    return ExportedFolder(path, str(manifest.get("quantization")), fingerprint(manifest))


def name_of(manifest: Mapping[str, Any]) -> str:
    """Return the name of the export of a model: a checksum of all files that it is made of."""
    needed = NEEDED if manifest["format_version"] > 1 else NEEDED | {RECIPE}
    files = sorted((name, of["sha256"]) for name, of in manifest["files"].items() if name in needed)
    return hashlib.sha256(json.dumps([LAYOUT, files]).encode()).hexdigest()


def _is_whole(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        verify(folder)
    except DamagedError:
        return False
    return True


def _make(model: Path, folder: Path) -> None:
    """Export ``model`` as ``folder``, or wait while another process does."""
    try:
        with claimed(folder, CACHE_VARIABLE):
            if not _is_whole(folder):
                _export(model, folder)
    except OutputInUseError:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    except UnwritableOutputError as error:
        raise UserError(
            f"{model} cannot be exported: {error} Or export it to a folder of your own and give "
            "that."
        ) from None


def _export(model: Path, folder: Path) -> None:
    # They import torch.
    from nmt_cli.interchange.ctranslate2.exporter import FORMAT
    from nmt_cli.interchange.export_format import write_export
    from nmt_cli.model_directory import load_model

    with importing("ctranslate2", "--engine ctranslate2 translates"):
        import ctranslate2  # noqa: F401 - before the model is loaded
    if folder.exists():
        logs.warning(f"{folder} is damaged, so the model is exported again.")
    logs.info(f"Exporting {model} for CTranslate2, once, into {folder}.")
    verification = write_export(
        FORMAT, load_model(model), folder, verify_on=SENTENCES, replace=True
    )
    if verification is not None:
        logs.info(verification.as_sentence())
