"""Loads the models that search, one or several of one vocabulary; no torch where the library is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt_cli.corpus.lexicon import Lexicon
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.hardware.machine_options import (
    DecodingPrecision,
    choose_decoding_precision,
    device_name,
)
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import command
from nmt_cli.model.compiled.c_library import Library, library_for
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.saved.model_directory import Model, open_model

if TYPE_CHECKING:
    from nmt_cli.model.transformer import Transformer

Loading = Callable[[Model], "PackedModel | Transformer"]


class EnsembleMember(NamedTuple):
    """A model that searches, alone or together with others."""

    settings: ModelSettings
    model: PackedModel | Transformer
    fingerprint: str = ""  # of its files; empty for a model that was not loaded
    lexicon: Lexicon | None = None
    uses_shortlist: bool = False  # by default


class LoadedModels(NamedTuple):
    """Models that search together."""

    path: Path  # of the directory of the first
    tokenizer: Tokenizer
    members: list[EnsembleMember]  # the settings of the first are those of the search
    precision: DecodingPrecision
    device: str

    def lexicon(self, *, is_wanted: bool | None) -> Lexicon | None:
        """Return the lexicon of the first model that has one, if shortlists ``is_wanted``.

        None: if the first model uses them by default, which on a GPU saves nothing. Raises
        UserError if there is no lexicon, though it is wanted.
        """
        if is_wanted is None:
            is_wanted = self.members[0].uses_shortlist and self.device == "cpu"
        if not is_wanted:
            return None
        for member in self.members:
            if member.lexicon is not None:
                return member.lexicon
        raise UserError(
            f"--shortlist needs a lexicon, and {self.path} has none; make one with: "
            f"{command('nmt-cli', 'lexicon', self.path)} SOURCE TARGET."
        )


def load_models(
    path: Path | str, ensemble: Sequence[Path | str], device: str, precision: str
) -> LoadedModels:
    """Return the model of ``path`` and those of ``ensemble``, which join it.

    They are packed for the library on a CPU that has it, else they are Transformers. Raises
    UserError if there is no undamaged model at a path, if ``device`` or ``precision`` is wrong, or
    if a model has another tokenizer or writes trees in another notation.
    """
    chosen = device_name(device)
    library = library_for(chosen)
    load, of_all = _loading(chosen, precision, library)
    first: Model | None = None
    members = []
    for each in (path, *ensemble):
        found, model = open_model(
            Path(each), lambda found: (found, load(found)), checks_weights=library is not None
        )
        first = first or found
        if (different := _difference(first, found)) is not None:
            raise UserError(
                f"--ensemble {each} cannot join {first.path}: they have different {different}. "
                "Models of an ensemble are trained on one prepared text, or with one tokenizer."
            )
        of_shortlist = found.lexicon, found.uses_shortlist
        members.append(EnsembleMember(found.settings, model, found.fingerprint, *of_shortlist))
    assert first is not None
    return LoadedModels(first.path, first.tokenizer, members, of_all, chosen)


def _loading(
    device: str, precision: str, library: Library | None
) -> tuple[Loading, DecodingPrecision]:
    """Return what makes a model of its files, and the precision that it has then."""
    if library is None:
        from nmt_cli.search.torch_models import loading_by_torch  # it imports torch

        return loading_by_torch(device, precision)
    chosen = choose_decoding_precision(precision, device, has_bf16=library.has_bf16)

    def load(found: Model) -> PackedModel:
        settings, weights = found.settings, found.weights.checked(found.weights_sha256)
        sizes = settings.architecture, settings.vocabulary_size
        return PackedModel(*sizes, weights, chosen, library)

    return load, chosen


def _difference(first: Model, other: Model) -> str | None:
    for name, value in first.settings.text._asdict().items():
        if getattr(other.settings.text, name) != value:
            return {"type": "types of tokenizers"}.get(name, f"settings of {name}")
    if first.tokenizer_sha256 != other.tokenizer_sha256:
        return "vocabularies"
    if first.settings.trees != other.settings.trees:
        return "notations of trees"
    for key in ("decoder_start", "source_eos"):
        architectures = (first.settings.architecture, other.settings.architecture)
        if len({getattr(each, key) for each in architectures}) > 1:
            return f"settings of {key}"
    return None
