"""The variables of tasks of srun, as Slurm 22.05 sets them on two nodes of 16 CPUs."""

from typing import NamedTuple

TORCH = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


class Step(NamedTuple):
    """What a command of srun sets in a task of its last node."""

    command: str  # in a job of the options before |
    rank: int
    size: int
    node: int
    local_rank: int
    tasks: int  # of this node, as SLURM_GTIDS names them
    of_step: str
    of_job: str = ""  # SLURM_TASKS_PER_NODE where it differs
    per_node: str = ""  # SLURM_NTASKS_PER_NODE
    cores: int = 8


STEPS = (
    Step("-N2 --ntasks-per-node=8", 10, 16, 1, 2, 8, "8(x2)", per_node="8"),
    Step("-N2 -n3", 2, 3, 1, 0, 1, "2,1", cores=1),
    Step("-N1 -n2 -c4", 1, 2, 0, 1, 2, "2"),
    Step("-N2 --ntasks-per-node=8 | -N1 -n4", 3, 4, 0, 3, 4, "4", per_node="8"),
    Step("-N2 --ntasks-per-node=8 | --ntasks-per-node=1 -n2", 1, 2, 1, 0, 1, "1(x2)", per_node="1"),
    Step("-N2 -n12", 11, 12, 1, 0, 1, "11,1", cores=1),
    Step("-N2 -n12 | --preserve-env -n12", 10, 12, 0, 10, 11, "11,1", "11,1", cores=11),
    Step("-n1 : -n3", 3, 4, 1, 2, 3, "1,3", cores=3),
)


def variables_of(step: Step) -> dict[str, str]:
    """Return the variables, and those of torch that enroot or a script makes of them."""
    found = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(step.rank),
        "SLURM_NTASKS": str(step.size),
        "SLURM_LOCALID": str(step.local_rank),
        "SLURM_NODEID": str(step.node),
        "SLURM_STEP_TASKS_PER_NODE": step.of_step,
        "SLURM_TASKS_PER_NODE": step.of_job or step.of_step,
        "SLURM_NTASKS_PER_NODE": step.per_node,
        "SLURM_CPUS_ON_NODE": str(step.cores),
        **TORCH,
        "RANK": str(step.rank),
        "WORLD_SIZE": str(step.size),
        "LOCAL_RANK": str(step.local_rank),
    }
    return {name: value for name, value in found.items() if value}


def srun_of(tasks: int) -> dict[str, str]:
    """Return the variables of the last of ``tasks`` on one node, which names no cores."""
    step = Step("", tasks - 1, tasks, 0, tasks - 1, tasks, str(tasks))
    return {k: v for k, v in variables_of(step).items() if k != "SLURM_CPUS_ON_NODE"}
