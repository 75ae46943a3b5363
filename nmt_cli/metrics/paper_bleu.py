"""The BLEU that the paper reports: of Moses' tokens, in German with the parts of compounds apart.

The same steps as tokenizer.perl, the compound splitting of Tensor2Tensor's get_ende_bleu.sh and
multi-bleu.perl.
"""

import re
from typing import NamedTuple

from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

from nmt_cli.metrics.bleu import Bleu
from nmt_cli.metrics.scorer import Scorer

LAST_PERIOD = re.compile(r"(?<=[^\s.])\.\s*$")
COMPOUND = re.compile(r"(\S)-(\S)")


class PaperTokens(NamedTuple):
    """How the text of a language is cut into tokens."""

    language: str
    splits_compounds: bool


# The language pairs of the paper's Table 2.
PAPER_PAIRS = {"en-de": PaperTokens("de", True), "en-fr": PaperTokens("fr", False)}


class PaperBleu(Bleu):
    """The BLEU of a corpus, of the paper's tokens."""

    def __str__(self) -> str:
        return f"paper's {super().__str__()}"


class _MosesTokenizer(BaseTokenizer):
    def __init__(self, tokens: PaperTokens) -> None:
        from sacremoses import MosesTokenizer  # takes half a second, so only if it is needed

        self._tokens = tokens
        self._moses = MosesTokenizer(lang=tokens.language)

    def signature(self) -> str:
        compounds = "+split-compounds" if self._tokens.splits_compounds else ""
        return f"moses-{self._tokens.language}{compounds}"

    def __call__(self, line: str) -> str:
        text = self._moses.tokenize(line, return_str=True)
        # tokenizer.perl splits the period off the last word even if it is an abbreviation;
        # sacremoses does not.
        text = LAST_PERIOD.sub(" .", text)
        if self._tokens.splits_compounds:
            text = COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)
        return text


class _MosesBleu(BLEU):
    def __init__(self, tokens: PaperTokens) -> None:
        super().__init__(tokenize="none", force=True)
        self.tokenizer = _MosesTokenizer(tokens)
        self.tokenizer_signature = self.tokenizer.signature()

    def get_signature(self) -> Signature:
        from sacremoses import __version__

        signature = super().get_signature()
        signature.update("sacremoses", __version__)
        return signature


def paper_bleu_scorer(tokens: PaperTokens) -> Scorer[PaperBleu]:
    """Return the paper's BLEU of untokenized text in the language of ``tokens``."""
    return Scorer("paper_bleu", "paper's BLEU", _MosesBleu(tokens), PaperBleu.of)
