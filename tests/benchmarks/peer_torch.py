"""``torch.nn.Transformer`` with embeddings around it, in a plain loop."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks.padded import PaddedBatch, PaddedBatches, fused_adam, summed_loss
from tests.benchmarks.shapes import DROPOUT, SEED, Setup, Shape
from tests.benchmarks.worker import Step, serve

MAX_LENGTH = 1024


class TorchModel(nn.Module):
    """The paper's model: one embedding matrix, sinusoids, dropout where the paper has it."""

    positions: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary_size, shape.d_model)
        nn.init.normal_(self.embedding.weight, std=shape.d_model**-0.5)
        self.register_buffer("positions", _sinusoids(shape.d_model))
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            shape.d_model,
            shape.num_heads,
            shape.num_layers,
            shape.num_layers,
            shape.d_ff,
            DROPOUT,
            batch_first=True,
        )
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0  # after the ReLU

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Return logits [B, T, V]."""
        length = batch.target_input.shape[1]
        rows = self.transformer(
            self._embed(batch.source),
            self._embed(batch.target_input),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length),
            src_key_padding_mask=~batch.keep,
            memory_key_padding_mask=~batch.keep,
            tgt_is_causal=True,
        )
        return F.linear(rows, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[: tokens.shape[1]])


class TorchLoop:
    """Forward, loss, backward, step."""

    def __init__(self, setup: Setup) -> None:
        torch.manual_seed(SEED)
        self._model = TorchModel(setup.shape)
        self._optimizer = fused_adam(self._model)
        self._batches = PaddedBatches(setup.folder)
        self.facts = {"version": f"torch {torch.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Train on batch ``index`` in the precision ``variant``."""
        batch = self._batches.batch(index)
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=variant == "bf16"):
            loss = summed_loss(self._model(batch), batch.target_output) / batch.num_target_tokens
        loss.backward()
        self._optimizer.step()
        return Step(batch.num_target_tokens, loss.item())


def _sinusoids(d_model: int) -> Tensor:
    angles = torch.arange(MAX_LENGTH)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


if __name__ == "__main__":
    serve(TorchLoop)
