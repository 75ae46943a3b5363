"""The SentencePiece models of an imported model: beside it, or named by the user."""

from collections.abc import Mapping
from pathlib import Path

from nmt_cli.corpus.normalization import Side
from nmt_cli.corpus.sentencepiece_tokenizer import read_usable_model
from nmt_cli.errors import UserError
from nmt_cli.interchange.files import TextFiles

PEGASUS_MODEL = "spiece.model"
SENTENCEPIECE_FILES: tuple[dict[Side, str], ...] = (
    {"source": "source.spm", "target": "target.spm"},
    {"source": "sentencepiece.model", "target": "sentencepiece.model"},
    {"source": PEGASUS_MODEL, "target": PEGASUS_MODEL},
)


def read_models(paths: Mapping[Side, Path]) -> dict[Side, bytes]:
    """Return the models after trying them out; raises as ``read_usable_model`` does."""
    read = {path: read_usable_model(path) for path in dict.fromkeys(paths.values())}
    return {side: read[path] for side, path in paths.items()}


def sentencepiece_files(folder: Path) -> dict[Side, Path] | None:
    """Return the SentencePiece model of each side; None if the folder has none."""
    for names in SENTENCEPIECE_FILES:
        paths = {side: folder / name for side, name in names.items()}
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def read_sentencepiece(folder: Path) -> dict[Side, bytes] | None:
    """Return the SentencePiece models, after trying them out; None if the folder has none."""
    paths = sentencepiece_files(folder)
    return None if paths is None else read_models(paths)


def read_named_models(files: TextFiles) -> dict[Side, bytes] | None:
    """Return the models that the user names, after trying them out; None without any.

    Raises UserError if only the target's is named, and as ``read_usable_model`` does.
    """
    source, target = files.sentencepiece, files.target_sentencepiece
    if source is not None:
        return read_models({"source": source, "target": target or source})
    if target is not None:
        raise UserError(
            f"--target-sentencepiece {target} needs --sentencepiece, the model of the source."
        )
    return None
