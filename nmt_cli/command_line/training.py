"""Commands from public data and raw text to a trained model."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nmt_cli.alignment.symmetrization import SYMMETRIZATIONS
from nmt_cli.command_line import completion, options
from nmt_cli.command_line.options import OUTPUT, PATH, POSITIVE, TEXT
from nmt_cli.messages.errors import WrongUsageError

columns_of_corpus = click.option(
    "--columns",
    metavar="SOURCE,TARGET",
    help="Where both sides are in a file that holds both, as data.train.columns.",
)


def held_out_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for validation and test text."""
    for option in (
        click.option("--seed", type=click.IntRange(min=0), default=1, help="Draws these pairs."),
        click.option("--test", type=POSITIVE, default=1000, help="Pairs for the test."),
        click.option("--validation", type=POSITIVE, default=1000, help="Pairs for validation."),
    ):
        function = option(function)
    return function


@options.cli_group()
def data() -> None:
    """Get public data, and split corpora."""


@data.command()
@click.argument("name", shell_complete=completion.datasets)
@click.option(
    "--output",
    type=PATH,
    help="Directory to write.  [default: data/NAME; for OPUS, data/opus/CORPUS/en-de]",
)
@click.option(
    "--downloads",
    type=PATH,
    help="Directory of the archives.  [default: downloads beside --output]",
)
@click.option("--treebank", type=PATH, help="Your copy of the Penn Treebank; for wsj.")
@options.force
@options.quiet
def get(name: str, **given: Any) -> None:
    """Get the data set NAME: wmt14-en-de, wmt14-en-fr, wsj or a corpus of OPUS.

    opus:CORPUS/en-de stands for the newest version of a corpus at opus.nlpl.eu, such as
    opus:Europarl/en-de, and opus:CORPUS@v8/en-de for version 8.
    If a download breaks off, the same command continues it. Downloads need requests.
    wsj downloads nothing; it is made of the .mrg files below --treebank.
    """
    from nmt_cli.commands import data_get as command

    command.run(name, **given)


@data.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=PATH)
@held_out_options
@columns_of_corpus
@click.option(
    "--output",
    type=PATH,
    help="Directory to write.  [default: NAME-split beside the first FILE]",
)
@options.force
@options.quiet
def split(**given: Any) -> None:
    """Cut validation and test text off the corpus FILE...

    FILE... are the two texts of a corpus, or one file with both sides: a table with a tab between
    its columns, JSON lines (.jsonl), or a .csv or a translation memory (.tmx, .xlf, .po), which
    become tables. The parts are train.en, validation.en, test.en and so on, with the endings of the
    files. No sentence of validation or test text, of either side, stays in the training text, nor
    one that differs from it only in case, digits, punctuation or spaces; the command prints how
    many pairs that removed.
    """
    from nmt_cli.commands import data_split as command

    command.run(**given)


@options.cli_command()
@click.argument("name")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("--source-language", metavar="CODE", help="Such as en.  [default: what is found]")
@click.option("--target-language", metavar="CODE", help="Likewise.")
@columns_of_corpus
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    help="How long training may take.  [default: as long as the text needs]",
)
@held_out_options
@options.flag("--yes", help="Take what is found, and ask nothing.")
@options.force
@options.quiet
def init(yes: bool, **given: Any) -> None:
    """Begin with your own text: write the recipe NAME.yaml that trains on FILE...

    FILE... are as for data split, which cuts validation and test text off them into data/NAME. The
    languages are found by the text, the size of the model and of the vocabulary by the number of
    pairs, the steps by that and by the hours: 20 steps are tried. On a terminal, init asks.
    """
    from nmt_cli.commands import init as command

    if not yes and not is_terminal():
        raise WrongUsageError("stdin is no terminal; add --yes to take what is found.")
    command.run(**given, ask=None if yes else _ask)


def is_terminal() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin.isatty()


def _ask(question: str, found: Any) -> Any:
    return click.prompt(question, default=found, err=True)


@options.cli_command()
@click.argument("recipe", shell_complete=completion.recipes)
@options.overrides
@click.option(
    "--prepared",
    "output",
    type=PATH,
    help="Directory to write.  [default: prepared/NAME of the recipe]",
)
@options.workers
@options.force
@options.quiet
def preprocess(**given: Any) -> None:
    """Turn the raw parallel text of RECIPE into a subword model and binary token files."""
    from nmt_cli.commands import preprocess as command

    command.run(**given)


@options.cli_command()
@click.argument("source", type=TEXT)
@click.argument("target", type=TEXT)
@click.option(
    "--symmetrization",
    type=click.Choice(list(SYMMETRIZATIONS)),
    default=next(iter(SYMMETRIZATIONS)),
    help="How the links of both directions become one alignment; forward has a source word for "
    "each target word, backward a target word for each source word.",
)
@click.option(
    "--iterations", type=click.IntRange(1, 100), default=5, help="How often the model is estimated."
)
@options.flag("--lowercase", help="Ignore case.")
@options.output_path
@options.workers
@options.force
@options.quiet
def align(**given: Any) -> None:
    """Align the words of each line of SOURCE with those of its translation in TARGET.

    Words are what white space separates. Each line of the output has the links of a line as pairs
    of word numbers, from 0: source-target.
    """
    from nmt_cli.commands import align as command

    command.run(**given)


@options.cli_command()
@click.argument("recipe", shell_complete=completion.recipes)
@options.overrides
@click.option("--prepared", type=PATH, help="What preprocess wrote.  [default: prepared/NAME]")
@options.run_dir
@options.flag("--resume", help="Continue from the newest checkpoint of the run.")
@options.allow_change
@options.training_machine
@click.option(
    "--nnodes",
    type=click.IntRange(1, 4096),
    default=1,
    help="Machines that train together; each runs this command.",
)
@click.option(
    "--rdzv-endpoint",
    metavar="HOST:PORT",
    help="Address on one of the machines, to which all connect; the same on each.",
)
@click.option("--rdzv-id", metavar="TEXT", help="Name of this job.  [default: the run directory's]")
@options.init_from
@options.validation_script
@options.keep_validations
@options.flag("--in-run", hidden=True, help="Propose no next command; run goes on.")
@options.max_time
@options.quiet
def train(recipe: str, **given: Any) -> None:
    """Train the model of RECIPE from what preprocess wrote."""
    from nmt_cli.commands import train as command

    command.run(recipe, **given)


@options.cli_command("average-checkpoints")
@click.argument("run", type=PATH, shell_complete=completion.runs)
@click.option(
    "--last",
    type=POSITIVE,
    help="How many checkpoints.  [default: the recipe's keep_for_average, without early ones]",
)
@options.repeated("--checkpoints", type=PATH, help="A checkpoint to average")
@click.option(
    "--output",
    type=PATH,
    help="Model directory to write.  [default: RUN/average; with int8 RUN/average-int8]",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "int8"]),
    default="fp32",
    help="Precision of the weights in the file; int8 takes a quarter of the space, and rounds.",
)
@options.force
@options.quiet
def average_checkpoints(run: Path, **given: Any) -> None:
    """Average the weights of the last checkpoints of RUN into one model."""
    if given["last"] is not None and given["checkpoints"]:
        raise click.UsageError("give --last or --checkpoints, not both.")
    from nmt_cli.commands import average_checkpoints as command

    command.run(run, **given)


@options.cli_command()
@click.argument(
    "runs", metavar="RUN...", type=PATH, nargs=-1, required=True, shell_complete=completion.runs
)
@click.option(
    "--output",
    type=OUTPUT,
    help="Directory to write, or only the page if it ends in .html or is -, stdout.  "
    "[default: RUN/report for one run, report for several]",
)
@options.force
@options.quiet
def report(runs: tuple[Path, ...], **given: Any) -> None:
    """Draw loss, perplexity, BLEU or F1, learning rate and speed of runs, side by side.

    Writes PNG files, and index.html, a page that contains all of them and opens anywhere. That of
    one run also has translations, the worst lines, and what cleaning dropped. A run may still be
    training. Needs matplotlib.
    """
    from nmt_cli.commands import report as command

    command.run(runs, **given)
