"""A tag in front of every source, such as the target language of a model that has several."""

import shlex
from collections.abc import Sequence

from nmt_cli.corpus.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.errors import UserError


def tag_pieces(tag: str | None, tokenizer: Tokenizer) -> Sequence[int]:
    """Return the pieces of ``tag``; none if there is no tag.

    Raises UserError if it is not one piece of the model, which a space may precede.
    """
    if tag is None:
        return ()
    pieces = tokenizer.encode(tag)
    words = [piece for piece in tokenizer.pieces(pieces, "source") if piece != SPACE_IN_PIECES]
    if len(words) != 1 or tokenizer.unk_id in pieces:
        raise UserError(
            f"--tag {shlex.quote(tag)} is not one piece in the vocabulary of this model's source; "
            "give one that the model was trained with."
        )
    return pieces
