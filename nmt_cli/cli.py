"""The command line: each command calls one function; errors become one line and an exit status."""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from nmt_cli import logs
from nmt_cli.atomic_files import is_failed_write
from nmt_cli.errors import STATUS_INTERRUPTED, InterruptedTrainingError, UserError
from nmt_cli.hardware.choices import AUTO
from nmt_cli.launch import this_worker
from nmt_cli.thread_waiting import spin_briefly
from nmt_cli.usage import HelpfulGroup, read_duration

STATUS_OUTPUT_FAILED = 74
STATUS_READER_GONE = 141
STATUS_TERMINATED = 143
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

PATH = click.Path(path_type=Path)
overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Change a key of the recipe, such as training.max_steps=100; may be repeated.",
)
quiet_option = click.option("--quiet", is_flag=True, help="Show only warnings and errors.")
force_option = click.option("--force", is_flag=True, help="Replace what already exists.")
device_option = click.option(
    "--device", default=AUTO, show_default=True, help="auto, cpu, cuda or cuda:N."
)
precision_option = click.option(
    "--precision",
    type=click.Choice([AUTO, "fp32", "bf16"]),
    default=AUTO,
    show_default=True,
    help="auto is bf16 if the device computes it fast.",
)
fp32_products_option = click.option(
    "--fp32-products",
    type=click.Choice([AUTO, "mkl", "onednn"]),
    default=AUTO,
    show_default=True,
    help="Library that multiplies fp32 matrices on a CPU; auto is the faster one of the same "
    "precision.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1, 4096), help="CPU threads; by default one for each core."
)


class ErrorsInOneLine(HelpfulGroup):
    """A group whose commands end user errors with one line and the documented exit status."""

    group_class = HelpfulGroup

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a UserError becomes one line and an exit status."""
        try:
            _prepare_streams_and_signals()
            spin_briefly()
            result = super().invoke(ctx)
            sys.stdout.flush()  # here a failure still gets an exit status
        except InterruptedTrainingError as error:
            _end(str(error), error.exit_status)  # not an error, because the user asked for it
        except UserError as error:
            _fail(str(error), error.exit_status)
        except BrokenPipeError:
            # The reader of stdout is gone, and Python must not try to flush it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(STATUS_READER_GONE)
        except OSError as error:
            if error.filename is None and not is_failed_write(error):
                raise
            place = f"{error.filename}: " if error.filename is not None else ""
            status = STATUS_OUTPUT_FAILED if is_failed_write(error) else 1
            _fail(f"{place}{error.strerror}.", status)
        except KeyboardInterrupt:
            _fail("interrupted.", STATUS_INTERRUPTED)
        return result


def _fail(message: str, status: int) -> NoReturn:
    _end(f"Error: {message}", status)


def _end(message: str, status: int) -> NoReturn:
    with suppress(OSError):  # set the exit status even if the message cannot be written
        sys.stderr.write(f"{logs.printable(message)}\n")
        sys.stderr.flush()
    sys.exit(status)


def _prepare_streams_and_signals() -> None:
    """Replace closed streams, and let SIGTERM raise SystemExit, so that commands clean up."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open to the end
    if sys.stdout is None:
        # Only commands that write to it fail.
        sys.stdout = Path("/dev/full").open("w")  # noqa: SIM115 - open to the end
    # A worker that waits for others in C++ cannot run a handler; the default ends it at once.
    if threading.current_thread() is threading.main_thread() and this_worker() is None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(STATUS_TERMINATED))


@click.group(cls=ErrorsInOneLine, context_settings=CONTEXT)
@click.version_option(package_name="nmt-cli")
def main() -> None:
    """Train and run the Transformer of "Attention Is All You Need".

    A RECIPE is a YAML file or the name of a shipped one (see: nmt-cli recipes list).
    """


@main.command()
@click.argument("recipe")
@overrides_option
@click.option(
    "--prepared", type=PATH, help="Directory to write.  [default: prepared/NAME of the recipe]"
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@force_option
@quiet_option
def preprocess(
    recipe: str,
    overrides: tuple[str, ...],
    prepared: Path | None,
    workers: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Turn the raw parallel text of RECIPE into a subword model and binary token files."""
    logs.configure(quiet=quiet)
    from nmt_cli.commands import preprocess as command

    command.run(recipe=recipe, overrides=overrides, output=prepared, workers=workers, force=force)


@main.command()
@click.argument("recipe")
@overrides_option
@click.option("--prepared", type=PATH, help="What preprocess wrote.  [default: prepared/NAME]")
@click.option("--run-dir", type=PATH, help="Directory of this run.  [default: runs/NAME]")
@click.option("--resume", is_flag=True, help="Continue from the newest checkpoint of the run.")
@click.option(
    "--allow-change",
    "allowed_changes",
    multiple=True,
    metavar="KEY",
    help="Resume although this key of the recipe changed, such as training.clip_norm.",
)
@device_option
@precision_option
@fp32_products_option
@threads_option
@click.option(
    "--max-tokens-per-device",
    type=click.IntRange(min=2),
    help="Most tokens of a side in one micro-batch.  [default: what fits the memory]",
)
@click.option(
    "--compile",
    is_flag=True,
    help="Compile the operations between matrix products; for GPUs and long runs.",
)
@click.option(
    "--deterministic",
    is_flag=True,
    help="Make a GPU compute the same bits each time, more slowly; a CPU always does.",
)
@click.option(
    "--devices",
    type=click.IntRange(1, 1024),
    help="GPUs, or processes on a CPU, of this machine.  [default: all GPUs, or one process]",
)
@click.option(
    "--nnodes",
    type=click.IntRange(1, 4096),
    default=1,
    show_default=True,
    help="Machines that train together; each runs this command.",
)
@click.option(
    "--rdzv-endpoint", metavar="HOST:PORT", help="Where the machines meet; the same on each."
)
@click.option("--rdzv-id", metavar="TEXT", help="Name of this job.  [default: the run directory's]")
@click.option("--init-from", type=PATH, help="Start from the weights of this model; see README.")
@click.option(
    "--max-time",
    metavar="DURATION",
    callback=read_duration,
    help="Save and end before this much time has passed, such as 3h30m or 90s.",
)
@quiet_option
def train(recipe: str, quiet: bool, **options: Any) -> None:
    """Train the model of RECIPE from what preprocess wrote."""
    logs.configure(quiet=quiet)
    from nmt_cli.commands import train as command

    command.run(recipe, quiet=quiet, **options)


@main.command("average-checkpoints")
@click.argument("run", type=PATH)
@click.option(
    "--last", type=click.IntRange(min=1), help="How many.  [default: the recipe's keep_for_average]"
)
@click.option(
    "--checkpoints", type=PATH, multiple=True, help="A checkpoint to average; may be repeated."
)
@click.option("--output", type=PATH, help="Model directory to write.  [default: RUN/average]")
@force_option
@quiet_option
def average_checkpoints(run: Path, quiet: bool, **options: Any) -> None:
    """Average the weights of the last checkpoints of RUN into one model."""
    logs.configure(quiet=quiet)
    if options["last"] is not None and options["checkpoints"]:
        raise click.UsageError("give --last or --checkpoints, not both.")
    from nmt_cli.commands import average_checkpoints as command

    command.run(run, **options)


@main.command()
@click.argument("model", type=PATH)
@click.option("--input", "input_path", type=PATH, help="Text to translate.  [default: stdin]")
@click.option("--output", "output_path", type=PATH, help="File to write.  [default: stdout]")
@force_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "tsv", "jsonl"]),
    default="text",
    show_default=True,
    help="text is one translation per line; the others hold scores and n-best lists.",
)
@click.option("--beam-size", type=click.IntRange(1, 1000), help="[default: the recipe's]")
@click.option("--length-penalty", type=click.FloatRange(0, 10), help="[default: the recipe's]")
@click.option(
    "--n-best", type=click.IntRange(min=1), default=1, show_default=True, help="Needs a --format."
)
@click.option(
    "--too-long",
    type=click.Choice(["split", "truncate", "error"]),
    default="split",
    show_default=True,
    help="What to do with lines of more pieces than the recipe's max_length.",
)
@click.option("--keep-pieces", is_flag=True, help="Print pieces, without joining them to text.")
@device_option
@precision_option
@fp32_products_option
@threads_option
@click.option(
    "--max-tokens-per-device",
    type=click.IntRange(min=1),
    help="Tokens of all hypotheses in the search.  [default: what keeps the device busy]",
)
@quiet_option
def translate(model: Path, quiet: bool, **options: Any) -> None:
    """Translate lines from stdin to stdout with MODEL, one line for each line.

    MODEL is a model directory, a checkpoint or a run directory. Of a run, the average is used, else
    the best checkpoint, else the last.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import translate as command

    sys.exit(command.run(model, **options))


@main.command()
@click.argument("hypotheses", type=PATH)
@click.argument("references", type=PATH, nargs=-1, required=True)
@click.option(
    "--tokenize",
    type=click.Choice(["13a", "intl", "none"]),
    default="13a",
    show_default=True,
    help="sacreBLEU's tokenizer; none for text that is tokenized already.",
)
@click.option("--lowercase", is_flag=True, help="Ignore case.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
@quiet_option
def score(hypotheses: Path, references: tuple[Path, ...], quiet: bool, **options: Any) -> None:
    """Print BLEU and chrF of HYPOTHESES against one or several REFERENCES; - is stdin."""
    logs.configure(quiet=quiet)
    from nmt_cli.commands import score as command

    command.run(hypotheses, references, **options)


@main.command()
@click.argument("runs", metavar="RUN...", type=PATH, nargs=-1, required=True)
@click.option(
    "--output",
    type=PATH,
    help="Directory to write, or only the page if it ends in .html.  "
    "[default: RUN/report for one run, report for several]",
)
@force_option
@quiet_option
def report(runs: tuple[Path, ...], quiet: bool, **options: Any) -> None:
    """Draw loss, perplexity, BLEU, learning rate and speed of runs, side by side.

    Writes PNG files, and index.html, a page that contains all of them and opens anywhere. A run may
    still be training. Needs matplotlib: pip install 'nmt-cli[report]'.
    """
    logs.configure(quiet=quiet)
    from nmt_cli.commands import report as command

    command.run(runs, **options)


@main.command()
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
def doctor(output_format: str) -> None:
    """Print versions, devices, cores, memory and disks, and what would be slow.

    For bug reports: one "name: value" per line, then a line of advice for each problem.
    """
    logs.configure(quiet=False)
    from nmt_cli.commands import doctor as command

    command.run(output_format=output_format)


@main.group()
def recipes() -> None:
    """List, show, explain and check recipes."""


@recipes.command("list")
def list_recipes() -> None:
    """List the shipped recipes and what each is for."""
    from nmt_cli.commands import recipes as command

    command.list_recipes()


@recipes.command()
@click.argument("recipe")
@overrides_option
@click.option("--comments", is_flag=True, help="Explain each key: meaning, range and default.")
def show(recipe: str, overrides: tuple[str, ...], comments: bool) -> None:
    """Print RECIPE resolved: with its parent, overrides and every default."""
    from nmt_cli.commands import recipes as command

    command.show(recipe, overrides, comments=comments)


@recipes.command()
@click.argument("section", required=False)
def keys(section: str | None) -> None:
    """List meaning, allowed values and default of each key, or only of those in SECTION."""
    from nmt_cli.commands import recipes as command

    command.list_keys(section)


@recipes.command()
def schema() -> None:
    """Print the JSON Schema of recipes, for editors."""
    from nmt_cli.commands import recipes as command

    command.write_schema()


@recipes.command()
@click.argument("recipe")
@overrides_option
def check(recipe: str, overrides: tuple[str, ...]) -> None:
    """Check RECIPE, the files it names and the folders that commands would write."""
    logs.configure(quiet=False)
    from nmt_cli.commands import recipes as command

    command.check(recipe, overrides)
