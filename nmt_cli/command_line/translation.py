"""Commands that use a model: translation, scores of translations, pictures of attention."""

import sys
from pathlib import Path
from typing import Any

import click

from nmt_cli.command_line import completion, options
from nmt_cli.command_line.options import OUTPUT, PATH, TEXT
from nmt_cli.command_line.output_options import grouped, output_options
from nmt_cli.command_line.usage import words_of_this_command
from nmt_cli.corpus.text.shard_text import parse_shard
from nmt_cli.messages.figures import parse_number_list
from nmt_cli.recipe.translation_options import (
    CHOICES,
    NUM_FREQUENT,
    NUM_TARGETS,
    NUMBERS,
    RESCORING_PENALTY,
)


@options.cli_command()
@click.argument("model", type=PATH, shell_complete=completion.runs)
@options.ensemble
@click.option(
    "--input",
    "input_path",
    type=TEXT,
    help="Text or document to translate; - is stdin.  [default: -]",
)
@click.option(
    "--shard",
    type=options.Parsed("I/N", parse_shard),
    help="Translate only the I-th of N parts of --input; cat joins the outputs.",
)
@options.output_path
@options.force
@options.flag(
    "--retranslate",
    help="In a document of a translator, such as PO, also translate what has a translation.",
)
@options.flag("--resume", help="Go on with the unfinished --output of the same command.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "tsv", "jsonl", "moses", "fairseq"]),
    default="text",
    help="text is one translation per line; the others hold scores and n-best lists, moses and "
    "fairseq as these programs print them.",
)
@options.flag(
    "--token-scores",
    help="Also print the log-probability of each piece and of </s>; needs --format jsonl; "
    "fairseq always prints them.",
)
@options.flag(
    "--alignments",
    help="Also print which source word each target word attends to, such as 0-0 2-1.",
)
@options.flag(
    "--replace-unknown",
    help="Write, in place of each <unk>, the source word that it attends to; for models of text in "
    "pieces.",
)
@options.tag
@options.translation_option(
    "beam_size", "Hypotheses kept for a sentence; 1 is greedy.  [default: the recipe's]"
)
@options.length_penalty
@options.translation_option(
    "n_best",
    "How many translations of each line; more than one need a --format other than text, or "
    "--choose mbr.",
    default=NUMBERS["n_best"].default,
)
@output_options
@click.option(
    "--split-sentences/--no-split-sentences",
    default=None,
    help="Translate each sentence of a line by itself, and keep the white space between them.  "
    "[default: in documents, and in lines of several if the model was trained on single sentences]",
)
@options.pair_languages
@options.translation_option(
    "markup",
    "Each line is a fragment of HTML or XML: translate its texts, keep the rest, and put "
    "inline tags around their words.",
)
@options.translate_everything
@options.shortlist
@options.translation_option(
    "too_long",
    "What to do with lines of more pieces than the recipe's max_length.",
    default=CHOICES["too_long"][0],
)
@options.translation_option(
    "tokenize",
    "Only for a model that parses: none takes words with spaces between them; penn cuts raw "
    "English text, a sentence a line, as the Penn Treebank does.",
    default=CHOICES["tokenize"][0],
)
@click.option(
    "--well-formed-trees/--no-well-formed-trees",
    default=None,
    help="Search only trees of exactly the words of the line; for models that parse.  [default: "
    "as in the recipe]",
)
@options.flag("--keep-pieces", help="Print pieces, without joining them to text.")
@options.device
@options.decoding_precision
@options.flag(
    "--no-cuda-graphs",
    help="On a GPU, do not repeat steps of the search as CUDA graphs; to avoid a fault in them.",
)
@options.threads
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    help="Processes on the CPU that share the text, of one thread each.  [default: one per core if "
    "the text is long]",
)
@click.option(
    "--devices", type=click.IntRange(1, 1024), help="GPUs that share the text.  [default: one]"
)
@options.max_tokens_per_device(
    "Most tokens of all hypotheses in the search at one time.  [default: what keeps the "
    "device busy]"
)
@options.quiet
def translate(model: Path, **given: Any) -> None:
    """Translate lines from stdin to stdout with MODEL, one line for each line.

    A model that was trained on a treebank writes a tree for each line.

    MODEL is a model directory, a checkpoint or a run directory. In a run directory, the average is
    used, or else the best checkpoint, or else the last.
    """
    from nmt_cli.commands import translate as command

    sys.exit(command.run(model, arguments=words_of_this_command(), **grouped(given)))


@options.cli_command()
@click.argument("model", type=PATH, shell_complete=completion.runs)
@click.argument("source", type=TEXT)
@click.argument("target", type=TEXT)
@options.ensemble
@options.output_path
@options.force
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "tsv", "jsonl"]),
    default="text",
    help="text is one number per line; the others hold pieces and the log-probability of each.",
)
@options.translation_option(
    "length_penalty",
    "Divide by the length penalty of a search, such as the recipe's 0.6.",
    default=RESCORING_PENALTY,
)
@options.tag
@options.pair_languages
@options.device
@options.decoding_precision
@options.threads
@options.max_tokens_per_device(
    "Most tokens of the pairs that are computed together.  [default: what keeps the device busy]"
)
@options.quiet
def rescore(model: Path, source: Path, target: Path, **given: Any) -> None:
    """Print the log-probability that MODEL gives each line of TARGET as translation of SOURCE.

    Line n of TARGET translates line n of SOURCE; one of them may be -, stdin. The last line on
    stderr is the perplexity. For a model that parses, TARGET holds trees in brackets, one a line.
    """
    from nmt_cli.commands import rescore as command

    sys.exit(command.run(model, source, target, **given))


@options.cli_command()
@click.argument("model", type=PATH, shell_complete=completion.runs)
@click.argument("source", type=TEXT)
@click.argument("target", type=TEXT)
@click.option(
    "--frequent",
    "num_frequent",
    type=click.IntRange(0, 10_000),
    default=NUM_FREQUENT,
    help="Pieces that every translation may have: the most frequent of TARGET.",
)
@click.option(
    "--targets",
    "num_targets",
    type=click.IntRange(1, 1_000),
    default=NUM_TARGETS,
    help="Pieces for each piece of the source: those that translate it most probably.",
)
@options.flag(
    "--by-default",
    "uses_shortlist",
    help="On a CPU, translate with a shortlist unless --no-shortlist is given.",
)
@options.workers
@options.force
@options.quiet
def lexicon(model: Path, source: Path, target: Path, **given: Any) -> None:
    """Write a lexicon beside MODEL, for translate --shortlist.

    Line n of TARGET translates line n of SOURCE; take the text that MODEL was trained on, or for a
    student that of its teacher.
    """
    from nmt_cli.commands import lexicon as command

    command.run(model, source, target, **given)


@options.cli_command()
@click.argument("model", type=PATH, shell_complete=completion.runs)
@click.argument("source")
@click.argument("target", required=False)
@click.option(
    "--output",
    type=OUTPUT,
    help="File to write: .html, .png or .json; - is stdout.  [default: attention.html]",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["html", "png", "json"]),
    help="By default that of the output's name; json without --output goes to stdout.",
)
@click.option(
    "--kind",
    type=click.Choice(["all", "encoder", "decoder", "memory"]),
    default="all",
    help="Self-attention of encoder or decoder, or the decoder's attention to the encoder.",
)
@click.option(
    "--layers",
    type=options.Parsed("LIST", parse_number_list),
    help="Such as 1,3-5.  [default: all; in a PNG file the last]",
)
@click.option(
    "--heads", type=options.Parsed("LIST", parse_number_list), help="Such as 1,3-5.  [default: all]"
)
@options.force
@options.device
@options.threads
@options.quiet
def attention(model: Path, source: str, target: str | None, **given: Any) -> None:
    """Draw what the pieces of SOURCE and TARGET attend to in MODEL, as in the paper's figures.

    SOURCE is a sentence and TARGET its translation; without TARGET, MODEL translates the sentence.
    Writes a page that opens in any browser, or a picture (PNG files need matplotlib).
    """
    from nmt_cli.commands import attention as command

    command.run(model, source, target, **given)
