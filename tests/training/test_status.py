"""``status.json``: it has the exit status and the message of the command."""

import errno

import pytest

from nmt_cli.launch.run_status import read_status
from nmt_cli.training.session import status_kept


@pytest.mark.parametrize(
    ("error", "exit_status", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "f"), 74, "f: No space left on device."),
        (PermissionError(errno.EACCES, "Permission denied", "f"), 1, "f: Permission denied."),
        (OSError("odd"), 1, "{run}: odd."),
        (KeyError("bug"), 1, "KeyError: 'bug'"),
    ],
)
def test_the_failure_of_one_process_has_the_exit_status_of_the_command(
    tmp_path, error, exit_status, message
):
    with pytest.raises(type(error)), status_kept(tmp_path, None, lambda: "finished"):
        raise error
    status = read_status(tmp_path)
    assert status is not None
    assert (status.state, status.exit_status, status.message) == (
        "failed",
        exit_status,
        message.replace("{run}", str(tmp_path)),
    )
