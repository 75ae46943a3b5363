"""Hugging Face's MarianMTModel in a plain loop: fp32, and bf16 by autocast."""

import torch
import transformers  # type: ignore[import-not-found, unused-ignore]

from tests.benchmarks.padded import BOS_ID, PAD_ID, PaddedBatches, fused_adam, summed_loss
from tests.benchmarks.shapes import DROPOUT, SEED, Setup, Shape
from tests.benchmarks.worker import Step, serve


class HuggingFaceLoop:
    """Forward, loss, backward, step."""

    def __init__(self, setup: Setup) -> None:
        torch.manual_seed(SEED)
        self._model = transformers.MarianMTModel(_config(setup.shape))
        self._model.train()
        self._optimizer = fused_adam(self._model)
        self._batches = PaddedBatches(setup.folder)
        # The backward pass of the default, scaled_dot_product_attention, is slow in bf16 on a CPU.
        self._attention = {"fp32": "sdpa", "bf16": "eager" if setup.is_tuned else "sdpa"}
        self.facts = {"version": f"transformers {transformers.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Train on batch ``index`` in the precision ``variant``."""
        batch = self._batches.batch(index)
        self._model.set_attn_implementation(self._attention[variant])
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=variant == "bf16"):
            logits = self._model(
                input_ids=batch.source,
                attention_mask=batch.keep,
                decoder_input_ids=batch.target_input,
                use_cache=False,
            ).logits
            loss = summed_loss(logits, batch.target_output) / batch.num_target_tokens
        loss.backward()
        self._optimizer.step()
        return Step(batch.num_target_tokens, loss.item())


def _config(shape: Shape) -> "transformers.MarianConfig":
    return transformers.MarianConfig(
        vocab_size=shape.vocabulary_size,
        d_model=shape.d_model,
        encoder_layers=shape.num_layers,
        decoder_layers=shape.num_layers,
        encoder_ffn_dim=shape.d_ff,
        decoder_ffn_dim=shape.d_ff,
        encoder_attention_heads=shape.num_heads,
        decoder_attention_heads=shape.num_heads,
        dropout=DROPOUT,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=1024,
        pad_token_id=PAD_ID,
        decoder_start_token_id=BOS_ID,
        attn_implementation="sdpa",
    )


if __name__ == "__main__":
    serve(HuggingFaceLoop)
