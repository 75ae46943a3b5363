"""The corpora of a recipe, and its validation and test sets: their files, and augmentation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag

from nmt_cli.recipe.problem import Problem
from nmt_cli.recipe.values import (
    DataPath,
    Effect,
    Language,
    Number,
    Section,
    SetName,
    Word,
    descriptions,
)

# In the order in which they are applied. The case of letters changes last: before, terms are found
# as they are written, and the translations in tags get the same case as the sentence.
KINDS = ("noise", "merge", "typos", "remove_end_punctuation", "terms", "title_case", "upper_case")
TERM_TAGS = "<t>", "</t>"
Probability = Annotated[Number, Field(ge=0, le=1)]


class Augmentation(Section):
    """Changes to the training pairs of a corpus, drawn anew in each epoch by the seed.

    Each number is the probability that a pair is changed in this way.
    """

    upper_case: Probability = 0.0
    """Both sides in capital letters."""
    title_case: Probability = 0.0
    """Each word of both sides with a capital letter at its beginning."""
    typos: Probability = 0.0
    """Misspelt words in the source: two letters swapped, or a letter inserted, left out or
    replaced; at least one word."""
    typos_per_word: Annotated[Number, Field(gt=0, le=1)] = 0.1
    """Probability that a word of such a source is misspelt."""
    noise: Probability = 0.0
    """In place of the pair, random characters, the same on both sides."""
    remove_end_punctuation: Probability = 0.0
    """Punctuation at the end left out, if both sides end with the same kind of it."""
    merge: Probability = 0.0
    """One to three of the pairs that follow in the corpus are added to the pair."""
    merge_separator: Word | None = None
    """Put between merged sentences; one of tokenizer.user_defined_symbols."""
    terms: Probability = 0.0
    """Behind each term of the glossary in the source, its translation in term_tags, if the target
    has it; without a glossary, behind one to three words that have alignments."""
    glossary: DataPath | None = None
    """The terms, in a file as translate --glossary takes it."""
    term_tags: tuple[Word, Word] = TERM_TAGS
    """Begin and end of a term's translation; two of tokenizer.user_defined_symbols."""

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each kind of change that is asked for."""
        given = {name: getattr(self, name) for name in KINDS}
        return {name: probability for name, probability in given.items() if probability > 0}

    @property
    def symbols(self) -> list[tuple[str, str]]:
        """The pieces that are added to the text, each behind the key that names it."""
        found = [("term_tags", tag) for tag in self.term_tags] if self.terms > 0 else []
        if self.merge > 0 and self.merge_separator is not None:
            found.append(("merge_separator", self.merge_separator))
        return found


# What a corpus may be, for the JSON Schema.
FORMS_OF_ROWS = ("tsv", "jsonl", "memory")  # of one file with both sides
FORMS: list[JsonValue] = [
    {"required": ["source", "target"]},
    {"required": ["tsv"]},
    {"required": ["jsonl"]},
    {"required": ["memory"]},
]
ColumnName = Annotated[str, Field(min_length=1, max_length=1000)]


class ParallelFiles(Section):
    """Two text files, where line n of one translates line n of the other, or one file of rows.

    With data.treebank, the target is a file of trees; the source is the same file, or a text file
    whose line n is the words of tree n.
    """

    alternatives = (
        frozenset({"source", "tsv", "jsonl", "memory"}),
        frozenset({"target", "tsv", "jsonl", "memory"}),
        frozenset({"source", "columns"}),
        frozenset({"source", "inline_tags"}),
    )

    source: Annotated[DataPath | None, Effect.TEXT] = None
    """Text file of the source side, also .gz, .xz or .zst."""
    target: Annotated[DataPath | None, Effect.TEXT] = None
    """Text file of the target side, also .gz, .xz or .zst."""
    tsv: Annotated[DataPath | None, Effect.TEXT] = None
    """In place of source and target: a file with both in each line, as columns with a tab between
    them; also .gz, .xz or .zst. Quotes have no meaning."""
    jsonl: Annotated[DataPath | None, Effect.TEXT] = None
    """In place of source and target: a file with both in each line, as texts of a JSON object; also
    .gz, .xz or .zst. A line break in a text becomes a space."""
    memory: Annotated[DataPath | None, Effect.TEXT] = None
    """In place of source and target: a translation memory (TMX) or a translators' file (XLIFF 1.2
    or 2, PO); also .gz, .xz or .zst. A line break in a text becomes a space."""
    columns: Annotated[tuple[ColumnName, ColumnName] | None, Effect.TEXT] = None
    """Where source and target are. In tsv: their columns, by number from 1 (by default 1 and 2), or
    by their names in the first line. In jsonl: their keys (by default source and target);
    translation.en is the key en in the object translation. In memory: their languages (by default
    those of the corpus); en matches en-GB, too."""
    inline_tags: Annotated[Word | None, Effect.TEXT] = None
    """Piece in place of each inline tag of memory, such as <ph>; null removes them. A tokenizer
    that preprocess makes gets this piece; any other must have it."""
    tag: Annotated[Word | None, Effect.TEXT] = None
    """Piece in front of the source of every pair, such as <2de> or <bt>; translate takes it from
    --tag or from the line. A tokenizer that preprocess makes gets this piece; any other must have
    it. It counts as a piece of the source."""
    languages: Annotated[tuple[Language, Language] | None, Effect.TEXT] = None
    """Codes of its languages, the source first; by default the columns of a memory, or those of
    data. The model keeps them with the tag, so translate and serve find the tag of a pair."""

    @property
    def rows(self) -> Path | None:
        """The file of rows that holds both sides, if there is one."""
        return self.tsv or self.jsonl or self.memory

    @property
    def paths(self) -> dict[str, Path]:
        """The files with the pairs, by their keys: source and target, or the file of rows."""
        keys = ("source", "target", *FORMS_OF_ROWS)
        return {key: path for key in keys if (path := getattr(self, key)) is not None}

    @property
    def of_pairs(self) -> dict[str, Path]:
        """The files with a line for each pair beside its texts, by their keys."""
        return {}

    @property
    def text_files(self) -> tuple[Path, Path]:
        """The files of source and target of a corpus that has no file of rows."""
        assert self.source is not None
        assert self.target is not None
        return self.source, self.target

    def with_languages(self, languages: tuple[str, str]) -> "ParallelFiles":
        """Return the files with the columns of a memory: by default its own, or ``languages``."""
        if self.memory is None or self.columns is not None:
            return self
        return self.model_copy(update={"columns": self.languages or languages})

    def __str__(self) -> str:
        """Return the names of the files for messages."""
        return " and ".join(dict.fromkeys(map(str, self.paths.values())))

    def problems(self) -> Iterator[Problem]:
        """Yield files that are missing or given twice, and columns of no file of rows."""
        given = [key for key in FORMS_OF_ROWS if getattr(self, key) is not None]
        if self.inline_tags is not None and self.memory is None:
            yield Problem("inline_tags", "needs memory, whose tags it replaces")
        if not given:
            for key in ("source", "target"):
                if getattr(self, key) is None:
                    meaning = descriptions(type(self))[key]
                    yield Problem(key, f"is missing, a required key: {meaning}")
            if self.columns is not None:
                yield Problem("columns", "needs tsv, jsonl or memory, whose columns it names")
            return
        for key in ("source", "target", *given[1:]):
            if getattr(self, key) is not None:
                text = f"must be null beside {given[0]}, which holds both sides"
                yield Problem(key, text, given[0])
        if self.columns is not None and self.columns[0] == self.columns[1]:
            yield Problem("columns", f"must name two columns, but both are {self.columns[0]}")


class Scores(Section):
    """A file with a number for each pair of a corpus: the higher, the better is the pair."""

    file: DataPath
    """Text file with one number a line, for the pair on the same line of source and target; also
    .gz, .xz or .zst."""
    at_least: Number | None = None
    """Drop pairs with a lower number than this."""


class Corpus(ParallelFiles):
    """Training text and how often it appears in an epoch."""

    model_config = ConfigDict(json_schema_extra={"anyOf": FORMS})

    name: Annotated[Word | None, Effect.USE] = None
    """Name of this corpus in data.stages."""
    weight: Annotated[Number, Field(ge=0, le=1_000_000), Effect.STEPS] = 1.0
    """How often this corpus appears in an epoch; a fraction adds a share of its pairs, of 0.1 all
    of them in ten epochs, in an order that the seed draws; 0 leaves it out."""
    scores: Annotated[Scores | None, Effect.TEXT] = None
    """Scores of the pairs. Where repeated pairs are removed, the one with the best score stays."""
    alignments: Annotated[DataPath | None, Effect.TEXT] = None
    """File with the links of the words of each pair, such as 0-0 2-1 (source word 2 and target word
    1, from 0), for training.guided_alignment; nmt-cli align makes it. Words are what white space
    separates in the text files."""
    augment: Annotated[Augmentation, Effect.STEPS] = Field(default_factory=Augmentation)
    """Changes to its pairs, drawn anew in each epoch by the seed."""

    @property
    def of_pairs(self) -> dict[str, Path]:
        """The files of scores and alignments, if there are any, by these keys."""
        scores = self.scores.file if self.scores is not None else None
        found = {"scores": scores, "alignments": self.alignments}
        return {key: path for key, path in found.items() if path is not None}

    def problems(self) -> Iterator[Problem]:
        """Yield wrong files, and terms without a glossary or alignments that translate them."""
        yield from super().problems()
        if self.augment.terms > 0 and self.augment.glossary is None and self.alignments is None:
            text = (
                "is missing beside terms; give the file of the terms, or alignments of the corpus"
            )
            yield Problem("augment.glossary", text)


class HeldOutFiles(ParallelFiles):
    """A validation or test set."""

    name: SetName | None = None
    """Name of the set in logs, metrics, scores and reports; required in a list."""


NamedFiles = Annotated[
    HeldOutFiles, Field(json_schema_extra={"required": ["name"], "anyOf": FORMS})
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
