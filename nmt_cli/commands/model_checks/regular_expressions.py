"""Searches for regular expressions in a process that the kernel ends if it takes too long.

Matching some patterns never ends, and no thread can be stopped.
"""

import json
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterable

from nmt_cli.launch.python_process import python_command
from nmt_cli.messages.errors import UserError

SECONDS = 2  # for one pattern in one text
PROGRAM = "from nmt_cli.commands.model_checks.regular_expressions import main; main()"

Question = tuple[str, str]  # a pattern, and a text to search in


def searched(questions: Iterable[Question]) -> dict[Question, bool | str | None]:
    """Return for each question whether the pattern matches; for a wrong pattern, what is wrong.

    None: the search took too long, here or in a text before. Raises UserError if the process ends
    for another reason, such as full memory.
    """
    waiting, answers = list(dict.fromkeys(questions)), dict[Question, bool | str | None]()
    while waiting:
        lines = "".join(f"{json.dumps(question)}\n" for question in waiting)
        command = python_command(PROGRAM)
        done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=False)
        found = list(map(json.loads, done.stdout.splitlines()))
        answers.update(zip(waiting, found, strict=False))
        if len(found) < len(waiting):
            pattern, _ = waiting[len(found)]
            if done.returncode != -signal.SIGALRM:
                ending = f"the process that searches for {pattern!r} ended with status"
                raise UserError(f"{ending} {done.returncode}; leave the pattern out.")
            answers.update((each, None) for each in waiting[len(found) :] if each[0] == pattern)
        waiting = [question for question in waiting if question not in answers]
    return answers


def main() -> None:
    """Answer the questions on stdin, one a line."""
    warnings.simplefilter("ignore")  # of what later versions of Python mean by a pattern
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the caller reports that it was interrupted
    for line in sys.stdin:
        pattern, text = json.loads(line)
        signal.alarm(SECONDS)  # the kernel's own action ends the process
        try:
            answer: bool | str = re.search(pattern, text) is not None
        except (re.error, OverflowError, RecursionError) as error:
            answer = str(error)
        signal.alarm(0)
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
