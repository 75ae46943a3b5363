"""Texts in characters that a model knows, and tags.

Characters that nobody sees, and other forms of letters, would be bytes or <unk> for a model that
does not know them, and ruin its translation.
"""

import re
import shlex
import unicodedata
from collections.abc import Sequence
from functools import cached_property

from nmt_cli.corpus.tokenizers.normalization import FORMS, folded
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, source_pieces, tag_ids
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.files.lines import INVISIBLE, SELECTORS
from nmt_cli.messages.errors import UserError

_NEVER_SEEN = re.compile(f"[{INVISIBLE}{SELECTORS}]+")
# Also full-width signs, which are usual in Chinese, and accents behind their letters.
_MAYBE_UNKNOWN = re.compile(
    f"[{INVISIBLE}{SELECTORS}{FORMS}\uff01-\uff60\uffe0-\uffe6\u0300-\u036f\u3099\u309a]"
)
LONGEST_RUN = 64  # characters
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class KnownText:
    """Writes source texts in characters that the tokenizer of a model knows, where it can.

    It leaves out unknown ones that nobody sees, and writes others in their compatible form (Unicode
    NFKC) if the tokenizer knows that. Texts of known characters stay as they are.
    """

    def __init__(self, tokenizer: Tokenizer, *, folds: bool | None) -> None:
        """``folds``: whether the tokenizer itself leaves out what nobody sees."""
        self._tokenizer, self._folds = tokenizer, bool(folds)
        self._is_known: dict[str, bool] = {}  # of the characters met so far

    def __call__(self, text: str) -> str:
        """Return ``text`` for the tokenizer."""
        if _MAYBE_UNKNOWN.search(text) is None:
            return text
        text = folded(text) if self._folds else text
        unknown = [each for each in set(_MAYBE_UNKNOWN.findall(text)) if not self._knows(each)]
        seen = "".join(each for each in unknown if not _NEVER_SEEN.match(each))
        text = text.translate({ord(each): None for each in unknown if each not in seen})
        if not seen:
            return text
        # In runs of limited length, because normalizing one takes time in proportion to its square.
        run = f"([^{re.escape(seen)}]?)([{re.escape(seen)}]{{1,{LONGEST_RUN}}})"
        return re.sub(run, self._compatible, text)

    def drops_from(self, text: str) -> bool:
        """Return whether something in ``text`` that nobody sees is left out."""
        unseen = len("".join(_NEVER_SEEN.findall(text)))
        return unseen > 0 and unseen > len("".join(_NEVER_SEEN.findall(self(text))))

    def _compatible(self, found: re.Match[str]) -> str:
        """Return unknown characters in another form, joined with the character before them."""
        other = unicodedata.normalize("NFC", found[1] + unicodedata.normalize("NFKC", found[2]))
        is_known = all(map(self._knows, other))
        return other if is_known else unicodedata.normalize("NFC", found[0])

    def _knows(self, character: str) -> bool:
        if character not in self._is_known:
            is_known = character.isspace() or character in self._characters
            if not (is_known or isinstance(self._tokenizer, WhitespaceTokenizer)):
                # The tokenizer may write it in another way, as models of other programs do.
                ids = self._tokenizer.encode(character)
                pieces = self._tokenizer.pieces(ids, "source")
                is_unknown = self._tokenizer.unk_id in ids or any(map(_BYTE.fullmatch, pieces))
                is_known = not is_unknown
            self._is_known[character] = is_known
        return self._is_known[character]

    @cached_property
    def _characters(self) -> frozenset[str]:
        pieces = source_pieces(self._tokenizer)
        return frozenset("".join(piece for piece in pieces if not piece.startswith("<")))


def tag_pieces(
    tag: str | None, tokenizer: Tokenizer, name: str = "--tag", other: str = "one"
) -> Sequence[int]:
    """Return the pieces of ``tag``; none if there is no tag.

    Raises UserError if it is not one piece of the model, which a space may precede: ``name`` is
    what the error calls it, and ``other`` what it proposes.
    """
    if tag is None:
        return ()
    pieces = tag_ids(tag, tokenizer)
    if pieces is None:
        raise UserError(
            f"{name} {shlex.quote(tag)} is not one piece in the vocabulary of this model's source; "
            f"give {other} that the model was trained with."
        )
    return pieces
