"""Writes a tree as the tokens of a sentence, in the notations of the literature."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.labels import UNKNOWN_TAG, Labels
from nmt_cli.parsing.tree import Close, Leaf, Open, Part, Tree

Notation = Literal["angles", "brackets", "slashes"]

ANGLES = re.compile(r"\((?P<open>[^()<>\s]+)|\)(?P<close>[^()<>\s]*)|<(?P<tag>[^()<>\s]+)>")
JOINED_ANGLES = re.compile(r"[()][^()<>\s]*|<[^()<>\s]*>|[^()<>\s]+|[<>]")
BRACKETS = re.compile(r"\((?P<open>[^()\s]+)|\)(?P<close>[^()\s]*)|(?P<tag>[^()\s]+)")
SLASHES = re.compile(r"/(?P<close>[^()\s]*)|(?P<tag>[^()\s]+)")


@dataclass(frozen=True)
class Tag:
    """The token that stands for a word."""

    tag: str


Symbol = Open | Tag | Close


@dataclass(frozen=True)
class Linearization:
    """How tokens show a tree.

    The tree ``(S (NP (NN rain)) (VP (VBZ falls)))`` becomes in each notation:

        angles    (S (NP <NN> )NP (VP <VBZ> )VP )S   (joined without spaces if words are dropped)
        brackets  (S (NP NN )NP (VP VBZ )VP )S
        slashes   S NP NN /NP VP VBZ /VP /S          (needs ``labels`` to tell S from a tag)
    """

    notation: Notation
    tags: Literal["kept", "XX"]  # XX writes the tag XX for every word
    words: Literal["dropped", "kept"]  # if kept, each word follows its tag
    closing: Literal["typed", "plain"]  # )NP or only ); /NP or only /
    labels: Labels | None  # the labels that trees may have; None allows all

    def __post_init__(self) -> None:
        if self.notation == "slashes" and self.labels is None:
            raise ValueError("the notation slashes needs the labels of constituents")

    def linearize(self, tree: Tree) -> list[str]:
        """Return the tokens of ``tree``. Raises UserError if a label cannot be written."""
        tokens = []
        for part in tree.parts:
            tokens.append(_written(self._symbol_for(part), self))
            if isinstance(part, Leaf) and self.words == "kept":
                tokens.append(part.word)
        return tokens

    def tokens_of(self, labels: Labels) -> list[str]:
        """Return every token but words that trees with ``labels`` can have, sorted.

        Raises UserError if a label cannot be written.
        """
        constituents = sorted(labels.constituents)
        every: list[Part] = [
            *map(Open, constituents),
            *map(Close, constituents),
            *(Leaf(tag, "") for tag in sorted(labels.tags)),
        ]
        return sorted({_written(self._symbol_for(part), self) for part in every})

    def join(self, tokens: Sequence[str]) -> str:
        """Return the tokens as text on one line; ``split`` is the inverse."""
        return ("" if self.is_joined else " ").join(tokens)

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text, also if it is not the text of a tree."""
        if self.is_joined:
            return JOINED_ANGLES.findall(text)
        return [token for token in text.split(" ") if token]

    def read(self, token: str) -> Symbol | None:
        """Return what ``token`` stands for; None if it is not a bracket or tag of the notation."""
        return _read(token, self)

    def allows(self, symbol: Symbol) -> bool:
        """Return whether a tree may have the label or tag of ``symbol``."""
        if isinstance(symbol, Tag) and self.tags == "XX":
            return symbol.tag == UNKNOWN_TAG
        if self.labels is None:
            return True
        if isinstance(symbol, Tag):
            return symbol.tag in self.labels.tags
        return symbol.label in self.labels.constituents or symbol == Close("")

    @property
    def is_joined(self) -> bool:
        """Whether ``join`` puts no spaces between tokens."""
        return self.notation == "angles" and self.words == "dropped"

    def _symbol_for(self, part: Part) -> Symbol:
        if isinstance(part, Leaf):
            return Tag(UNKNOWN_TAG if self.tags == "XX" else part.tag)
        if isinstance(part, Close) and self.closing == "plain":
            return Close("")
        return part


@lru_cache(maxsize=10_000)
def _read(token: str, form: Linearization) -> Symbol | None:
    pattern = {"angles": ANGLES, "brackets": BRACKETS, "slashes": SLASHES}[form.notation]
    match = pattern.fullmatch(token)
    if match is None:
        return None
    found = match.groupdict()
    if found["close"] is not None:
        is_typed = form.closing == "typed"
        return Close(found["close"]) if is_typed == bool(found["close"]) else None
    if form.notation == "slashes" and form.labels and token in form.labels.constituents:
        return Open(token)
    return Open(found["open"]) if found.get("open") else Tag(found["tag"])


@lru_cache(maxsize=10_000)
def _written(symbol: Symbol, form: Linearization) -> str:
    """Return the token. Raises UserError if it could not be read again."""
    opening, closing = ("", "/") if form.notation == "slashes" else ("(", ")")
    if isinstance(symbol, Open):
        token = f"{opening}{symbol.label}"
    elif isinstance(symbol, Close):
        token = f"{closing}{symbol.label}"
    else:
        token = f"<{symbol.tag}>" if form.notation == "angles" else symbol.tag
    if _read(token, form) != symbol or not form.allows(symbol):
        kind, label = ("tag", symbol.tag) if isinstance(symbol, Tag) else ("label", symbol.label)
        why = "could not be read again" if form.allows(symbol) else "is not among the known labels"
        raise UserError(
            f"the {kind} {label!r} {why} in the notation {form.notation}; "
            "rename it or choose another notation."
        )
    return token
