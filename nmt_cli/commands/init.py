"""``nmt-cli init``: from the files of a corpus to a recipe that fits them."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from nmt_cli.commands.checking.sample_warnings import Sampled, on_entities, warn_of_samples
from nmt_cli.commands.data_split import write_parts
from nmt_cli.commands.starting.corpus_files import MEMORIES, ending, opened_corpus
from nmt_cli.commands.starting.plan import (
    FEWEST_STEPS,
    LEAST_STEPS,
    Plan,
    parents_for,
    plan_training,
    vocabulary_size,
)
from nmt_cli.commands.starting.trial import Trial, try_out
from nmt_cli.corpus.text.characters import scripts_of
from nmt_cli.corpus.text.language_codes import NAMES, base_of, why_no_code
from nmt_cli.corpus.text.memories import languages_in, sources_without_language
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.text.samples import Sample, sample_of
from nmt_cli.corpus.text.text_traits import TextTraits, traits_of
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.files.atomic_files import file_appearing_whole, refuse_file
from nmt_cli.files.file_names import RECIPE_SUFFIXES
from nmt_cli.files.folders import DATASET, refuse_output
from nmt_cli.files.locks import claimed
from nmt_cli.files.text_forms import why_not_utf8
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.proposals import FOLDER, any_of, as_argument, command
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.sections.corpora import ParallelFiles

Ask = Callable[[str, Any], Any]  # takes a question and the answer that is found
FIRST = 500  # pairs that are read before anything is asked
NUM_VALIDATIONS, NUM_CHECKPOINTS = 10, 20  # of a training
LONG, FEW = 24.0, 0.2  # hours, and a share of those that a text needs
NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]*")
# Paths that YAML needs no quotes for.
PLAIN = re.compile("[A-Za-z][A-Za-z0-9_./-]*/[A-Za-z0-9_./-]*")


def run(  # noqa: PLR0913 - the options of a command are its parameters
    name: str,
    paths: tuple[Path, ...],
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    columns: str | None = None,
    hours: float | None = None,
    validation: int,
    test: int,
    seed: int,
    ask: Ask | None = None,
    force: bool = False,
) -> None:
    """Split the corpus ``paths`` into data/NAME, and write a recipe NAME.yaml that trains on it.

    What the options leave open is asked by ``ask``, if there is one. Raises UserError if a file
    cannot be read, a language is not found, or the recipe exists without ``force``.
    """
    if NAME.fullmatch(name) is None:
        own = name.removesuffix(".yaml")
        own = own if NAME.fullmatch(own) else "mine"
        example = command("nmt-cli", "init", own, *_files(name, paths))
        raise WrongUsageError(
            "NAME, the first argument, must be letters, digits, - and _, and names the recipe and "
            f"the run, but it is {name}. For example: {example}"
        )
    recipe_path, folder = Path(f"{name}.yaml"), FOLDER / name
    refuse_file(recipe_path, replace=force)
    refuse_output(folder, DATASET, "a data set of data split", force=force, option="NAME")
    given = (source_language, target_language)
    if columns is None and ending(paths[0]) in MEMORIES:
        columns = ",".join(_languages_of_memory(paths[0], given))
    with claimed(folder, "NAME"), opened_corpus(paths, columns) as files:
        languages = _languages(files, given, ask)
        if (sample := sample_of(files, languages)) is not None:
            _refuse_8_bit(sample, files, paths)
            _warn_of_entities(files, sample, languages, paths)
            if sample.header is not None:
                logs.info(f"The first row of {paths[0]} names its columns.")
                files = files.model_copy(update={"columns": sample.header})
        if hours is None and ask is not None:
            hours = ask("Hours of training; 0 means as many as the text needs", 0.0) or None
        if hours is not None and not hours > 0:  # also where it is no number
            raise WrongUsageError(f"the hours of training must be more than 0, but are {hours:g}.")
        sizes = {"validation": validation, "test": test}
        parts, num_pairs = write_parts(files, paths, folder, sizes, seed)
    try:
        plan = _write_recipe(recipe_path, languages, parts, num_pairs, hours, force=force)
    except BaseException:  # also Ctrl-C: the next attempt needs no --force
        shutil.rmtree(folder, ignore_errors=True)
        raise
    warn_of_samples(read_recipe(f"./{recipe_path}").recipe, with_entities=False)
    _report(recipe_path, plan, hours)


def _write_recipe(
    recipe_path: Path,
    languages: tuple[str, str],
    parts: Sequence[ParallelFiles],
    num_pairs: int,
    hours: float | None,
    *,
    force: bool,
) -> Plan:
    """Try how fast the text is trained on, write the recipe of a training, and return its plan.

    The first of ``parts``, the training text, has ``num_pairs``.
    """
    train, is_shared = parts[0], _write_alike(languages)
    for parent in parents_for(num_pairs):
        logs.info(f"Training {parent} on this text for some steps, to see how long it takes.")
        vocabulary = vocabulary_size(num_pairs)
        trial = try_out(parent, train, num_pairs, vocabulary, is_shared=is_shared)
        plan = plan_training(parent, num_pairs, trial.measured, hours)
        if plan.max_steps >= FEWEST_STEPS:
            break
    recipe = _recipe(parent, languages, parts, trial, plan, is_shared=is_shared)
    with file_appearing_whole(recipe_path, replace=force) as stream:
        stream.write(recipe.encode())
    return plan


def _files(name: str, paths: tuple[Path, ...]) -> list[str]:
    """Return the files that were given, with ``name`` if that is one of them."""
    is_text = Path(name).is_file() and not name.endswith(RECIPE_SUFFIXES)
    return [*([name] if is_text else []), *map(str, paths)]


def _languages_of_memory(path: Path, given: Sequence[str | None]) -> tuple[str, str]:
    """Return the ``given`` languages, and for a side without one the only other of the memory.

    A source whose language the memory does not name has the one that its text shows. Raises
    UserError if the memory has more languages or fewer.
    """
    if None not in given:
        return cast("tuple[str, str]", tuple(given))
    found = languages_in(path)
    bases = [base_of(code) for code in given if code is not None]
    others = [code for code in found if base_of(code) not in bases]
    if given[0] is None and len(others) == given.count(None) - 1:
        shown = traits_of(sources_without_language(path)).certain_language
        if shown is not None and shown not in map(base_of, [*found, *bases]):
            others.insert(0, shown)
    if len(others) != given.count(None):
        named = f"has the languages {any_of(found, 'and')}" if found else "names no language"
        raise UserError(f"{path} {named}; add --source-language and --target-language.")
    source, target = (code or others.pop(0) for code in given)
    return source, target


def _languages(
    files: ParallelFiles, given: Sequence[str | None], ask: Ask | None
) -> tuple[str, str]:
    """Return the languages of both sides: as given, as the text shows them, or as asked.

    Raises UserError if a language is neither given nor found, or is no code.
    """
    for _ in islice(ParallelText(files), FIRST):
        pass  # it raises the errors of files that cannot be read
    sample = sample_of(files, ("", ""))
    found = list[str]()
    for side, name in enumerate(SIDES):
        shown = traits_of([] if sample is None else sample.sides[side])
        code = given[side] or _named_language(files, side, shown) or shown.certain_language
        if ask is not None and given[side] is None:
            code = ask(f"Code of the {name} language", code)
        if code is None:
            raise UserError(
                f"the language of the {name} in {files} is not certain; add --{name}-language, a "
                "code such as en."
            )
        if (problem := why_no_code(code)) is not None:
            raise UserError(f"--{name}-language: {problem}")
        logs.info(f"{name.capitalize()}: {NAMES.get(base_of(code), code)} ({code}).")
        found.append(code)
    if base_of(found[0]) == base_of(found[1]):
        logs.warning(
            f"both sides are {NAMES.get(base_of(found[0]), found[0])}; if that is wrong, add "
            "--source-language and --target-language, or correct the files."
        )
    return found[0], found[1]


def _named_language(files: ParallelFiles, side: int, shown: TextTraits) -> str | None:
    """Return the language that the name of a file or a column is, unless the text shows another."""
    if files.rows is None:
        named = ending(files.text_files[side])
    else:
        named = files.columns[side].rpartition(".")[2] if files.columns is not None else ""
    known = bool(named) and base_of(named) in NAMES
    return named if known and not shown.is_certainly_not(named) else None


def _refuse_8_bit(sample: Sample, files: ParallelFiles, paths: Sequence[Path]) -> None:
    """Raise UserError with how to convert the first file that is not UTF-8."""
    for path, encoding in sample.encodings.items():
        raise UserError(why_not_utf8(path if files.rows is None else paths[0], encoding))


def _warn_of_entities(
    files: ParallelFiles, sample: Sample, languages: tuple[str, str], paths: Sequence[Path]
) -> None:
    """Warn of HTML entities, before the text is split, by the file that the user gave."""
    given = files if files.tsv is None else files.model_copy(update={"tsv": paths[0]})
    source, target = map(traits_of, sample.sides, languages)
    for warning in on_entities(Sampled(given, sample, (source, target), languages)):
        logs.warning(warning)


def _write_alike(languages: tuple[str, str]) -> bool:
    """Return whether both languages have a script in common, and so may share a vocabulary."""
    source, target = map(scripts_of, languages)
    return bool(source & target) or not (source and target)  # those of some are not known


def _recipe(
    parent: str,
    languages: tuple[str, str],
    parts: Sequence[ParallelFiles],
    trial: Trial,
    plan: Plan,
    *,
    is_shared: bool,
) -> str:
    """Return the text of a recipe."""
    source, target = (NAMES.get(base_of(code), code) for code in languages)
    train, validation, test = (_in_yaml(part) for part in parts)
    rate = trial.measured.target_tokens_per_second
    shared = "" if is_shared else "\n  shared: false # the languages have other scripts"
    return f"""\
# Written by nmt-cli init. nmt-cli recipes keys explains the keys, and nmt-cli recipes show {parent}
# prints those that are not here.
description: {source} to {target}
extends: {parent}

data:
  source_language: {languages[0]}
  target_language: {languages[1]}
  train:
    - {train}
  validation: {validation}
  test: {test}

tokenizer:
  vocabulary_size: {trial.vocabulary_size}{shared}

training: # {plan.epochs:.3g} epochs, about {plan.hours:.2g} h at {rate:,.0f} target tokens/s
  tokens_per_step: {plan.tokens_per_step}
  max_steps: {plan.max_steps}
  warmup_steps: {plan.warmup_steps}

validation: {{every_steps: {max(1, plan.max_steps // NUM_VALIDATIONS)}}}
checkpoints: {{every_steps: {max(1, plan.max_steps // NUM_CHECKPOINTS)}}}
"""


def _in_yaml(files: ParallelFiles) -> str:
    """Return the files as a mapping in one line."""
    given = {key: str(path) for key, path in files.paths.items()}
    entries = [
        f"{key}: {path if PLAIN.fullmatch(path) else json.dumps(path, ensure_ascii=False)}"
        for key, path in given.items()
    ]
    if files.columns is not None:
        entries.append(f"columns: {json.dumps(files.columns, ensure_ascii=False)}")
    return f"{{{', '.join(entries)}}}"


def _report(recipe_path: Path, plan: Plan, hours: float | None) -> None:
    logs.info(
        f"{recipe_path} trains {plan.max_steps:,} steps, {plan.epochs:.3g} epochs: about "
        f"{plan.hours:.2g} h on this machine."
    )
    if hours is not None and plan.max_steps == LEAST_STEPS and plan.hours > hours:
        logs.warning(
            f"{hours:.2g} h are too few: a training has {LEAST_STEPS} steps at least, and this "
            f"text needs about {plan.hours_of_text:.2g} h."
        )
    elif plan.hours < FEW * plan.hours_of_text:
        logs.warning(
            f"so short a training learns little; this text needs about {plan.hours_of_text:.2g} h."
        )
    elif plan.hours > LONG:
        logs.info("That is long; --hours gives a shorter training, a GPU a faster one.")
    path = as_argument(f"./{recipe_path}")
    run_dir = f"runs/{recipe_path.stem}"
    logs.info("Next:")
    for line in (
        command("nmt-cli", "run", path),
        f"{command('nmt-cli', 'translate', run_dir)} < TEXT",
        command("nmt-cli", "serve", run_dir),
    ):
        logs.info(f"  {line}")
