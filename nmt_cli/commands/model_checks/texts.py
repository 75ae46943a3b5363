"""The texts that a check translates, and their translations by both models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.references import References, references_of
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.files.file_names import RECIPE
from nmt_cli.files.lines import is_blank
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.model_settings import languages_of
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.sections.corpora import HeldOutFiles
from nmt_cli.saved.model_directory import Model
from nmt_cli.translating.encoding.language_tags import for_pair
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator

GIVE_TEST = "give a text with --test NAME=SOURCE,REFERENCE."
AT_ONCE = 1024  # lines, so that the progress shows
MOST_CHARACTERS = 1000  # of a line that is translated again in other forms


Text = tuple[str, str | None]  # to translate, and the tag in front of it
Translations = Mapping[Text, str]  # of all texts, by one model
Example = Mapping[str, str]  # texts by what they are


class Case(NamedTuple):
    """A text to translate, and what is known about its translation."""

    source: str
    tag: str | None
    languages: tuple[str, str]
    place: str | None = None  # for people
    reference: str | None = None
    unchanged: tuple[Case, ...] = ()  # what this one is a variant of

    @property
    def text(self) -> Text:
        """The text, as it is translated."""
        return self.source, self.tag

    @property
    def correct(self) -> Sequence[str]:
        """The texts whose features a translation may have: the source and the reference."""
        return [self.source, *([] if self.reference is None else [self.reference])]

    def example(self, models: Sequence[Translations], more: Example | None) -> Example:
        """Return what is shown of it: ``more``, and the translations by MODEL and OLD."""
        names = "line", "source", "translation", "reference", "OLD"
        translation, old = [*(each[self.text] for each in models), None][:2]
        texts = self.place, self.source, translation, self.reference, old
        shown = {name: text for name, text in zip(names, texts, strict=True) if text is not None}
        return {**shown, **(more or {})}


def short_ones(cases: Iterable[Case]) -> list[Case]:
    """Return the lines that are translated again in other forms: long ones take minutes."""
    return [case for case in cases if len(case.source) <= MOST_CHARACTERS]


class TestSet(NamedTuple):
    """A text with references, one for each line."""

    name: str
    cases: Sequence[Case]
    references: References


def sets_of_files(files: Sequence[HeldOutFiles], model: Model, tag: str | None) -> list[TestSet]:
    """Return the sets of these files, or else those of the recipe of ``model``.

    Raises UserError if the model has no recipe, or if a text cannot be read or is empty.
    """
    recipe, kind = None, "test"
    languages = languages_of(for_pair(model.settings, tag, None, None)[0].text)
    if not files:
        try:
            recipe = read_recipe(str(model.path / RECIPE)).recipe
        except RecipeError as error:  # that of an imported model is empty
            reason = str(error).partition("\n")[0].rstrip(".")
            raise UserError(f"the test text is not known: {reason}; {GIVE_TEST}") from None
        kind = "test" if recipe.data.test_sets else "validation"
        files = recipe.data.test_sets or recipe.data.validation_sets
        languages = recipe.data.languages
    found = []
    for one in files:
        text = ParallelText(one.with_languages(languages))
        pairs = list(text)
        if number := sum(text.num_invalid.values()):
            lines_have = counted(number, "line has", "lines have")
            logs.warning(f"in {one}, {lines_have} bytes that are not UTF-8.")
        if all(is_blank(source) for source, _ in pairs):
            raise UserError(f"there is nothing to translate in {one}; {GIVE_TEST}")
        references = references_of(recipe, [target for _, target in pairs])
        name, own = one.name or kind, one.languages or languages
        lines = enumerate(zip(pairs, references.lines, strict=True), 1)
        cases = [
            Case(source, one.tag or tag, own, f"{name}:{number}", reference)
            for number, ((source, _), reference) in lines
        ]
        found.append(TestSet(name, cases, references))
    return found


def translate(
    model: Path, texts: Iterable[Text], threads: int | None, options: Mapping[str, Any]
) -> Translations:
    """Return the translation of each text by ``model``, in this process, so always the same.

    That of a blank text is empty, and that of one that failed; a warning counts these. ``options``
    are those of ``Translator.load``. Raises UserError if the model or an option is wrong.
    """
    found = dict.fromkeys(texts, "")
    wanted = [text for text in found if not is_blank(text[0])]
    set_num_threads(threads)
    translator, errors = Translator.load(model, **options), list[str]()
    with logs.progress("Translating", "lines", len(wanted)) as counter:
        for start in range(0, len(wanted), AT_ONCE):
            window = wanted[start : start + AT_ONCE]
            requests = [Request(source, tag=tag) for source, tag in window]
            translations = translator.translate_window(requests)
            found.update(zip(window, (each.text for each in translations), strict=True))
            errors += (each.error for each in translations if each.error is not None)
            counter.advance(len(window))
    if errors:
        logs.warning(
            f"{model} could not translate {counted(len(errors), 'line')}, the first because "
            f"{errors[0]}; they count as empty."
        )
    return found
