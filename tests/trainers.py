"""Trainers of toy experiments, in this process and its forks."""

import torch

from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.options import TrainOptions
from nmt_cli.training.starting import prepare_training
from nmt_cli.training.trainer import Trainer

CPU = Machine(torch.device("cpu"), "fp32")
ONE_PIECE = BatchCut(120)  # the toy recipe's tokens_per_step


class StopAfter(StopRequest):
    """A request that comes once training has reached a step."""

    def __init__(self, trainer: Trainer, step: int) -> None:
        super().__init__()
        self.trainer, self.step = trainer, step

    def __bool__(self) -> bool:
        if self.trainer.state.progress.step >= self.step:
            self.reason = "SIGTERM"
        return super().__bool__()


def new_trainer(
    toy, run_dir, recipe=None, cut=None, ranks=ALONE, *, resume=False, machine=None, **options
):
    """Return a trainer on this rank, of a new run or of the run's newest checkpoint."""
    run_dir.mkdir(exist_ok=True)
    recipe, machine = recipe or toy.recipe, (machine or CPU)._replace(ranks=ranks)
    cut = cut or ONE_PIECE._replace(multiple_of=ranks.size)
    given = TrainOptions(**options)
    training = prepare_training(
        recipe, toy.corpus, run_dir, machine, cut, is_resumed=resume, options=given
    )
    return Trainer(training)


def spoil_gradient(engine):
    """Let the gradient that ``engine`` has computed be infinite."""
    engine.total._flat[0] = torch.inf


def read_at_once(trainer):
    """Let ``trainer`` read the figures of each step before it computes the next gradient."""
    trainer._is_anything_due = lambda: True


def changed(recipe, **sections):
    """Return ``recipe`` with keys of its sections changed."""
    update = {name: getattr(recipe, name).model_copy(update=c) for name, c in sections.items()}
    return recipe.model_copy(update=update)


def weights_of(trainer):
    """Return all weights as one vector."""
    return torch.cat([p.detach().flatten() for p in trainer.state.model.parameters()])
