"""What a user names as MODEL; reading one needs no torch.

config.json        the settings that using the model requires (``recipe.model_settings``)
tokenizer.model    or vocabulary.txt
model.safetensors  the weights
manifest.json      checksums, and what the model was made of
recipe.yaml        a record of how it was trained; loading does not read it
lexicon            the pieces of a shortlist (``corpus.lexicon``); only if one was made
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nmt_cli.corpus.lexicon import Lexicon
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.costs.parameters import parameter_shapes
from nmt_cli.files.atomic_files import (
    Partial,
    add_to_manifest,
    file_appearing_whole,
    read_manifest,
    rewrite_manifest_without,
    verify,
)
from nmt_cli.files.file_names import (
    AVERAGE,
    CHECKPOINTS,
    CONFIG,
    FURTHER_TOKENIZER_FILES,
    LEXICON,
    MANIFEST,
    RECIPE,
    TOKENIZER_FILES,
    TRAINING_STATE,
    WEIGHTS,
)
from nmt_cli.files.folders import MODEL_KINDS, is_model, is_of_others, is_run, wrong_folder
from nmt_cli.files.formats import INT8, PLAIN
from nmt_cli.files.locks import restore_replaced
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.proposals import command
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.model.stored_weights import StoredWeights, as_bytes
from nmt_cli.recipe.model_settings import ModelSettings, as_json, read_settings
from nmt_cli.saved.checkpoints import Checkpoint, average_command, best_checkpoint, list_checkpoints

if TYPE_CHECKING:
    from nmt_cli.model.transformer import Transformer

USES_SHORTLIST = "uses_shortlist"  # key of a manifest

Used = TypeVar("Used")


@dataclass(frozen=True)
class Model:
    """A model directory, with its manifest; each other file is read when it is first needed.

    What is read raises DamagedError if it is damaged.
    """

    path: Path
    manifest: Mapping[str, Any]

    @cached_property
    def settings(self) -> ModelSettings:
        """The content of ``config.json``."""
        return read_settings(self.path)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of both sides."""
        return load_tokenizer(self.path, self.settings.text)

    @cached_property
    def weights(self) -> StoredWeights:
        """The weights that the settings require; each is read when it is taken."""
        wanted = parameter_shapes(self.settings.architecture, self.settings.vocabulary_size)
        return StoredWeights(self.path / WEIGHTS, wanted)

    @cached_property
    def lexicon(self) -> Lexicon | None:
        """The lexicon of a shortlist; None if the model has none."""
        if LEXICON not in self.manifest["files"]:
            return None
        sizes = self.tokenizer.source_size or self.tokenizer.size, self.tokenizer.size
        return Lexicon.read(self.path / LEXICON, *sizes)

    @property
    def uses_shortlist(self) -> bool:
        """Whether a shortlist is the default, because the model was trained for it."""
        return LEXICON in self.manifest["files"] and self.manifest.get(USES_SHORTLIST) is True

    @property
    def weights_sha256(self) -> str:
        """The checksum of the weights."""
        checksum: str = self.manifest["files"][WEIGHTS]["sha256"]
        return checksum

    @property
    def tokenizer_sha256(self) -> dict[str, str]:
        """The checksums of the tokenizer's files, by their names."""
        files = self.manifest["files"]
        names = (*TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES)
        return {name: files[name]["sha256"] for name in names if name in files}

    @property
    def fingerprint(self) -> str:
        """A sha256 of the files that using the model needs, by their checksums."""
        files = self.manifest["files"]
        needed = sorted((name, files[name]["sha256"]) for name in files if name != RECIPE)
        needed += [(USES_SHORTLIST, "")] * self.uses_shortlist
        return hashlib.sha256(json.dumps(needed).encode()).hexdigest()


class LoadedModel(NamedTuple):
    """A model of PyTorch ready for use."""

    settings: ModelSettings
    tokenizer: Tokenizer
    model: Transformer  # in evaluation mode, fp32, on the device asked for
    path: Path
    manifest: Mapping[str, Any]


def find_model(path: Path) -> Model:
    """Return the model that ``path`` means, with its manifest as the only file that was read.

    A ``path`` to a model means that model. A run means its average, or else its best checkpoint by
    validation, or else its last one. Raises UserError if ``path`` is missing or has no model, and
    DamagedError if a manifest is damaged.
    """
    restore_replaced(path)
    is_alone = not (path / CHECKPOINTS).is_dir() and not is_of_others(path)
    if is_alone and ((path / MANIFEST).exists() or (path / WEIGHTS).exists()):
        with _advising(path):
            model = Model(path, read_manifest(path))
        if str(model.manifest.get("kind")) not in MODEL_KINDS:
            raise wrong_folder(path, "model")
        return model
    restore_replaced(path / AVERAGE)
    checkpoints = list_checkpoints(path)
    if is_model(path / AVERAGE):
        logs.info(f"Using {path / AVERAGE}, the average of {path}.")
        average = Model(path / AVERAGE, read_manifest(path / AVERAGE))
        _warn_if_stale(average, path, checkpoints)
        return average
    if not checkpoints:
        if (path / CHECKPOINTS).is_dir() or is_run(path):
            raise UserError(f"{path} holds no checkpoint yet; train it first.")
        raise wrong_folder(path, "model")
    best = best_checkpoint(checkpoints)
    chosen = best or checkpoints[-1]
    logs.info(f"Using {chosen.path}, the {'best by validation' if best else 'last'} of {path}.")
    return Model(chosen.path, chosen.manifest)


def _warn_if_stale(average: Model, run_dir: Path, checkpoints: Sequence[Checkpoint]) -> None:
    """Warn if the average was made without the newest checkpoint that averages may use."""
    averaged = average.manifest.get("averaged")
    available = [checkpoint for checkpoint in checkpoints if checkpoint.enters_average]
    if not available or not isinstance(averaged, list):
        return
    newest = available[-1]
    if newest.manifest["files"].get(WEIGHTS, {}).get("sha256") in {
        part.get("sha256") for part in averaged
    }:
        return
    steps = sorted(part["step"] for part in averaged if isinstance(part.get("step"), int))
    made_of = f" of steps {steps[0]:,} to {steps[-1]:,}" if len(steps) > 1 else ""
    logs.warning(
        f"{average.path} was made{made_of}, without the newest checkpoint of {run_dir}, of "
        f"step {newest.step:,}. It is used as it is; to renew it run: "
        f"{average_command(run_dir, checkpoints)}"
    )


def use_model(path: Path, use: Callable[[Model], Used]) -> Used:
    """Return what ``use`` makes of the model that ``path`` means.

    If a training removes it meanwhile, the one that ``path`` means then is used. Raises what
    ``find_model`` and ``use`` raise.
    """
    model = find_model(path)
    try:
        return use(model)
    except DamagedError:
        if model.path.exists():
            raise
    return use(find_model(path))


def open_model(path: Path, use: Callable[[Model], Used], *, checks_weights: bool = False) -> Used:
    """Return what ``use`` makes of the model that ``path`` means, after its files were verified.

    With ``checks_weights``, ``use`` itself compares the weights with their checksum. Raises
    UserError if there is no model, DamagedError if a file of it is damaged.
    """

    def used(model: Model) -> Used:
        if not checks_weights:
            return use(verified(model.path))
        try:
            return use(verified(model.path, unread=WEIGHTS))
        except DamagedError:
            verified(model.path)  # raises if a file has changed: that explains all else
            raise

    return use_model(path, used)


def verified(directory: Path, unneeded: Collection[str] = (), unread: str | None = None) -> Model:
    """Return the model in ``directory`` after checking its files.

    Those that are ``unneeded``, and the state of its training, which only resuming needs, are not
    read and may be missing; of the file ``unread`` only the size is checked. Raises DamagedError if
    another file is missing or damaged, or if they do not fit together.
    """
    with _advising(directory):
        needless = {TRAINING_STATE, *unneeded}
        model = Model(directory, verify(directory, unneeded=needless, unread_prefix=unread))
        for names in ((CONFIG,), (WEIGHTS,), TOKENIZER_FILES):
            if not any(name in model.manifest["files"] for name in names):
                raise DamagedError(f"{directory} is damaged: its manifest names no {names[0]}.")
        settings, tokenizer = model.settings, model.tokenizer
        if LEXICON not in unneeded:
            _ = model.lexicon  # raises
        if settings.vocabulary_size != tokenizer.size:
            raise DamagedError(
                f"{directory} is damaged: its tokenizer has {tokenizer.size:,} pieces, {CONFIG} "
                f"says {settings.vocabulary_size:,}."
            )
        if settings.architecture.source_vocabulary_size != tokenizer.source_size:
            raise DamagedError(
                f"{directory} is damaged: the source's own vocabulary has {tokenizer.source_size} "
                f"pieces, {CONFIG} says {settings.architecture.source_vocabulary_size}."
            )
        return model


@contextmanager
def _advising(directory: Path) -> Iterator[None]:
    """Add to a DamagedError of a model what the user can do."""
    try:
        yield
    except DamagedError as error:
        again = command("nmt-cli", "lexicon", directory)
        is_of_lexicon = str(error).startswith(f"{directory / LEXICON} ")
        make = f"Make it again: {again} SOURCE TARGET --force"
        advice = make if is_of_lexicon else "Copy the folder again, or use another model"
        raise DamagedError(f"{error} {advice}.") from None


def load_model(path: Path) -> LoadedModel:
    """Return the model of ``path`` in PyTorch, on the CPU.

    Raises UserError if there is no model, DamagedError if a file of it is damaged.
    """
    from nmt_cli.model.transformer import build_transformer  # it imports torch

    def load(found: Model) -> LoadedModel:
        settings, tokenizer = found.settings, found.tokenizer
        model = build_transformer(settings.architecture, tokenizer.size, found.weights)
        return LoadedModel(settings, tokenizer, model, found.path, found.manifest)

    return open_model(path, load)


def save_model(
    partial: Partial,
    settings: ModelSettings,
    recipe: bytes,
    tokenizer: Tokenizer,
    weights: Mapping[str, Array],
    precision: str = "fp32",
) -> None:
    """Write the files of a model into ``partial``; the caller completes its manifest.

    ``recipe`` is the content of the recipe file with which the model was trained. With
    ``precision`` int8, matrices take a quarter of the bytes.
    """
    least = INT8 if precision == "int8" else PLAIN
    partial.manifest["format_version"] = max(least, settings.format_version)
    (partial.path / CONFIG).write_bytes(as_json(settings).encode())
    (partial.path / RECIPE).write_bytes(recipe)
    tokenizer.save(partial.path)
    with (partial.path / WEIGHTS).open("wb") as stream:  # a stream's errors have an errno
        stream.write(as_bytes(weights, in_int8=precision == "int8"))


def keep_common_lexicon(models: Sequence[Model], partial: Partial) -> None:
    """Write into ``partial`` the lexicon that all ``models`` have, if they have the same one."""
    newest = models[-1]
    if len({str(model.manifest["files"].get(LEXICON)) for model in models}) == 1 and newest.lexicon:
        (partial.path / LEXICON).write_bytes(newest.lexicon.as_bytes())
        partial.manifest[USES_SHORTLIST] = newest.uses_shortlist


def save_lexicon(directory: Path, lexicon: Lexicon, *, uses_shortlist: bool) -> None:
    """Write a lexicon beside the model in ``directory``, in place of one that is there.

    ``uses_shortlist`` is whether the model was trained for a shortlist, which is the default then.
    Whenever this is interrupted, the model is complete, with a lexicon or without. Raises
    DamagedError if the manifest is damaged, OutputError if the disk is full.
    """
    if LEXICON in read_manifest(directory)["files"]:
        rewrite_manifest_without(directory, LEXICON)
    with file_appearing_whole(directory / LEXICON, replace=True) as stream:
        stream.write(lexicon.as_bytes())
    add_to_manifest(directory, LEXICON, {USES_SHORTLIST: uses_shortlist})
