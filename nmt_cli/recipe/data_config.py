"""The section of a recipe on its text: corpora, filters, treebank."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.linearization import Linearization, Notation
from nmt_cli.recipe.augmentation_config import Augmentation
from nmt_cli.recipe.mixing_config import MixingConfig, Stage, problems_of_mixing, weights_of
from nmt_cli.recipe.translation_config import Normalization
from nmt_cli.recipe.values import (
    DECLARED,
    FREE,
    Count,
    DataPath,
    Flag,
    Language,
    Number,
    Pieces,
    Problem,
    Section,
    SetName,
    Word,
    repeated_names,
)


class ParallelFiles(Section):
    """Two text files; line n of one translates line n of the other.

    With data.treebank, the target is a file of trees; the source is the same file, or a text file
    whose line n is the words of tree n.
    """

    source: DataPath = Field(description="Text file of the source side, also .gz, .xz or .zst.")
    target: DataPath = Field(description="Text file of the target side, also .gz, .xz or .zst.")
    tag: Word | None = Field(
        default=None,
        description="Piece in front of the source of every pair, such as <2de> or <bt>; translate "
        "takes it from --tag or from the line. A tokenizer that preprocess makes gets this piece; "
        "any other must have it. It counts as a piece of the source.",
    )


class Scores(Section):
    """A file with a number for each pair of a corpus: the higher, the better is the pair."""

    file: DataPath = Field(
        description="Text file with one number a line, for the pair on the same line of source "
        "and target; also .gz, .xz or .zst."
    )
    at_least: Number | None = Field(
        default=None, description="Drop pairs with a lower number than this."
    )


class Corpus(ParallelFiles):
    """Training text and how often it appears in an epoch."""

    name: Annotated[Word | None, FREE] = Field(
        default=None, description="Name of this corpus in data.stages."
    )
    weight: Annotated[Number, Field(ge=0, le=1_000_000), DECLARED] = Field(
        default=1.0,
        description="How often this corpus appears in an epoch; a fraction adds a random share of "
        "its pairs, drawn by the seed, 0 leaves it out.",
    )
    scores: Scores | None = Field(
        default=None,
        description="Scores of the pairs. Where repeated pairs are removed, the one with the best "
        "score stays.",
    )
    alignments: DataPath | None = Field(
        default=None,
        description="File with the links of the words of each pair, such as 0-0 2-1 (source word "
        "2 and target word 1, from 0), for training.guided_alignment; nmt-cli align makes it. "
        "Words are what white space separates in the text files.",
    )
    augment: Annotated[Augmentation, DECLARED] = Field(
        default_factory=Augmentation,
        description="Changes to its pairs, drawn anew in each epoch by the seed.",
    )

    def problems(self) -> Iterator[Problem]:
        """Yield terms without a glossary or alignments that give their translations."""
        if self.augment.terms > 0 and self.augment.glossary is None and self.alignments is None:
            text = (
                "is missing beside terms; give the file of the terms, or alignments of the corpus"
            )
            yield Problem("augment.glossary", text)


class HeldOutFiles(ParallelFiles):
    """A validation or test set."""

    name: SetName | None = Field(
        default=None,
        description="Name of the set in logs, metrics, scores and reports; required in a list.",
    )


NamedFiles = Annotated[
    HeldOutFiles, Field(json_schema_extra={"required": ["name", "source", "target"]})
]
ONE_SET, SEVERAL_SETS = "(a set)", "(a list of sets)"  # names that no key of a recipe has
HeldOutSets = Annotated[
    Annotated[HeldOutFiles, Tag(ONE_SET)]
    | Annotated[tuple[NamedFiles, ...], Field(min_length=1, max_length=100), Tag(SEVERAL_SETS)],
    Discriminator(lambda value: SEVERAL_SETS if isinstance(value, list | tuple) else ONE_SET),
]


def sets_by_key(
    key: str, held_out: HeldOutFiles | tuple[HeldOutFiles, ...] | None
) -> dict[str, HeldOutFiles]:
    """Return the sets that ``key`` of a recipe holds, with the key of each: data.test.0."""
    if held_out is None:
        return {}
    if isinstance(held_out, HeldOutFiles):
        return {key: held_out}
    return {f"{key}.{index}": files for index, files in enumerate(held_out)}


# Filters of the first version; manifests hold them also if they are not used.
FIRST_FILTERS = ("max_length_ratio", "min_length", "remove_duplicates")
Amount = Annotated[Count, Field(ge=1, le=10**6)]
Ratio = Annotated[Number, Field(ge=1, le=1_000_000)]
Share = Annotated[Number, Field(ge=0, le=1)]


class Filters(Section):
    """Training pairs to leave out; each rule is counted in the manifest."""

    # They are applied in the order of RULES in corpus/text/cleaning.py.
    max_length_ratio: Ratio | None = Field(
        default=None,
        description="Drop pairs whose longer side has more than this many times the pieces "
        "of the other.",
    )
    min_length: Pieces = Field(
        default=1, description="Drop pairs with a side of fewer pieces than this."
    )
    remove_duplicates: Flag = Field(
        default=False,
        description="Of exactly equal pairs, keep only the one with the best of data.train.scores, "
        "or the first.",
    )
    min_characters: Amount | None = Field(
        default=None, description="Drop pairs with a side of fewer characters than this."
    )
    max_characters: Amount | None = Field(
        default=None, description="Drop pairs with a side of more characters than this."
    )
    max_characters_ratio: Ratio | None = Field(
        default=None,
        description="Drop pairs whose longer side has more than this many times the characters of "
        "the other.",
    )
    min_words: Amount | None = Field(
        default=None, description="Drop pairs with a side of fewer words than this."
    )
    max_words: Amount | None = Field(
        default=None, description="Drop pairs with a side of more words than this."
    )
    max_words_ratio: Ratio | None = Field(
        default=None,
        description="Drop pairs whose longer side has more than this many times the words of the "
        "other. Words are what white space separates.",
    )
    max_word_length: Amount | None = Field(
        default=None, description="Drop pairs with a word of more characters than this."
    )
    remove_copies: Flag = Field(
        default=False, description="Drop pairs whose target is the source itself."
    )
    min_letters: Share | None = Field(
        default=None,
        description="Drop pairs if letters are less than this share of a side's characters; white"
        " space is not counted.",
    )
    min_script: Share | None = Field(
        default=None,
        description="Drop pairs if less than this share of a side's letters are of the script of "
        "its language.",
    )
    min_equal_digits: Share | None = Field(
        default=None,
        description="Drop pairs if less than this share of their digits 1 to 9 are on both sides."
        " Order, zeros and separators do not matter.",
    )
    remove_different_urls: Flag = Field(
        default=False,
        description="Drop pairs whose sides have different URLs or e-mail addresses.",
    )
    max_urls: Share | None = Field(
        default=None,
        description="Drop pairs if URLs and e-mail addresses are more than this share of a side's"
        " characters.",
    )
    max_repeated_ngrams: Share | None = Field(
        default=None,
        description="Drop pairs if more than this share of a side's sequences of three words "
        "occurred earlier in the side; in languages without spaces, sequences of six "
        "characters.",
    )
    min_language: Share | None = Field(
        default=None,
        description="Drop pairs if py3langid gives the language of a side a lower probability "
        "than this.",
    )
    remove_held_out: Flag = Field(
        default=False,
        description="Drop pairs that are also in data.validation or data.test, also if they differ "
        "in case, digits, punctuation or spaces.",
    )
    remove_duplicate_sources: Flag = Field(
        default=False,
        description="Of pairs with the same source, keep only the one with the best of "
        "data.train.scores, or the first.",
    )
    remove_duplicate_targets: Flag = Field(
        default=False, description="The same for pairs with the same target."
    )

    def problems(self) -> Iterator[Problem]:
        """Yield limits that no pair can meet."""
        for unit in ("characters", "words"):
            least, most = getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}")
            if least is not None and most is not None and least > most:
                text = f"must be at most max_{unit} {most:,}, but is {least:,}"
                yield Problem(f"min_{unit}", text, f"max_{unit}")


class TreebankConfig(Section):
    """How a treebank is cleaned, and how its trees are written as tokens."""

    notation: Notation = Field(
        default="angles",
        description="angles writes (NP <NN> )NP, brackets (NP NN )NP as Vinyals et al., slashes "
        "NP NN /NP as Tensor2Tensor.",
    )
    tags: Literal["kept", "XX"] = Field(
        default="kept",
        description="XX writes XX in place of each word's tag; parses then have XX too.",
    )
    words: Literal["dropped", "kept"] = Field(
        default="dropped", description="Whether each word follows its tag."
    )
    closing: Literal["typed", "plain"] = Field(
        default="typed", description="typed writes )NP where a constituent ends, plain only )."
    )
    remove_traces: Flag = Field(
        default=True, description="Remove traces (-NONE-) and the constituents left empty."
    )
    remove_functions: Flag = Field(
        default=True, description="Remove functions and indices from labels: NP of NP-SBJ-1."
    )

    def linearization(self, labels: Labels | None) -> Linearization:
        """Return the notation for trees with ``labels``; None allows all, except for slashes."""
        return Linearization(self.notation, self.tags, self.words, self.closing, labels)


class DataConfig(Section):
    """The text: its files, and how it is changed and filtered."""

    source_language: Language = Field(description="Code of the language translated from.")
    target_language: Language = Field(description="Code of the language translated into.")
    train: tuple[Corpus, ...] = Field(
        min_length=1,
        max_length=10_000,
        description="Corpora to train on, each with its source and target.",
    )
    mixing: MixingConfig = Field(
        default_factory=MixingConfig,
        description="Shares by size, in place of the weights of corpora.",
    )
    stages: Annotated[tuple[Stage, ...], DECLARED] = Field(
        default=(),
        max_length=1000,
        description="Mixtures of the corpora, one after the other. Learning rate and optimizer go "
        "on; a stage begins with a new epoch.",
    )
    validation: HeldOutSets = Field(
        description="Text on which loss, BLEU or F1 are measured while training; a list holds "
        "several sets, each with a name."
    )
    test: Annotated[HeldOutSets | None, FREE] = Field(
        default=None,
        description="Text held out for the final score; training never reads it. A list holds "
        "several sets, each with a name.",
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

    @property
    def validation_sets(self) -> tuple[HeldOutFiles, ...]:
        """The validation sets; one without a name is the only one."""
        return tuple(sets_by_key("validation", self.validation).values())

    @property
    def test_sets(self) -> tuple[HeldOutFiles, ...]:
        """The test sets, or none; one without a name is the only one."""
        return tuple(sets_by_key("test", self.test).values())

    @property
    def tags(self) -> dict[str, str]:
        """The tags of corpora, validation and test sets, each by its key: train.0.tag."""
        corpora: dict[str, ParallelFiles] = {
            **{f"train.{index}": corpus for index, corpus in enumerate(self.train)},
            **sets_by_key("validation", self.validation),
            **sets_by_key("test", self.test),
        }
        return {f"{key}.tag": each.tag for key, each in corpora.items() if each.tag is not None}

    def weights(self, sizes: Sequence[int], stage: int = 0) -> list[float]:
        """Return how often each corpus appears in an epoch; ``sizes`` are their pairs."""
        return weights_of(self, sizes, stage)

    @property
    def is_augmented(self) -> bool:
        """Whether training changes the text of some of its pairs."""
        return any(corpus.augment.probabilities for corpus in self.train)

    def problems(self) -> Iterator[Problem]:
        """Yield unnamed sets, limits that no pair can meet, and what does not suit trees."""
        for key, held_out in (("validation", self.validation), ("test", self.test)):
            if isinstance(held_out, tuple):
                yield from _problems_of_names(sets_by_key(key, held_out))
        if self.treebank is not None and self.normalization.punctuation:
            text = "must be false beside treebank, because it would change tags such as ``"
            yield Problem("normalization.punctuation", text, "treebank")
        if self.treebank is not None:
            text = "is for text; leave it out beside treebank"
            for key in self._filters_of_text():
                yield Problem(key, text, "treebank")
        for key, tag in self.tags.items() if self.treebank is not None else ():
            text = f"must be null beside treebank, whose sentences have only words, but is {tag}"
            yield Problem(key, text, "treebank")
        yield from problems_of_mixing(self)
        for number, corpus in enumerate(self.train):
            if self.treebank is not None and corpus.alignments is not None:
                text = "must be null beside treebank, whose trees have no alignments"
                yield Problem(f"train.{number}.alignments", text, "treebank")
        if self.filters.min_length > self.max_length:
            yield Problem(
                "filters.min_length",
                f"must be at most data.max_length {self.max_length:,}, "
                f"but is {self.filters.min_length:,}",
                "max_length",
            )

    def _filters_of_text(self) -> Iterator[str]:
        """Yield the keys in use that filter parallel text by what is in it, or by its scores."""
        of_pairs = {*FIRST_FILTERS, "remove_held_out"}
        of_pairs |= {"remove_duplicate_sources", "remove_duplicate_targets"}
        for name, value in self.filters:
            if value is not None and value is not False and name not in of_pairs:
                yield f"filters.{name}"
        for number, corpus in enumerate(self.train):
            if corpus.scores is not None:
                yield f"train.{number}.scores"


def _problems_of_names(sets: Mapping[str, HeldOutFiles]) -> Iterator[Problem]:
    names = [(f"{key}.name", files.name) for key, files in sets.items()]
    for key, name in names:
        if name is None:
            yield Problem(key, "is missing; each set of a list needs a name")
    yield from repeated_names(names)
