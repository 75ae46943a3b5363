"""Which options of translate an output format can hold, and which it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt_cli.errors import WrongUsageError

if TYPE_CHECKING:
    from nmt_cli.decoding.translator import TranslatorOptions

WITH_TOKEN_SCORES = ("jsonl", "fairseq")


def options_for(output_format: str, options: TranslatorOptions) -> TranslatorOptions:
    """Return ``options`` with what the format needs. Raises WrongUsageError if it cannot."""
    n_best = options.get("n_best", 1)
    if output_format == "text" and n_best > 1:
        raise WrongUsageError(
            f"--n-best {n_best} needs --format tsv, jsonl, moses or fairseq; text is one line for "
            "each line."
        )
    if options.get("token_scores") and output_format not in WITH_TOKEN_SCORES:
        raise WrongUsageError(
            "--token-scores needs --format jsonl or fairseq; the other formats have no place for "
            "them."
        )
    if output_format == "fairseq":
        return {**options, "token_scores": True}
    return options
