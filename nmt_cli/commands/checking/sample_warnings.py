"""Warnings about mistakes that a sample of each corpus shows, a line for each."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.corpus.text.characters import scripts_of
from nmt_cli.corpus.text.language_codes import NAMES, base_of
from nmt_cli.corpus.text.parallel_text import DEFAULT_KEYS, FIRST_COLUMNS
from nmt_cli.corpus.text.recipe_text import RecipeText
from nmt_cli.corpus.text.samples import Sample, sample_of
from nmt_cli.corpus.text.text_traits import TextTraits, traits_of
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.files.text_forms import how_to_unescape, in_yaml, why_not_utf8
from nmt_cli.messages import logs
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import ParallelFiles

# By the names of letters in Unicode; no name means that a script has only a few signs.
NAMES_OF_SCRIPTS = {"CJK": "Chinese", "BOPOMOFO": "", "IDEOGRAPHIC": "", "KATAKANA-HIRAGANA": ""}
LEAST_OF_SCRIPT = 0.2  # of the letters; text may hold many foreign names
MOST_NAMED = 3  # files in one line
FORMS = {"is_tokenized": "tokenized", "is_lower_case": "in lower case"}


class Sampled(NamedTuple):
    """A corpus and what its sample shows of both sides, the source first."""

    files: ParallelFiles
    sample: Sample
    traits: tuple[TextTraits, TextTraits]
    languages: tuple[str, str]

    def name_of(self, side: int) -> str:
        """Return the file with a side."""
        return str(self.files.rows or self.files.text_files[side])

    def remedy(self, side: int) -> str:
        """Return what to do if a side is in another language."""
        key = f"data.{SIDES[side]}_language" if self.files.languages is None else "its languages"
        return f"correct the file or {key}"


def warn_of_samples(
    recipe: Recipe, text: RecipeText | None = None, *, with_entities: bool = True
) -> set[Path]:
    """Log a line for each mistake in the text of ``recipe``; return the files that are not UTF-8.

    Files that cannot be read are left out. Only the scripts of treebanks are looked at.
    """
    data, is_treebank = recipe.data, recipe.data.treebank is not None
    is_in_pieces = recipe.tokenizer.type == "whitespace"  # text as other programs made it
    text = text or RecipeText(data.languages)
    corpora = (*data.train, *data.validation_sets, *(() if is_treebank else data.test_sets))
    sampled = []
    for files in dict.fromkeys(corpora):
        languages = data.languages_of(files)
        if (sample := sample_of(text.plain(files), languages)) is not None:
            source, target = map(traits_of, sample.sides, languages)
            sampled.append(Sampled(files, sample, (source, target), languages))
    found = list[str]()
    for corpus in sampled:
        if is_treebank:
            found += _on_scripts(corpus)
            continue
        found += _on_form(corpus)
        if corpus.files.languages is not None or not _names_language(corpus.files.tag):
            found += _on_languages(corpus)
        found += on_entities(corpus) if with_entities and not is_in_pieces else []
    if not is_treebank:
        tags = {corpus.tag for corpus in data.train}
        found += [*_on_unlike(sampled), *_on_tags(sampled, data.languages)]
        found += [] if None in tags else _on_missing_tags(sampled, tags)
    for warning in dict.fromkeys(found):
        logs.warning(warning)
    for note in () if is_treebank or is_in_pieces else _on_alike(sampled):
        logs.info(note)
    return {path for corpus in sampled for path in corpus.sample.encodings}


def _on_form(corpus: Sampled) -> Iterator[str]:
    for path, encoding in corpus.sample.encodings.items():
        yield why_not_utf8(path, encoding)
    if (header := corpus.sample.header) is not None:
        columns = ", ".join(map(in_yaml, header))
        yield (
            f"{corpus.files}: the first row, {any_of(header, 'and')}, is read as a pair; write "
            f"columns: [{columns}]"
        )


def on_entities(corpus: Sampled) -> Iterator[str]:
    """Yield a warning for each side with HTML entities, and how to replace them."""
    for side, traits in enumerate(corpus.traits):
        if traits.has_entities:
            yield (
                f"{corpus.name_of(side)}: {traits.entities} of {traits.num_lines} lines of the "
                f"{SIDES[side]} that were looked at have HTML entities such as {traits.entity}; "
                f"{_how_to_unescape(corpus.files, side)}"
            )


def _how_to_unescape(files: ParallelFiles, side: int) -> str:
    if files.rows is None or files.tsv is not None:
        return f"replace them: {how_to_unescape(files.tsv or files.text_files[side])}"
    return "replace them in the texts, as html.unescape of Python does"


def _names_language(tag: str | None) -> bool:
    """Return whether a tag such as <2fr> names a language, in place of the key languages."""
    return any(base_of(word) in NAMES for word in _words(tag or ""))


def _words(tag: str) -> list[str]:
    return re.findall("[A-Za-z]+", tag)


def _on_tags(sampled: Sequence[Sampled], languages: tuple[str, str]) -> Iterator[str]:
    """Yield that tags name languages which neither the corpus nor the recipe has."""
    known = set(map(base_of, languages))
    tags = dict.fromkeys(
        tag
        for files, *_ in sampled
        if (tag := files.tag) is not None
        and files.languages is None
        and _names_language(tag)
        and known.isdisjoint(map(base_of, _words(tag)))
    )
    if tags:
        yield (
            f"{any_of([*tags], 'and')}: tags of other languages than {languages[0]} and "
            f"{languages[1]}; write languages: [SOURCE, TARGET] beside each, so that translate and "
            "serve know its pair"
        )


def _on_missing_tags(sampled: Sequence[Sampled], tags: set[str | None]) -> Iterator[str]:
    """Yield the sets without a tag, in a recipe whose training text always has one of ``tags``."""
    for files, sample, *_ in sampled:
        lines = sample.sides[0]
        if files.tag is None and not all(line.split(maxsplit=1)[0] in tags for line in lines):
            yield (
                f"{files}: no tag, but all training text has one, and the model refuses lines "
                f"without; write tag: {any_of(sorted(map(str, tags)))} beside it"
            )


def _on_languages(corpus: Sampled) -> Iterator[str]:
    files, (source, target), languages = corpus.files, corpus.traits, corpus.languages
    if corpus.sample.sides[0] == corpus.sample.sides[1]:
        return  # other warnings are about equal sides
    others = list(map(TextTraits.is_certainly_not, corpus.traits, languages))
    # Short texts are seldom certain on both sides.
    if any(others) and source.is_probably(languages[1]) and target.is_probably(languages[0]):
        if corpus.sample.header is None:  # else its advice has the right order
            first, second = map(_name_of_language, (source.language, target.language))
            remedy = _exchange(files, languages)
            yield f"{files}: source looks like {first}, target like {second}; {remedy}"
        return
    if scripts := list(_on_scripts(corpus)):
        yield from scripts
        return
    for side, (traits, is_other) in enumerate(zip(corpus.traits, others, strict=True)):
        if is_other:
            yield (
                f"{corpus.name_of(side)}: {SIDES[side]} looks like "
                f"{_name_of_language(traits.language)}, not {_name_of_language(languages[side])}; "
                f"{corpus.remedy(side)}"
            )


def _exchange(files: ParallelFiles, languages: tuple[str, str]) -> str:
    if files.rows is None:
        return "exchange source and target"
    default = FIRST_COLUMNS if files.tsv else DEFAULT_KEYS if files.jsonl else languages
    first, second = map(in_yaml, files.columns or default)
    return f"write columns: [{second}, {first}]"


def _on_scripts(corpus: Sampled) -> Iterator[str]:
    """Yield that a side is in letters of another script than its language."""
    foreign = []
    for side, traits in enumerate(corpus.traits):
        known = scripts_of(corpus.languages[side])
        own = sum(traits.letters[each] for each in known)
        if known and own < LEAST_OF_SCRIPT * traits.letters.total():
            foreign.append(side)
    for side in foreign[:1]:
        letters, language = corpus.traits[side].letters, corpus.languages[side]
        ((script, number),) = letters.most_common(1)
        remedy = corpus.remedy(side)
        if len(foreign) == len(SIDES):
            remedy = "are source and target exchanged?"
        written = sorted(filter(None, map(_in_words, scripts_of(language))))
        yield (
            f"{number / letters.total():.0%} of the letters in the {SIDES[side]} of {corpus.files} "
            f"are {_in_words(script)}, but {language} is written in {any_of(written, 'and')}; "
            f"{remedy}"
        )


def _in_words(script: str) -> str:
    return NAMES_OF_SCRIPTS.get(script, script.capitalize())


def _name_of_language(code: str | None) -> str:
    code = code or ""
    return NAMES.get(code.lower()) or NAMES.get(base_of(code), code)


def _with_form(sampled: Sequence[Sampled], form: str, side: int, wanted: bool) -> list[str]:
    """Return the texts of a side that certainly have a form, or certainly not."""
    having = [each for each in sampled if getattr(each.traits[side], form) is wanted]
    return list(dict.fromkeys(each.name_of(side) for each in having))


def _on_unlike(sampled: Sequence[Sampled]) -> Iterator[str]:
    """Yield that some texts of a side have a form that others of it do not have."""
    for form, words in FORMS.items():
        for side, name in enumerate(SIDES):
            having, others = (_with_form(sampled, form, side, each) for each in (True, False))
            if having and others:
                yield (
                    f"the {name} is {words} in {_some(having)}, but not in {_some(others)}; give "
                    "all of them one form"
                )


def _on_alike(sampled: Sequence[Sampled]) -> Iterator[str]:
    """Yield in one line what holds for all texts of a side."""
    sides = [
        " and ".join(
            words
            for form, words in FORMS.items()
            if _with_form(sampled, form, side, True) and not _with_form(sampled, form, side, False)
        )
        for side in range(len(SIDES))
    ]
    found = [f"the {name} is {words}" for name, words in zip(SIDES, sides, strict=True) if words]
    if sides[0] == sides[1]:
        found = [f"both sides are {words}" for words in sides[:1] if words]
    if found:
        yield (
            f"Note: in all sets, {' and '.join(found)}. What is translated must be like that, and "
            "translations will be."
        )


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST_NAMED:,} more"] if len(names) > MOST_NAMED else []
    return any_of([*names[:MOST_NAMED], *more], "and")
