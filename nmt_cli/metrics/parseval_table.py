"""PARSEVAL scores as text, column for column that of EVALB, so that programs can read either."""

from collections.abc import Sequence

from nmt_cli.metrics.parseval import CorpusScore, SentenceScore

WIDTH = 76
HEADING = (
    "  Sent.                        Matched  Bracket   Cross        Correct Tag",
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
)


def as_table(
    sentences: Sequence[SentenceScore], every: CorpusScore, short: CorpusScore, cutoff_length: int
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


def _sentence_line(number: int, score: SentenceScore) -> str:
    return (
        f"{number:4d}  {score.length:3d}  {score.status.value:3d}  {score.recall:6.2f} "
        f"{score.precision:6.2f}   {score.matched:3d}    {score.gold:3d}  {score.predicted:3d}    "
        f"{score.crossing:3d}    {score.words:3d}   {score.correct_tags:3d}   "
        f"{score.tagging_accuracy:6.2f}"
    )


def _corpus_line(score: CorpusScore) -> str:
    return (
        f"{'':16}{score.recall:6.2f} {score.precision:6.2f} {score.matched:6d} {score.gold:5d} "
        f"{score.predicted:5d}  {score.crossing:5d}  {score.words:5d} {score.correct_tags:5d}   "
        f"{score.tagging_accuracy:6.2f}"
    )


def _summary(score: CorpusScore) -> list[str]:
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
