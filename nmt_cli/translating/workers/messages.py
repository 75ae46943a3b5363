"""The messages between a command, the process that starts its workers, and the workers."""

from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.messages.errors import UserError
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation

# No line has this number. To withdraw it is to ask a worker for a message, its confirmation.
NO_LINE = 0


class WorkerModel(NamedTuple):
    """What workers load: the arguments of ``Translator.load``, and the threads of each."""

    path: Path
    options: dict[str, Any]
    threads: int | None  # None: as many as a process uses that is alone
    on_gpus: bool  # worker n uses GPU n
    quiet: bool
    of_service: bool = False  # lines come at any time, and none waits longer than it must


class AttentionOf(NamedTuple):
    """Asks a worker for a page, which shows the attention of a sentence pair."""

    text: str
    translation: str
    model: str  # what the page calls it
    source: str  # the codes of its languages
    target: str


class Shared(NamedTuple):
    """What several lines ask for beside their texts; a worker gets it once."""

    request: Request  # whose text is empty


class TextOf(NamedTuple):
    """The text of a line that asks for what came under the number ``shared``."""

    shared: int
    text: str
    line: int | None = None  # its number in a text


class OneOfMany(NamedTuple):
    """A line of a large batch; other lines need not wait for all that a worker has of it."""

    line: Request | TextOf


class Ready(NamedTuple):
    """A worker's first message: it has the model."""

    chosen: dict[str, str]  # of its translator


def refusal(error: UserError) -> UserError:
    """Return the first and last message if the model, the device or an option is wrong.

    It has the message and the exit status of ``error``, whose own class may not be sent.
    """
    refused = UserError(str(error))
    refused.exit_status = error.exit_status
    return refused


class WorkerBugError(Exception):
    """A bug that a worker met with a line; the message has its traceback."""


ToWorker = Request | AttentionOf | Shared | TextOf | OneOfMany | None  # None: it is withdrawn
Answer = Translation | WorkerBugError | None  # to a line; None: it is withdrawn
