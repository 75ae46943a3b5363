"""The tags of a model of several languages: which pair is meant, and what is before each line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt_cli.corpus.text.language_codes import distance
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, tag_ids, tag_pieces
from nmt_cli.files.lines import is_blank
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.model_settings import LanguagePair, ModelSettings
from nmt_cli.translating.interface.request import LineError

MOST_LISTED = 20  # pairs in a message


def listed(pairs: Sequence[LanguagePair], conjunction: str = "or") -> str:
    """Return the tags of ``pairs`` for messages, each with its languages."""
    shown = [f"{each.tag or 'no tag'} ({each.source} to {each.target})" for each in pairs]
    more = [f"{len(pairs) - MOST_LISTED:,} more"] if len(pairs) > MOST_LISTED else []
    return any_of([*shown[:MOST_LISTED], *more], conjunction)


def for_pair(
    settings: ModelSettings, tag: str | None, source: str | None, target: str | None
) -> tuple[ModelSettings, str | None]:
    """Return the settings with the languages that are asked for, and the tag of their pair.

    What is None is left to the model. Raises UserError if the model has no such pair, or if pairs
    with several tags are possible.
    """
    pairs = settings.pairs
    if not pairs and target is not None:
        raise UserError(
            "--target-language chooses one of the pairs of languages of a model, but this model "
            "names none; omit it, or give --tag."
        )
    if not pairs or (tag, source, target) == (None, None, None):
        return settings, tag
    if tag is not None and all(tag != pair.tag for pair in pairs):
        raise UserError(f"--tag: {_unknown(tag, pairs)}.")
    ranked = list[tuple[list[Any], LanguagePair]]()
    for pair in pairs:
        codes = (source, pair.source), (target, pair.target)
        distances = [distance(wanted, code) for wanted, code in codes if wanted is not None]
        if tag in {None, pair.tag} and None not in distances:
            ranked.append((distances, pair))
    options = {"target-language": target, "source-language": source, "tag": tag}
    given = [f"--{name} {value}" for name, value in options.items() if value is not None]
    asked = any_of(given[::-1], "and")
    if not ranked:
        raise UserError(f"no pair of this model fits {asked}; give {listed(pairs)}.")
    nearest = min(distances for distances, _ in ranked)
    # The first of a pair of languages, but rather one without a tag.
    chosen = sorted((pair for d, pair in ranked if d == nearest), key=lambda p: p.tag is not None)
    if len({each[1:] for each in chosen}) > 1 and len({each.tag for each in chosen}) > 1:
        other = next(name for name, value in options.items() if value is None)
        raise UserError(
            f"several pairs of this model fit {asked}: {listed(chosen, 'and')}; add --{other}."
        )
    text = settings.text
    for side in ("source", "target"):
        if len(languages := {getattr(each, side) for each in chosen}) == 1:
            text = text._replace(**{f"{side}_language": languages.pop()})
    return settings._replace(text=text), chosen[0].tag


def _unknown(tag: str, pairs: Sequence[LanguagePair]) -> str:
    return f"this model has no tag {tag!r}; give {listed([each for each in pairs if each.tag])}"


def why_a_tag_is_needed(pairs: Sequence[LanguagePair]) -> str:
    """Return why no text without a tag is translated, with the options that give one."""
    sources, targets = (list(dict.fromkeys(each[side] for each in pairs)) for side in (1, 2))
    side, codes = ("source", sources) if len(sources) > 1 else ("target", targets)
    return (
        "it has no tag, but all training text of this model had one; give "
        f"--{side}-language {any_of(list(map(str, codes[:MOST_LISTED])))}, or --tag with "
        f"{listed(pairs)}"
    )


class LanguageTags:
    """The tag of each line: that of all lines, its own, or one that its text begins with."""

    def __init__(self, settings: ModelSettings, tokenizer: Tokenizer, tag: str | None) -> None:
        """``tag`` is that of all lines. Raises UserError if it is not one piece of the source."""
        self._pairs, self._tokenizer, self.of_all = settings.pairs, tokenizer, tag
        self._pieces = tag_pieces(tag, tokenizer)
        self._known = {pair.tag for pair in settings.pairs}

    def pieces(self, text: str, own: str | None = None) -> Sequence[int]:
        """Return the pieces before a line with the tag ``own``; "" is none, and None that of all.

        A text that begins with a tag has no other. Raises LineError if the tag is unknown, or if
        there is none although all training text had one.
        """
        pieces = self._pieces if own is None else self._pieces_of(own) if own else ()
        if not self._known or is_blank(text):
            return pieces
        if text.split(maxsplit=1)[0] in self._known:
            return ()
        if not pieces and None not in self._known:
            raise LineError(why_a_tag_is_needed(self._pairs))
        return pieces

    def source_of(self, tag: str | None) -> str | None:
        """Return the source language of the pairs with this tag; None if it is not known."""
        sources = {pair.source for pair in self._pairs if tag and pair.tag == tag}
        return sources.pop() if len(sources) == 1 else None

    def _pieces_of(self, tag: str) -> Sequence[int]:
        if self._known and tag not in self._known:
            raise LineError(_unknown(tag, self._pairs))
        if (pieces := tag_ids(tag, self._tokenizer)) is None:
            raise LineError(f"the tag {tag!r} is not one piece in the vocabulary of the source")
        return pieces
