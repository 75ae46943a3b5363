"""``nmt-cli preprocess``: makes a tokenizer and files of token ids from raw parallel text."""

import importlib.metadata
import shlex
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt_cli.commands.checking import text_warnings
from nmt_cli.commands.checking.first_lines import on_languages, wrong_texts
from nmt_cli.commands.checking.sample_warnings import warn_of_samples
from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.encoding import Encoder, learnt_characters
from nmt_cli.corpus.prepared import (
    foreign_file,
    is_up_to_date,
    validation_reports,
    validation_text,
)
from nmt_cli.corpus.text.cleaning import EMPTY, MOST_PAIRS, HeldOut, PairLimits
from nmt_cli.corpus.text.first_pass import Cleaner
from nmt_cli.corpus.text.parallel_corpora import ParallelCorpora, files_as_manifest
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.text.recipe_text import RecipeText, text_of
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import piece_of_word
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer, tag_ids, train_tokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole, sha256_of_each
from nmt_cli.files.file_names import MANIFEST, RECIPE, validation_part
from nmt_cli.files.folders import PREPARED
from nmt_cli.files.lines import is_blank, one_line
from nmt_cli.files.locks import claimed, refuse_while_read
from nmt_cli.hardware.cpu import usable_cores
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.model_settings import text_settings
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.schema import Recipe, for_new_text
from nmt_cli.recipe.sections.corpora import HeldOutFiles, ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig
from nmt_cli.saved.checkpoints import warn_of_few_checkpoints
from nmt_cli.saved.model_directory import Model, open_model


def run(
    *,
    recipe: str,
    overrides: Sequence[str] = (),
    output: Path | None = None,
    workers: int | None = None,
    force: bool = False,
) -> None:
    """Prepare the text of ``recipe`` for training, in ``output`` or the folder that train reads.

    Without ``force``, a folder that is up to date stays as it is. Raises UserError if the recipe or
    the text is wrong, or if the folder cannot be written, or exists, is not up to date and
    ``force`` is missing; OutputError if the disk is full.
    """
    recipe_file = read_recipe(recipe, overrides)
    directory = output or recipe_file.prepared
    _refuse_foreign(directory)
    if not force and is_up_to_date(directory, recipe_file.recipe):
        logs.info(f"{directory} is made of this recipe and its text; unchanged.")
        return
    refuse_while_read(directory, "a training", "--prepared")
    with (
        claimed(directory, "--prepared"),
        directory_appearing_whole(
            directory, replace=force, threads=workers or usable_cores()
        ) as partial,
    ):
        partial.manifest.update(_prepare(for_new_text(recipe_file.recipe), partial.path, workers))
        manifest = partial.manifest
    _report(directory, manifest)
    # A default is no request: after a short training, train proposes the average that it allows.
    if "keep_for_average" in recipe_file.recipe.checkpoints.model_fields_set:
        warn_of_few_checkpoints(recipe_file)


def _prepare(recipe: Recipe, directory: Path, workers: int | None) -> dict[str, Any]:
    """Write every file but the manifest into ``directory``; return the content of the manifest."""
    data = recipe.data
    if wrong := dict.fromkeys(text for _, text in wrong_texts(data)):
        raise UserError("\n".join(wrong))
    _warn(on_languages(data))
    Cleaner(data)  # raises errors about filters before the text is read
    # For data that does not fit in memory; it is removed before the manifest is written.
    with TemporaryDirectory(dir=directory) as name, ChunkPool(Path(name), workers) as pool:
        folder = Path(name)
        text = text_of(recipe, folder)
        not_utf8 = warn_of_samples(recipe, text)
        held_out = {
            "validation": _write_validation_text(text, data.validation_sets, directory),
            "test": _held_out_test(text, data),
        }
        training = ParallelCorpora(data.train, pool, data=data, plain=text.plain)
        validation = {
            validation_part(files.name): ParallelCorpora([files], pool, plain=text.plain)
            for files in data.validation_sets
        }
        _read_first(training, validation.values(), held_out, data, text, folder)
        measured = [report for corpora in validation.values() for report in corpora.reports]
        _warn(text_warnings.on_text(training.reports, measured, recipe, held_out, not_utf8))

        symbols = [*text.symbols(), *_pieces_of_tags(recipe)]
        tokenizer = _make_tokenizer(recipe, training, symbols)
        _refuse_unknown_tags(recipe, tokenizer)
        filters = data.filters
        limits = PairLimits(data.max_length, filters.min_length, filters.max_length_ratio)
        encoder = Encoder(recipe, tokenizer, directory, pool)
        are_others = encoder.choose_repeated(training, limits, folder / "again")
        if are_others and recipe.tokenizer.type == "whitespace":
            # They may have other words; lengths in words do not depend on the vocabulary.
            tokenizer = _make_tokenizer(recipe, training, symbols)
            encoder = encoder._replace(tokenizer=tokenizer)
        tokenizer.save(directory)
        (directory / RECIPE).write_text(dump_recipe(recipe), encoding="utf-8", newline="\n")

        counts = {"train": encoder.encode("train", training, limits)}
        for part, corpora in validation.items():
            counts[part] = encoder.encode(part, corpora, PairLimits(data.max_length))
        symbols = [*recipe.tokenizer.user_defined_symbols, *data.tags.values()]
        characters = {
            side: learnt_characters(found, tokenizer, side, symbols)
            for side, found in counts["train"].characters.items()
        }
        for corpora in (training, *validation.values()):
            _refuse_nothing_kept(corpora, sum(report.pairs_kept for report in corpora.reports))
    reports = [*training.reports, *measured]
    decides = data.filters.needs_held_out  # whether the text depends on the test sets
    paths_of_tests = [test.paths for test in data.test_sets] if decides else []
    files = [*(report.paths for report in reports), *paths_of_tests]
    hashes = sha256_of_each(
        (path for paths in files for path in paths.values()), workers or usable_cores()
    )
    tests = [files_as_manifest(paths, hashes) for paths in paths_of_tests]
    return {
        "kind": PREPARED,
        **recipe.model_dump(mode="json", include={"data", "tokenizer"}),
        **text.manifest_entries(),
        "seed": recipe.training.seed,
        "vocabulary_size": tokenizer.size,
        **({"source_vocabulary_size": tokenizer.source_size} if tokenizer.source_size else {}),
        "corpus_sizes": [report.pairs_kept for report in training.reports],
        "tokens": {part: count.tokens for part, count in counts.items()},
        "unknown": {part: count.unknown for part, count in counts.items()},
        "characters": characters,
        "train": [report.as_manifest(hashes) for report in training.reports],
        "validation": _entries_of_sets(
            data.validation_sets, [report.as_manifest(hashes) for report in measured]
        ),
        **({"test": _entries_of_sets(data.test_sets, tests)} if tests else {}),
        "versions": _versions(data),
    }


def _read_first(
    training: ParallelCorpora,
    validation: Collection[ParallelCorpora],
    held_out: Mapping[str, HeldOut],
    data: DataConfig,
    text: RecipeText,
    folder: Path,
) -> None:
    """Read all texts, and decide which pairs are left out.

    Raises UserError if a text is blank, or if no training pair is left.
    """
    with logs.progress("reading", "pairs") as counter:
        reading = _Reading(counter, map(text.plain, [*data.train, *data.validation_sets]))
        for corpora in validation:
            corpora.read_first(folder, reading.advance)
        for key, pairs in held_out.items():
            if data.filters.needs_held_out and not pairs.is_whole:
                raise UserError(
                    f"data.filters.remove_held_out and remove_held_out_sentences compare with at "
                    f"most {MOST_PAIRS:,} pairs, but data.{key} has more; give fewer pairs, or "
                    "leave the filter out."
                )
        training.read_first(folder, reading.advance, held_out)
    for corpora in (*validation, training):
        _refuse_blank(corpora)
    _refuse_nothing_kept(training, training.num_text_pairs)


class _Reading:
    """Shows how many pairs were read, and an estimate of their total from the bytes read."""

    def __init__(self, counter: logs.ProgressBar, texts: Iterable[ParallelFiles]) -> None:
        paths = [path for text in texts for path in text.paths.values()]
        self._total_bytes = sum(path.stat().st_size for path in paths if path.is_file())
        self._counter, self._num_pairs, self._num_bytes = counter, 0, 0

    def advance(self, num_pairs: int, num_bytes: int) -> None:
        self._num_pairs += num_pairs
        self._num_bytes += num_bytes
        if self._num_bytes:
            self._counter.expect(round(self._num_pairs * self._total_bytes / self._num_bytes))
        self._counter.advance(num_pairs)


def _entries_of_sets(sets: Sequence[HeldOutFiles], entries: Sequence[dict[str, Any]]) -> Any:
    """Return the manifest's entry for validation or test sets: a list if they have names."""
    if sets[0].name is None:
        return entries[0]
    return [{"name": files.name, **each} for files, each in zip(sets, entries, strict=True)]


def _write_validation_text(
    text: RecipeText, sets: Sequence[HeldOutFiles], directory: Path
) -> HeldOut:
    """Write all validation lines for BLEU, or trees for PARSEVAL; return the pairs of all sets."""
    held_out = HeldOut(chain.from_iterable(ParallelText(text.plain(files)) for files in sets))
    for files in sets:
        of_sources, of_targets = (validation_text(directory, files.name, side) for side in SIDES)
        with of_sources.open("wb") as sources, of_targets.open("wb") as targets:
            for source, target in ParallelText(text.measured(files)):
                if files.tag is not None and not is_blank(source):
                    source = f"{files.tag} {source}"
                sources.write(f"{one_line(source)}\n".encode())
                targets.write(f"{one_line(target)}\n".encode())
    return held_out


def _held_out_test(text: RecipeText, data: DataConfig) -> HeldOut:
    """Return the pairs of the test sets that can be read; they may not exist yet.

    Raises UserError if one cannot be read but its pairs shall be removed from the training text.
    """

    def pairs() -> Iterator[tuple[str, str]]:
        for files in data.test_sets:
            try:
                yield from text.pairs(files)
            except UserError as error:
                if data.filters.needs_held_out:
                    raise
                logs.info(f"The training text was not compared with data.test: {error}")

    return HeldOut(pairs())


def _make_tokenizer(recipe: Recipe, training: ParallelCorpora, symbols: Sequence[str]) -> Tokenizer:
    config, num_pairs = recipe.tokenizer, training.num_text_pairs
    if config.model is not None and config.model.is_dir():
        return _tokenizer_of_model(recipe, config.model)
    if config.model is not None and config.type == "whitespace":
        raise UserError(
            "tokenizer.model must be the folder of a model with type whitespace, but is "
            f"{config.model}."
        )
    if config.model is not None:
        logs.info(f"Using the tokenizer {config.model}.")
    elif config.type == "sentencepiece":
        num_sentences = min((1 + config.shared) * num_pairs, config.training_sentences)
        what = f"a {config.algorithm} tokenizer" + ("" if config.shared else " for each language")
        logs.info(f"Training {what} on {num_sentences:,} sentences.")
    else:
        logs.info("Making a vocabulary of the pieces in the text.")
    if config.model is None:
        every = dict.fromkeys([*config.user_defined_symbols, *symbols])
        config = config.model_copy(update={"user_defined_symbols": tuple(every)})
    return train_tokenizer(config, recipe.data, training, training.text_sizes, recipe.training.seed)


def _tokenizer_of_model(recipe: Recipe, folder: Path) -> Tokenizer:
    """Return the tokenizer of the model in ``folder``, which model.from may also name."""
    logs.info(f"Using the tokenizer of {folder}.")
    text = text_settings(recipe.tokenizer, recipe.data)

    def load(model: Model) -> Tokenizer:
        theirs, size = model.settings.text, recipe.model.source_vocabulary_size
        tokenizer = load_tokenizer(model.path, theirs._replace(normalization=text.normalization))
        for key, given, decided in (
            ("tokenizer.type", text.type, theirs.type),
            ("tokenizer.joiner", text.joiner, theirs.joiner),
            ("model.source_vocabulary_size", size, tokenizer.source_size),
        ):
            if given != decided:
                of_model = f"{decided or 'null'}, as of the model {model.path}"
                raise UserError(f"{key} must be {of_model}, but is {given or 'null'}.")
        return tokenizer

    return open_model(folder, load)


def _pieces_of_tags(recipe: Recipe) -> list[str]:
    """Return the pieces that a new tokenizer needs for the tags of the training text.

    Some may be there several times.
    """
    to_piece = str if recipe.tokenizer.type == "whitespace" else piece_of_word
    declared = recipe.tokenizer.user_defined_symbols
    tags = (corpus.tag for corpus in recipe.data.train)
    inline_tags = (corpus.inline_tags for corpus in recipe.data.train)
    pieces = [to_piece(tag) for tag in tags if tag is not None and tag not in declared]
    return [*pieces, *(tag for tag in inline_tags if tag is not None)]


def _refuse_unknown_tags(recipe: Recipe, tokenizer: Tokenizer) -> None:
    for key, tag in recipe.data.tags.items():
        if tag_ids(tag, tokenizer) is None:
            given = recipe.origin or recipe.tokenizer.model
            whose, what = (f" of {given}", "one that is") if given else ("", "one of data.train's")
            raise UserError(
                f"data.{key}: {shlex.quote(tag)} is not one piece of the vocabulary{whose}; "
                f"give {what}."
            )


def _refuse_blank(corpora: ParallelCorpora) -> None:
    if any(report.empty < report.pairs_read for report in corpora.reports):
        return
    first = corpora.reports[0].files
    if first.rows is not None:
        raise UserError(f"every line of {first.rows} has a blank side.")
    source, target = first.text_files
    raise UserError(f"every line of {source} or its translation in {target} is blank.")


def _refuse_nothing_kept(corpora: ParallelCorpora, num_kept: int) -> None:
    if num_kept:
        return
    dropped = text_warnings.dropped_in_words(
        {**report.dropped.counts, EMPTY: report.empty} for report in corpora.reports
    )
    raise UserError(
        f"no pair of {corpora.reports[0].files} is left (dropped: {dropped}); "
        "correct the text, data.filters or data.max_length."
    )


def _refuse_foreign(directory: Path) -> None:
    """Raise UserError if ``directory`` holds files that preprocess did not write.

    Otherwise --force would remove them.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise UserError(f"{directory} is a file; choose another --prepared.")
    foreign = foreign_file(directory)
    if foreign is not None:
        raise UserError(
            f"{directory} holds {foreign}, which preprocess did not write; "
            "choose another --prepared."
        )


def _versions(data: DataConfig) -> dict[str, str]:
    """Return the versions of the software on which the prepared bytes depend."""
    packages = ["sentencepiece", *(["sacremoses"] if data.normalization.punctuation else [])]
    packages += ["py3langid"] if data.filters.min_language is not None else []
    versions = {package: importlib.metadata.version(package) for package in packages}
    return {**versions, "unicode": unicodedata.unidata_version}


def _report(directory: Path, manifest: Mapping[str, Any]) -> None:
    reports = manifest["train"]
    pairs_read = sum(report["pairs_read"] for report in reports)
    dropped = text_warnings.dropped_in_words(map(text_warnings.dropped_counts, reports))
    logs.info(
        f"{directory} holds {sum(manifest['corpus_sizes']):,} of {pairs_read:,} training pairs."
    )
    if dropped:
        logs.info(f"  dropped     {dropped} (lines in {MANIFEST})")
    for side in SIDES:
        unknown = f"{text_warnings.share_unknown(manifest, 'train', side):.2%} unknown"
        logs.info(f"  {side:11s} {manifest['tokens']['train'][side]:,} tokens, {unknown}")
    own = manifest.get("source_vocabulary_size")
    of_sides = "" if own is None else f" of the target, {own:,} of the source"
    logs.info(f"  vocabulary  {manifest['vocabulary_size']:,} pieces{of_sides}")
    links = [report["links"] for report in reports if "links" in report]
    if links:
        logs.info(f"  links       {sum(links):,} between words")
    for part, validation in validation_reports(manifest).items():
        unknown = " and ".join(
            f"{text_warnings.share_unknown(manifest, part, side):.2%} of {side}" for side in SIDES
        )
        name = f"{validation['name']}: " if "name" in validation else ""
        logs.info(
            f"  validation  {name}{counted(validation['pairs_read'], 'pair')}, "
            f"{validation['pairs_kept']:,} of them for the loss, {unknown} unknown"
        )
    _warn(text_warnings.on_dropped(manifest))
    _warn(text_warnings.on_links(manifest))
    _warn(text_warnings.on_unknown(manifest))


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        logs.warning(sentence)
