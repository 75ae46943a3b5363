"""BLEU and chrF of sacrebleu, each with the signature that states its settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF, CHRFScore

from nmt_cli.metrics.scorer import TOKENIZATION, Scorer, Tokenization

if TYPE_CHECKING:
    from typing_extensions import Self


# Untokenized text has no space before a full stop or a comma. Moses' tokenizer puts one there, and
# escapes some characters.
TOKENIZED = re.compile(r"\S [.,](?: |$)|&(?:apos|quot|amp|lt|gt|#124|#91|#93);")
IN_PIECES = re.compile(r"▁|\S@@(?: |$)")
SUSPICIOUS_SHARE = 0.2  # of the lines


class Bleu(NamedTuple):
    """The BLEU of a corpus."""

    score: float  # 0 to 100
    signature: str
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int  # in the metric's own tokens
    reference_length: int

    @classmethod
    def of(cls, score: BLEUScore, signature: str) -> Self:
        """Return the figures of sacrebleu's ``score``."""
        return cls(
            score.score,
            signature,
            tuple(score.precisions),
            score.bp,
            score.sys_len,
            score.ref_len,
        )

    def __str__(self) -> str:
        precisions = "/".join(f"{precision:.1f}" for precision in self.precisions)
        return (
            f"BLEU {self.score:.2f}  {precisions} (brevity penalty {self.brevity_penalty:.3f}, "
            f"hypothesis {self.hypothesis_length:,} tokens, reference {self.reference_length:,})  "
            f"{self.signature}"
        )


class Chrf(NamedTuple):
    """The chrF2 of a corpus."""

    score: float  # 0 to 100
    signature: str

    @classmethod
    def of(cls, score: CHRFScore, signature: str) -> Self:
        """Return the figures of sacrebleu's ``score``."""
        return cls(score.score, signature)

    def __str__(self) -> str:
        return f"chrF2 {self.score:.2f}  {self.signature}"


def bleu_scorer(tokenize: Tokenization = TOKENIZATION, *, lowercase: bool = False) -> Scorer[Bleu]:
    """Return sacrebleu's BLEU."""
    # force: no warning by sacrebleu about tokenized text; the caller warns with looks_tokenized.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    return Scorer("bleu", "BLEU", metric, Bleu.of)


def chrf_scorer(*, lowercase: bool = False) -> Scorer[Chrf]:
    """Return sacrebleu's chrF2."""
    return Scorer("chrf", "chrF2", CHRF(lowercase=lowercase), Chrf.of)


def corpus_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenization = TOKENIZATION,
    lowercase: bool = False,
) -> Bleu:
    """Return the BLEU of ``hypotheses`` against one or several sets of ``references``.

    Raises ValueError if there are no hypotheses, or if a set has another number of lines.
    """
    return bleu_scorer(tokenize, lowercase=lowercase).score(hypotheses, references)


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Return whether the text looks as if a tokenizer had put spaces into it."""
    return _share_with(TOKENIZED, lines) >= SUSPICIOUS_SHARE


def looks_in_pieces(lines: Sequence[str]) -> bool:
    """Return whether the text looks as if its subword pieces had not been joined."""
    return _share_with(IN_PIECES, lines) >= SUSPICIOUS_SHARE


def _share_with(sign: re.Pattern[str], lines: Sequence[str]) -> float:
    return sum(sign.search(line) is not None for line in lines) / max(1, len(lines))
