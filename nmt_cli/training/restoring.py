"""The state in which a resumed training goes on: checked, and shared with every rank."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.errors import UserError
from nmt_cli.hardware.ranks import Ranks
from nmt_cli.runs.checkpoint import TrainingState


def refuse_other_text(run_dir: Path, corpus: PreparedCorpus, trained_on: Mapping[str, Any]) -> None:
    """Raise UserError where ``corpus`` has other token ids than the run was trained on."""
    found = corpus.manifest["files"]
    for name in sorted(found.keys() | trained_on.keys()):
        decides_ids = name.startswith(("train.", "tokenizer", "vocabulary"))
        if decides_ids and found.get(name) != trained_on.get(name):
            raise UserError(
                f"{run_dir} was trained on another {name} than "
                f"{corpus.directory} holds now; prepare the same text again, "
                "or choose another --run-dir."
            )


def copy_tensors_from_main(ranks: Ranks, state: TrainingState) -> None:
    """Copy weights, their average and Adam's moments from the main process to every rank."""
    ranks.copy_from_main(state.model.parameters())
    if state.average is not None:
        ranks.copy_from_main(state.average.weights().values())
    if state.progress.step > 0:
        ranks.copy_from_main(_moments(state))


def _moments(state: TrainingState) -> Iterator[Tensor]:
    state.optimizer.make_moments()  # on the ranks that did not read the checkpoint
    for parameter in state.model.parameters():
        moments = state.optimizer.state[parameter]
        yield from (moments[name] for name in ("step", "exp_avg", "exp_avg_sq"))
