"""A tag in front of every source, such as the target language of a model that has several."""

from collections.abc import Sequence

from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.errors import UserError


def tag_pieces(tag: str | None, tokenizer: Tokenizer) -> Sequence[int]:
    """Return the pieces of ``tag``; none if there is no tag.

    Raises UserError if it has none, or one that the model does not have.
    """
    if tag is None:
        return ()
    pieces = tokenizer.encode(tag)
    if not pieces or tokenizer.unk_id in pieces:
        raise UserError(f"--tag {tag} is not in the vocabulary of this model's source.")
    return pieces
