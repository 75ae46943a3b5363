"""torchrun in a process of its own, which ends with its parent and without a traceback."""

import logging
import signal
import sys

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

from nmt_cli.launch import NODES_APART, WORKERS_FAILED, die_with_parent
from nmt_cli.signals import STOPPING


def main(arguments: list[str]) -> int:
    """Run torchrun; its workers log their own errors."""
    die_with_parent()
    # A batch system signals whole process trees. The workers save and end; this process waits for
    # them, however long that takes: torchrun's own handlers would kill them after 30 seconds.
    for number in STOPPING:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the workers would inherit
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        torchrun.run(torchrun.parse_args(arguments))
    except (ChildFailedError, SignalException):
        return WORKERS_FAILED
    except RendezvousError:
        return NODES_APART
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
