"""The start of several ranks: the main one has read the checkpoint, the others copy its state."""

from collections.abc import Iterator

from torch import Tensor

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.node_memory import NodeMemory
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.hardware.ranks import Ranks
from nmt_cli.messages import logs
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.training_state import TrainingState
from nmt_cli.training.training import enter_stage


def join_main_rank(
    ranks: Ranks, recipe: Recipe, corpus: PreparedCorpus, plan: BatchPlan, state: TrainingState
) -> None:
    """Give all ranks the state of the main rank, and let their plans begin at its batch."""
    # The other ranks are at batch 0 until the state is copied, so they plan nothing here.
    place = ranks.from_main(plan.epoch_of(state.progress.batch_index))
    _copy_from_main(ranks, state)
    if not ranks.is_main:
        enter_stage(plan, recipe, corpus, state.progress)
    plan.begin_at(*place)
    _share_plan(plan, ranks)


def _share_plan(plan: BatchPlan, ranks: Ranks) -> None:
    """Let the ranks of each machine plan an epoch once, in memory that they share."""
    memory = own = failure = None
    try:
        memory = NodeMemory()
        own = memory.offer()
    except OSError as error:
        failure = _reason_of(error)
    offers = ranks.gather(own)
    together = [each for each in offers if own and each and each.machine == own.machine]
    try:
        if memory is not None and len(together) > 1:
            memory.join(together[0])
            plan.plan_in(memory)
    except OSError as error:
        failure = _reason_of(error)
    for rank, reason in enumerate(ranks.gather(failure)):
        if reason is not None:
            logs.warning(
                f"rank {rank} plans the batches in memory of its own, because it cannot share "
                f"memory with the other ranks on its machine ({reason})."
            )


def _reason_of(error: OSError) -> str:
    return ": ".join(filter(None, (error.filename, error.strerror)))


def _copy_from_main(ranks: Ranks, state: TrainingState) -> None:
    """Overwrite ``state`` by that of the main rank."""
    state.progress = ranks.from_main(state.progress)
    state.validation = ranks.from_main(state.validation)
    state.saved = ranks.from_main(state.saved)
    ranks.copy_from_main(state.model.parameters())
    if state.average is not None:
        ranks.copy_from_main(state.average.weights().values())
    if state.progress.step > 0:
        ranks.copy_from_main(_moments(state))


def _moments(state: TrainingState) -> Iterator[Tensor]:
    state.optimizer.make_moments()  # on the ranks that did not read the checkpoint
    for parameter in state.model.parameters():
        moments = state.optimizer.state[parameter]
        yield from (moments[name] for name in ("step", *state.optimizer.moments_of(parameter)))
