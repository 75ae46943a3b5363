"""Several models of one vocabulary that search together.

Legend: R rows of hypotheses, V vocabulary, B new sentences.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.checkpoints import fingerprint
from nmt_cli.files.file_names import FURTHER_TOKENIZER_FILES, TOKENIZER_FILES
from nmt_cli.hardware.device import DecodingPrecision, choose_decoding_precision, choose_device
from nmt_cli.messages.errors import UserError
from nmt_cli.model.precision import change_precision
from nmt_cli.model.transformer import Transformer
from nmt_cli.model_directory import LoadedModel, load_model
from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.search.logits import Logits
from nmt_cli.search.search import StepInput, StepModel


class Member(NamedTuple):
    """A model that joins another one in an ensemble."""

    settings: ModelSettings
    model: Transformer
    fingerprint: str = ""  # of its files; empty for a model that was not loaded


def load_models(
    path: Path | str, ensemble: Sequence[Path | str], device: str, precision: str
) -> tuple[LoadedModel, list[Member], DecodingPrecision]:
    """Return the model of ``path``, those of ``ensemble``, which join it, and their precision.

    Raises as ``load_model`` does, and UserError if ``device`` or ``precision`` is wrong, or if a
    model has another tokenizer or writes trees in another notation.
    """
    chosen = choose_device(device)
    of_all = choose_decoding_precision(precision, chosen)

    def load(path: Path | str) -> LoadedModel:
        loaded = load_model(Path(path), chosen)
        if chosen.type != "cpu":  # weights for CPUs are packed from fp32
            change_precision(loaded.model, of_all)
        return loaded

    first, members = load(path), []
    for path in ensemble:
        loaded = load(path)
        different = _difference(first, loaded)
        if different is not None:
            raise UserError(
                f"--ensemble {path} cannot join {first.path}: they have different {different}. "
                "Models of an ensemble are trained on one prepared text, or with one tokenizer."
            )
        members.append(Member(loaded.settings, loaded.model, fingerprint(loaded.manifest)))
    return first, members, of_all


def _difference(first: LoadedModel, other: LoadedModel) -> str | None:
    for name, value in first.settings.text._asdict().items():
        if getattr(other.settings.text, name) != value:
            return {"type": "types of tokenizers"}.get(name, f"settings of {name}")
    if _tokenizer_checksums(first) != _tokenizer_checksums(other):
        return "vocabularies"
    if first.settings.trees != other.settings.trees:
        return "notations of trees"
    for key in ("decoder_start", "source_eos"):
        architectures = (first.settings.architecture, other.settings.architecture)
        if len({getattr(each, key) for each in architectures}) > 1:
            return f"settings of {key}"
    return None


def _tokenizer_checksums(loaded: LoadedModel) -> dict[str, str]:
    files = loaded.manifest["files"]
    names = (*TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES)
    return {name: files[name]["sha256"] for name in names if name in files}


class Ensemble:
    """A ``StepModel`` of several: a token's probability is the mean of theirs.

    Not to be shared between threads.
    """

    def __init__(self, models: Sequence[StepModel]) -> None:
        self._models = models
        self.kernels = models[0].kernels

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches of all models."""
        for model in self._models:
            model.reset(num_slots, beam_size)

    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[tuple[Any, ...]], Logits]:
        """Return what each model makes of each sentence, and the means [B, V] for first tokens."""
        encoded: list[Sequence[Any]] = []

        def of_models() -> Iterator[Logits]:  # only the logits of one model are in memory
            for model in self._models:
                own, logits = model.encode(sentences, start_mark)
                encoded.append(own)
                yield logits

        logits = of_models()
        mean = next(logits).mean_with(logits)
        return list(zip(*encoded, strict=True)), mean

    def start(self, slots: Sequence[int], encoded: Sequence[tuple[Any, ...]]) -> None:
        """Put a new sentence into each of ``slots`` of all models."""
        for model, own in zip(self._models, zip(*encoded, strict=True), strict=True):
            model.start(slots, own)

    def step(self, state: StepInput) -> Logits:
        """Return the logarithms [R, V] of the mean probabilities of the next tokens."""
        first, *others = self._models
        return first.step(state).mean_with(model.step(state) for model in others)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, in all models."""
        for model in self._models:
            model.keep_slots(slots)

    def forget(self, slots: Sequence[int]) -> None:
        """Empty the caches of ``slots`` in all models."""
        for model in self._models:
            model.forget(slots)
