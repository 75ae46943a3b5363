"""The recipe: everything an experiment's result depends on, and the defaults of all keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model, model_validator

from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.problem import Problem
from nmt_cli.recipe.sections.data import DataConfig
from nmt_cli.recipe.sections.mixing import problems_of_ends
from nmt_cli.recipe.sections.model import DecodingConfig, ModelConfig
from nmt_cli.recipe.sections.tokenizer import TokenizerConfig
from nmt_cli.recipe.sections.training import (
    CheckpointsConfig,
    DistillationConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt_cli.recipe.values import BLEU, COURSE, PARSEVAL, STATE, TEXT, USE, DataPath, Section

if TYPE_CHECKING:
    ModelSection = ModelConfig
else:  # "from" is a word of Python, and cannot be the name of an attribute in a class
    origin = Field(
        default=None,
        description="Folder of a model, also an imported one, to train further: it decides "
        "architecture, tokenizer, data.normalization and the first weights.",
    )
    ModelSection = create_model(
        "ModelSection",
        __base__=ModelConfig,
        __doc__="The Transformer of section 3, or that of another model.",
        **{"from": (Annotated[DataPath | None, TEXT | STATE], origin)},
    )


class Recipe(Section):
    """One experiment."""

    description: Annotated[str, USE, Field(min_length=1, max_length=10_000)]
    """What this recipe is, for recipes list."""
    data: DataConfig
    """The text."""
    tokenizer: TokenizerConfig
    """How text becomes pieces."""
    model: ModelSection = Field(default_factory=ModelSection)
    """The Transformer."""
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    """The optimizer's steps."""
    validation: ValidationConfig = Field(default_factory=ValidationConfig)
    """Measuring while training."""
    checkpoints: Annotated[CheckpointsConfig, COURSE] = Field(default_factory=CheckpointsConfig)
    """What is saved and kept."""
    decoding: Annotated[DecodingConfig, BLEU | PARSEVAL | USE] = Field(
        default_factory=DecodingConfig
    )
    """Beam search."""
    distillation: Annotated[DistillationConfig, USE] = Field(default_factory=DistillationConfig)
    """What distil makes of a teacher's translations; other commands ignore it."""

    @model_validator(mode="before")
    @classmethod
    def _two_vocabularies_have_two_matrices(cls, values: Any) -> Any:
        """Tie only the decoder's embeddings by default if each language has its own vocabulary."""
        sections = values if isinstance(values, dict) else {}
        tokenizer, model = sections.get("tokenizer"), sections.get("model", {})
        if not isinstance(tokenizer, dict) or not isinstance(model, dict):
            return values
        if tokenizer.get("shared") not in (False, "false"):
            return values
        return {**values, "model": {"tied_embeddings": "decoder", **model}}

    @property
    def origin(self) -> Path | None:
        """The folder of the model that ``model.from`` names."""
        return getattr(self.model, "from", None)

    def problems(self) -> Iterator[Problem]:
        """Yield limits that the longest sentence would exceed, and what does not suit the data."""
        yield from self._problems_of_trees()
        yield from problems_of_ends(self.data.stages, self.training, self.validation)
        yield from self._problems_of_robustness()
        names = [files.name for files in self.data.validation_sets if files.name is not None]
        best_on = self.validation.best_on
        if best_on is not None and best_on not in names:
            allowed = any_of(names) if names else "left out, because no validation set has a name"
            text = f"must be {allowed}, but is {best_on}"
            yield Problem("validation.best_on", text, "data.validation")
        yield from self._problems_of_alignments()
        yield from self._problems_of_augmentation()
        if self.origin is None:
            yield from self._problems_of_a_new_tokenizer()
        elif self.tokenizer.model != self.origin:
            text = f"must be {self.origin} or left out beside model.from, but is "
            yield Problem("tokenizer.model", f"{text}{self.tokenizer.model}", "model.from")
        longest = self.data.max_length + 1  # with the end of sentence
        if longest > self.training.tokens_per_step:
            yield Problem(
                "training.tokens_per_step",
                f"must hold the longest sentence, data.max_length {self.data.max_length:,} and "
                f"its end, but is {self.training.tokens_per_step:,}; raise it to {longest}, or "
                f"lower data.max_length to {self.training.tokens_per_step - 1}",
                "data.max_length",
            )
        if self.model.positions == "learned" and self.model.max_positions < longest:
            yield Problem(
                "model.max_positions",
                f"must be greater than data.max_length {self.data.max_length:,}, "
                f"but is {self.model.max_positions:,}",
                "data.max_length",
            )

    def _problems_of_alignments(self) -> Iterator[Problem]:
        guided, decoder = self.training.guided_alignment, self.model.decoder_shape
        if guided is None:
            return
        key = "training.guided_alignment"
        if all(corpus.alignments is None for corpus in self.data.train):
            text = "needs alignments of a corpus of data.train, but none has them"
            yield Problem(key, text, "data.train")
        for name, value, most in (
            ("layer", guided.layer or 1, decoder.num_layers),
            ("head", guided.head, decoder.num_heads),
        ):
            if value > most:
                text = f"must be at most {most}, the {name}s of the decoder, but is {value}"
                yield Problem(f"{key}.{name}", text)

    def _problems_of_a_new_tokenizer(self) -> Iterator[Problem]:
        if self.tokenizer.model is not None:
            return  # preprocess reads it: it may be of any type, and have two vocabularies
        if self.tokenizer.shared:
            if self.model.source_vocabulary_size is not None:
                text = "must be null, because tokenizer.shared gives both languages one vocabulary"
                yield Problem("model.source_vocabulary_size", text, "tokenizer.shared")
            return
        if self.model.tied_embeddings == "all":
            text = "must be decoder or none with tokenizer.shared: false, but is all"
            yield Problem("model.tied_embeddings", text, "tokenizer.shared")
        if self.data.treebank is not None:
            text = "must be true with data.treebank, because trees contain the words of the source"
            yield Problem("tokenizer.shared", text, "data.treebank")

    def _problems_of_augmentation(self) -> Iterator[Problem]:
        symbols = "tokenizer.user_defined_symbols"
        is_in_pieces = self.tokenizer.type == "whitespace"
        for number, corpus in enumerate(self.data.train):
            key, augment = f"data.train.{number}.augment", corpus.augment
            for name in augment.probabilities:
                if self.data.treebank is not None:
                    text = "must be 0 with data.treebank, because trees cannot be changed"
                    yield Problem(f"{key}.{name}", text, "data.treebank")
                if is_in_pieces and name != "merge":
                    text = "needs type sentencepiece, which has pieces for any word"
                    yield Problem(f"{key}.{name}", text, "tokenizer.type")
            for name, symbol in augment.symbols:
                if symbol not in self.tokenizer.user_defined_symbols:
                    text = f"needs {symbol} in {symbols}; add it there"
                    yield Problem(f"{key}.{name}", text, symbols)

    def _problems_of_robustness(self) -> Iterator[Problem]:
        key, kinds = "validation.robustness", self.validation.robustness
        if kinds and (self.data.treebank is not None or self.tokenizer.type == "whitespace"):
            text = "needs raw text, because only its words can be changed; give an empty list"
            yield Problem(key, text, "tokenizer.type")
        names = [*kinds, *(files.name for files in self.data.validation_sets)]
        for kind in dict.fromkeys(kinds):
            if names.count(kind) > 1:
                text = f"{kind} is the name of two sets; leave one out"
                yield Problem(key, text, "data.validation")

    def _problems_of_trees(self) -> Iterator[Problem]:
        treebank, validation = self.data.treebank, self.validation
        if treebank is not None and validation.bleu != "off":
            yield Problem(
                "validation.bleu",
                "must be off with data.treebank, because BLEU does not measure trees, but is "
                f"{validation.bleu}; give bleu: off, and parseval: greedy to measure F1",
                "data.treebank",
            )
        if treebank is not None and validation.tokenize is not None:
            text = "must be null with data.treebank, because it is for BLEU, but is "
            yield Problem("validation.tokenize", f"{text}{validation.tokenize}", "data.treebank")
        if treebank is None and validation.parseval != "off":
            text = "must be off without data.treebank, because only trees have an F1, but is "
            yield Problem("validation.parseval", f"{text}{validation.parseval}", "data.treebank")
        if treebank is not None and not self.model.source_eos:
            text = "must be true with data.treebank, because a sentence may have no pieces"
            yield Problem("model.source_eos", text, "data.treebank")
        if self.decoding.well_formed_trees and treebank is None:
            yield Problem("decoding.well_formed_trees", "needs data.treebank", "data.treebank")


def with_fold(recipe: Recipe, fold: bool) -> Recipe:
    """Return ``recipe`` with ``fold`` as data.normalization.fold, if that is null."""
    normalization = recipe.data.normalization.decided(fold=fold)
    data = recipe.data.model_copy(update={"normalization": normalization})
    return recipe.model_copy(update={"data": data})


def for_new_text(recipe: Recipe) -> Recipe:
    """Return ``recipe`` as preprocess takes it: parallel text is folded, if that is left to it."""
    return with_fold(recipe, fold=recipe.data.treebank is None)
