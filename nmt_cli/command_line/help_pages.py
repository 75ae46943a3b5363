"""What ``--help`` shows beside docstrings: summaries, headings of options, examples."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

# The commands by heading, in the order of the work, with summaries of at most 50 characters.
SUMMARIES: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "init": "Write a recipe for your own text",
        "run": "Do a whole experiment, from text to scores",
        "doctor": "Show versions, devices, and what would be slow",
        "completion": "Print a script that lets a shell complete words",
    },
    "Data": {
        "data": "Get public text, and split your own",
        "recipes": "List, show, explain and check recipes",
        "preprocess": "Turn raw text into what training reads",
        "align": "Align the words of two texts",
    },
    "Train": {
        "train": "Train a model on preprocessed text",
        "average-checkpoints": "Average the last checkpoints into one model",
        "distil": "Train a small model to translate as a large one",
        "compare": "Train several recipes, and compare their scores",
    },
    "Use": {
        "translate": "Translate lines of text, or a document",
        "serve": "Translate by HTTP, with a page for browsers",
        "lexicon": "Write the lexicon of translate --shortlist",
    },
    "Measure": {
        "score": "Compute BLEU, chrF and other scores",
        "check": "Decide whether a model may replace another one",
        "rescore": "Print how probable given translations are",
        "inspect": "Compute parameters, memory and time of training",
        "report": "Write a page about runs: scores, curves, lines",
        "attention": "Draw what pieces of a sentence attend to",
    },
    "Exchange": {
        "import": "Convert a model of another program",
        "export": "Write a model for another program",
    },
    "Commands": {
        "data get": "Get a public data set",
        "data split": "Cut validation and test text off a corpus",
        "recipes list": "List the shipped recipes and what each is for",
        "recipes show": "Print a recipe with every default",
        "recipes keys": "Explain the keys of recipes",
        "recipes schema": "Print the JSON Schema of recipes, for editors",
        "recipes check": "Check a recipe, its files and folders",
    },
}
# The options by heading, in the order of the headings in --help.
HEADINGS: Mapping[str, str] = {
    "Recipe": "--set --comments --vocabulary-size --lengths --target-tokens-per-second --hours",
    "Teacher": "--teacher-url --teacher-concurrency --teacher-key-variable --max-cost "
    "--price-per-million --reverse-model --taught",
    "Measures": "--metric --parameters --paper --chrf-word-order --ter --terms --by-line --worst "
    "--no-cost",
    "Text": "--input --input-format --shard --retranslate --source-language --target-language "
    "--split-sentences --markup --tokenize --too-long --translate-everything --lowercase "
    "--columns --text --treebank --downloads --validation --test --seed "
    "--suite --source --num-refs --documents",
    "Model": "--from --source-vocabulary --target-vocabulary --sentencepiece "
    "--target-sentencepiece --quantization --verify --sentences --last --checkpoints --ensemble "
    "--tag --init-from --no-pivot",
    "Run": "--until --force-from --prepared --run-dir --runs --seeds --resume --allow-change "
    "--max-time",
    "Validation": "--validation-script --keep-validations",
    "Lexicon and alignment": "--frequent --targets --by-default --symmetrization --iterations",
    "Search": "--beam-size --length-penalty --n-best --choose --min-length --max-length "
    "--no-repeat-ngram --target-prefix --well-formed-trees --shortlist",
    "Sampling": "--sample --temperature --sample-top-k --sample-top-p",
    "Terms and copies": "--required --banned --glossary --soft-glossary --term-tags --memory "
    "--memory-languages --memory-similarity --protect --protect-strict",
    "Comparison": "--compare --samples --against --limits",
    "Picture": "--kind --layers --heads",
    "Output": "--output --format --token-scores --alignments --replace-unknown --keep-pieces "
    "--force",
    "Address and access": "--host --port --api-keys --open --allow-origin --log-text",
    "Limits": "--max-body-bytes --max-document-bytes --max-characters --max-lines "
    "--max-waiting-lines --max-seconds --drain-seconds",
    "Machine": "--device --precision --threads --workers --devices --max-tokens-per-device "
    "--kernels --no-cuda-graphs --deterministic --exchange",
    "Several machines": "--nnodes --rdzv-endpoint --rdzv-id",
    "Other options": "--yes --quiet --version --help",
}
# Options that have another heading in one command.
OF_COMMANDS: Mapping[tuple[str, str], str] = {
    ("average-checkpoints", "--precision"): "Model",
    ("distil", "--ensemble"): "Teacher",
    ("distil", "--n-best"): "Teacher",
    ("import", "--source-language"): "Model",
    ("import", "--target-language"): "Model",
    ("score", "--seed"): "Comparison",
    ("score", "--test"): "Comparison",
    ("translate", "--resume"): "Output",
    ("translate", "--seed"): "Sampling",
}
EXAMPLES = """\
nmt-cli init mine train.en train.de
nmt-cli init mine corpus.tsv --hours 8 --yes
nmt-cli run mine.yaml
nmt-cli run quickstart --set training.max_steps=100
nmt-cli doctor
nmt-cli doctor --format json
nmt-cli completion bash
nmt-cli data get wmt14-en-de
nmt-cli data get opus:Europarl/en-de
nmt-cli data split corpus.en corpus.de --test 2000
nmt-cli recipes list
nmt-cli recipes show base --comments
nmt-cli recipes keys training
nmt-cli recipes schema
nmt-cli recipes check mine.yaml --text
nmt-cli preprocess mine.yaml
nmt-cli align train.en train.de --output train.links
nmt-cli train mine.yaml
nmt-cli train mine.yaml --resume --max-time 3h30m
nmt-cli average-checkpoints runs/mine
nmt-cli average-checkpoints runs/mine --last 5 --precision int8
nmt-cli distil runs/mine student.yaml
nmt-cli compare table3 --max-time 2h
nmt-cli compare mine.yaml other.yaml --seeds 1,2
nmt-cli translate runs/mine < in.txt > out.txt
nmt-cli translate runs/mine --input letter.docx --output brief.docx
nmt-cli translate runs/mine --format jsonl --n-best 5 < in.txt
nmt-cli serve runs/mine
nmt-cli serve runs/mine --host 0.0.0.0 --api-keys keys.txt
nmt-cli lexicon runs/mine train.en train.de
nmt-cli score out.txt test.de
nmt-cli score out.txt test.de --compare other.txt
nmt-cli check runs/mine
nmt-cli check runs/mine --against runs/old --limits limits.yaml
nmt-cli check runs/mine --test news=news.en,news.de --format json
nmt-cli rescore runs/mine test.en test.de
nmt-cli inspect mine.yaml
nmt-cli inspect runs/mine --format json
nmt-cli report runs/mine
nmt-cli report runs/mine runs/other --output both
nmt-cli attention runs/mine 'A little sentence.'
nmt-cli import their-model --output imported
nmt-cli export runs/mine --format ctranslate2 --output exported
""".splitlines()
MOST_EXAMPLES = 3
FIRST_STEPS = ("init", "run", "translate")  # nmt-cli --help has the first example of each


class Formatter(click.HelpFormatter):
    """A formatter whose headings are bold; click.echo removes that where no terminal shows it."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        super().write_heading(click.style(heading, bold=True))


class Context(click.Context):
    """A context that knows from the environment whether a terminal shows colours."""

    formatter_class = Formatter

    def __init__(self, *positional: Any, **others: Any) -> None:
        """As click does. NO_COLOR (see no-color.org) comes before FORCE_COLOR."""
        super().__init__(*positional, **others)
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            self.color = False
        elif os.environ.get("FORCE_COLOR", "0") != "0":
            self.color = True


class CommandWithHelp(click.Command):
    """A command whose help has options under headings, and examples at the end."""

    context_class = Context
    its_group = ""  # the name of the group that has it, if that is not the program

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the summary, whole."""
        name = f"{self.its_group} {self.name}".lstrip()
        return next(names[name] for names in SUMMARIES.values() if name in names)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        records = dict[str, list[tuple[str, str]]]()
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record is not None:  # arguments are in the text
                heading = heading_of(self.name or "", max(param.opts, key=len))
                records.setdefault(heading, []).append(record)
        _write_sections(formatter, {heading: records.get(heading, []) for heading in HEADINGS})

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_sections(formatter, {"Examples": [(each, "") for each in examples_of(ctx)]})


class GroupWithHelp(CommandWithHelp, click.Group):
    """A group whose help has its commands under headings, without an import of them."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, which remembers its group."""
        super().add_command(cmd, name)
        if isinstance(cmd, CommandWithHelp):
            cmd.its_group = self.name or ""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and then the options."""
        width = max(map(len, self.commands))
        prefix = "" if ctx.parent is None else f"{self.name} "
        sections = {
            heading: [
                (name.ljust(width), text)
                for full_name, text in names.items()
                if full_name.startswith(prefix)
                and (name := full_name.removeprefix(prefix)) in self.commands
            ]
            for heading, names in SUMMARIES.items()
        }
        _write_sections(formatter, sections)
        super().format_options(ctx, formatter)


def _write_sections(
    formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl([(click.style(name, fg="cyan"), text) for name, text in rows])


def heading_of(command: str, option: str) -> str:
    """Return the heading of an option in the help of a command."""
    if (command, option) in OF_COMMANDS:
        return OF_COMMANDS[command, option]
    return next(heading for heading, names in HEADINGS.items() if option in names.split())


def examples_of(ctx: click.Context) -> list[str]:
    """Return the first examples of the command of ``ctx``, or of the commands below it."""
    if ctx.parent is None:
        return [next(e for e in EXAMPLES if e.split()[1] == name) for name in FIRST_STEPS]
    found = [each for each in EXAMPLES if f"{each} ".startswith(f"{ctx.command_path} ")]
    return found[:MOST_EXAMPLES]
