"""The names of the stages of ``run`` and ``distil``, in their order, for ``--help``.

The stages themselves are in ``run_stages`` and ``distil_stages``, which import torch.
"""

from typing import Literal, get_args

StageName = Literal["preprocess", "train", "average", "translate", "score", "report"]
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)
STAGES_OF_DISTIL = (
    *("texts", "teach", "choose", "filter", "align"),
    *("preprocess", "lexicon", "train", "average", "round", "ship", "measure", "report"),
)
