"""Unknown pieces in the output of a model for text in pieces: replaced by words of the source."""

from nmt_cli.corpus.piece_words import words_of_pieces
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.corpus.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.decoding.beams import Hypothesis
from nmt_cli.decoding.over_long import Part
from nmt_cli.errors import UserError
from nmt_cli.model_settings import TextSettings


class UnknownWords:
    """Writes outputs with a source word for each ``<unk>``: the one that it attends to most.

    Raises UserError if the model's tokenizer is not for text in pieces; others spell every word.
    """

    def __init__(self, tokenizer: Tokenizer, text: TextSettings) -> None:
        if not isinstance(tokenizer, WhitespaceTokenizer):
            raise UserError(
                "--replace-unknown is for models of text in pieces (tokenizer.type whitespace); "
                "this one can write any word."
            )
        self._tokenizer, self._text = tokenizer, text

    def replaced(self, hypothesis: Hypothesis, part: Part, *, keep_pieces: bool) -> str:
        """Return the text of an output; ``part`` is its source."""
        tokenizer = self._tokenizer
        pieces = tokenizer.pieces(hypothesis.tokens)
        if tokenizer.unk_id in hypothesis.tokens:
            assert hypothesis.attended is not None, "the search was not asked for attention"
            words = self._words(part)
            for place, token in enumerate(hypothesis.tokens):
                if token == tokenizer.unk_id:
                    pieces[place] = words[hypothesis.attended.tokens[place]]
        text = " ".join(pieces)
        return text if keep_pieces else tokenizer.joined(text)

    def _words(self, part: Part) -> list[str]:
        """Return for each piece of the source the word that it is part of."""
        pieces = self._tokenizer.split(part.text)[: len(part.tokens)]
        numbers = [number for (number,) in words_of_pieces(pieces, self._text)]
        words = [""] * (1 + max(numbers, default=-1))
        for piece, number in zip(pieces, numbers, strict=True):
            words[number] += (
                piece if self._text.joiner is None else piece.removesuffix(self._text.joiner)
            )
        return [words[number] for number in numbers]
