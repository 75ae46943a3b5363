"""The record of a translation: what it was made with, how far it got, and how to go on with it.

``.made-FILE.json`` is beside an output, unfinished or complete. The name is hidden, so that
patterns such as ``FILE*`` match outputs only.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from nmt_cli.files.atomic_files import file_appearing_whole, seal_of, sha256
from nmt_cli.files.lines import BYTE_ORDER_MARK, Line
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.files.temporary_names import shortened
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.system_facts import rounding_facts
from nmt_cli.messages import errors, logs
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import command
from nmt_cli.translating.options import TranslatorOptions

VERSION = 2
SHOWN_OF_A_HASH = 12
MAX_TOKENS = "max_tokens_per_device"  # changes only how sums are rounded


class FinishedLines(NamedTuple):
    """What was finished: the first lines of the input, and their output."""

    num_lines: int = 0
    num_bytes: int = 0  # of the output file
    input_sha256: str = hashlib.sha256().hexdigest()
    output_sha256: str = hashlib.sha256().hexdigest()
    tally: dict[str, Any] | None = None  # the state of the command's counters


class Record(NamedTuple):
    """The content of the file of a record."""

    made_with: dict[str, Any]  # the model, and every option that affects the output
    machine: dict[str, Any]  # what may change how ties are rounded
    progress: FinishedLines
    asked: dict[str, Any]  # device and precision as given, such as "auto"


def affecting(options: TranslatorOptions) -> dict[str, Any]:
    """Return the options that affect the output more than by rounding."""
    # CUDA graphs may be turned off for the rest of a text after a fault in them. What is off though
    # the model may have it on by default is no option that is not given.
    default = TranslatorOptions()
    return {
        name: "off" if value is False and getattr(default, name) is None else value
        for name, value in vars(options).items()
        if name not in {MAX_TOKENS, "no_cuda_graphs"}
    }


def rounding(options: TranslatorOptions, threads: int) -> dict[str, Any]:
    """Return what affects the output only by rounding."""
    return {**rounding_facts(threads), MAX_TOKENS: options.max_tokens_per_device}


def partial_of(path: Path) -> Path:
    """Return the path of the unfinished output of ``path``."""
    return path.with_name(f"{shortened(path.name)}.partial")


def record_path(path: Path) -> Path:
    """Return the path of the record of the output ``path``."""
    return path.with_name(f".made-{shortened(path.name)}.json")


def read_record(path: Path) -> Record | None:
    """Return the record of the output ``path``, complete or unfinished; None if there is none.

    If the checksums of the output differ, the record belongs to another file of this name. Raises
    DamagedError if the record cannot be read.
    """
    try:
        fields = json.loads(record_path(path).read_bytes())
        if fields["version"] != VERSION:
            raise ValueError(f"its version is {fields['version']}, not {VERSION}")
        if fields.pop("sha256") != seal_of(fields):
            raise ValueError("it has changed since it was written")
        del fields["version"]
        return Record(**{**fields, "progress": FinishedLines(**fields["progress"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.DamagedError(
            f"{record_path(path)} cannot be read: {error}. Give --force instead of --resume to "
            "start anew."
        ) from None


def write_record(path: Path, record: Record) -> None:
    """Replace the record of ``path``; after a power loss it is the old or the new one."""
    fields = {**record._asdict(), "version": VERSION, "progress": record.progress._asdict()}
    fields["sha256"] = seal_of(fields)
    with file_appearing_whole(record_path(path), replace=True) as stream:
        stream.write(json.dumps(fields, indent=2, ensure_ascii=False).encode() + b"\n")


def as_recorded(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``facts`` as they look when they were read from a record.

    A named tuple becomes a fact for each of its fields. Facts that are None, False or empty are
    left out, so that a record of an older version, which lacks a newer option, equals one that does
    not use it. 0 is kept: it is a value.
    """
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        fields = value._asdict() if hasattr(value, "_asdict") else {"": value}
        flat.update({f"{name}.{field}".rstrip("."): each for field, each in fields.items()})
    plain = json.loads(json.dumps(flat, default=str))
    return {name: value for name, value in plain.items() if value or type(value) in (int, float)}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between two mappings of ``as_recorded``, as ``name: old -> new``."""
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            shown = name.removeprefix("constraints.")
            yield f"{shown}: {_shown(old.get(name))} -> {_shown(new.get(name))}"


def text_of(line: Line) -> bytes:
    """Return the part of an input line on which its output depends; bad UTF-8 is U+FFFD in it."""
    mark = BYTE_ORDER_MARK if line.byte_order_mark else b""
    carriage_return = b"\r" if line.carriage_return else b""
    return mark + line.text.encode() + carriage_return + (b"\n" if line.newline else b"")


def _shown(value: object) -> str:
    if isinstance(value, str) and len(value) == 2 * hashlib.sha256().digest_size:
        return value[:SHOWN_OF_A_HASH]
    if isinstance(value, list):
        return ", ".join(_shown_phrase(each) for each in value)
    return "not given" if value is None else str(value)


def _shown_phrase(phrase: object) -> str:
    """Return a phrase, its pieces, or its forms: a record has these as a list in a list."""
    if not isinstance(phrase, list):
        return repr(phrase)
    if len(phrase) == 1 and isinstance(phrase[0], list):
        return " ||| ".join(_shown_phrase(form) for form in phrase[0])
    return repr(phrase)


def is_finished(path: Path) -> bool:
    """Return whether ``path`` is there and no unfinished output of it."""
    return path.is_file() and not partial_of(path).exists()


def fingerprints(models: Sequence[Path]) -> str:
    """Return ``models`` as the record of a translation names them.

    Raises UserError if one is missing.
    """
    # It imports numpy, which a command whose workers translate does not need.
    from nmt_cli.model_directory import find_model

    return " ".join(find_model(path).fingerprint for path in models)


def refuse_other(
    path: Path,
    models: Sequence[Path],
    made_with: Mapping[str, Any],
    asked: Mapping[str, str],
    lines: Iterator[Line],
) -> None:
    """Raise UserError unless ``path`` is the complete translation of ``lines`` by ``models``.

    ``made_with`` are the other options that affect the output. ``asked`` are device and precision
    as the user gave them; "auto" stands for what was used.
    """
    record = read_record(path)
    if record is None:
        _refuse(
            f"{path} is complete, but {record_path(path)}, the record of the model, the "
            "input and the options it was made with, is missing."
        )
    used = {
        name: record.made_with.get(name) if value in {AUTO, record.asked.get(name)} else value
        for name, value in asked.items()
    }
    now = as_recorded({**made_with, **used, "model": fingerprints(models)})
    _refuse_different(path, record.made_with, now)
    if sha256(path) != record.progress.output_sha256:
        _refuse(f"{path} has changed since it was translated.")
    number, digest = 0, hashlib.sha256()
    for number, line in enumerate(lines, 1):  # noqa: B007 - the last number is used
        digest.update(text_of(line))
    progress = record.progress
    old = {"lines of the input": progress.num_lines, "sha256 of the input": progress.input_sha256}
    new = {"lines of the input": number, "sha256 of the input": digest.hexdigest()}
    _refuse_different(path, old, new)
    logs.info(f"{path} is complete, and made with this model, input and options: nothing to do.")


def _refuse_different(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if other := "; ".join(differences(old, new)):
        _refuse(f"{path} is complete, but was made differently (old -> new): {other}.")


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
