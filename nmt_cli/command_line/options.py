"""Options that several commands have, and how commands are declared."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from nmt_cli.command_line import completion
from nmt_cli.command_line.usage import HelpfulCommand, HelpfulGroup
from nmt_cli.files.output_streams import STANDARD_INPUT, STANDARD_OUTPUT
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages import logs
from nmt_cli.messages.figures import parse_duration
from nmt_cli.messages.proposals import missing_hint
from nmt_cli.recipe.translation_options import CHOICES, NUMBERS, option_of

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]  # of the function of a command


class Parsed(click.ParamType):  # type: ignore[type-arg]  # click 8.2 has none
    """The type of an option whose text is parsed; ``name`` stands for the value in --help.

    ``parse`` raises ValueError with a message for the user.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the text ``value`` means."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def translation_option(name: str, help: str, **own: Any) -> Decorator:
    """Return the option of a translation that is a number or a choice; ``own`` is for click."""
    kind: click.ParamType  # type: ignore[type-arg]  # click 8.2 has none
    if name in CHOICES:
        kind = click.Choice(CHOICES[name])
    else:
        least, most, without_least, is_whole, _ = NUMBERS[name]
        kind = click.IntRange(least, most)
        if not is_whole:
            kind = click.FloatRange(least, most, min_open=without_least)
    return click.option(option_of(name), name, type=kind, help=help, **own)


class _NamedPath(click.Path):
    """A path; the empty one, such as that of a variable without a value, is not the folder."""

    def __init__(self, stream: Path | None = None) -> None:
        """``stream`` is what - stands for; ./- is a file of that name."""
        # What reads the file raises the error, with the exit status of wrong files.
        super().__init__(readable=False, path_type=Path)
        self._stream = stream

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty; give a name.", param, ctx)
        if str(value).startswith("~") and not os.path.lexists(Path(value).parts[0]):
            # An output would be written to a folder that is named ~.
            self.fail(f"there is no {value}{missing_hint(Path(value))}.", param, ctx)
        if value != "-":
            return super().convert(value, param, ctx)
        if self._stream is None:
            self.fail(
                "- is standard input or output, which this cannot be; give a name.", param, ctx
            )
        return self._stream


PATH = _NamedPath()  # of a folder or a model, or of a file that is read more than once
TEXT = _NamedPath(STANDARD_INPUT)
OUTPUT = _NamedPath(STANDARD_OUTPUT)
POSITIVE = click.IntRange(min=1)
flag = partial(click.option, is_flag=True)


def repeated(*names: str, help: str, **others: Any) -> Decorator:
    """Return an option that may be given several times."""
    return click.option(*names, multiple=True, help=f"{help}; may be repeated.", **others)


overrides = repeated(
    "--set",
    "overrides",
    metavar="SECTION.KEY=VALUE",
    shell_complete=completion.keys,
    help="Change a key of the recipe, such as training.max_steps=100",
)
ensemble = repeated(
    "--ensemble",
    type=PATH,
    metavar="MODEL",
    help="Another model of the same vocabulary, used together with MODEL",
)
quiet = flag(
    "--quiet",
    expose_value=False,
    callback=lambda _, __, is_quiet: logs.configure(quiet=is_quiet),
    help="Show only warnings and errors.",
)
force = flag("--force", help="Replace what already exists.")
output_format = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json has all figures unrounded.",
)
device = click.option("--device", default=AUTO, help="auto, cpu, cuda or cuda:N.")
precision = click.option(
    "--precision",
    type=click.Choice([AUTO, "fp32", "bf16"]),
    default=AUTO,
    help="auto is bf16 if the device computes it fast.",
)
decoding_precision = click.option(
    "--precision",
    type=click.Choice([AUTO, "fp32", "bf16", "int8"]),
    default=AUTO,
    help="auto is bf16 if the device computes it fast; int8 rounds more, on a CPU.",
)
threads = click.option(
    "--threads", type=click.IntRange(1, 4096), help="CPU threads; by default one for each core."
)
output_path = click.option(
    "--output", "output_path", type=OUTPUT, help="File to write; - is stdout.  [default: -]"
)
run_dir = click.option("--run-dir", type=PATH, help="Directory of this run.  [default: runs/NAME]")


tag = click.option(
    "--tag",
    metavar="TEXT",
    help="Put TEXT in front of every line, such as >>deu<< for a model of several target "
    "languages.",
)


def pair_languages(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose one of the pairs of languages of a model."""
    target = click.option(
        "--target-language",
        metavar="CODE",
        help="Language to translate into, for the --tag of a model of several.",
    )
    source = click.option(
        "--source-language",
        metavar="CODE",
        help="Language to translate from, for the --tag of a model of several; its rules cut "
        "sentences.  [default: the model's]",
    )
    return source(target(command))


def max_tokens_per_device(of_what: str, least: int = 1) -> Decorator:
    """Return the option that limits the memory of a device; ``of_what`` is its help."""
    return click.option("--max-tokens-per-device", type=click.IntRange(min=least), help=of_what)


def needless_resume(command: str, messages: str = "Messages about training") -> Decorator:
    """Return the option --resume of a ``command`` that always resumes."""
    return flag(
        "--resume",
        expose_value=False,
        help=f"Does nothing: {command} always resumes. {messages} name this option.",
    )


allow_change = click.option(
    "--allow-change",
    "allowed_changes",
    multiple=True,
    metavar="KEY",
    help="Resume although this key of the recipe changed, such as training.clip_norm.",
)
length_penalty = translation_option(
    "length_penalty", "Exponent of the length penalty; 0 is none.  [default: the recipe's]"
)
translate_everything = flag(
    "--translate-everything",
    help="Also translate texts without letters, such as 12:30, and the marks of lists, such as 1. "
    "or -, before a sentence.  [default: they stay as they are]",
)
shortlist = click.option(
    "--shortlist/--no-shortlist",
    default=None,
    help="Choose pieces only from those that translate the pieces of the line by the model's "
    "lexicon; on a CPU this takes less time.  [default: on a CPU as the model was trained]",
)
init_from = click.option(
    "--init-from",
    type=PATH,
    help="Start from the weights of this model; see docs/tutorials/fine-tuning.md.",
)
max_time = click.option(
    "--max-time",
    type=Parsed("DURATION", parse_duration),
    help="Save and end before this much time has passed, such as 3h30m or 90s.",
)
validation_script = click.option(
    "--validation-script",
    metavar="COMMAND",
    help="Let this command judge each validation; see docs/how-to/read-a-training.md.",
)
keep_validations = click.option(
    "--keep-validations",
    type=click.IntRange(min=0),
    default=0,
    help="How many of the last validations keep their translations, in RUN/validations.",
)
workers = click.option("--workers", type=POSITIVE, help="Processes.  [default: one per core]")


cli_command = partial(click.command, cls=HelpfulCommand)  # its name is the function's by default


def cli_group() -> Callable[[Callable[..., Any]], click.Group]:
    """Make a group of commands of a function."""
    return click.group(cls=HelpfulGroup)


def together(*options: Decorator) -> Decorator:
    """Return a decorator that adds ``options`` to a command, in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def stages(names: Sequence[str]) -> Decorator:
    """Return the options of a command that makes the stages ``names``, one after the other."""
    stage, anew = click.Choice(names), "Make this stage and all after it anew, training included."
    return together(
        click.option("--until", type=stage, default="report", help="The last stage."),
        click.option("--force-from", type=stage, help=anew),
    )


training_machine = together(
    device,
    precision,
    threads,
    max_tokens_per_device(
        "Most tokens of a side in one micro-batch.  [default: what fits the memory]", least=2
    ),
    click.option(
        "--kernels",
        type=click.Choice(["ours", "torch"]),
        help="What computes gradients on a GPU.  [default: the faster ones]",
    ),
    flag(
        "--no-cuda-graphs",
        help="On a GPU, launch the kernels of a gradient one by one; to avoid a fault in graphs.",
    ),
    flag(
        "--deterministic",
        help="Make a GPU compute the same bits each time, more slowly; a CPU always does.",
    ),
    click.option(
        "--exchange",
        type=click.Choice(["fp32", "bf16"]),
        default="fp32",
        help="How several devices send gradients; bf16 rounds them, and sends half the bytes.",
    ),
    click.option(
        "--devices",
        type=click.IntRange(1, 1024),
        help="GPUs, or processes on a CPU, of this machine.  [default: all GPUs, or one process]",
    ),
)
