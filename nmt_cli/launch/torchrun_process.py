"""A process that runs torchrun, ends when its parent ends, and prints no traceback."""

import logging
import signal
import sys

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

from nmt_cli.launch.node_workers import NODES_APART, WORKERS_FAILED, die_with_parent
from nmt_cli.launch.stop_signals import STOPPING


def main() -> None:
    """Run torchrun with the arguments of this process, and exit with its status.

    The workers log or write their own errors.
    """
    die_with_parent()
    # A batch system signals every process of a job. The workers then save and end. This process
    # ignores the signal and waits for them: torchrun's own handlers would kill workers that need
    # more than 30 seconds to save.
    for number in STOPPING:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the workers would inherit
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        torchrun.run(torchrun.parse_args(sys.argv[1:]))
    except (ChildFailedError, SignalException):
        sys.exit(WORKERS_FAILED)
    except RendezvousError:
        sys.exit(NODES_APART)
