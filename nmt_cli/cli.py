"""The command line: each command calls one function; errors become one line and an exit status."""

import os
import signal
import sys
import threading
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from nmt_cli.launch.python_process import without_collections

with without_collections():
    import click

    from nmt_cli.command_line.usage import HelpfulGroup
    from nmt_cli.files.atomic_files import is_failed_write
    from nmt_cli.files.output_streams import CLOSED_STDOUT
    from nmt_cli.launch.worker import this_worker
    from nmt_cli.messages import errors, logs

STATUS_OUTPUT_FAILED = 74
STATUS_READER_GONE = 141
STATUS_OF_SIGNAL = 128  # and the number of the signal, as in shells
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


class WrongUse(click.UsageError):
    """A usage error that begins with what is wrong; the usage follows."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message, the usage, and where there is help."""
        click.echo(f"Error: {self.format_message()}", file, err=True)
        if self.ctx is not None:
            click.echo(self.ctx.get_usage(), file, err=True)
            click.echo(f"Try '{self.ctx.command_path} --help' for help.", file, err=True)


@contextmanager
def _usage_last() -> Iterator[None]:
    """Raise WrongUse in place of the usage errors of the block."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise WrongUse(error.format_message(), error.ctx) from None


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """End the process for a user error of the block, with one line and its exit status."""
    try:
        yield
        sys.stdout.flush()  # here a failure still gets an exit status
    except errors.InterruptedTrainingError as error:
        _end(str(error), error.exit_status)  # not an error, because the user asked for it
    except errors.UserError as error:
        _fail(str(error), error.exit_status)
    except BrokenPipeError:
        _give_stdout_up()  # its reader is gone
        sys.exit(STATUS_READER_GONE)
    except OSError as error:
        if error.filename is None and not is_failed_write(error):
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        status = STATUS_OUTPUT_FAILED if is_failed_write(error) else 1
        if status == STATUS_OUTPUT_FAILED:
            _give_stdout_up()
        _fail(f"{place}{error.strerror}.", status)
    except KeyboardInterrupt:
        _fail("interrupted.", errors.STATUS_INTERRUPTED)


class ErrorsInOneLine(HelpfulGroup):
    """A group whose commands end user errors with one line and the documented exit status."""

    group_class = HelpfulGroup

    def make_context(self, *positional: Any, **others: Any) -> click.Context:
        """Parse the options in front of the command. Raises WrongUse if they are wrong."""
        _prepare_streams()
        with _errors_in_one_line(), _usage_last():
            return super().make_context(*positional, **others)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a UserError becomes one line and an exit status."""
        with _errors_in_one_line():
            _prepare_signals()
            logs.configure(quiet=False)
            with _usage_last(), errors.reporting_full_memory():
                return super().invoke(ctx)


def _give_stdout_up() -> None:
    """Let Python flush what stdout could not take to nowhere, when it exits."""
    with suppress(OSError):
        sys.stdout.flush()
    with suppress(OSError):  # in tests it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int) -> NoReturn:
    _end(f"Error: {message}", status)


def _end(message: str, status: int) -> NoReturn:
    with suppress(OSError):  # set the exit status even if the message cannot be written
        sys.stderr.write(f"{logs.printable(message)}\n")
        sys.stderr.flush()
    sys.exit(status)


def _prepare_streams() -> None:
    """Replace closed streams."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open to the end
    if sys.stdout is None:
        # Only commands that write to it fail.
        sys.stdout = CLOSED_STDOUT.open("w")


def _prepare_signals() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit: commands clean up."""
    # A worker that waits for others in C++ cannot run a handler; the default ends it at once.
    if threading.current_thread() is threading.main_thread() and this_worker() is None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, lambda number, _: sys.exit(STATUS_OF_SIGNAL + number))


class Commands(UserDict[str, Any]):
    """The commands by name. A command is imported when it is looked up, so that it starts soon."""

    def __getitem__(self, name: str) -> click.Command:
        with without_collections():
            there = vars(import_module(f"nmt_cli.command_line.{self.data[name]}")).values()
        return next(each for each in there if isinstance(each, click.Command) and each.name == name)


# The modules of command_line/, with the names of their commands.
MODULES = {
    "checking": ["check"],
    "completion": ["completion"],
    "experiments": ["compare", "distil", "run"],
    "interchange": ["export", "import"],
    "recipes": ["doctor", "inspect", "recipes"],
    "scoring": ["score"],
    "serving": ["serve"],
    "training": ["align", "average-checkpoints", "data", "preprocess", "report", "train", "init"],
    "translation": ["attention", "lexicon", "rescore", "translate"],
}
COMMANDS = Commands(sorted((name, module) for module, names in MODULES.items() for name in names))


def _show_version(ctx: click.Context) -> None:
    from nmt_cli.commands.doctor import versions  # imports numpy, so only if it is wanted

    click.echo(versions())
    ctx.exit()


@click.group(cls=ErrorsInOneLine, context_settings=CONTEXT, commands=COMMANDS)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, is_wanted: _show_version(ctx) if is_wanted else None,
    help="Show the version and exit.",
)
def main() -> None:
    """Train and run the Transformer of "Attention Is All You Need".

    A RECIPE is a YAML file or the name of a shipped one (see: nmt-cli recipes list).
    """
