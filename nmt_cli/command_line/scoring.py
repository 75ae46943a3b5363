"""The command that measures translations, parses and word alignments."""

from pathlib import Path
from typing import Any, get_args

import click

from nmt_cli.command_line import options
from nmt_cli.command_line.options import POSITIVE, TEXT
from nmt_cli.command_line.usage import refuse_options_except
from nmt_cli.metrics.scorer import METHOD, NUM_SAMPLES, SEED
from nmt_cli.metrics.tokenization import Tokenization


class _Metric(click.Choice):  # type: ignore[type-arg]  # click 8.2 has none
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).lower() in {"chrf", "ter"}:
            self.fail("bleu prints BLEU and chrF; add --ter for TER.", param, ctx)
        return super().convert(value, param, ctx)


@options.cli_command()
@click.argument("hypotheses", type=TEXT)
@click.argument("references", type=TEXT, nargs=-1, required=True)
@click.option(
    "--metric",
    type=_Metric(["bleu", "parseval", "aer"]),
    default="bleu",
    help="bleu is BLEU and chrF of text; parseval compares trees, aer word alignments.",
)
@click.option(
    "--parameters",
    type=TEXT,
    help="Rules of parseval in EVALB's format.  [default: see docs/how-to/compare-scores.md]",
)
@click.option(
    "--tokenize",
    type=click.Choice(get_args(Tokenization)),
    help="sacreBLEU's tokenizer; none for text that is tokenized already.  [default: zh, ja-mecab, "
    "ko-mecab, char or 13a, as the script of the references asks for]",
)
@options.flag("--lowercase", help="Ignore case.")
@options.output_format
@click.option(
    "--paper",
    metavar="[en-de|en-fr]",
    help="Also print the paper's BLEU: Moses tokens, for en-de with compounds split.",
)
@click.option(
    "--chrf-word-order",
    type=click.IntRange(0, 2),
    default=0,
    help="Longest n-gram of words that chrF counts beside those of characters; 2 is chrF++.",
)
@options.flag("--ter", help="Also print TER, the translation edit rate.")
@click.option(
    "--terms",
    type=TEXT,
    metavar="FILE",
    help="Also print how many of the terms of a --glossary that occur in --source were rendered.",
)
@click.option("--source", type=TEXT, help="The text that was translated; for --terms and --worst.")
@click.option(
    "--num-refs",
    type=POSITIVE,
    default=1,
    help="REFERENCES is one file with this many references on each line, separated by tabs.",
)
@click.option(
    "--documents",
    type=TEXT,
    metavar="FILE",
    help="Score documents as one segment each: d-BLEU, d-chrF. FILE has the id of the document of "
    "each line.",
)
@options.flag(
    "--by-line",
    help="Print the scores of each line, or document, as TSV; those of the text go to stderr.",
)
@click.option(
    "--worst",
    type=POSITIVE,
    metavar="N",
    help="Also print the N lines, or documents, of the lowest chrF, with all their texts.",
)
@options.repeated(
    "--compare",
    "compared",
    type=TEXT,
    metavar="SYSTEM",
    help="Another system's translations: test whether they score differently from HYPOTHESES, the "
    "baseline",
)
@click.option(
    "--test",
    type=click.Choice(list(NUM_SAMPLES)),
    help=f"Paired test of --compare.  [default: {METHOD}]",
)
@click.option(
    "--samples",
    type=click.IntRange(100, 1_000_000),
    help="How many samples the test draws.  "
    f"[default: {', '.join(f'{number:,} of {name}' for name, number in NUM_SAMPLES.items())}]",
)
@click.option(
    "--seed",
    type=click.IntRange(1, 2**32 - 1),
    help=f"Equal seeds draw equal samples.  [default: {SEED}]",
)
@options.quiet
def score(hypotheses: Path, references: tuple[Path, ...], **given: Any) -> None:
    """Print BLEU and chrF of HYPOTHESES against one or several REFERENCES; - is stdin.

    With --metric parseval, print the bracket scores of the parses in HYPOTHESES against the gold
    trees in REFERENCES, one file; each line of both is a tree in Penn Treebank brackets.

    With --metric aer, print the alignment error rate of the links in HYPOTHESES, such as 0-0 2-1,
    against the gold links in REFERENCES, one file; there 2p1 is a link that is possible only.
    """
    metric, parameters = given.pop("metric"), given.pop("parameters")
    if metric == "parseval":
        applicable = ("metric", "parameters", "output_format", "quiet")
        refuse_options_except(*applicable, choice="--metric parseval")
        from nmt_cli.commands.scoring.against_gold import score_trees

        score_trees(hypotheses, references, parameters, given["output_format"])
        return
    if metric == "aer":
        refuse_options_except("metric", "output_format", "quiet", choice="--metric aer")
        from nmt_cli.commands.scoring.against_gold import score_alignments

        score_alignments(hypotheses, references, given["output_format"])
        return
    if parameters is not None:
        raise click.UsageError("--parameters needs --metric parseval.")
    from nmt_cli.commands import score as command

    command.run(hypotheses, references, **given)
