"""Texts as tokens, where a text that cannot be encoded does not affect the others; tags."""

import shlex
from collections.abc import Sequence

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, tag_ids
from nmt_cli.messages.errors import UserError
from nmt_cli.search.sentences import BugError, Failure, own_failure


def encode_each(
    tokenizer: Tokenizer, texts: Sequence[str], side: Side = "source"
) -> list[list[int] | Failure]:
    """Return the tokens of each text, or why it cannot be encoded. Raises BugError for a bug."""
    try:
        return [*tokenizer.encode_batch(texts, side=side)]
    except Exception as error:
        failure = error
    encoded = [_encoded_alone(tokenizer, place, text, side) for place, text in enumerate(texts)]
    if own_failure(failure) is None:  # a bug, but each text alone could be encoded
        raise BugError(range(len(texts)), failure)
    return encoded


def _encoded_alone(tokenizer: Tokenizer, place: int, text: str, side: Side) -> list[int] | Failure:
    try:
        return tokenizer.encode_batch([text], side=side)[0]
    except Exception as error:
        own = own_failure(error)
        if own is None:
            raise BugError([place], error) from error
        return own


def tag_pieces(tag: str | None, tokenizer: Tokenizer) -> Sequence[int]:
    """Return the pieces of ``tag``; none if there is no tag.

    Raises UserError if it is not one piece of the model, which a space may precede.
    """
    if tag is None:
        return ()
    pieces = tag_ids(tag, tokenizer)
    if pieces is None:
        raise UserError(
            f"--tag {shlex.quote(tag)} is not one piece in the vocabulary of this model's source; "
            "give one that the model was trained with."
        )
    return pieces
