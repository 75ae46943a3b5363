"""The tokenizer of the model that ``model.from`` names, and whether it is still the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.atomic_files import sha256
from nmt_cli.corpus.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.errors import UserError
from nmt_cli.file_names import FURTHER_TOKENIZER_FILES, TOKENIZER_FILES
from nmt_cli.folders import is_model, verify_model, what_to_give
from nmt_cli.model_settings import text_settings
from nmt_cli.recipe.schema import Recipe


def tokenizer_of_model(folder: Path, recipe: Recipe) -> Tokenizer:
    """Return the tokenizer of the model in ``folder``, from which ``recipe`` takes it.

    Raises UserError if there is no model, DamagedError if a file of it is damaged.
    """
    if not is_model(folder):
        raise UserError(what_to_give(folder, "model"))
    verify_model(folder)
    return load_tokenizer(folder, text_settings(recipe.tokenizer, recipe.data))


def changed_tokenizer_files(folder: Path, prepared: Mapping[str, Any]) -> list[Path]:
    """Return the tokenizer's files in ``folder`` that are not those of the ``prepared`` files.

    None has changed if the model was removed.
    """
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return []
    return [
        folder / name
        for name in (*TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES)
        if _sha256_of(folder / name) != prepared.get(name, {}).get("sha256")
    ]


def _sha256_of(path: Path) -> str | None:
    try:
        return sha256(path)
    except OSError:
        return None
