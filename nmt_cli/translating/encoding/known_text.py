"""Texts in characters that a model knows.

Characters that nobody sees, and other forms of letters, would be bytes or <unk> for a model that
does not know them, and ruin its translation.
"""

import re
import unicodedata
from functools import cached_property

from nmt_cli.corpus.tokenizers.normalization import FORMS, folded
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import BYTE_PIECE, SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, source_pieces
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.files.lines import INVISIBLE, SELECTORS

# Signs within words, and those of keyboards in their place.
WITHIN_WORDS = {"\u2019": "'", "\u02bc": "'", "\u2010": "-", "\u2011": "-"}
_PLAIN = str.maketrans(WITHIN_WORDS)
_NEVER_SEEN = re.compile(f"[{INVISIBLE}{SELECTORS}]+")
# Also full-width signs, which are usual in Chinese, and accents behind their letters.
_MAYBE_UNKNOWN = re.compile(
    f"[{INVISIBLE}{SELECTORS}{FORMS}\uff01-\uff60\uffe0-\uffe6\u0300-\u036f\u3099\u309a"
    f"{''.join(WITHIN_WORDS)}]"
)
LONGEST_RUN = 64  # characters
JOINERS = "\u200c\u200d"  # which change the letters beside them
MARKS = frozenset(("<unk>", "<s>", "</s>", "<pad>", "<mask>"))  # pieces that are no text


class KnownText:
    """Writes source texts in characters that a model knows, where it can, and finds the others.

    It leaves out unknown ones that nobody sees, and writes others in their compatible form (Unicode
    NFKC, or ' and - for those of typography) if the model knows that. Texts of known characters
    stay as they are.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, folds: bool | None, characters: frozenset[str] | None = None
    ) -> None:
        """``folds``: whether the tokenizer itself leaves out what nobody sees.

        ``characters`` are those that the model knows; None: those that are pieces, or in pieces.
        """
        self._tokenizer, self._folds, self._characters = tokenizer, bool(folds), characters
        self._is_known: dict[str, bool] = {}  # of the characters met so far
        self._written = set[str]()  # of these, those that the model gets in some form, or as none

    def __call__(self, text: str) -> str:
        """Return ``text`` for the tokenizer."""
        if _MAYBE_UNKNOWN.search(text) is None:
            return text
        text = folded(text) if self._folds else text
        unknown = [each for each in set(_MAYBE_UNKNOWN.findall(text)) if not self.knows(each)]
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

    def unknown_in(self, text: str) -> set[str]:
        """Return the characters of ``text`` that the model knows in no form.

        Those that nobody sees are none of them. Marks behind letters, and ``WITHIN_WORDS``, are,
        although their place may give them another form.
        """
        if self._written.issuperset(text):  # most lines, in a microsecond
            return set()
        new = set(text) - self._written
        unknown = {each for each in new if not self._can_write(each)}
        self._written |= new - unknown
        return unknown

    def _can_write(self, character: str) -> bool:
        is_unseen = _NEVER_SEEN.match(character) or character in JOINERS
        if is_unseen or self.knows(character):
            return True
        has_form = character not in WITHIN_WORDS and _MAYBE_UNKNOWN.match(character) is not None
        return has_form and all(map(self.knows, _form_of(character)))

    def _compatible(self, found: re.Match[str]) -> str:
        """Return unknown characters in another form, joined with the character before them."""
        other = unicodedata.normalize("NFC", found[1] + _form_of(found[2]))
        is_known = all(map(self.knows, other))
        return other if is_known else unicodedata.normalize("NFC", found[0])

    def knows(self, character: str) -> bool:
        """Return whether the model knows ``character`` as it is, or as its tokenizer writes it."""
        if character not in self._is_known:
            self._is_known[character] = character.isspace() or self._has(character)
        return self._is_known[character]

    def _has(self, character: str) -> bool:
        if self._characters is not None and character in self._characters:
            return True
        written = self._as_pieces(character)
        if written is None:
            return self._characters is None and character in self._in_pieces
        if self._characters is None:
            return True
        return written != character and self._characters.issuperset(written)

    def _as_pieces(self, character: str) -> str | None:
        """Return the text of the pieces of ``character``; None if they are bytes or ``<unk>``.

        The tokenizer may write it in another way, as models of other programs do.
        """
        tokenizer = self._tokenizer
        if isinstance(tokenizer, WhitespaceTokenizer):
            written = "".join(tokenizer.split(character))
            return written if self._in_pieces.issuperset(written) else None
        ids = tokenizer.encode(character)
        pieces = tokenizer.pieces(ids, "source")
        if tokenizer.unk_id in ids or any(map(BYTE_PIECE.fullmatch, pieces)):
            return None
        return "".join(pieces).replace(SPACE_IN_PIECES, "")

    @cached_property
    def _in_pieces(self) -> frozenset[str]:
        """The characters of all source pieces that are text."""
        pieces = source_pieces(self._tokenizer)
        are_text = (each for each in pieces if each not in MARKS and not BYTE_PIECE.fullmatch(each))
        return frozenset("".join(are_text))


def _form_of(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_PLAIN)
