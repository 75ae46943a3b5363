"""CTranslate2 as the engine of a translator: what it loads, and what it refuses.

Nothing here needs torch, unless a model has to be exported first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.files.file_names import SETTINGS
from nmt_cli.hardware.choices import AUTO, CTRANSLATE2, Computing
from nmt_cli.interchange.ctranslate2.cached_export import ExportedFolder, exported_folder
from nmt_cli.interchange.ctranslate2.sentence_driver import (
    CTranslate2Driver,
    Threads,
    chosen_precision,
    default_threads,
)
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.model_settings import ModelSettings, read_config
from nmt_cli.search.beams import SearchSettings
from nmt_cli.translating.request import Constraints

Entry = TypeVar("Entry")


class CTranslate2Model(NamedTuple):
    """An exported model, and the threads that translate with it."""

    folder: ExportedFolder
    settings: ModelSettings
    tokenizer: Tokenizer
    threads: Threads

    @property
    def longest_output(self) -> int:
        """The most pieces of an output that the export has positions for."""
        return self.settings.num_positions - 1  # the mark of the start takes one


class CTranslate2Search:
    """What a translator uses in place of a ``SearchEngine``.

    Raises UserError if CTranslate2 is not installed, or cannot compute in the precision here.
    """

    is_compiled = False  # by the library for CPUs

    def __init__(
        self, model: CTranslate2Model, settings: SearchSettings, computing: Computing
    ) -> None:
        precision = chosen_precision(computing.precision, model.folder.quantization)
        self.driver = CTranslate2Driver[Any](
            model.folder.path,
            model.settings.architecture,
            settings,
            precision=precision,
            threads=model.threads,
            max_tokens=computing.max_tokens,
        )
        self.chosen = {
            "device": "cpu",
            "precision": precision,
            "engine": CTRANSLATE2,
            "model": model.folder.fingerprint,
        }

    def groups(self, entries: list[Entry]) -> list[list[Entry]]:
        """Return ``entries`` in the groups that are searched one after another: a single one."""
        return [entries]

    def computing(self, *, of_single_lines: bool = False) -> AbstractContextManager[None]:
        """Return the context in which sentences are searched: nothing has to be set."""
        del of_single_lines
        return nullcontext()

    def free_caches(self) -> None:
        """Do nothing: there are no caches between searches."""


def load_ctranslate2(path: Path, threads: Threads | None = None) -> CTranslate2Model:
    """Return the model of ``path``. If it has not been exported yet, it is exported first.

    By default each core translates a batch. Raises as ``exported_folder`` does, and UserError if
    the model parses.
    """
    folder = exported_folder(path)
    settings = read_config(folder.path / SETTINGS)
    if settings.trees is not None:
        raise UserError(
            f"--engine ctranslate2 has no search for trees, and {path} parses; translate without "
            "--engine."
        )
    tokenizer = load_tokenizer(folder.path, settings.text)
    return CTranslate2Model(folder, settings, tokenizer, threads or default_threads())


def refuse_for_ctranslate2(
    options: Mapping[str, Any], device: str, ensemble: Sequence[Path | str]
) -> None:
    """Raise UserError for the first option of a translator that CTranslate2 does not have."""
    if device not in {AUTO, "cpu"}:
        raise WrongUsageError(
            f"--engine ctranslate2 translates on the CPU; leave --device {device} out, or "
            "translate without --engine."
        )
    for name in _refused(options, ensemble):
        raise WrongUsageError(
            f"--engine ctranslate2 has no {name}; leave it out, or translate without --engine."
        )


def _refused(options: Mapping[str, Any], ensemble: Sequence[Path | str]) -> Iterator[str]:
    constraints = options.get("constraints", Constraints())
    given = {
        "--ensemble": ensemble,
        "--sample": options.get("sampling") is not None,
        "--alignments": options.get("alignments"),
        "--replace-unknown": options.get("replace_unknown"),
        "--markup": options.get("markup"),
        "--well-formed-trees": options.get("well_formed_trees"),
        "--no-cuda-graphs": options.get("no_cuda_graphs"),
        "--fp32-products": options.get("fp32_products", AUTO) != AUTO,
        "--min-length": constraints.min_length,
        "--no-repeat-ngram": constraints.no_repeat_ngram is not None,
        "--banned": constraints.banned,
    }
    yield from (name for name, is_given in given.items() if is_given)
    yield from constraints.for_a_search()
