"""Word alignments of a line as links, in the format of Pharaoh: ``0-0 2-1``."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.messages.figures import counted

Links = tuple[tuple[int, int], ...]  # numbers of a source word and a target word, from 0
LINK = re.compile(r"(\d{1,18})([-p])(\d{1,18})", re.ASCII)
SHOWN_CHARACTERS = 40  # of a wrong link


class GoldLinks(NamedTuple):
    """The links that people made of one line: ``sure`` ones, and those that are ``possible``."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]  # the sure ones, too


def pharaoh(links: Links) -> str:
    """Return the links as text, such as ``0-0 2-1``: source word, target word."""
    return " ".join(f"{source}-{target}" for source, target in links)


def read_links(text: str) -> GoldLinks:
    """Return the links of a line; ``2-1`` is sure, ``2p1`` is possible only.

    Raises ValueError, with the words of a message, for anything else.
    """
    sure, possible = set(), set()
    for word in text.split():
        match = LINK.fullmatch(word)
        if match is None:
            cut = f"{word[:SHOWN_CHARACTERS]}..." if len(word) > SHOWN_CHARACTERS else word
            shown = cut if cut.isprintable() else repr(cut)
            raise ValueError(
                f"{shown} is not a link; a link is 2-1 (source word 2 and target word 1, from 0), "
                "or 2p1 if it is possible only"
            )
        link = (int(match[1]), int(match[3]))
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def links_within(text: str, num_source_words: int, num_target_words: int) -> Links:
    """Return the distinct links of a line in order, also the possible ones.

    Raises ValueError, with the words of a message, if one is not between words of the sentences.
    """
    links = sorted(read_links(text).possible)
    sides = (("source", num_source_words), ("target", num_target_words))
    for link in links:
        for number, (side, num_words) in zip(link, sides, strict=True):
            if number >= num_words:
                raise ValueError(
                    f"the link {link[0]}-{link[1]} is outside its sentence: the {side} has "
                    f"{counted(num_words, 'word')}, counted from 0"
                )
    return tuple(links)


def first_wrong_links(
    sources: Sequence[str], targets: Sequence[str], links: Sequence[str]
) -> tuple[int, str] | None:
    """Return the place of the first pair whose links are wrong, and what is wrong with them."""
    for place, (source, target, of_pair) in enumerate(zip(sources, targets, links, strict=True)):
        try:
            links_within(of_pair, len(source.split()), len(target.split()))
        except ValueError as error:
            return place, str(error)
    return None
