"""Subtitles: SRT and WebVTT. The lines of a sentence are joined, and its translation divided again.

A sentence often goes on in the next line or cue. Its translation is divided in proportion to the
characters of the lines, which are on the screen one after the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from html import escape, unescape
from itertools import groupby
from typing import NamedTuple

from nmt_cli.corpus.tokenizers.piece_words import is_of_script_without_spaces
from nmt_cli.documents.document import Decoded, DocumentError, decoded
from nmt_cli.documents.inline import InlineText, Kind, Part, has_text, paired, text_part
from nmt_cli.messages import logs
from nmt_cli.translating.interface.protection import PLACEHOLDERS
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation

# Some programs and typists write no milliseconds, or a colon before them.
WHOLE = r"(?<=\d:\d\d:\d\d)"
TIME = rf"(?:(\d{{1,9}}):)?(\d{{1,2}}):(\d{{1,2}})(?:(?:[,.]|{WHOLE}:)(\d{{1,3}})|{WHOLE})"
TIMING = re.compile(rf"[ \t]*{TIME}[ \t]*-->[ \t]*{TIME}(?:[ \t].*)?")
WRONG_TIMING = re.compile(r"\s*[\d:.,]+\s*-->")
LINE = re.compile(r"[^\r\n]*(?:\r{0,2}\n|\r)|[^\r\n]+")  # some programs write CR CR LF
WORD_TIME = re.compile(r"<((?:\d+:)*\d+\.\d+)>")
# Tags, times within a cue, positions, and characters that XML excludes.
CODE = re.compile(
    r"(</?[A-Za-z][^<>\n]*>|<\d[\d:.]*>|\{\\[^{}\n]*\}|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff])"
)
NAME = re.compile(r"</?([A-Za-z]+)")
REFERENCE = re.compile(r"(&#?\w{1,32};)")
DASH = re.compile(r"\s*[-\u2010-\u2015]\s*\S")  # a second person speaks
SENTENCE_END = re.compile(r"""[.!?…。！？؟।։።\u203c-\u2049]["'”’»)\]」』♪\s]*\Z""")
LEAST_ENDS = 0.1  # of the cues; in fewer, nothing shows where sentences end, as in Thai
LONGEST_GAP = 2000  # milliseconds between cues of a sentence
MOST_CUES, MOST_CHARACTERS = 6, 400  # of a sentence
# Where a text without spaces is cut least well, after or before these: the vowels of Thai that
# stand before their consonant, brackets and small signs.
NOT_AFTER = "เแโใไ（「『【《〈“‘([{"
NOT_BEFORE = "）」』】》〉”’)]}、。，．！？：；,.!?:;ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々ๆฯ"
AT_PUNCTUATION, AT_BAD_PLACE = 0.5, 4.0  # factors of the distance from the right place


class _Line(NamedTuple):
    """A line of a cue, and where its text is in the file."""

    cue: int
    begin: int
    end: int
    text: str


class _Cue(NamedTuple):
    begin: int  # milliseconds
    end: int
    lines: Sequence[_Line]  # from the first with a text to the last

    @property
    def texts(self) -> list[_Line]:
        """The lines that are not blank."""
        return [line for line in self.lines if line.text.strip()]


class _Sentence(NamedTuple):
    """Lines that are translated together."""

    lines: Sequence[_Line]
    joints: Sequence[float]  # which part of the text is before each line but the first
    text: InlineText


class SubtitleDocument:
    """A file of subtitles: SRT, or WebVTT if ``is_vtt``."""

    def __init__(self, data: bytes, is_vtt: bool, languages: tuple[str, str] | None = None) -> None:
        """Raise DocumentError for what is no such file.

        SubRip may be in an older encoding of its language, the first of ``languages``.
        """
        self._decoded, self._is_vtt = _decoded(data, languages), is_vtt
        self._cues = list(_cues(self._decoded.text, is_vtt))
        sentences = (_sentence(lines, is_vtt) for lines in _groups(self._cues))
        self._sentences = [each for each in sentences if has_text(each.text.parts)]
        self.segments: Sequence[Request] = [each.text.request for each in self._sentences]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with the translations in the lines of their sources."""
        texts = dict[_Line, str]()
        for sentence, translation in zip(self._sentences, translations, strict=True):
            if translation.text != sentence.text.request.text:
                parts = list(sentence.text.translated(translation.text))
                texts.update(zip(sentence.lines, self._divided(sentence, parts), strict=True))
        source, written, place = self._decoded.text, list[str](), 0
        for cue in self._cues:
            if not any(line in texts for line in cue.lines):
                continue
            # A line whose translation is empty would end the cue.
            left = [line for line in cue.lines if texts.get(line, "a text").strip()]
            first, second = cue.lines[0], cue.lines[min(1, len(cue.lines) - 1)]
            line_end = source[first.end : second.begin]
            whole = line_end.join(texts.get(line, line.text) for line in left)
            written += [source[place : first.begin], _with_times_in_order(whole)]
            place = cue.lines[-1].end
        return self._decoded.encoded("".join([*written, source[place:]]))

    def _divided(self, sentence: _Sentence, parts: Sequence[Part]) -> Iterator[str]:
        """Yield the text of each line of a sentence; codes that go on are closed and opened."""
        text = "".join(part.text for part in parts if part.kind is Kind.TEXT)
        cuts = [*_cuts(text, sentence.joints), (len(text), len(text))]
        rest, opened = deque(parts), list[tuple[str, str]]()
        place = start = 0  # the space between two lines, from ``place`` to ``start``, is left out
        cues = [line.cue for line in sentence.lines]
        for number, (end, following) in enumerate(cuts):
            is_last, is_first_of_cue = number + 1 == len(cuts), cues[number] not in cues[:number]
            written = [begin for begin, _ in opened] if is_first_of_cue else []
            while rest and (place < end or rest[0].kind is Kind.CLOSE or is_last):
                part = rest.popleft()
                if part.kind is Kind.TEXT:
                    taken, left = part.text[: end - place], part.text[end - place :]
                    written += filter(None, [self._escaped(part, taken[max(0, start - place) :])])
                    place += len(taken)
                    if left:
                        rest.appendleft(text_part(left))
                        break
                elif part.kind is Kind.OPEN:
                    opened.append(part.code)
                    written.append(part.code[0])
                elif part.kind is Kind.CLOSE:
                    _close(written, *opened.pop())
                else:
                    written.append(part.code)
            if is_last or cues[number] != cues[number + 1]:
                for codes in reversed(opened):
                    _close(written, *codes)
            yield "".join(written)
            start = following

    def _escaped(self, part: Part, text: str) -> str:
        if part.code is not None and text == part.text:
            return str(part.code)
        return escape(text, quote=False) if self._is_vtt else text


def _close(written: list[str], begin: str, end: str) -> None:
    """Append the code ``end``, or remove ``begin`` if nothing was written behind it."""
    if written and written[-1] == begin:
        written.pop()
    else:
        written.append(end)


def _decoded(data: bytes, languages: tuple[str, str] | None) -> Decoded:
    try:
        return decoded(data)
    except DocumentError:
        from nmt_cli.corpus.text.samples import eight_bit_encoding  # few files need it

        encoding = languages and eight_bit_encoding(data.split(b"\n"), languages[:1])
        if not encoding:
            raise
        logs.warning(f"The subtitles are not UTF-8 but {encoding}; their translation is UTF-8.")
        return Decoded(data.decode(encoding), b"", "utf-8")


def _cues(text: str, is_vtt: bool) -> Iterator[_Cue]:
    """Yield the cues. An empty line ends one of WebVTT; one of SRT goes on until the next times."""
    if is_vtt and not re.match(r"WEBVTT(?:[ \t].*)?(?:\r{0,2}\n|\r|\Z)", text):
        raise DocumentError("its first line is not WEBVTT")
    place, cue, times, lines = 0, -1, None, list[_Line]()
    is_numbered, before = False, ""  # whether the first cue has a number
    for number, raw in enumerate(LINE.findall(text), 1):
        line = raw.rstrip("\r\n")
        timing = TIMING.fullmatch(line)
        is_numbered = is_numbered or (cue < 0 and timing is not None and before.isdecimal())
        follows_number = is_numbered and before.isdecimal()
        before = line.strip() or before
        if times is not None and (timing is not None or (is_vtt and not line)):
            has_number = is_numbered and timing is not None
            yield _Cue(*times, _with_text(lines, has_number=has_number))
            times, lines = None, []
        if timing is not None:
            times, cue = (_milliseconds(timing, 1), _milliseconds(timing, 5)), cue + 1
        elif times is not None and not (follows_number and WRONG_TIMING.match(line)):
            lines.append(_Line(cue, place, place + len(line), line))
        elif WRONG_TIMING.match(line):
            raise DocumentError(f"line {number:,} is no timing: {line.strip()[:40]!r}")
        place += len(raw)
    if times is not None:
        yield _Cue(*times, _with_text(lines, has_number=False))
    if cue < 0 and not is_vtt:
        raise DocumentError("it has no line with the times of a subtitle")


def _with_text(lines: Sequence[_Line], *, has_number: bool) -> Sequence[_Line]:
    """Return ``lines`` from the first with a text to the last, without the next cue's number.

    ``has_number`` is whether that may be there.
    """
    texts = [place for place, line in enumerate(lines) if line.text.strip()]
    if has_number and texts and lines[texts[-1]].text.strip().isdecimal():
        texts.pop()
    return lines[texts[0] : texts[-1] + 1] if texts else ()


def _with_times_in_order(cue: str) -> str:
    """Return the text of a cue of WebVTT, whose words may have changed places with their times."""
    times = WORD_TIME.findall(cue)
    ordered = iter(sorted(times, key=lambda time: [float(each) for each in time.split(":")]))
    return WORD_TIME.sub(lambda _: f"<{next(ordered)}>", cue)


def _milliseconds(timing: re.Match[str], first: int) -> int:
    hours, minutes, seconds, fraction = timing.group(first, first + 1, first + 2, first + 3)
    whole = (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int((fraction or "").ljust(3, "0"))


def _groups(cues: Sequence[_Cue]) -> Iterator[list[_Line]]:
    """Yield the lines that are translated together."""
    ends = [_is_end(cue.lines[-1].text) for cue in cues if cue.lines]
    joins_cues = sum(ends) >= LEAST_ENDS * len(ends)
    group = list[_Line]()
    for cue in cues:
        for place, line in enumerate(cue.texts):
            is_within = place > 0 or (joins_cues and _goes_on(group, cue, cues))
            lengths = sum(len(each.text) for each in group), len(line.text)
            is_full = max(lengths) >= MOST_CHARACTERS
            if group and (not is_within or is_full or DASH.match(CODE.sub("", line.text))):
                yield group
                group = []
            group.append(line)
    if group:
        yield group


def _goes_on(group: Sequence[_Line], cue: _Cue, cues: Sequence[_Cue]) -> bool:
    """Return whether the sentence of the lines before goes on in ``cue``."""
    if not group or _is_end(group[-1].text) or cue.lines[0].cue - group[0].cue >= MOST_CUES:
        return False
    return 0 <= cue.begin - cues[group[-1].cue].end <= LONGEST_GAP


def _is_end(text: str) -> bool:
    return SENTENCE_END.search(CODE.sub("", text)) is not None


def _sentence(lines: Sequence[_Line], is_vtt: bool) -> _Sentence:
    """Return the lines with their joined text."""
    parts, ends, length = list[Part](), list[int](), 0
    for _, of_cue in groupby(lines, key=lambda line: line.cue):
        found = list[Part]()
        for line in of_cue:
            before = next((p.text[-1:] for p in reversed([*parts, *found]) if p.text), "")
            own = list(_parts(line.text, is_vtt))
            if line is not lines[0]:
                after = next((part.text[:1] for part in own if part.text), "")
                ends.append(length)
                is_joined = any(map(is_of_script_without_spaces, (before, after)))
                if not is_joined or not before.strip():
                    found.append(text_part(" "))
                    length += 1
            found += own
            length += sum(len(part.text) for part in own)
        parts += paired(map(_with_tag, found))
    joints = [end / max(1, length) for end in ends]
    return _Sentence(lines, joints, InlineText(parts, (PLACEHOLDERS,)))


def _parts(text: str, is_vtt: bool) -> Iterator[Part]:
    """Yield the characters and codes of a line."""
    for place, between in enumerate(CODE.split(text)):
        if place % 2:
            yield Part(Kind.POINT, code=between, is_visible=False)
            continue
        for inner, raw in enumerate(REFERENCE.split(between) if is_vtt else [between]):
            if raw:
                yield Part(Kind.TEXT, unescape(raw), raw) if inner % 2 else text_part(raw)


def _with_tag(part: Part) -> tuple[Part, str | None, str | None]:
    """Return a part, and the names of the tags, such as <i>, that it begins and ends."""
    tag = NAME.match(part.code) if part.kind is Kind.POINT else None
    name = tag[1].lower() if tag else None
    return (part, None, name) if tag and tag[0].startswith("</") else (part, name, None)


def _cuts(text: str, joints: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yield where each line of ``text`` but the last ends, and where the next one begins."""
    places = [
        (place, place + text[place].isspace(), _factor(text, place))
        for place in range(1, len(text))
        if text[place].isspace() or _is_between_words(text, place)
    ]
    before = 0
    for joint in joints:
        right = joint * len(text)
        left = [each for each in places if each[0] >= before]
        if not left:
            yield len(text), len(text)
            continue
        end, following, _ = min(left, key=lambda each: abs(each[0] - right) * each[2])
        yield end, following
        before = following + 1


def _is_between_words(text: str, place: int) -> bool:
    around = text[place - 1], text[place]
    if any(map(str.isspace, around)):
        return False
    return any(map(is_of_script_without_spaces, around)) or around[0] in "。，、！？；："


def _factor(text: str, place: int) -> float:
    before, after = text[place - 1], text[place]
    if before in NOT_AFTER or after in NOT_BEFORE or unicodedata.category(after)[0] == "M":
        return AT_BAD_PLACE
    return AT_PUNCTUATION if unicodedata.category(before) in {"Po", "Pe", "Pf"} else 1.0
