"""The recipe: everything an experiment's result depends on, and the defaults of all keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from nmt_cli.messages.figures import counted
from nmt_cli.recipe.model_config import ModelConfig
from nmt_cli.recipe.smaller_sections import (
    CheckpointsConfig,
    DecodingConfig,
    TreebankConfig,
    ValidationConfig,
)
from nmt_cli.recipe.values import (
    DECLARED,
    FREE,
    Count,
    DataPath,
    Epochs,
    Flag,
    Language,
    Number,
    Pieces,
    Problem,
    Rate,
    Section,
    Steps,
    Word,
)

# Byte fallback needs 256 pieces; <unk>, <s> and </s> are three more.
RESERVED_PIECES = 259
RESERVED_NAMES = ("<unk>", "<s>", "</s>")
ONLY_FOR_TRAINING = {"sampling"}  # keys of tokenizer that do not change what preprocess writes


class ParallelFiles(Section):
    """Two text files; line n of one translates line n of the other.

    With data.treebank, the target is a file of trees; the source is the same file, or a text file
    whose line n is the words of tree n.
    """

    source: DataPath = Field(description="Text file of the source side, also .gz, .xz or .zst.")
    target: DataPath = Field(description="Text file of the target side, also .gz, .xz or .zst.")


class Corpus(ParallelFiles):
    """Training text and how often it appears in an epoch."""

    weight: Annotated[Number, Field(ge=0, le=1_000_000), DECLARED] = Field(
        default=1.0,
        description="How often this corpus appears in an epoch; a fraction adds a random share of "
        "its pairs, drawn by the seed, 0 leaves it out.",
    )


class Normalization(Section):
    """Changes to the text before it is cut into pieces; translate applies them to its input."""

    nfc: Flag = Field(default=False, description="Compose characters (Unicode NFC).")
    punctuation: Flag = Field(
        default=False, description="Normalize punctuation as the Moses scripts do."
    )


class Filters(Section):
    """Training pairs to leave out; each rule is counted in the manifest."""

    max_length_ratio: Annotated[Number, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Drop pairs whose longer side has more than this many times the pieces "
        "of the other.",
    )
    min_length: Pieces = Field(
        default=1, description="Drop pairs with a side of fewer pieces than this."
    )
    remove_duplicates: Flag = Field(
        default=False, description="Keep only the first of exactly equal pairs."
    )


class DataConfig(Section):
    """The text: its files, and how it is changed and filtered."""

    source_language: Language = Field(description="Code of the language translated from.")
    target_language: Language = Field(description="Code of the language translated into.")
    train: tuple[Corpus, ...] = Field(
        min_length=1,
        max_length=10_000,
        description="Corpora to train on, each with its source and target.",
    )
    validation: ParallelFiles = Field(
        description="Text on which loss, BLEU or F1 are measured while training."
    )
    test: Annotated[ParallelFiles | None, FREE] = Field(
        default=None, description="Text held out for the final score; training never reads it."
    )
    treebank: TreebankConfig | None = Field(
        default=None,
        description="How trees are written as tokens. If given, each target is a treebank: trees "
        "in the brackets of the Penn Treebank; source is the same file, or the words of a tree a "
        "line. The model then parses.",
    )
    normalization: Normalization = Field(
        default_factory=Normalization,
        description="Changes to the text before it is cut into pieces.",
    )
    filters: Filters = Field(default_factory=Filters, description="Training pairs to leave out.")
    max_length: Pieces = Field(
        default=1024,
        description="Longest side of a training pair, in pieces; longer pairs are dropped and "
        "counted. Also the longest input of translate; see its --too-long.",
    )
    prepared: Annotated[DataPath | None, FREE] = Field(
        default=None,
        description="Folder that preprocess writes and train reads; by default prepared/NAME.",
    )

    def problems(self) -> Iterator[Problem]:
        """Yield limits on length that no pair can meet, and changes to the tokens of trees."""
        if self.treebank is not None and self.normalization.punctuation:
            text = "must be false beside treebank, because it would change tags such as ``"
            yield Problem("normalization.punctuation", text, "treebank")
        if self.filters.min_length > self.max_length:
            yield Problem(
                "filters.min_length",
                f"must be at most data.max_length {self.max_length:,}, "
                f"but is {self.filters.min_length:,}",
                "max_length",
            )


class TokenizerConfig(Section):
    """How text becomes pieces; source and target share one vocabulary."""

    alternatives = (frozenset({"model", "vocabulary_size"}),)

    type: Literal["sentencepiece", "whitespace"] = Field(
        default="sentencepiece",
        description="sentencepiece cuts raw text; whitespace takes text already in pieces.",
    )
    algorithm: Literal["bpe", "unigram"] = Field(
        default="bpe", description="How SentencePiece is trained."
    )
    vocabulary_size: Annotated[Count, Field(ge=4, le=1_000_000)] | None = Field(
        default=None,
        description="Pieces in the vocabulary. Needed unless model names a file; for whitespace "
        "text an optional limit to the most frequent.",
    )
    model: DataPath | None = Field(
        default=None,
        description="An existing SentencePiece file to use instead of training one; beside "
        "model.from, the folder named there.",
    )
    joiner: Word | None = Field(
        default=None,
        description="Whitespace only: mark at the end of a piece whose word continues in the next "
        'piece ("@@"); translate removes it.',
    )
    user_defined_symbols: tuple[Word, ...] = Field(
        default=(),
        max_length=100_000,
        description="Texts that are one piece each, such as tree brackets or language tags.",
    )
    character_coverage: Annotated[Number, Field(ge=0.98, le=1)] = Field(
        default=1.0, description="Share of the training characters that get a piece of their own."
    )
    training_sentences: Annotated[Count, Field(ge=1, le=10**9)] = Field(
        default=10_000_000,
        description="At most this many sampled sentences train the SentencePiece model.",
    )
    sampling: Annotated[Annotated[Number, Field(gt=0, lt=1)] | None, DECLARED] = Field(
        default=None,
        description="SentencePiece only: cut the training text into other pieces in each epoch, "
        "drawn by the seed. With bpe, the probability that a merge is left out (BPE dropout; "
        "usual is 0.1). With unigram, alpha, the exponent of the probabilities of all ways to cut "
        "a text (usual is 0.1 to 0.5; less is more random). Null always cuts a text in one way.",
    )

    def problems(self) -> Iterator[Problem]:
        """Yield settings that do not fit the type of tokenizer, and wrong sizes and symbols."""
        if self.type == "whitespace" and self.sampling is not None:
            yield Problem("sampling", "needs type sentencepiece, but type is whitespace", "type")
        if self.type == "sentencepiece":
            if self.joiner is not None:
                yield Problem("joiner", "needs type whitespace, but type is sentencepiece", "type")
            yield from self._problems_of_size()
        yield from self._problems_of_symbols()

    def _problems_of_size(self) -> Iterator[Problem]:
        size, symbols = self.vocabulary_size, len(self.user_defined_symbols)
        least = RESERVED_PIECES + symbols + 1
        text = ""
        if self.model is None and size is None:
            text = "is missing; say how many pieces, such as 32000"
        elif self.model is not None and size is not None:
            text = "must be null beside model, whose file decides the size"
        elif size is not None and size < least:
            text = (
                f"must be at least {least:,} (256 bytes, 3 marks, {counted(symbols, 'symbol')} "
                f"and a piece), but is {size:,}"
            )
        if text:
            yield Problem("vocabulary_size", text, "model")

    def _problems_of_symbols(self) -> Iterator[Problem]:
        seen: set[str] = set()
        for index, symbol in enumerate(self.user_defined_symbols):
            key = f"user_defined_symbols.{index}"
            if symbol in RESERVED_NAMES:
                yield Problem(key, f"{symbol} is a mark of the model itself; choose another text")
            if symbol in seen:
                yield Problem(key, f"{symbol} is listed twice")
            seen.add(symbol)


class TrainingConfig(Section):
    """Size, number and learning rate of the optimizer's steps (section 5)."""

    alternatives = (frozenset({"learning_rate_factor", "peak_learning_rate"}),)

    tokens_per_step: Annotated[Count, Field(ge=2, le=10**9), DECLARED] = Field(
        default=25_000,
        description="Most tokens of either side in one step, over all devices and micro-batches; "
        "with tokenizer.sampling, counted before the pieces are drawn.",
    )
    max_steps: Annotated[Steps | None, FREE] = Field(
        default=100_000,
        description="Stop after this many steps; null if only max_epochs ends training.",
    )
    max_epochs: Annotated[Epochs | None, FREE] = Field(
        default=None, description="Stop after this many epochs, if that comes first."
    )
    warmup_steps: Annotated[Steps, DECLARED] = Field(
        default=4000, description="Steps in which the learning rate rises."
    )
    learning_rate_factor: Annotated[Number, Field(gt=0, le=1_000_000), DECLARED] = Field(
        default=1.0, description="Factor by which the learning rate of section 5.3 is multiplied."
    )
    peak_learning_rate: Annotated[Annotated[Number, Field(gt=0, le=100)] | None, DECLARED] = Field(
        default=None,
        description="Learning rate at the end of warm-up, in place of section 5.3's; the shape of "
        "the schedule stays.",
    )
    warmup_start: Annotated[Number, Field(ge=0, le=100), DECLARED] = Field(
        default=0.0, description="Learning rate that warm-up to peak_learning_rate starts from."
    )
    label_smoothing: Annotated[Rate, DECLARED] = Field(
        default=0.1, description="Label smoothing (section 5.4)."
    )
    adam_betas: Annotated[tuple[Rate, Rate], DECLARED] = Field(
        default=(0.9, 0.98), description="Adam's decay rates of the two moments."
    )
    adam_epsilon: Annotated[Number, Field(gt=0, le=1), DECLARED] = Field(
        default=1e-9, description="Adam's epsilon."
    )
    clip_norm: Annotated[Annotated[Number, Field(gt=0, le=1_000_000)] | None, DECLARED] = Field(
        default=None,
        description="Largest norm of the gradient; null, as in the paper, does not clip.",
    )
    ema_decay: Annotated[Number, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Decay of an exponential moving average of the weights: the share that it "
        "keeps at each step, such as 0.999. The average is then validated and saved instead of the "
        "weights. Null keeps no average.",
    )
    seed: Annotated[Count, Field(ge=0, lt=2**63), DECLARED] = Field(
        default=1, description="Decides initial weights, order of the data and dropout."
    )

    def problems(self) -> Iterator[Problem]:
        """Yield a training without an end, and learning rates that contradict each other."""
        if self.max_steps is None and self.max_epochs is None:
            text = "must be a number if max_epochs is null, but both are null"
            yield Problem("max_steps", text, "max_epochs")
        peak, start = self.peak_learning_rate, self.warmup_start
        factor = self.learning_rate_factor
        if peak is None and start > 0:
            text = "needs peak_learning_rate, which is null"
            yield Problem("warmup_start", text, "peak_learning_rate")
        if peak is not None and start > peak:
            text = f"must be at most peak_learning_rate {peak:g}, but is {start:g}"
            yield Problem("warmup_start", text, "peak_learning_rate")
        if peak is not None and factor != 1:
            text = f"must be 1.0 beside peak_learning_rate, but is {factor:g}"
            yield Problem("learning_rate_factor", text, "peak_learning_rate")


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
        **{"from": (DataPath | None, origin)},
    )


class Recipe(Section):
    """One experiment."""

    description: Annotated[str, FREE] = Field(
        min_length=1, max_length=10_000, description="What this recipe is, for recipes list."
    )
    data: DataConfig = Field(description="The text.")
    tokenizer: TokenizerConfig = Field(description="How text becomes pieces.")
    model: ModelSection = Field(default_factory=ModelSection, description="The Transformer.")
    training: TrainingConfig = Field(
        default_factory=TrainingConfig, description="The optimizer's steps."
    )
    validation: ValidationConfig = Field(
        default_factory=ValidationConfig, description="Measuring while training."
    )
    checkpoints: Annotated[CheckpointsConfig, FREE] = Field(
        default_factory=CheckpointsConfig, description="What is saved and kept."
    )
    decoding: Annotated[DecodingConfig, FREE] = Field(
        default_factory=DecodingConfig, description="Beam search."
    )

    @property
    def origin(self) -> Path | None:
        """The folder of the model that ``model.from`` names."""
        return getattr(self.model, "from", None)

    def problems(self) -> Iterator[Problem]:
        """Yield limits that the longest sentence would exceed, and what does not suit the data."""
        yield from self._problems_of_trees()
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

    def _problems_of_a_new_tokenizer(self) -> Iterator[Problem]:
        if self.tokenizer.type == "whitespace" and self.tokenizer.model is not None:
            text = "needs type sentencepiece, but type is whitespace"
            yield Problem("tokenizer.model", text, "tokenizer.type")
        if self.model.source_vocabulary_size is not None:
            text = "must be null, because the tokenizer of a recipe has one vocabulary for both"
            yield Problem("model.source_vocabulary_size", f"{text} languages")

    def _problems_of_trees(self) -> Iterator[Problem]:
        treebank, validation = self.data.treebank, self.validation
        if treebank is not None and validation.bleu != "off":
            yield Problem(
                "validation.bleu",
                "must be off with data.treebank, because BLEU does not measure trees, but is "
                f"{validation.bleu}; give bleu: off, and parseval: greedy to measure F1",
                "data.treebank",
            )
        if treebank is None and validation.parseval != "off":
            text = "must be off without data.treebank, because only trees have an F1, but is "
            yield Problem("validation.parseval", f"{text}{validation.parseval}", "data.treebank")
        if treebank is not None and not self.model.source_eos:
            text = "must be true with data.treebank, because a sentence may have no pieces"
            yield Problem("model.source_eos", text, "data.treebank")
        if self.decoding.well_formed_trees and treebank is None:
            yield Problem("decoding.well_formed_trees", "needs data.treebank", "data.treebank")


def sections_that_matter(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of the recipe that determine what preprocess writes.

    The test set, the weights of corpora, the folder to write to and the sampling of pieces while
    training are not among them.
    """
    data = recipe.data.model_dump(mode="json", exclude={"prepared", "test"})
    for corpus in data["train"]:
        del corpus["weight"]
    tokenizer = recipe.tokenizer.model_dump(mode="json", exclude=ONLY_FOR_TRAINING)
    return {"data": data, "tokenizer": tokenizer}
