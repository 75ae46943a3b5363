"""A prepared corpus: the folder that preprocess writes and train reads.

train.source.tokens      token ids of all sentences, one after the other, each with its </s>
train.source.lengths     number of tokens of each sentence, including </s>
train.target.*  validation.source.*  validation.target.*                        likewise
validation.source.txt  validation.target.txt             text, to translate while training
validation.NAME.*        likewise for each validation set, if they have names
train.links.*            likewise the links of words, each a source word and a target word;
                         only if a corpus has alignments
tokenizer.model | vocabulary.txt  recipe.yaml  manifest.json
(with model.from, the files of that model's tokenizer)

Text, and a tokenizer of the user, may have changed since the folder was written (``changed_text``).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.text.sentences import share_of_single
from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.files import file_names
from nmt_cli.files.atomic_files import read_manifest, refuse_broken_link, sha256, verify
from nmt_cli.files.folders import PREPARED, kind_of, wrong_folder
from nmt_cli.files.lines import texts_of
from nmt_cli.files.locks import restore_replaced
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.proposals import command, missing_hint
from nmt_cli.parsing.labels import Labels
from nmt_cli.recipe.keys import FOLD, keys_of_text, recorded_keys_of_text
from nmt_cli.recipe.model_settings import labels_from_json, text_settings
from nmt_cli.recipe.schema import Recipe, with_fold
from nmt_cli.recipe.sections.corpora import FORMS_OF_ROWS

OF_TOKENIZERS = (*file_names.TOKENIZER_FILES, *file_names.FURTHER_TOKENIZER_FILES)
OWN_FILE = re.compile(
    rf"(train|validation(\.{file_names.SET_NAME.pattern})?)\.(source|target)\.(tokens|lengths|txt)|"
    r"train\.links\.(tokens|lengths)|"
    + "|".join(map(re.escape, (file_names.MANIFEST, file_names.RECIPE, *OF_TOKENIZERS)))
)
LINKS = "train.links"
MOST_LOOKED_AT = 100  # folders beside a missing one: the user may mean one of them


class ValidationSet(NamedTuple):
    """A text to measure a model on: the pairs that have a loss, and all lines of a side.

    Pairs that are too long or have an empty side have no loss. Target lines are trees in brackets
    if the text is a treebank.
    """

    name: str | None  # None if it is the only one and has no name
    source: BinarizedText
    target: BinarizedText
    lines: Callable[[Side], list[str]]

    @classmethod
    def open(cls, directory: Path, name: str | None) -> "ValidationSet":
        """Map the files of a set. Raises DamagedError if two of them do not fit together."""
        part = file_names.validation_part(name)
        source, target = (BinarizedText.open(directory, f"{part}.{side}") for side in SIDES)
        return cls(
            name, source, target, lambda side: texts_of(validation_text(directory, name, side))
        )


class PreparedCorpus(NamedTuple):
    """The prepared text and its tokenizer, as train uses them."""

    directory: Path
    source: BinarizedText
    target: BinarizedText
    validation: tuple[ValidationSet, ...]  # in the order of the recipe
    corpus_sizes: tuple[int, ...]  # pairs kept of each entry of data.train, stored in that order
    tokenizer: Tokenizer
    manifest: dict[str, Any]
    links: BinarizedText | None = None  # of words; each link is a source word and a target word
    # Those that sources of a training by the recipe have; with those of the model that it begins
    # from. None: unknown.
    characters: frozenset[str] | None = None
    # The share of its sources that are one sentence; with those of that model, the lesser one.
    single_sentences: float | None = None

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sentence."""
        return max(side.longest for side in self.sides)

    @property
    def sides(self) -> list[BinarizedText]:
        """Both sides of the training text and of each validation set."""
        of_sets = [side for each in self.validation for side in (each.source, each.target)]
        return [self.source, self.target, *of_sets]

    @property
    def num_bytes(self) -> int:
        """The bytes of all its files."""
        return sum(file["bytes"] for file in self.manifest["files"].values())

    @property
    def labels(self) -> Labels | None:
        """The labels of the training treebanks; None if the text is no treebank."""
        labels = self.manifest.get("treebank")
        return None if labels is None else labels_from_json(labels)

    def completed(self, recipe: Recipe) -> Recipe:
        """Return ``recipe`` with what preprocess decided.

        That is data.normalization.fold, and the size of the source's own vocabulary, if it has one.
        """
        recipe = with_fold(recipe, fold=_is_folded(self.manifest))
        if recipe.tokenizer.shared or recipe.model.source_vocabulary_size is not None:
            return recipe
        update = {"source_vocabulary_size": self.tokenizer.source_size}
        return recipe.model_copy(update={"model": recipe.model.model_copy(update=update)})


def open_prepared(
    directory: Path, recipe: Recipe, preprocess: str, *, is_checked_elsewhere: bool = False
) -> PreparedCorpus:
    """Return the corpus that preprocess wrote for ``recipe``, after checking every byte of it.

    If another process of this machine checks every byte of the training text
    (``is_checked_elsewhere``), only the sizes of its files and the lengths of its sentences are
    compared here. Messages propose ``preprocess``, the command that writes the folder. Raises
    UserError if the folder is missing, is something else or was made for other text or another
    tokenizer, and DamagedError if a file in it is damaged.
    """
    restore_replaced(directory)
    refuse_broken_link(directory)
    if not directory.exists():
        if (other := _of_same_text(directory.parent, recipe)) is not None:
            raise UserError(
                f"{directory} not found, but {other} was made from the same text: give "
                f"{command('--prepared', other)}. Or run: {preprocess}"
            )
        raise UserError(f"{directory} not found{missing_hint(directory)}. Run: {preprocess}")
    _refuse_other_folder(directory)
    try:
        refuse_stale(directory, read_manifest(directory), recipe, preprocess)
        unread_prefix = "train." if is_checked_elsewhere else None
        corpus = _open(directory, verify(directory, unread_prefix=unread_prefix), recipe)
    except DamagedError as error:
        raise DamagedError(f"{error} Run: {_command_again(directory, preprocess)}") from None
    if corpus.completed(recipe).model.source_vocabulary_size != corpus.tokenizer.source_size:
        made_with = (
            f"the vocabularies of another model than {recipe.origin} is now"
            if recipe.origin is not None
            else f"{corpus.tokenizer.source_size:,} pieces of the source, but "
            f"model.source_vocabulary_size is {recipe.model.source_vocabulary_size:,}"
        )
        raise UserError(
            f"{directory} was made with {made_with}. Run: {_command_again(directory, preprocess)}"
        )
    return corpus


def _of_same_text(folder: Path, recipe: Recipe) -> Path | None:
    """Return a prepared corpus in ``folder`` that was made for the text of ``recipe``."""
    for manifest in islice(sorted(folder.glob(f"[!.]*/{file_names.MANIFEST}")), MOST_LOOKED_AT):
        try:
            if kind_of(manifest.parent) == PREPARED:
                refuse_stale(manifest.parent, read_manifest(manifest.parent), recipe, "")
                return manifest.parent
        except UserError:
            continue
    return None


def _command_again(directory: Path, preprocess: str) -> str:
    """Return the command that prepares ``directory`` again, and what the user must do first."""
    foreign = foreign_file(directory)
    first = f" (first move {foreign} out of {directory}; preprocess did not write it)"
    return f"{preprocess} --force{'' if foreign is None else first}"


def validation_text(directory: Path, name: str | None, side: Side) -> Path:
    """Return the path of the text of one side of a validation set."""
    return directory / f"{file_names.validation_part(name)}.{side}.txt"


def foreign_file(directory: Path) -> str | None:
    """Return the name of a file in ``directory`` that preprocess did not write, or None."""
    names = sorted(path.name for path in directory.iterdir())
    return next((name for name in names if not OWN_FILE.fullmatch(name)), None)


def _refuse_other_folder(directory: Path) -> None:
    """Raise UserError if ``directory`` is something other than a (perhaps damaged) corpus."""
    is_unmarked = directory.is_dir() and not (directory / file_names.MANIFEST).exists()
    if (
        not directory.is_dir()
        or kind_of(directory) not in {None, PREPARED}
        or (is_unmarked and foreign_file(directory) is not None)
    ):
        raise wrong_folder(directory, "prepared corpus")


def refuse_stale(
    directory: Path, manifest: Mapping[str, Any], recipe: Recipe, preprocess: str
) -> None:
    """Raise UserError if ``directory`` was made for other text or another tokenizer."""
    if "fold" not in manifest["data"]["normalization"]:
        raise UserError(
            f"{directory} was made before release 0.2.0 of nmt-cli. Make it again: "
            f"{_command_again(directory, preprocess)}"
        )
    wanted = keys_of_text(recipe)
    try:
        made = recorded_keys_of_text(manifest["data"], manifest["tokenizer"])
    except ValueError as error:
        raise UserError(
            f"{directory} was made with keys or values that this version does not have: {error}. "
            f"Make it again: {_command_again(directory, preprocess)}"
        ) from None
    if recipe.data.normalization.fold is None:
        made.pop(FOLD, None)
    else:
        made[FOLD] = _is_folded(manifest)
    different = [key for key in {**made, **wanted} if made.get(key) != wanted.get(key)]
    if different:
        was = " and ".join(f"{key.partition('.')[2]} {_shown(made.get(key))}" for key in different)
        says = " and ".join(_shown(wanted.get(key)) for key in different)
        raise UserError(
            f"{directory} was made with {was}, the recipe says {says}. "
            f"Correct the recipe or make it again: {_command_again(directory, preprocess)}"
        )


def _is_folded(manifest: Mapping[str, Any]) -> bool:
    """Return whether the text was folded."""
    return bool(manifest["data"]["normalization"]["fold"])


def _open(directory: Path, manifest: dict[str, Any], recipe: Recipe) -> PreparedCorpus:
    source, target = (BinarizedText.open(directory, f"train.{side}") for side in SIDES)
    validation = [
        ValidationSet.open(directory, files.name) for files in recipe.data.validation_sets
    ]
    data = with_fold(recipe, fold=_is_folded(manifest)).data
    tokenizer = load_tokenizer(directory, text_settings(recipe.tokenizer, data))
    corpus_sizes = tuple(manifest["corpus_sizes"])
    if len({len(source), len(target), sum(corpus_sizes)}) > 1:
        raise DamagedError(
            f"{directory} is damaged: {len(source):,} source and {len(target):,} target sentences."
        )
    links = None
    if f"{LINKS}.tokens" in manifest["files"]:
        links = BinarizedText.open(directory, LINKS)
        if len(links) != len(source):
            raise DamagedError(
                f"{directory} is damaged: {len(links):,} pairs have links, {len(source):,} text."
            )
    return PreparedCorpus(
        directory,
        source,
        target,
        tuple(validation),
        corpus_sizes,
        tokenizer,
        manifest,
        links,
        _characters_of_sources(manifest, recipe),
        share_of_single(manifest["train"], recipe.data.weights(corpus_sizes)),
    )


def _characters_of_sources(manifest: Mapping[str, Any], recipe: Recipe) -> frozenset[str] | None:
    """Return the characters that sources have once they are augmented; None if it is unknown."""
    characters = manifest.get("characters")  # manifests of version 0.2.0 have none
    if characters is None:
        return None
    found = set(characters["source"])
    for augment in (corpus.augment for corpus in recipe.data.train):
        if augment.terms > 0:
            found |= set(characters["target"])
        if augment.upper_case > 0 or augment.title_case > 0:
            found |= {other for each in found for other in each.upper() + each.title()}
    return frozenset(found)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return "[" + ", ".join(_shown(inner) for inner in value) + "]"
    return f"{value:,}" if isinstance(value, int) else str(value)


def changed_tokenizer_files(folder: Path, prepared: Mapping[str, Any]) -> list[Path]:
    """Return the tokenizer's files in ``folder`` that are not those of the ``prepared`` files.

    None has changed if the model was removed.
    """
    if not any((folder / name).is_file() for name in file_names.TOKENIZER_FILES):
        return []
    return [
        folder / name
        for name in OF_TOKENIZERS
        if _sha256_of(folder / name) != prepared.get(name, {}).get("sha256")
    ]


def trained_on(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return those ``files`` of a prepared corpus that decide what a training learns.

    The recipe in the corpus does not: it may be that of another training with the same text.
    """
    decides = {name for name in files if name.startswith("train.") or name in OF_TOKENIZERS}
    return {name: file for name, file in files.items() if name in decides}


def _sha256_of(path: Path) -> str | None:
    try:
        return sha256(path)
    except OSError:
        return None


def is_up_to_date(directory: Path, recipe: Recipe) -> bool:
    """Return whether ``directory`` is whole, and was prepared from the recipe's present text."""
    try:
        manifest = verify(directory, unread_prefix="")  # of every file, only the size
        refuse_stale(directory, manifest, recipe, "")
    except UserError:
        return False
    return not changed_text(directory, manifest)


def changed_text(directory: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Return the files that have changed since ``directory`` was prepared from them.

    They are texts, scores, and the recipe's tokenizer.model. A text has changed if its size
    differs. If its size is the same but it is newer than the manifest, its hash decides. (The
    manifest holds no times, so that the same text always gives the same bytes.) Missing files are
    ignored: a machine may have only the prepared text.
    """
    prepared_at = (directory / file_names.MANIFEST).stat().st_mtime_ns
    corpora = [*manifest["train"], *validation_reports(manifest).values()]
    tests = manifest.get("test", [])
    corpora += tests if isinstance(tests, list) else [tests]
    changed = [path for corpus in corpora for path in _changed(corpus, prepared_at)]
    changed += _changed_tokenizer(manifest)
    return list(dict.fromkeys(changed))


def validation_reports(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what the manifest holds about the text of each validation set, by its part."""
    sets = manifest["validation"]
    sets = sets if isinstance(sets, list) else [sets]
    return {file_names.validation_part(each.get("name")): each for each in sets}


KINDS_OF_FILES = ("source", "target", *FORMS_OF_ROWS, "scores", "alignments")


def files_in(report: Mapping[str, Any]) -> list[Path]:
    """Return the files that the manifest's ``report`` on a corpus names."""
    return [Path(report[kind]) for kind in KINDS_OF_FILES if kind in report]


def _changed(corpus: Mapping[str, Any], prepared_at: int) -> Iterator[Path]:
    for side in (kind for kind in KINDS_OF_FILES if kind in corpus):
        path = Path(corpus[side])
        with suppress(OSError):
            status = path.stat()
            is_younger = max(status.st_mtime_ns, status.st_ctime_ns) >= prepared_at
            if status.st_size != corpus[f"{side}_bytes"] or (
                is_younger and sha256(path) != corpus[f"{side}_sha256"]
            ):
                yield path


def _changed_tokenizer(manifest: Mapping[str, Any]) -> list[Path]:
    model = manifest["tokenizer"].get("model")
    if model is None:
        return []
    if Path(model).is_dir():  # that of model.from
        return changed_tokenizer_files(Path(model), manifest["files"])
    present = _sha256_of(Path(model))
    if present is None:  # it was removed, or was that of model.from
        return []
    prepared = manifest["files"][file_names.SENTENCEPIECE_MODEL]["sha256"]
    return [] if present == prepared else [Path(model)]
