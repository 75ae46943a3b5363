"""The vocabularies and SentencePiece models that the user names for an import."""

from pathlib import Path
from typing import NamedTuple

from nmt_cli.errors import UserError


class TextFiles(NamedTuple):
    """The files that the user names; None for one that is found beside the model, or is absent."""

    source_vocabulary: Path | None = None
    target_vocabulary: Path | None = None
    sentencepiece: Path | None = None  # of both languages, or of the source
    target_sentencepiece: Path | None = None

    def refuse_any(self, program: str) -> None:
        """Raise UserError if the user names a file; models of ``program`` have their own."""
        for name, path in self._asdict().items():
            if path is not None:
                option = f"--{name.replace('_', '-')}"
                raise UserError(
                    f"{option} {path} has no use: models of {program} have their own, and that is "
                    "read; leave it out."
                )

    def refuse_vocabularies(self, program: str) -> None:
        """Raise UserError as ``refuse_any`` does, unless only SentencePiece models are named."""
        self._replace(sentencepiece=None, target_sentencepiece=None).refuse_any(program)


NO_FILES = TextFiles()
