"""Packages of Argos Translate: a folder with a model of CTranslate2 in ``model/``.

The SentencePiece model that cuts its text stands beside ``model/``, and ``metadata.json`` names its
languages.
"""

from contextlib import suppress
from pathlib import Path

from nmt_cli.interchange.files import read_config
from nmt_cli.interchange.options import refuse, shown
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

METADATA, MODEL = "metadata.json", "model"
CODES = ("from_code", "to_code")  # in the metadata
CUT_BY_BPE = "bpe.model"  # of subword-nmt, in place of the SentencePiece model


def package_of(folder: Path) -> Path | None:
    """Return the package that ``folder`` or, if it is a ``model``, the folder above it is."""
    if (folder / MODEL).is_dir() and CODES[0] in read_config(folder, METADATA):
        return folder
    above = folder.absolute().parent
    with suppress(UserError):  # of a file that has the name by chance
        if folder.absolute().name == MODEL and CODES[0] in read_config(above, METADATA):
            return above
    return None


def languages_of(package: Path, *, is_cut: bool) -> tuple[object, object]:
    """Return the languages that a package names; warn unless a SentencePiece model cuts its text.

    Raises ValueError if its translations begin with a mark of the target language.
    """
    metadata = read_config(package, METADATA)
    if metadata.get("target_prefix"):
        refuse([f"its translations begin with target_prefix {shown(metadata['target_prefix'])}"])
    if not is_cut:
        has_bpe = (package / CUT_BY_BPE).is_file()
        by = f"cuts its text by {CUT_BY_BPE}" if has_bpe else "has no SentencePiece model"
        logs.warning(f"the package {by}, so the model reads text that is in pieces already.")
    return metadata.get(CODES[0]), metadata.get(CODES[1])
