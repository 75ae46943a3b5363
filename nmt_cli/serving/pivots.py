"""Translation through a pivot language: one model translates the output of another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nmt_cli.corpus.text.language_codes import base_of, fits
from nmt_cli.corpus.text.links import Links
from nmt_cli.serving.models import Model, ServedGlossary
from nmt_cli.translating.interface.request import Request as Line
from nmt_cli.translating.interface.translation import Alternative, Translation

# What is asked of the translation, and so not of the text between.
OF_THE_TRANSLATION: dict[str, Any] = {
    "n_best": 1,
    **dict.fromkeys(("prefix", "beam_size", "length_penalty", "choose", "no_repeat_ngram")),
    **dict.fromkeys(("required", "banned"), ()),
}


def pivots_of(models: Sequence[Model]) -> list[Model]:
    """Return a pivot for each pair of languages that no model has, but two in a row.

    It is made of the first models that fit: the first step counts more than the second. Languages
    that differ only in region or script are no pair.
    """
    pivots, translating = dict[tuple[str, str], Model](), [m for m in models if not m.parses]
    for first in translating:
        direct = [model.target for model in models if fits(first.source, model.source)]
        for second in (each for each in translating if fits(first.target, each.source)):
            pair = first.source, second.target
            if base_of(pair[0]) == base_of(pair[1]) or pair in pivots:
                continue
            if not any(fits(second.target, target) for target in direct):
                name, steps = f"{first.name}+{second.name}", (first, second)
                pivots[pair] = second._replace(name=name, source=pair[0], tag=None, steps=steps)
    return list(pivots.values())


def first_line(pivot: Model, line: Line) -> Line:
    """Return what the first model is asked for."""
    return pivot.steps[0].asked(line._replace(**OF_THE_TRANSLATION))


def second_line(
    pivot: Model, line: Line, between: Translation, glossary: ServedGlossary | None
) -> Line:
    """Return what the second model is asked for; ``between`` is the translation by the first."""
    terms = glossary and glossary.for_line(between.text, line.markup)
    error = None if between.error is None else _named(pivot.steps[0], between.error)
    return pivot.steps[1].asked(line._replace(text=between.text, glossary=terms, error=error))


def joined(pivot: Model, between: Translation, last: Translation) -> Translation:
    """Return the translation ``last`` of the text ``between`` as one of the line."""
    error = last.error
    if error is not None and between.error is None:
        error = _named(pivot.steps[1], error)
    return replace(
        last,
        **_of_line(between, last),
        alternatives=tuple(replace(a, **_of_line(between, a)) for a in last.alternatives),
        error=error,
        num_parts=max(between.num_parts, last.num_parts),
        truncated=between.truncated or last.truncated,
    )


def _of_line(between: Translation, found: Alternative) -> dict[str, Any]:
    """Return what is known of the words of the line."""
    lost = dict.fromkeys([*between.not_copied, *found.not_copied])
    links = _linked(between.alignment, found.alignment)
    return {"not_copied": tuple(lost), "alignment": links}


def _linked(to_pivot: Links, from_pivot: Links) -> Links:
    """Return the links of words that are linked to the same word in the pivot language."""
    targets = dict[int, list[int]]()
    for pivot, target in from_pivot:
        targets.setdefault(pivot, []).append(target)
    links = {(source, target) for source, pivot in to_pivot for target in targets.get(pivot, ())}
    return tuple(sorted(links))


def _named(model: Model, reason: str) -> str:
    return f"{model.source} to {model.target}: {reason}"
