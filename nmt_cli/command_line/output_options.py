"""The options of ``translate`` that decide what kind of output is searched for.

If one of them is not given, its default is that of the field of the same name in ``Sampling`` or
``Constraints``.
"""

import shlex
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import click

from nmt_cli.command_line.options import PATH, TEXT, flag, repeated, together, translation_option
from nmt_cli.documents.formats import ENDINGS, chosen_format
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.translation_options import NUMBERS, option_of
from nmt_cli.translating.interface.record_keys import LINE

output_options = together(
    click.option(
        "--input-format",
        type=click.Choice(["text", "jsonl", *ENDINGS]),
        help="jsonl is one JSON object for each line: text, and for this line alone "
        f"{any_of([name for name in LINE if name != 'text'], 'and')}; --format jsonl gives back "
        "other keys, such as id. The others are documents, whose texts are translated and all else "
        "is kept.  [default: by the ending of --input, such as .html; else text]",
    ),
    flag(
        "--sample",
        help="Draw translations from the model instead of searching for the best; --n-best N draws "
        "N for each line.",
    ),
    translation_option(
        "choose",
        "What ranks the --n-best: mbr puts the one first that agrees most with the others in "
        "chrF (minimum Bayes risk). Only this one is printed as text.  [default: score]",
    ),
    translation_option(
        "temperature",
        "With --sample: below 1, probable pieces are drawn more often than the model says; "
        "above 1, less often.  "
        f"[default: {NUMBERS['temperature'].default:g}]",
    ),
    translation_option(
        "top_k", "Draw only from the K most probable pieces.  [default: all]", metavar="K"
    ),
    translation_option(
        "top_p",
        "Draw only from the fewest pieces whose probabilities sum to P (nucleus).  "
        f"[default: {NUMBERS['top_p'].default:g}]",
        metavar="P",
    ),
    translation_option(
        "seed",
        "With --sample: equal seeds draw equal translations.  "
        f"[default: {NUMBERS['seed'].default}]",
    ),
    translation_option("min_length", "Fewest pieces of an output.", metavar="N"),
    translation_option(
        "max_length",
        "Most pieces of an output; the recipe's max_extra_length limits it too.",
        metavar="N",
    ),
    translation_option("no_repeat_ngram", "Never repeat a sequence of N pieces.", metavar="N"),
    click.option(
        "--target-prefix",
        "prefix",
        metavar="TEXT",
        help="Begin each output with TEXT, such as a tag.",
    ),
    repeated(
        "--required",
        metavar="TEXT",
        help="Find outputs with TEXT, or with one of several forms: 'TEXT ||| TEXT'",
    ),
    repeated("--banned", metavar="TEXT", help="Never write the pieces of TEXT"),
    repeated(
        "--glossary",
        type=TEXT,
        metavar="FILE",
        help="Terms and their translations, with a tab between them: lines with a term are "
        "translated with its translation",
    ),
    repeated(
        "--soft-glossary",
        type=TEXT,
        metavar="FILE",
        help="Terms and translations; the translations are added to the source in tags, for "
        "models that were trained with augment: terms and may use them",
    ),
    click.option(
        "--term-tags",
        nargs=2,
        metavar="BEGIN END",
        help="Tags of --soft-glossary.  [default: <t> </t>]",
    ),
    repeated(
        "--memory",
        type=PATH,
        metavar="FILE",
        help="Translation memory (TMX, XLIFF, PO): segments that it has get its translation; "
        "--format jsonl shows similar ones",
    ),
    click.option(
        "--memory-languages",
        nargs=2,
        metavar="SOURCE TARGET",
        help="Languages of --memory.  [default: the model's]",
    ),
    translation_option(
        "memory_similarity",
        "Least similarity of segments that --format jsonl shows.  "
        f"[default: {NUMBERS['memory_similarity'].default}]",
        metavar="PERCENT",
    ),
    repeated(
        "--protect",
        metavar="PATTERN",
        help="Copy what matches this regular expression exactly once; common stands for "
        "addresses, placeholders, versions and emoji, and placeholders for those such as "
        "{name} and %s alone",
    ),
    flag(
        "--protect-strict",
        help="A line fails if --protect cannot be kept.  [default: it is translated, and counted]",
    ),
)


SAMPLING = ("temperature", "top_k", "top_p", "seed")  # fields of ``Sampling``
# Options that belong to those of ``Constraints``.
OF_OTHERS = ("term_tags", "memory_languages", "memory_similarity")


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``translate``, those of this module as ``sampling`` or ``constraints``.

    Raises UserError if one of them has no effect.
    """
    from nmt_cli.translating.interface.options import Constraints

    others = dict(options)
    term_tags, languages, similarity = map(others.pop, OF_OTHERS)
    others["input_format"] = chosen_format(
        others["input_format"], others["input_path"], others["output_path"], others["markup"]
    )
    sampling, constraints = (
        {name: value for name in names if (value := others.pop(name)) is not None}
        for names in (SAMPLING, Constraints._fields)
    )
    _refuse_without_effect(constraints, others)
    for name in ("glossary", "soft_glossary"):
        constraints[name] = _glossary(name, constraints[name], others["input_path"])
    constraints["soft_glossary"] = _with_tags(constraints["soft_glossary"], term_tags)
    constraints["memory"] = _memory(
        constraints["memory"], languages, similarity, others["output_format"]
    )
    constraints["required"] = [_forms(text) for text in constraints["required"]]
    if others.pop("sample"):
        from nmt_cli.search.sentences import Sampling  # imports numpy

        others["sampling"] = Sampling(**sampling)
    elif sampling:
        raise _needing(option_of(next(iter(sampling))), "--sample")
    return {**others, "constraints": Constraints(**constraints)}


def _needing(option: str, other: str) -> WrongUsageError:
    return WrongUsageError(f"{option} has an effect only with {other}; add {other} or omit it.")


def _refuse_without_effect(constraints: dict[str, Any], others: dict[str, Any]) -> None:
    """Raise WrongUsageError for an option that needs another one, or for a blank phrase."""
    is_for_lines = others["input_format"] == "jsonl"  # a line may ask for the other option
    if constraints["protect_strict"] and not (constraints["protect"] or is_for_lines):
        raise _needing("--protect-strict", "--protect")
    if others["choose"] == "mbr" and others["n_best"] == 1 and not is_for_lines:
        raise WrongUsageError(
            "--choose mbr compares several translations of a line; add --n-best N, such as "
            "--sample --n-best 8."
        )
    if not all(text.strip() for text in constraints["banned"]):
        raise WrongUsageError("--banned needs a text that is not blank.")


def _glossary(name: str, paths: Sequence[Path], text: Path | None) -> Any:
    """Return the terms of all files; None if there are none. Later files replace equal terms.

    Raises WrongUsageError if the ``text`` is stdin, as one of the files is.
    """
    if not paths:
        return None
    if text is None and STANDARD_INPUT in paths:
        raise WrongUsageError(
            f"--{name.replace('_', '-')} - is standard input, from which the text is read; give "
            "the text with --input."
        )
    from nmt_cli.corpus.text.glossary import Glossary  # imports sentencepiece

    return reduce(Glossary.with_more, map(Glossary.read, paths))


def _with_tags(glossary: Any, tags: tuple[str, str] | None) -> Any:
    """Return a soft glossary of the terms of ``glossary``; None if there is no glossary."""
    if glossary is None:
        if tags is not None:
            raise _needing("--term-tags", "--soft-glossary")
        return None
    from nmt_cli.translating.interface.soft_glossary import SoftGlossary

    return SoftGlossary(glossary) if tags is None else SoftGlossary(glossary, tags)


def _memory(
    paths: Sequence[Path],
    languages: tuple[str, str] | None,
    similarity: int | None,
    output_format: str,
) -> Any:
    """Return the memory of the files; None if there are none."""
    if not paths:
        for option, given in zip(OF_OTHERS[1:], (languages, similarity), strict=True):
            if given is not None:
                raise _needing(f"--{option.replace('_', '-')}", "--memory")
        return None
    from nmt_cli.translating.interface.memory import TranslationMemory

    if similarity is None and output_format == "jsonl":
        similarity = NUMBERS["memory_similarity"].default
    elif similarity is not None and output_format != "jsonl":
        raise WrongUsageError(
            "--memory-similarity needs --format jsonl; the other formats have no place for similar "
            "segments."
        )
    return TranslationMemory(paths, languages=languages, similar_from=similarity)


def _forms(text: str) -> Any:
    """Return ``text``; or, if it holds several forms, the choice of one of them.

    Raises WrongUsageError if one is blank.
    """
    from nmt_cli.corpus.text.glossary import BETWEEN_FORMS
    from nmt_cli.translating.interface.request import AnyOf

    forms = [form.strip() for form in text.split(BETWEEN_FORMS)]
    if not all(forms):
        raise WrongUsageError(f"--required {shlex.quote(text)} has a blank form; give a text.")
    return AnyOf(forms) if len(forms) > 1 else text
