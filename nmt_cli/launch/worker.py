"""Whether this process is one of several that train together.

A process that torchrun started is a worker, whether ``node_workers`` or the user ran torchrun. A
worker is recognized by the environment variables that torchrun sets. So is a task of srun with the
variables of torch, which containers (enroot) and scripts set from those of srun.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

OUTCOME = "NMT_CLI_OUTCOME"  # our own launcher names here the folder of the workers' outcomes
PLACE_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
LAUNCH_ID = "TORCHELASTIC_RUN_ID"  # torchrun always sets it
# Variables of srun, and those of torch that are equal where srun starts workers.
OF_SRUN = {"SLURM_PROCID": "RANK", "SLURM_NTASKS": "WORLD_SIZE"}
# How many tasks each node has, such as 8(x2),4. srun sets the first for its step; the others may
# be those of the job, of which a step need not use all.
TASKS_OF_NODES = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
# A step has its number again when its job is requeued.
STEP = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")


class Worker(NamedTuple):
    """The place of this process among the workers, from the variables of torchrun or srun."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    launch: str  # the same for all workers and restarts of a launch
    restarts: int
    outcome: Path | None  # folder in which our launcher expects the status; None without it
    is_of_srun: bool = False
    cores: int | None = None  # that the workers of this machine have together, if srun names them


def this_worker() -> Worker | None:
    """Return this process as a worker; None if neither torchrun nor srun started it as one."""
    env = dict(os.environ)
    is_of_torchrun = LAUNCH_ID in env
    is_of_srun = not is_of_torchrun and all(
        name in env and env.get(own) == env[name] for own, name in OF_SRUN.items()
    )
    if is_of_srun and "SLURM_LOCALID" in env:
        env.setdefault("LOCAL_RANK", env["SLURM_LOCALID"])
    if any(name not in env for name in PLACE_VARIABLES) or not (is_of_torchrun or is_of_srun):
        return None
    local_rank, cores = int(env["LOCAL_RANK"]), env.get("SLURM_CPUS_ON_NODE", "")
    local_size = max(local_rank + 1, tasks_of_this_node(env)) if is_of_srun else 1
    return Worker(
        int(env["RANK"]),
        int(env["WORLD_SIZE"]),
        local_rank,
        int(env.get("LOCAL_WORLD_SIZE", local_size)),
        ".".join(env.get(name, "0") for name in STEP) if is_of_srun else env[LAUNCH_ID],
        int(env.get("TORCHELASTIC_RESTART_COUNT", "0")),
        Path(env[OUTCOME]) if OUTCOME in env else None,
        is_of_srun,
        int(cores) if is_of_srun and cores.isdecimal() else None,
    )


def tasks_of_this_node(env: Mapping[str, str]) -> int:
    """Return how many tasks srun has started on this node; 1 if no variable of srun says it."""
    node = env.get("SLURM_NODEID", "")
    for name in TASKS_OF_NODES:
        groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", env.get(name, ""))
        counts = [int(count) for count, times in groups for _ in range(int(times or 1))]
        if counts:
            return counts[min(int(node) if node.isdecimal() else 0, len(counts) - 1)]
    return 1
