"""A session of training as one of torchrun's workers: its errors become exit statuses."""

import traceback

from nmt_cli import logs
from nmt_cli.errors import InterruptedTrainingError, UserError
from nmt_cli.hardware.ranks import PeerLostError
from nmt_cli.launch import Worker, die_with_parent
from nmt_cli.training.session import Job, train
from nmt_cli.training.status import as_user_error, has_failed, report_failure


def train_as_worker(job: Job, worker: Worker) -> int:
    """Train as one of torchrun's workers; return the exit status.

    A worker that was asked to stop returns 0, because torchrun would start it again otherwise.
    """
    die_with_parent()
    if worker.rank > 0:
        logs.silence()
    if has_failed(job.run_dir, worker):
        return 1  # restarts are for killed workers
    try:
        train(job, worker)
    except PeerLostError as error:
        logs.warning(str(error))
        return 1
    except InterruptedTrainingError as error:
        if worker.outcome is None:
            logs.warning(str(error))
        return 0
    except UserError as error:
        reported = error
    except OSError as error:
        reported = as_user_error(error, job.run_dir)
    except Exception:
        reported = UserError(f"rank {worker.rank} failed: {traceback.format_exc()}")
    else:
        return 0
    report_failure(job.run_dir, worker, reported)
    return reported.exit_status
