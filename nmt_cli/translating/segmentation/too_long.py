"""Cuts text that is too long for the model: between sentences, else words, else characters.

Also compares how many sentences texts have.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

from nmt_cli.corpus.text.sentences import SENTENCE_END
from nmt_cli.translating.encoding.copies import Part

WHITE_SPACE = re.compile(r"\s+")
MANY_SENTENCES = 4
ZERO_WIDTH_JOINER = "\u200d"


def parts_within(
    text: str,
    tokens: Sequence[int],
    limit: int,
    encode: Callable[[str], Sequence[int]],
    fits: Callable[[str], bool] = lambda text: True,
) -> list[Part]:
    """Return ``text``, encoded as ``tokens``, in parts of at most ``limit`` pieces that ``fit``."""
    parts = []
    waiting = [(text, tokens, "")]
    while waiting:
        text, tokens, separator = waiting.pop()
        if len(tokens) <= limit and (fits(text) or len(text) == 1):
            if tokens:
                parts.append(Part(tokens, separator, text))
        elif len(text) == 1:  # one character in several pieces: bytes
            cuts = range(0, len(tokens), limit)
            parts += [
                Part(tokens[cut : cut + limit], "" if cut else separator, text) for cut in cuts
            ]
        else:
            left, between, right = halve(text)
            waiting.append((right, encode(right), between))
            waiting.append((left, encode(left), separator))
    return parts


def lacks_sentences(source: str, translation: str) -> bool:
    """Return whether ``translation`` has at most a third of many sentences of ``source``.

    It must also be short, in bytes, which differ less between scripts than characters do: some
    languages do not mark the end of a sentence.
    """
    in_source, in_translation = (
        len(SENTENCE_END.findall(f"{text.strip()} ")) for text in (source, translation)
    )
    are_few = in_source >= MANY_SENTENCES and 3 * max(1, in_translation) <= in_source
    return are_few and 2 * len(translation.encode()) < len(source.encode())


def halve(text: str) -> tuple[str, str, str]:
    """Return ``text``, of at least two characters, cut at the best border near its middle.

    Between the halves is what separated them: a space or nothing.
    """
    middle = len(text) // 2
    first, last = max(1, len(text) // 4), len(text) - max(1, len(text) // 4)
    for border in (SENTENCE_END, WHITE_SPACE):
        ends = [match.end() for match in border.finditer(text, first, last)]
        if ends:
            return _halves_at(text, min(ends, key=lambda end: abs(end - middle)))
    cut = middle
    while cut < last and _continues(text, cut):
        cut += 1
    return _halves_at(text, cut)


def _halves_at(text: str, place: int) -> tuple[str, str, str]:
    left, right = text[:place], text[place:]
    is_spaced = left[-1:].isspace() or right[:1].isspace()
    return left.rstrip(), " " if is_spaced else "", right.lstrip()


def _continues(text: str, place: int) -> bool:
    """Return whether the character at ``place`` forms one visible character with the previous."""
    is_mark = unicodedata.category(text[place]).startswith("M")
    return is_mark or ZERO_WIDTH_JOINER in text[place - 1 : place + 1]
