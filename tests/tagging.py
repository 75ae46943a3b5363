"""A translator that answers each line with a hash of it, and the command that uses it."""

import hashlib
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nmt_cli.files.lines import is_blank
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator

NASTY = [
    b"",
    b"   ",
    b"\r",
    b"word\r",
    b"lone\rreturn",
    "line\u2028separator".encode(),
    "next\u0085line".encode(),
    b"nul\0byte",
    b"\xff\xfe bad \xed\xa0\x80 bytes \xc0\xaf",
    "\ufefflate mark".encode(),
    "zero\u200bwidth \u200d".encode(),
    b"<s> </s> <unk>",
    "▁ ▁▁x @@ ||| y@@".encode(),
    b"\x0b\x0c\x1c\x1d\x1e",
    "😀👩\u200d👩\u200d👧 עברית e\u0301".encode(),
    b"\t tab \t",
]


def digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:8]


class StandIn:
    """What the commands use of a translator, in place of any model."""

    chosen: ClassVar[dict[str, str]] = {}

    def translate_window(self, lines: Sequence[Request]) -> list[Translation]:
        raise NotImplementedError


class Tagging(StandIn):
    """Answers each line with a hash of it, so that a line in the wrong place shows."""

    def translate_window(self, lines: Sequence[Request]) -> list[Translation]:
        return [
            Translation() if is_blank(line.text) else Translation(digest(line.text), -1.0, ("a",))
            for line in lines
        ]


def fuzzed(num_lines: int, seed: int) -> bytes:
    """Return text of at least so many lines, of words, nasty characters and random bytes."""
    chance = random.Random(seed)
    chunks = [*NASTY, b"word ", b"Wort\xc3\xa4 "]
    lines = []
    for _ in range(num_lines):
        line = b"".join(chance.choices(chunks, k=chance.randrange(4)))
        if chance.random() < 0.3:
            line += chance.randbytes(chance.randrange(6))
        lines.append(line)
    return b"\n".join(lines)


def expected_output(data: bytes, translate_line: Callable[[str], str]) -> bytes:
    """Return the expected lines, computed from the bytes without the program's reader."""
    *lines, last = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    out = []
    for raw, end in [*((line, b"\n") for line in lines), *([(last, b"")] if last else [])]:
        text = raw.removesuffix(b"\r").decode(errors="replace")
        answer = "" if is_blank(text) else translate_line(text)
        out.append(answer.encode() + (b"\r" if raw.endswith(b"\r") else b"") + end)
    return b"".join(out)


def run_the_command(arguments: list[str]) -> None:
    """Run ``nmt-cli`` with the translator above in place of any model."""
    Translator.load = lambda *_, **__: Tagging()  # type: ignore[method-assign, assignment]
    from nmt_cli.cli import main

    main(arguments, prog_name="nmt-cli")


def forked(arguments: list[str], stdin: int, stdout: int, stderr: Path) -> int:
    """Run the command in a child with these descriptors; return its process."""
    process = os.fork()
    if process:
        return process
    status: Any = 1
    try:
        errors = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, descriptor in enumerate((stdin, stdout, errors)):
            os.dup2(descriptor, number)
        os.closerange(3, 256)  # no child may hold the other end of a pipe open
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1)
        run_the_command(arguments)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        os._exit(status)


if __name__ == "__main__":
    run_the_command(sys.argv[1:])
