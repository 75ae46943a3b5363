"""The answers of a language model on disk: each is paid once, also if the command is killed.

Each session appends to a file of JSON lines of its own. A line is the translation of a line, or why
an answer failed; the first one of a request has its tokens:

{"request": 7, "teacher": "5f2a...", "key": "93bd...", "text": "...", "tokens": [412, 95]}
{"request": 8, "teacher": "5f2a...", "key": "c01e...", "failed": "other numbers", ...}
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.commands.distilling.language_model.chat_client import Usage
from nmt_cli.files.atomic_files import make_folders, naming_failed_writes
from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted

FIRST_LINES = 200  # whose failures are counted
SHOWN_EXAMPLES = 3


class AnswerStore:
    """The answers of one teacher in a folder, which may have those of others, too."""

    def __init__(self, folder: Path, teacher: Sequence[object], retries: int) -> None:
        """Read what is there. ``teacher`` is what all answers depend on."""
        self._folder, self._retries = folder, retries
        self._teacher = hashlib.sha256(json.dumps(teacher).encode()).hexdigest()[:16]
        self.texts: dict[bytes, str] = {}
        self.failures = defaultdict[bytes, list[str]](list)  # the reasons of each line
        self.first_failures: list[str | None] = []  # of the first lines that are done
        self.examples: list[str] = []  # of answers that failed
        self.num_requests = self.num_others = 0
        self.spent = self.dearest = Usage(0, 0)
        make_folders(folder)
        self._shard, num_damaged = folder / f"{time.time_ns()}.jsonl", 0
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_bytes().splitlines(keepends=True):
                try:
                    self._take(json.loads(line))
                except (ValueError, LookupError, TypeError, RecursionError):
                    # What a killed command did not finish has no line feed.
                    num_damaged += line.endswith(b"\n")
        if num_damaged:
            logs.warning(f"{folder}: left out {counted(num_damaged, 'damaged line')}.")

    def add(self, number: int, usage: Usage | None, records: Iterable[dict[str, Any]]) -> None:
        """Append what became of the lines of request ``number``."""
        of_request = {"request": number, "teacher": self._teacher}
        complete = [{**of_request, **record} for record in records]
        complete[0].update({"tokens": usage} if usage else {})
        lines = "".join(f"{json.dumps(each)}\n" for each in complete)
        with naming_failed_writes(self._shard, leaves_nothing=False), self._shard.open("a") as file:
            file.write(lines)
        for record in complete:
            self._take(record)

    def is_done(self, key: bytes) -> bool:
        """Return whether a line is translated, or has failed as often as it may."""
        return key in self.texts or len(self.failures.get(key, ())) > self._retries

    def _take(self, record: dict[str, Any]) -> None:
        self.num_requests = max(self.num_requests, record["request"])
        if record["teacher"] != self._teacher:
            self.num_others += 1
            return
        key = bytes.fromhex(record["key"])
        was_done = self.is_done(key)
        if "text" in record:
            self.texts[key] = record["text"]
        else:
            self.failures[key].append(record["failed"])
            if len(self.examples) < SHOWN_EXAMPLES:
                texts = f"{record['source']!r} became {record['answer']!r}"
                self.examples.append(f"{record['failed']}: {texts}")
        if self.is_done(key) and not was_done and len(self.first_failures) < FIRST_LINES:
            self.first_failures.append(record.get("failed"))
        usage = Usage(*record.get("tokens", (0, 0)))
        self.spent = Usage(*map(sum, zip(self.spent, usage, strict=True)))
        self.dearest = Usage(*map(max, self.dearest, usage))
