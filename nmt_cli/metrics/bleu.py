"""BLEU, chrF, TER and the paper's BLEU by sacrebleu, each with a signature of its settings."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sacrebleu
from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER, TERScore
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer
from sacrebleu.utils import SACREBLEU_DIR

from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import install_command
from nmt_cli.metrics.scorer import Details, Scorer
from nmt_cli.metrics.tokenization import MODELS, PACKAGES, TOKENIZATION, Tokenization

# Untokenized text has no space before a full stop or a comma. Moses' tokenizer puts one there, and
# escapes some characters.
TOKENIZED = re.compile(r"\S [.,](?: |$)|&(?:apos|quot|amp|lt|gt|#124|#91|#93);")
IN_PIECES = re.compile(r"▁|\S@@(?: |$)")
SUSPICIOUS_SHARE = 0.2  # of the lines


def _details_of_bleu(score: BLEUScore) -> Details:
    figures = {
        "precisions": tuple(score.precisions),
        "brevity_penalty": score.bp,
        "hypothesis_length": score.sys_len,  # in the metric's own tokens
        "reference_length": score.ref_len,
    }
    precisions = "/".join(f"{precision:.1f}" for precision in score.precisions)
    return figures, (
        f"{precisions} (brevity penalty {score.bp:.3f}, hypothesis {score.sys_len:,} tokens, "
        f"reference {score.ref_len:,})"
    )


def bleu_scorer(tokenize: Tokenization = TOKENIZATION, *, lowercase: bool = False) -> Scorer:
    """Return sacrebleu's BLEU.

    Raises UserError if ``tokenize`` needs packages or a model that are not there.
    """
    return Scorer("bleu", _sacrebleu(tokenize, lowercase), _details_of_bleu)


def _sacrebleu(tokenize: Tokenization, lowercase: bool = False) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        update = install_command("--upgrade", "sacrebleu")
        raise UserError(
            f"sacreBLEU {sacrebleu.__version__} has no tokenizer {tokenize}; run: {update}"
        )
    try:
        # force: no warning by sacrebleu about tokenized text; the caller warns by looks_tokenized.
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (Exception, SystemExit) as error:  # of MeCab, urllib, SentencePiece and others
        if tokenize in PACKAGES:
            needs = "packages that cannot be used"
            remedy = f"run: {install_command(PACKAGES[tokenize][1])}"
        elif tokenize in MODELS:
            folder = Path(SACREBLEU_DIR) / "models"
            needs = f"a model that sacreBLEU cannot download into {folder} ({error})"
            remedy = "run the same command with a network."
        else:
            raise
        raise UserError(
            f"BLEU with the tokenizer {tokenize} needs {needs}. Choose another one, such as char, "
            f"or {remedy}"
        ) from None


def name_in_signatures(tokenize: Tokenization) -> str:
    """Return how signatures name a tokenizer, with the version of its dictionary.

    Raises UserError if it needs packages or a model that are not there.
    """
    return _sacrebleu(tokenize).tokenizer_signature


def tokenizer_in(signature: str) -> str:
    """Return how a ``signature`` of BLEU names its tokenizer."""
    return signature.partition("|tok:")[2].partition("|")[0]


def chrf_scorer(*, lowercase: bool = False, word_order: int = 0) -> Scorer:
    """Return sacrebleu's chrF2; a ``word_order`` of 2 makes it chrF2++ (Popović, 2017)."""
    return Scorer("chrf", CHRF(lowercase=lowercase, word_order=word_order))


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Return whether the text looks as if a tokenizer had put spaces into it."""
    return _share_with(TOKENIZED, lines) >= SUSPICIOUS_SHARE


def looks_in_pieces(lines: Sequence[str]) -> bool:
    """Return whether the text looks as if its subword pieces had not been joined."""
    return _share_with(IN_PIECES, lines) >= SUSPICIOUS_SHARE


def _share_with(sign: re.Pattern[str], lines: Sequence[str]) -> float:
    return sum(sign.search(line) is not None for line in lines) / max(1, len(lines))


def _details_of_ter(score: TERScore) -> Details:
    # Edits, and words of the reference; of several references, their mean.
    figures = {"edits": score.num_edits, "reference_length": float(score.ref_length)}
    return figures, f"({score.num_edits:,} edits, reference {score.ref_length:,.0f} words)"


class _RememberedTer(TER):
    """TER that computes each segment once, because that is slow and paired tests ask again."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str], list[float]] = {}

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, Any]
    ) -> list[float]:
        key = (hypothesis, repr(ref_kwargs["ref_words"]))
        if key not in self._known:
            self._known[key] = super()._compute_segment_statistics(hypothesis, ref_kwargs)
        return self._known[key]


def ter_scorer() -> Scorer:
    """Return sacrebleu's TER (Snover et al., 2006): edits per 100 words of the reference.

    Case is ignored.
    """
    return Scorer("ter", _RememberedTer(), _details_of_ter, higher_is_better=False)


LAST_PERIOD = re.compile(r"(?<=[^\s.])\.\s*$")
COMPOUND = re.compile(r"(\S)-(\S)")


# The language pairs of the paper's Table 2: the language of the tokens, and whether compounds are
# split at hyphens.
PAPER_PAIRS = {"en-de": ("de", True), "en-fr": ("fr", False)}


class _MosesTokenizer(BaseTokenizer):
    def __init__(self, language: str, splits_compounds: bool) -> None:
        from sacremoses import MosesTokenizer  # takes half a second, so only if it is needed

        self._language, self._splits_compounds = language, splits_compounds
        self._moses = MosesTokenizer(lang=language)

    def signature(self) -> str:
        return f"moses-{self._language}{'+split-compounds' if self._splits_compounds else ''}"

    def __call__(self, line: str) -> str:
        text = self._moses.tokenize(line, return_str=True)
        # tokenizer.perl splits the period off the last word even if it is an abbreviation;
        # sacremoses does not.
        text = LAST_PERIOD.sub(" .", text)
        if self._splits_compounds:
            text = COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)
        return text


class _MosesBleu(BLEU):
    def __init__(self, language: str, splits_compounds: bool) -> None:
        super().__init__(tokenize="none", force=True)
        self.tokenizer = _MosesTokenizer(language, splits_compounds)
        self.tokenizer_signature = self.tokenizer.signature()

    def get_signature(self) -> Signature:
        from sacremoses import __version__

        signature = super().get_signature()
        signature.update("sacremoses", __version__)
        return signature


def paper_bleu_scorer(language: str, splits_compounds: bool) -> Scorer:
    """Return the paper's BLEU of untokenized text: of Moses' tokens, and of the parts of compounds.

    The same steps as tokenizer.perl, the compound splitting of Tensor2Tensor's get_ende_bleu.sh and
    multi-bleu.perl.
    """
    return Scorer("paper_bleu", _MosesBleu(language, splits_compounds), _details_of_bleu)
