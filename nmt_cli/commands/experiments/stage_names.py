"""The names of the stages of ``nmt-cli run``, in their order, for ``--help`` and for the command.

The stages themselves are in ``run_stages``, which imports torch.
"""

from typing import Literal, get_args

StageName = Literal["preprocess", "train", "average", "translate", "score", "report"]
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)
