"""What is wrong with the files and the languages of a recipe, seen at their first lines."""

from collections.abc import Iterator
from itertools import chain, islice

from nmt_cli.commands.checking.text_warnings import on_equal_sides
from nmt_cli.corpus.text.language_codes import why_no_code
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.tokenizers.tokenizer import most_pieces
from nmt_cli.files.text_forms import why_rows, wrong_lines
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import FORMS_OF_ROWS, ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig


def wrong_texts(data: DataConfig) -> Iterator[tuple[str, str]]:
    """Yield the key and the problem of each text that has another form than in the recipe.

    Only the first lines are read. Files that are empty or cannot be read are left out.
    """
    for name, files in data.corpora.items():
        found = {key: wrong_lines(path) for key, path in files.paths.items() if key != "memory"}
        if not any(found.values()) and data.treebank is None:
            found |= _wrong_forms(files, data)
        yield from ((f"{name}.{key}", problem) for key, problem in found.items() if problem)


def _wrong_forms(files: ParallelFiles, data: DataConfig) -> Iterator[tuple[str, str | None]]:
    for side, (key, path) in enumerate(files.paths.items()):
        if files.rows is not None:
            has_text = path.is_file() and path.stat().st_size
            yield key, _wrong_row(files.with_languages(data.languages)) if has_text else None
        elif side == 0 or path != files.source:
            yield key, why_rows(path, side, data.languages_of(files))


def _wrong_row(files: ParallelFiles) -> str | None:
    """Return why the first rows of a file cannot be read."""
    plain = ParallelFiles(**files.model_dump(include={*FORMS_OF_ROWS, "columns", "inline_tags"}))
    try:
        for chunk in islice(ParallelText(plain).chunks(), 1):
            chunk.texts()
    except UserError as error:
        return str(error)
    return None


def why_too_many_pieces(recipe: Recipe) -> str | None:
    """Return that the training text cannot have as many pieces as the recipe wants, or None.

    Text in pieces and treebanks are not looked at. If a file is damaged, or longer than another,
    return that.
    """
    config, data = recipe.tokenizer, recipe.data
    if config.type == "whitespace" or config.model is not None or data.treebank is not None:
        return None
    symbols = (*config.user_defined_symbols, *data.tags.values())
    config = config.model_copy(update={"user_defined_symbols": symbols})
    texts = [ParallelText(corpus.with_languages(data.languages)) for corpus in data.train]
    try:
        most = most_pieces(config, data, lambda: chain.from_iterable(texts))
    except UserError as error:
        return str(error)
    if most is None:
        return None
    return (
        f"tokenizer.vocabulary_size: is {config.vocabulary_size:,}, but this training text allows "
        f"at most {most:,} pieces, and probably fewer; lower it"
    )


def compared_sides(data: DataConfig) -> tuple[list[tuple[str, str]], list[str]]:
    """Read all texts, and compare their sides.

    Returns key and problem of each with unequal numbers of lines, and warnings about equal sides.
    """
    problems, warnings = [], list[str]()
    for key, files in data.corpora.items():
        chunks = ParallelText(files.with_languages(data.languages)).chunks()
        try:
            num_unequal = sum(chunk.source != chunk.target for chunk in chunks)
            warnings += on_equal_sides(files, are_equal=num_unequal == 0)
        except UserError as error:
            problems.append((key, str(error)))
    return problems, warnings


def on_languages(data: DataConfig) -> Iterator[str]:
    """Yield a warning for each language that is no code of ISO 639."""
    for key in ("source_language", "target_language"):
        is_trees = key == "target_language" and data.treebank is not None
        if not is_trees and (problem := why_no_code(getattr(data, key))) is not None:
            yield f"data.{key}: {problem}"
    for key, files in data.corpora.items():
        for code in files.languages or ():
            if (problem := why_no_code(code)) is not None:
                yield f"data.{key}.languages: {problem}"
