"""eole, OpenNMT-py's successor: its model in a plain loop with fused Adam.

eole's own command makes its own batches, so its model is used as a library, without the statistics
that its own loop computes with the loss. Its layers are pre-norm (its default). Its dropout after
the ReLU is turned off, because the paper has none.
"""

import eole  # type: ignore[import-not-found, unused-ignore]
import torch
from eole.config.models import (  # type: ignore[import-not-found, unused-ignore]
    TransformerModelConfig,
)
from eole.config.training import (  # type: ignore[import-not-found, unused-ignore]
    TrainingConfig,
)
from eole.models.model import (  # type: ignore[import-not-found, unused-ignore]
    EncoderDecoderModel,
)
from eole.modules.transformer_mlp import MLP  # type: ignore[import-not-found, unused-ignore]

from tests.benchmarks.padded import PAD_ID, PaddedBatches, fused_adam, summed_loss
from tests.benchmarks.shapes import DROPOUT, SEED, Setup, Shape
from tests.benchmarks.worker import Step, serve

SPECIALS = {"pad_token": "<blank>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


class EoleLoop:
    """Forward, loss, backward, step."""

    def __init__(self, setup: Setup) -> None:
        torch.manual_seed(SEED)
        vocabs = _vocabularies(setup.shape)
        self._model = _model(setup.shape, vocabs)
        self._optimizer = fused_adam(self._model)
        self._batches = PaddedBatches(setup.folder)
        self.facts = {"version": f"eole {eole.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Train on batch ``index`` in the precision ``variant``."""
        batch = self._batches.batch(index)
        # eole shifts the target itself: it ignores the last position.
        spare = torch.full((len(batch.source), 1), PAD_ID)
        target = torch.cat([batch.target_input, spare], dim=1)
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=variant == "bf16"):
            rows = self._model(batch.source, target, batch.keep.sum(1)).dec_out
            logits = self._model.generator(rows)
            loss = summed_loss(logits, batch.target_output) / batch.num_target_tokens
        loss.backward()
        self._optimizer.step()
        return Step(batch.num_target_tokens, loss.item())


def _vocabularies(shape: Shape) -> dict[str, dict[str, int]]:
    names = [
        "<blank>",
        "<s>",
        "</s>",
        "<unk>",
        *(f"piece{i}" for i in range(shape.vocabulary_size)),
    ]
    ids = {name: number for number, name in enumerate(names[: shape.vocabulary_size])}
    return {"src": ids, "tgt": ids, "specials": SPECIALS}  # type: ignore[dict-item]


def _model(shape: Shape, vocabs: dict[str, dict[str, int]]) -> EncoderDecoderModel:
    config = TransformerModelConfig(
        layers=shape.num_layers,
        hidden_size=shape.d_model,
        word_vec_size=shape.d_model,
        heads=shape.num_heads,
        transformer_ff=shape.d_ff,
        add_ffnbias=True,
        share_embeddings=True,
        share_decoder_embeddings=True,
        embeddings={"position_encoding": True, "word_vec_size": shape.d_model},
    )
    running = TrainingConfig(
        dropout=[DROPOUT],
        attention_dropout=[0.0],
        compute_dtype="fp32",
        param_init_method="xavier_uniform",
    )
    model = EncoderDecoderModel.for_training(config, vocabs, running, device_id=None)
    for module in model.modules():
        if isinstance(module, MLP):
            module.dropout_1.p = 0.0  # after the ReLU
    model.train()
    return model


if __name__ == "__main__":
    serve(EoleLoop)
