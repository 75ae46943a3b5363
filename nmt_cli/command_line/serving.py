"""The command that serves models by HTTP."""

from typing import Any

import click

from nmt_cli.command_line import completion, options
from nmt_cli.command_line.options import POSITIVE, TEXT


@options.cli_command()
@click.argument(
    "models", metavar="MODEL...", nargs=-1, required=True, shell_complete=completion.runs
)
@click.option(
    "--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 is all of this machine."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5000, help="Port; 0 is any free one."
)
@options.translation_option(
    "beam_size",
    "Most hypotheses that a request may ask for, and the default.  [default: the recipe's]",
)
@options.length_penalty
@options.translate_everything
@options.shortlist
@options.device
@options.decoding_precision
@options.threads
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    help="Processes for each model.  [default: one per core, or per GPU]",
)
@options.max_tokens_per_device(
    "Most tokens of all hypotheses in the search of a process at one time.  [default: what "
    "keeps the device busy]"
)
@options.flag(
    "--no-pivot",
    help="Do not translate by two models, through a pivot language, where no model has a pair.",
)
@options.repeated(
    "--glossary",
    "glossaries",
    metavar="FILE",
    help="Terms that requests may ask for by the file's name; FILE=en:de names their languages, "
    "by default those of the first model",
)
@options.repeated(
    "--memory",
    "memories",
    metavar="FILE",
    help="Translation memory (TMX, XLIFF, PO): segments that it has get its translation; "
    "FILE=en:de names the languages of models, by default those of the first",
)
@options.translation_option(
    "memory_similarity",
    "Least similarity of segments of a memory that answers of /v1/translate list.  "
    "[default: only equal ones]",
    metavar="PERCENT",
)
@options.repeated(
    "--protect",
    metavar="PATTERN",
    help="Copy what matches this regular expression exactly once. Requests may choose it by the "
    "name of its group, such as (?P<name>...), else by itself",
)
@click.option(
    "--api-keys",
    type=TEXT,
    metavar="FILE",
    help="Answer only requests with one of the keys in FILE, one a line.",
)
@options.flag("--open", "is_open", help="Let other machines use the service without a key.")
@options.repeated(
    "--allow-origin",
    "origins",
    metavar="ORIGIN",
    help="Let pages of ORIGIN, such as https://example.org, use the service in browsers (CORS)",
)
@click.option("--max-body-bytes", type=POSITIVE, default=1 << 20, help="Largest body of a request.")
@click.option(
    "--max-document-bytes",
    type=POSITIVE,
    default=10 << 20,
    help="Largest body of a request with a document.",
)
@click.option("--max-characters", type=POSITIVE, default=100_000, help="Most in a request.")
@click.option(
    "--max-lines",
    type=POSITIVE,
    default=10_000,
    help="Most in a request; each text of /v1 is a line.",
)
@click.option(
    "--max-waiting-lines",
    type=POSITIVE,
    default=20_000,
    help="Most of all requests; further requests are refused with status 503.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    help="Longest time for a body to come, for its translation, and for the answer to be read.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0),
    default=30.0,
    help="After SIGTERM, finish for so long what was accepted.",
)
@options.flag("--log-text", help="Log every line and its translation.")
@options.quiet
def serve(models: tuple[str, ...], **given: Any) -> None:
    """Translate what comes by HTTP, with one or several models.

    MODEL is a model directory, a checkpoint or a run directory; MODEL=en:de names the languages of
    a model that does not name them.
    """
    from nmt_cli.commands import serve as command

    command.run(models, **given)
