"""Builds models whose weights are not drawn, because they get their values elsewhere."""

from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DRAWING = {
    *(nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_),
    *(Tensor.normal_, Tensor.uniform_),
}


class SkipInit(TorchFunctionMode):
    """In this context, a new module's weights hold whatever is in the memory.

    Drawing takes half a second for a base model. To draw on the device meta, torch imports its
    compiler, which takes longer than importing torch itself.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call ``function``; one that draws numbers returns its tensor unchanged."""
        del types
        kwargs = kwargs or {}
        if function in DRAWING:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)
