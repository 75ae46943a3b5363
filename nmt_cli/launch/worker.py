"""Whether this process is one of several that train together.

A process that torchrun started is a worker, whether ``node_workers`` or the user ran torchrun. A
worker is recognized by the environment variables that torchrun sets.
"""

import os
from pathlib import Path
from typing import NamedTuple

OUTCOME = "NMT_CLI_OUTCOME"  # our own launcher names here the folder of the workers' outcomes
PLACE_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
LAUNCH_ID = "TORCHELASTIC_RUN_ID"  # torchrun always sets it
# Variables of srun, and those of torch that are equal where srun starts workers, as with enroot.
OF_SRUN = {"SLURM_PROCID": "RANK", "SLURM_NTASKS": "WORLD_SIZE"}


class Worker(NamedTuple):
    """The place of this process among the workers, from torchrun's variables."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    launch: str  # the same for all workers and restarts of a launch
    restarts: int
    outcome: Path | None  # folder in which our launcher expects the status; None without it


def this_worker() -> Worker | None:
    """Return this process as a worker; None if neither torchrun nor srun started it as one."""
    env = os.environ
    if any(name not in env for name in PLACE_VARIABLES):
        return None
    if LAUNCH_ID not in env and any(env.get(own) != env[name] for own, name in OF_SRUN.items()):
        return None
    return Worker(
        int(env["RANK"]),
        int(env["WORLD_SIZE"]),
        int(env["LOCAL_RANK"]),
        int(env.get("LOCAL_WORLD_SIZE", "1")),
        env.get(LAUNCH_ID, "none"),
        int(env.get("TORCHELASTIC_RESTART_COUNT", "0")),
        Path(env[OUTCOME]) if OUTCOME in env else None,
    )
