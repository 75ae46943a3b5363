"""An experiment: a recipe, its options, and where its results are; it needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.prepared import (
    PreparedCorpus,
    changed_text,
    files_in,
    open_prepared,
    validation_reports,
)
from nmt_cli.files.file_names import CHECKPOINT_GLOB, CHECKPOINTS, RUNS, SCORES, SETS, TEST
from nmt_cli.launch.worker import Worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import as_argument, command
from nmt_cli.recipe.keys import effect_of
from nmt_cli.recipe.reading.reader import RecipeFile
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import HeldOutFiles
from nmt_cli.recipe.values import HELD_OUT, TEXT
from nmt_cli.saved import run_directory
from nmt_cli.training.options import TrainOptions


class Experiment(NamedTuple):
    """A recipe, and where its results are."""

    recipe_name: str
    file: RecipeFile
    prepared: Path
    run_dir: Path
    options: TrainOptions

    @classmethod
    def of(cls, recipe_name: str, file: RecipeFile, options: TrainOptions) -> Experiment:
        """Return the experiment of a recipe that was read."""
        prepared = options.prepared or file.prepared
        return cls(recipe_name, file, prepared, options.run_dir or Path(RUNS) / file.name, options)

    @property
    def recipe(self) -> Recipe:
        """The recipe with every default."""
        return self.file.recipe

    def open_corpus(self, worker: Worker | None = None) -> PreparedCorpus:
        """Return the prepared text after checking every file of it; warn if it is out of date.

        The bytes of the training text are read once on each machine: by our launcher, or else by
        the first of the workers that torchrun started there. Raises UserError if it is missing, is
        damaged or was made with another recipe.
        """
        try:
            corpus = open_prepared(
                self.prepared,
                self.recipe,
                self._preprocess_command(),
                is_checked_elsewhere=worker is not None
                and (worker.outcome is not None or worker.local_rank > 0),
            )
        except UserError:
            if self.options.resume and self.run_dir.is_dir():
                self.check_run_directory()  # what cannot change within a run comes first
            raise
        if worker is None or (worker.rank == 0 and worker.outcome is None):
            self._warn_of_changed_text(corpus)  # otherwise rank 0 or our launcher warns
        return corpus

    def _warn_of_changed_text(self, corpus: PreparedCorpus) -> None:
        changed = changed_text(corpus.directory, corpus.manifest)
        if not changed:
            return
        files = "file" if len(changed) == 2 else "files"
        others = f" and {len(changed) - 1} more {files} have" if len(changed) > 1 else " has"
        is_begun = any((self.run_dir / CHECKPOINTS).glob(CHECKPOINT_GLOB))
        of_validation = map(files_in, validation_reports(corpus.manifest).values())
        needs_new_run = is_begun and not set(changed) <= {*chain.from_iterable(of_validation)}
        then = ", then train into another --run-dir" if needs_new_run else ""
        logs.warning(
            f"{changed[0]}{others} changed since {corpus.directory} was made, and training uses "
            f"what was prepared. To use the new text: {self._preprocess_command()} --force{then}"
        )

    def _preprocess_command(self) -> str:
        """Return the command that prepares its text, with the user's own options."""
        overrides, prepared = self.options.overrides, self.options.prepared
        words: list[str | Path] = []
        # All of them or none: keys are checked together, so one left out could be an error.
        if any(effect_of(each.partition("=")[0].strip()) & (TEXT | HELD_OUT) for each in overrides):
            words += [part for override in overrides for part in ("--set", override)]
        if prepared is not None:
            words += ["--prepared", prepared]
        return command("nmt-cli", "preprocess", as_argument(self.recipe_name), *words)

    def check_run_directory(self, *, is_restart: bool = False, is_logged: bool = True) -> bool:
        """Return whether there is something to resume.

        Raises UserError if it may not train in the directory as it is.
        """
        return run_directory.check_run_directory(
            self.run_dir,
            self.recipe,
            resume=is_restart or self.options.resume,
            allowed=self.options.allowed_changes,
            is_logged=is_logged,
        )

    @property
    def translations(self) -> Path:
        """The folder of the translated test sets."""
        return self.run_dir / TEST

    def source(self, test: HeldOutFiles) -> Path:
        """Return the path of the lines to translate, beside the translation if no file has them."""
        if self.recipe.data.treebank is None and test.rows is None:
            return test.text_files[0]
        return self.translations / name_of("sentences", test, "txt")

    def translation(self, test: HeldOutFiles) -> Path:
        """Return the path of the translation of a test set."""
        return self.translations / name_of("test", test, self.recipe.data.languages_of(test)[1])

    def reference(self, test: HeldOutFiles) -> Path:
        """Return the path of the references, beside the translation if no text file has them."""
        if self.recipe.data.treebank is not None:
            return self.translations / name_of("gold", test, "trees")
        if test.rows is not None:
            language = self.recipe.data.languages_of(test)[1]
            return self.translations / name_of("reference", test, language)
        return test.text_files[1]

    @property
    def scores(self) -> Path:
        """The folder of the scores of the test sets."""
        return self.run_dir / SCORES

    def of_tests(self, value_of: Callable[[HeldOutFiles], dict[str, Any]]) -> dict[str, Any]:
        """Return the value of the only test set, or those of several by their names: ``sets``."""
        tests = self.recipe.data.test_sets
        if tests[0].name is None:
            return value_of(tests[0])
        return {SETS: {f"{test.name}": value_of(test) for test in tests}}


def name_of(kind: str, test: HeldOutFiles, suffix: str) -> str:
    """Return the name of a file of a test set, such as test.news.de."""
    return ".".join([kind, *([test.name] if test.name is not None else []), suffix])
