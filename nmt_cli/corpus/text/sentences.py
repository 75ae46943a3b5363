"""Cuts text into sentences, by the rules of its language."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from nmt_cli.corpus.text.language_codes import base_of
from nmt_cli.files.lines import is_blank

PARAGRAPH_BREAK = re.compile(r"(\n\r*\n)")
# Of several marks only the last one is matched: from each of "!!!!" all the others would be tried.
SENTENCE_END = re.compile(r"""[.!?…؟۔।॥։።၊။។]["'»”’)\]]*(?=\s)|[。！？]+[」』”]*""")
WINDOW = 4_000  # characters that sentencex gets at a time; its time is quadratic for some texts
SHORT_WORD = re.compile(r"(?:^|\W)(\w{1,3})\.$")


def cut_sentences(text: str, language: str) -> list[str]:
    """Return the sentences of ``text``, by the rules of ``language`` or those of English.

    Together they are the text: white space and blank lines between sentences stay.
    """
    import sentencex  # few lines need it

    cut = partial(sentencex.segment, base_of(language))
    # Version 1.0.32 loses breaks between paragraphs of a text of more than 10,240 bytes.
    paragraphs = PARAGRAPH_BREAK.split(text)  # and the breaks
    return [segment for each in paragraphs for segment in _cut_in_windows(each, cut)]


def certain_sentences(text: str, language: str) -> list[str]:
    """Return what ``cut_sentences`` returns, with sentences joined that may be one.

    They may be one where the second has no letters, or begins with a small one in a text with
    capitals, and where the first ends in a letter, a short number or a word such as "Dr" with a
    full stop: "M. Noir", "am 7. Mai".
    """
    import html  # as sentencex

    found, has_capitals = list[str](), not text.islower()
    for sentence in cut_sentences(text, language):
        letters = [each for each in html.unescape(sentence) if each.isalpha()]
        goes_on = not letters or (has_capitals and sentence.lstrip()[:1].islower())
        if found and (goes_on or _may_go_on(found[-1])):
            found[-1] += sentence
        else:
            found.append(sentence)
    return found


def _may_go_on(sentence: str) -> bool:
    match = SHORT_WORD.search(sentence.rstrip()[-5:])  # which has the longest such word
    word = "" if match is None else match[1]
    return len(word) == 1 or word.isdigit() or (len(word) == 2 and word[0].isupper())


def has_several(text: str, language: str) -> bool:
    """Return whether ``text`` certainly has several sentences; most are one without being cut."""
    text = text.strip()
    end = SENTENCE_END.search(text)
    if end is None or end.end() == len(text):
        return False
    return sum(not is_blank(each) for each in certain_sentences(text, language)) > 1


def share_of_single(reports: Sequence[Mapping[str, Any]], weights: Sequence[float]) -> float | None:
    """Return the share of sources that are one sentence in an epoch; None if it is unknown.

    ``reports`` are those of a manifest on the corpora, with these ``weights``.
    """
    found = [report["found"].get("one_sentence") for report in reports]
    if None in found:  # an older version prepared them
        return None
    lines, of_all = (
        sum(weight * each[key] for weight, each in zip(weights, found, strict=True))
        for key in ("lines", "of")
    )
    return round(lines / of_all, 4) if of_all else None


def _cut_in_windows(text: str, cut: Callable[[str], list[str]]) -> Iterator[str]:
    """Yield the segments of ``text``, which ``cut`` returns for each window of it.

    The last segment of a window may continue in the next window, so it is cut again there. So are
    those behind three quarters, which may be within brackets that the window does not close. It
    ends before a quotation that it would not close: sentencex would then cut within all others.
    """
    begin = window = 0  # of the next segment, and of the window
    while window < len(text):
        is_last = window + WINDOW >= len(text)
        last_begin = len(text) if is_last else window + WINDOW * 3 // 4
        part = text[window : window + WINDOW]
        if not is_last and part.count('"') % 2:
            part = part[: part.rindex('"')] or part
        *found, last = _unchanged(part, cut)
        for each in [*found, last] if is_last else found:
            window += len(each)
            yield text[begin:window]
            begin = window
            if window >= last_begin:
                break
        if not found:  # the segment may be longer than a window
            window += len(last)


def _unchanged(text: str, cut: Callable[[str], list[str]]) -> list[str]:
    """Return the segments that ``cut`` returns, or ``text`` alone if it fails or changes it."""
    try:
        found = [segment for segment in cut(text) if segment]
        return found if "".join(found) == text else [text]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # a panic of Rust is no Exception
        return [text]
