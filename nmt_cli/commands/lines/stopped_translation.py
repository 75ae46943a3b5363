"""Errors of a translation that ended early, with the command that goes on."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nmt_cli.commands.lines.pipes import STANDARD_INPUT
from nmt_cli.commands.lines.translation_record import partial_of
from nmt_cli.messages import logs
from nmt_cli.messages.errors import STATUS_INTERRUPTED, LinesFailedError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import command


class StoppedTranslationError(UserError):
    """Translation was interrupted or terminated; its message has the command that goes on."""


def with_advice(
    error: BaseException, path: Path, num_lines: int, arguments: Sequence[str]
) -> BaseException:
    """Return ``error`` with the command that goes on; an interrupt becomes a UserError."""
    again = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
    when = ""
    if isinstance(error, LinesFailedError):
        when = ", when the bug is fixed or that line of the input is changed,"
    advice = (
        f"The output of {counted(num_lines, 'line')} is kept in {partial_of(path)}. To go on{when} "
        f"run: {command('nmt-cli', *again)}{_redirection(arguments)}"
    )
    if is_stop(error):
        return stopped(error, advice)
    if isinstance(error, UserError):
        error.args = (f"{error} {advice}",)
        return error
    logs.warning(advice)
    return error


def is_stop(error: BaseException) -> bool:
    """Return whether ``error`` is an interrupt or a signal that ends the command."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def stopped(stop: BaseException, message: str) -> StoppedTranslationError:
    """Return an error with ``message`` that ends the command with the exit status of ``stop``."""
    if not isinstance(stop, SystemExit):
        error = StoppedTranslationError(f"interrupted. {message}")
        error.exit_status = STATUS_INTERRUPTED
        return error
    error = StoppedTranslationError(f"terminated. {message}")
    error.exit_status = stop.code if isinstance(stop.code, int) else 1
    return error


def _redirection(arguments: Sequence[str]) -> str:
    """Return the redirection of stdin with which the command was started, or a reminder of it."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name == "--input" and (value if equals else following) != str(STANDARD_INPUT):
            return ""
    with suppress(OSError):
        path = Path("/proc/self/fd/0").resolve()
        if path.is_file():
            return f" < {command(path)}"
    return "   (with the same text on stdin)"
