"""The weights in bf16, by which a GPU trains: rounded once a step, not in each micro-batch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from nmt_cli.model.layers import Residual
from nmt_cli.model.transformer import Transformer


class RoundedWeights:
    """Copies of the weights of products and of post-norm's norms, in bf16.

    Embeddings stay as they are, because their gradients are sums over many rows. The parameters
    stay in fp32 too: the optimizer changes those, and checkpoints hold them.
    """

    def __init__(self, model: Transformer) -> None:
        modules: list[nn.Module] = [
            module for module in model.modules() if isinstance(module, nn.Linear)
        ]
        modules += [
            residual.norm
            for residual in model.modules()
            if isinstance(residual, Residual) and not residual.pre_norm
        ]
        self._places = [
            (module, name, parameter)
            for module in modules
            for name, parameter in module.named_parameters(recurse=False)
        ]
        self.leaves = {
            parameter: nn.Parameter(parameter.detach().bfloat16())
            for _, _, parameter in self._places
        }
        self._output_weight = model.output_weight
        self.output_weight = model.output_weight.detach().bfloat16()  # without a gradient

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now."""
        torch._foreach_copy_(
            [*self.leaves.values(), self.output_weight], [*self.leaves, self._output_weight]
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model compute with the copies during the block, which then get the gradients."""
        for module, name, parameter in self._places:
            module._parameters[name] = self.leaves[parameter]
        try:
            yield
        finally:
            for module, name, parameter in self._places:
                module._parameters[name] = parameter
