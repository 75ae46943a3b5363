"""An experiment: a recipe, its options, and where its results are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.files.file_names import RUNS, SCORES, SETS, TEST
from nmt_cli.recipe.reading.reader import RecipeFile
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import HeldOutFiles
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

    @property
    def translations(self) -> Path:
        """The folder of the translated test sets."""
        return self.run_dir / TEST

    def translation(self, test: HeldOutFiles) -> Path:
        """Return the path of the translation of a test set."""
        return self.translations / name_of("test", test, self.recipe.data.target_language)

    def reference(self, test: HeldOutFiles) -> Path:
        """Return the path of the references, beside the translation if no text file has them."""
        if self.recipe.data.treebank is not None:
            return self.translations / name_of("gold", test, "trees")
        if test.rows is not None:
            return self.translations / name_of("reference", test, self.recipe.data.target_language)
        return test.text_files[1]

    @property
    def scores(self) -> Path:
        """The folder of the scores of the test sets."""
        return self.run_dir / SCORES

    def of_tests(self, facts_of: Callable[[HeldOutFiles], dict[str, Any]]) -> dict[str, Any]:
        """Return the facts of the only test set, or those of several by their names: ``sets``."""
        tests = self.recipe.data.test_sets
        if tests[0].name is None:
            return facts_of(tests[0])
        return {SETS: {f"{test.name}": facts_of(test) for test in tests}}


def name_of(kind: str, test: HeldOutFiles, suffix: str) -> str:
    """Return the name of a file of a test set, such as test.news.de."""
    return ".".join([kind, *([test.name] if test.name is not None else []), suffix])
