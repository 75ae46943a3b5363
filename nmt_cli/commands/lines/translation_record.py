"""The record of a translation: what it was made with, how far it got, and how to go on with it.

``.made-FILE.json`` is beside an output, unfinished or complete. The name is hidden, so that
patterns such as ``FILE*`` match outputs only.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from nmt_cli.files.atomic_files import file_appearing_whole, seal_of
from nmt_cli.files.lines import BYTE_ORDER_MARK, Line
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.files.temporary_names import shortened
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages import errors, logs
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import command
from nmt_cli.translating.interface.options import TranslatorOptions

VERSION = 3
# CUDA graphs may be turned off for the rest of a text after a fault in them.
OF_ROUNDING = {"max_tokens_per_device", "no_cuda_graphs"}


class MadeWith(NamedTuple):
    """What decides a translation beside its text."""

    model: str = ""  # its fingerprint, or those of an ensemble
    options: str = ""  # a hash of those that affect the output
    device: str = AUTO  # without its number
    precision: str = AUTO

    def meant_by(self, before: "MadeWith") -> "MadeWith":
        """Return these with what "auto" meant in ``before``."""
        device = before.device if self.device == AUTO else self.device
        precision = before.precision if self.precision == AUTO else self.precision
        return self._replace(device=device, precision=precision)

    def unlike(self, before: "MadeWith") -> str:
        """Return what differs from ``before``, for a message; "" if nothing does."""
        has_other_options = self[1:] != before[1:]
        parts = ["another model"] * (self.model != before.model)
        return " and ".join([*parts, *["other options"] * has_other_options])


class Record(NamedTuple):
    """The content of the file of a record: what was finished."""

    made: MadeWith = MadeWith()
    text: str = ""  # a hash of the first lines of the text, which are finished
    num_lines: int = 0
    num_bytes: int = 0  # of the output file
    num_failed: int = 0  # lines


def hash_of(options: TranslatorOptions, others: Mapping[str, Any]) -> str:
    """Return a hash of the ``options`` and ``others`` that affect the output.

    Those that round sums differently do not; device and precision are compared by themselves. What
    is None, False or empty is left out, so that a later version, which has more options, finds the
    same hash; 0 is a value. What is off though the model may have it on by default is one, too.
    """
    default = type(options)()
    given = {
        name: "off" if value is False and getattr(default, name) is None else value
        for name, value in vars(options).items()
        if name not in {*OF_ROUNDING, "precision"}
    }
    flat: dict[str, Any] = {}
    for name, value in {**given, **others}.items():
        fields = value._asdict() if hasattr(value, "_asdict") else {"": value}
        flat.update({f"{name}.{field}": each for field, each in fields.items()})
    plain = json.loads(json.dumps(flat, default=str))
    return seal_of({name: v for name, v in plain.items() if v or type(v) in (int, float)})


def partial_of(path: Path) -> Path:
    """Return the path of the unfinished output of ``path``."""
    return path.with_name(f"{shortened(path.name)}.partial")


def record_path(path: Path) -> Path:
    """Return the path of the record of the output ``path``."""
    return path.with_name(f".made-{shortened(path.name)}.json")


def read_record(path: Path) -> Record | None:
    """Return the record of the output ``path``, complete or unfinished; None if there is none.

    Raises DamagedError if the record cannot be read.
    """
    try:
        fields = json.loads(record_path(path).read_bytes())
        if fields.pop("version") != VERSION:
            raise ValueError("another version of nmt-cli wrote it, which can go on")
        if fields.pop("sha256") != seal_of(fields):
            raise ValueError("it has changed since it was written")
        return Record(**{**fields, "made": MadeWith(**fields["made"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.DamagedError(
            f"{record_path(path)} cannot be read: {error}. Give --force instead of --resume to "
            "start anew."
        ) from None


def write_record(path: Path, record: Record) -> None:
    """Replace the record of ``path``; after a power loss it is the old or the new one."""
    fields = {**record._asdict(), "made": record.made._asdict()}
    sealed = {"version": VERSION, **fields, "sha256": seal_of(fields)}
    with file_appearing_whole(record_path(path), replace=True) as stream:
        stream.write(json.dumps(sealed, indent=2).encode() + b"\n")


class TextSoFar:
    """A hash of the lines of a text that were read so far, and their number."""

    def __init__(self, document: str = "") -> None:
        """``document`` is a hash of that whose segments are the lines."""
        self.num_lines, self._hash = 0, hashlib.sha256(document.encode())

    def add(self, lines: Iterable[Line]) -> None:
        """Take the next lines, or what their output depends on: bad UTF-8 is U+FFFD in it."""
        for line in lines:
            self.num_lines += 1
            mark = BYTE_ORDER_MARK if line.byte_order_mark else b""
            end = b"\r" * line.carriage_return + b"\n" * line.newline
            self._hash.update(mark + line.text.encode() + end)

    def sha256(self) -> str:
        """Return the hash."""
        return self._hash.hexdigest()

    def is_of(self, record: Record) -> bool:
        """Return whether these are the lines that were finished by ``record``."""
        return (self.num_lines, self.sha256()) == (record.num_lines, record.text)


def is_finished(path: Path) -> bool:
    """Return whether ``path`` is there and no unfinished output of it."""
    return path.is_file() and not partial_of(path).exists()


def fingerprints(models: Sequence[Path]) -> str:
    """Return ``models`` as the record of a translation names them.

    Raises UserError if one is missing.
    """
    # It imports numpy, which a command whose workers translate does not need.
    from nmt_cli.saved.model_directory import find_model

    return " ".join(find_model(path).fingerprint for path in models)


def num_failed_of(
    path: Path, made: MadeWith, models: Sequence[Path], text: TextSoFar, lines: Iterable[Line]
) -> int:
    """Return how many lines failed in the complete output ``path``.

    ``text`` takes the ``lines`` of the text. Raises UserError if the output was made with anything
    else than ``made`` has and these ``models``, or has changed.
    """
    record = read_record(path)
    if record is None:
        _refuse(
            f"{path} is complete, but {record_path(path)}, the record of the model, the text and "
            "the options it was made with, is missing."
        )
    made = made.meant_by(record.made)._replace(model=fingerprints(models))
    if other := made.unlike(record.made):
        _refuse(f"{path} is complete, but was made with {other}.")
    if path.stat().st_size != record.num_bytes:
        _refuse(f"{path} has changed since it was translated.")
    text.add(lines)
    if not text.is_of(record):
        _refuse(f"{path} is complete, but was made from another text.")
    logs.info(f"{path} is complete, and made with this model, text and options: nothing to do.")
    warn_of_failed(path, record)
    return record.num_failed


def warn_of_failed(path: Path, record: Record) -> None:
    """Warn if lines of ``path`` failed when they were translated; they were named then."""
    if record.num_failed:
        failed = counted(record.num_failed, "line")
        logs.warning(f"{failed} of {path} could not be translated.")


def _refuse(problem: str) -> NoReturn:
    raise errors.UserError(
        f"{problem} Give another --output, or --force instead of --resume to translate anew."
    )


def with_advice(
    error: BaseException, path: Path, num_lines: int, arguments: Sequence[str]
) -> BaseException:
    """Return ``error`` with the command that goes on; an interrupt becomes a UserError."""
    again = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
    when = ""
    if isinstance(error, errors.LinesFailedError):
        when = ", when the bug is fixed or that line of the input is changed,"
    advice = (
        f"The output of {counted(num_lines, 'line')} is kept in {partial_of(path)}. To go on{when} "
        f"run: {command('nmt-cli', *again)}{_redirection(arguments)}"
    )
    if is_stop(error):
        return stopped(error, advice)
    if isinstance(error, errors.UserError):
        error.args = (f"{error} {advice}",)
        return error
    logs.warning(advice)
    return error


def is_stop(error: BaseException) -> bool:
    """Return whether ``error`` is an interrupt or a signal that ends the command."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def stopped(stop: BaseException, message: str) -> errors.UserError:
    """Return an error with ``message`` that ends the command with the exit status of ``stop``."""
    if isinstance(stop, SystemExit):
        error = errors.UserError(f"terminated. {message}")
        error.exit_status = stop.code if isinstance(stop.code, int) else 1
    else:
        error = errors.UserError(f"interrupted. {message}")
        error.exit_status = errors.STATUS_INTERRUPTED
    return error


def _redirection(arguments: Sequence[str]) -> str:
    """Return the redirection of stdin with which the command was started, or a reminder of it."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name == "--input" and (value if equals else following) not in {"-", str(STANDARD_INPUT)}:
            return ""
    with suppress(OSError):
        path = Path("/proc/self/fd/0").resolve()
        if path.is_file():
            return f" < {command(path)}"
    return "   (with the same text on stdin)"
