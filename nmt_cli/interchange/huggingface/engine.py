"""Hugging Face's transformers with an exported folder, to verify it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import importing


class HuggingFaceEngine:
    """An ``Engine`` that loads the exported folder as users do, by the Auto classes.

    Raises UserError if transformers is not installed, or finds other tensors than it needs.
    """

    def __init__(self, folder: Path, model: ExportedModel) -> None:
        otherwise = ", or leave the check out with --verify 0."
        with importing("huggingface", "exports to Hugging Face are verified", otherwise):
            import transformers
        transformers.utils.logging.disable_progress_bar()
        self.name = f"transformers {transformers.__version__}"
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True
        )
        self._model: Any
        self._model, found = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            str(folder), local_files_only=True, dtype="auto", output_loading_info=True
        )
        self._model.eval()
        self._start_id, self._eos_id = self._model.config.decoder_start_token_id, model.eos_id
        wrong = sorted(f"{kind}: {names}" for kind, names in found.items() if names)
        if wrong:
            raise UserError(
                f"nothing was written, because {self.name} does not find the tensors that it "
                f"needs in the export ({'; '.join(wrong)})."
            )

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of the pieces of a normalized text, without ``</s>``."""
        ids: list[int] = self._tokenizer(text).input_ids
        return ids[:-1] if ids[-1] == self._eos_id else ids

    @torch.no_grad()
    def token_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Return the log-probability of each token of ``target``, and at last of ``</s>``."""
        logits = self._model(
            input_ids=torch.tensor([[*source, self._eos_id]]),
            decoder_input_ids=torch.tensor([[self._start_id, *target]]),
        ).logits[0]
        expected = torch.tensor([*target, self._eos_id])
        scores = logits.float().log_softmax(1).gather(1, expected[:, None])
        return scores.squeeze(1).tolist()

    @torch.no_grad()
    def greedy(self, source: Sequence[int], longest: int) -> list[int]:
        """Return the greedy output, without ``</s>``: at most ``longest`` tokens."""
        tokens = torch.tensor([[*source, self._eos_id]])
        (output,) = self._model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            num_beams=1,
            do_sample=False,
            max_length=longest + 1,  # with the start mark
        ).tolist()
        found = output[1:]
        return found[: found.index(self._eos_id)] if self._eos_id in found else found
