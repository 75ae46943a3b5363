"""``nmt-cli score --metric parseval`` and ``aer``: parses and word alignments against gold ones.

Och and Ney (2003), "A Systematic Comparison of Various Statistical Alignment Models", define AER,
the alignment error rate.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.commands.lines.standard_streams import StandardOutput, name_of_input
from nmt_cli.corpus.text.links import GoldLinks, read_links
from nmt_cli.files.lines import LineTexts, texts_of
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.figures import counted
from nmt_cli.parsing import parseval
from nmt_cli.parsing.parseval_parameters import Parameters, default_parameters, read_parameters


def score_alignments(alignments: Path, golds: Sequence[Path], output_format: str = "text") -> None:
    """Write the score of ``alignments`` against the only file of ``golds`` to stdout.

    Line n of one is compared with line n of the other; one of them may be stdin. Raises
    UserError if a file cannot be read or is empty, if they have another number of lines, or for
    a line that is not an alignment; OutputError if stdout cannot be written.
    """
    texts = _read_compared(alignments, golds, "line", "the alignment of the same sentences")
    found, gold = map(_links, texts, (alignments, golds[0]))
    figures = _alignment_figures(zip(found, gold, strict=True))
    if output_format == "json":
        output = json.dumps(figures, indent=2)
    else:
        output = (
            f"AER {figures['aer']:.2f}  precision {figures['precision']:.2f}, recall "
            f"{figures['recall']:.2f} ({figures['links']:,} links; gold: {figures['sure']:,} sure)"
        )
    StandardOutput().write(f"{output}\n".encode())


def _links(lines: Sequence[str], path: Path) -> Iterator[GoldLinks]:
    for number, line in enumerate(lines, 1):
        try:
            yield read_links(line)
        except ValueError as error:
            raise UserError(f"{name_of_input(path)}:{number}: {error}.") from None


def _alignment_figures(pairs: Iterable[tuple[GoldLinks, GoldLinks]]) -> dict[str, float]:
    """Return rates in percent and counts over ``pairs``, the links A of a line and its gold links.

    With the sure gold links S and the possible ones P, which have S among them,
    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|); it is 0 if there are no links.
    """
    counts = Counter[str]()
    for found, gold in pairs:
        counts["lines"] += 1
        counts["links"] += len(found.possible)
        counts["sure"] += len(gold.sure)
        counts["sure_found"] += len(found.possible & gold.sure)
        counts["possible_found"] += len(found.possible & gold.possible)
    num_links, num_sure = counts["links"], counts["sure"]
    num_right = counts["sure_found"] + counts["possible_found"]
    number = num_links + num_sure
    return {
        "aer": 100 * (1 - num_right / number) if number else 0.0,
        "precision": 100 * counts["possible_found"] / num_links if num_links else 100.0,
        "recall": 100 * counts["sure_found"] / num_sure if num_sure else 100.0,
        **counts,
    }


def _read_compared(path: Path, golds: Sequence[Path], unit: str, what: str) -> list[list[str]]:
    """Return the lines of ``path`` and of the only file of ``golds``, to compare line by line.

    A line of ``path`` is a ``unit``, and must be ``what``. Raises UserError if a file cannot
    be read or is empty, or if they have different numbers of lines.
    """
    if len(golds) != 1:
        raise WrongUsageError(
            f"--metric aer and parseval compare with one file, not with {len(golds)}."
        )
    (gold,) = golds
    lines, gold_lines = texts_of(path), texts_of(gold)
    if len(lines) != len(gold_lines):
        raise UserError(
            f"{name_of_input(path)} has {counted(len(lines), unit)}, {name_of_input(gold)} has "
            f"{len(gold_lines):,}; line n of one must be {what} as line n of the other."
        )
    if not gold_lines:
        raise UserError(f"{name_of_input(gold)} is empty; there is nothing to score.")
    return [lines, gold_lines]


MOST_WARNINGS = 5


def score_trees(
    predicted: Path,
    golds: Sequence[Path],
    parameters: Path | None = None,
    output_format: str = "text",
) -> None:
    """Write the scores of the trees in ``predicted`` against the only file of ``golds`` to stdout.

    Line n of one is compared with line n of the other; one of them may be stdin.
    ``parameters`` is a file in EVALB's format. A predicted line that is not a tree is an error of
    its own sentence only, as in EVALB.

    Raises UserError if a file cannot be read or is empty, if they have another number of lines, if
    a gold line is not a tree, or if more sentences have errors than the parameters allow;
    OutputError if stdout cannot be written.
    """
    if parameters is None:
        rules = default_parameters()
    else:
        with open_text(parameters) as stream:
            rules = read_parameters(LineTexts(stream), str(parameters))
    ours, theirs = _read_compared(predicted, golds, "tree", "a tree of the same sentence")
    sentences = []
    for line, (text, gold) in enumerate(zip(ours, theirs, strict=True), 1):
        tree = _tree(gold, rules)
        if isinstance(tree, str):
            place = f"{name_of_input(golds[0])}:{line}"
            raise UserError(f"{place}: {tree}; each line of the gold trees must be a tree.")
        sentences.append(parseval.score_sentence(_tree(text, rules), tree, rules))
    _report_errors(sentences, predicted, rules, parameters)
    short = [sentence for sentence in sentences if sentence.length <= rules.cutoff_length]
    scores, scores_of_short = parseval.score_corpus(sentences), parseval.score_corpus(short)
    if output_format == "json":
        figures = {
            "parameters": "default" if parameters is None else str(parameters),
            "all": scores._asdict(),
            "short": {"cutoff_length": rules.cutoff_length, **scores_of_short._asdict()},
            "sentences": [_figures(line, sentence) for line, sentence in enumerate(sentences, 1)],
        }
        text = json.dumps(figures, indent=2) + "\n"
    else:
        text = as_table(sentences, scores, scores_of_short, rules.cutoff_length)
    StandardOutput().write(text.encode())


def _tree(text: str, rules: Parameters) -> parseval.Brackets | str:
    """Return the tree, or why it cannot be read."""
    try:
        return parseval.read_brackets(text, rules)
    except parseval.UnreadableTreeError as error:
        return str(error)


def _report_errors(
    sentences: Sequence[parseval.SentenceScore],
    path: Path,
    rules: Parameters,
    parameters: Path | None,
) -> None:
    """Warn of sentences with errors. Raises UserError if there are more than allowed."""
    errors = [
        f"{name_of_input(path)}:{line}: {sentence.problem}"
        for line, sentence in enumerate(sentences, 1)
        if sentence.status == parseval.Status.ERROR
    ]
    if len(errors) > rules.max_errors:
        raise UserError(
            f"{errors[rules.max_errors]}. This is one error more than MAX_ERROR of "
            f"{parameters or 'the default parameters'} allows; correct the trees or raise it."
        )
    for error in errors[:MOST_WARNINGS]:
        logs.warning(f"{error}; no score counts this sentence.")
    if len(errors) > MOST_WARNINGS:
        more = counted(len(errors) - MOST_WARNINGS, "more sentence")
        logs.warning(f"There are errors in {more}.")


def _figures(line: int, sentence: parseval.SentenceScore) -> dict[str, Any]:
    return {
        "line": line,
        **sentence._asdict(),
        "status": sentence.status.name.lower(),
        "recall": sentence.recall,
        "precision": sentence.precision,
        "tagging_accuracy": sentence.tagging_accuracy,
    }


WIDTH = 76
HEADING = (
    "  Sent.                        Matched  Bracket   Cross        Correct Tag",
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
)


def as_table(
    sentences: Sequence[parseval.SentenceScore],
    every: parseval.CorpusScore,
    short: parseval.CorpusScore,
    cutoff_length: int,
) -> str:
    """Return a line for each sentence, one for all, and the two summaries."""
    lines = [
        *HEADING,
        "=" * WIDTH,
        *(_sentence_line(number, sentence) for number, sentence in enumerate(sentences, 1)),
        "=" * WIDTH,
        _corpus_line(every),
        "=== Summary ===",
        "",
        "-- All --",
        *_summary(every),
        "",
        f"-- len<={cutoff_length} --",
        *_summary(short),
    ]
    return "".join(f"{line}\n" for line in lines)


def _sentence_line(number: int, score: parseval.SentenceScore) -> str:
    return (
        f"{number:4d}  {score.length:3d}  {score.status.value:3d}  {score.recall:6.2f} "
        f"{score.precision:6.2f}   {score.matched:3d}    {score.gold:3d}  {score.predicted:3d}    "
        f"{score.crossing:3d}    {score.words:3d}   {score.correct_tags:3d}   "
        f"{score.tagging_accuracy:6.2f}"
    )


def _corpus_line(score: parseval.CorpusScore) -> str:
    return (
        f"{'':16}{score.recall:6.2f} {score.precision:6.2f} {score.matched:6d} {score.gold:5d} "
        f"{score.predicted:5d}  {score.crossing:5d}  {score.words:5d} {score.correct_tags:5d}   "
        f"{score.tagging_accuracy:6.2f}"
    )


def _summary(score: parseval.CorpusScore) -> list[str]:
    counts = {
        "Number of sentence": score.sentences,
        "Number of Error sentence": score.errors,
        "Number of Skip  sentence": score.skipped,
        "Number of Valid sentence": score.valid,
    }
    figures = {
        "Bracketing Recall": score.recall,
        "Bracketing Precision": score.precision,
        "Bracketing FMeasure": score.f1,
        "Complete match": score.complete_match,
        "Average crossing": score.average_crossing,
        "No crossing": score.no_crossing,
        "2 or less crossing": score.two_or_less_crossing,
        "Tagging accuracy": score.tagging_accuracy,
    }
    return [
        *(f"{name:26}= {count:6d}" for name, count in counts.items()),
        *(f"{name:26}= {figure:6.2f}" for name, figure in figures.items()),
    ]
