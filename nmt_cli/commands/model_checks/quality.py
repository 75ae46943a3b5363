"""Scores of the test sets, compared with OLD's as ``score --compare`` does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nmt_cli.commands.model_checks.results import Row
from nmt_cli.commands.model_checks.shares import MOST_EXAMPLES
from nmt_cli.commands.model_checks.texts import TestSet, Translations
from nmt_cli.commands.scoring.system_comparison import Comparison, NamedText, p_value_text
from nmt_cli.messages import logs
from nmt_cli.metrics.bleu import bleu_scorer, chrf_scorer
from nmt_cli.metrics.scorer import Resampling, Scorer


def quality(
    one: TestSet, models: Sequence[Translations], limits: Mapping[str, Any]
) -> Iterator[Row]:
    """Yield the rows of BLEU and chrF2 of a set; ``models`` are MODEL's translations and OLD's."""
    texts = [[each[case.text] for case in one.cases] for each in models]
    references, tokenizer = [one.references.lines], one.references.tokenizer
    if tokenizer.remark is not None:
        logs.warning(
            f"{one.name}: BLEU takes the tokenizer {tokenizer.tokenize}: {tokenizer.remark}"
        )
    chrf = chrf_scorer()
    scorers = bleu_scorer(tokenizer.tokenize), chrf
    of_lines = zip(*(chrf.scores_of_each(each, references)[0] for each in texts), strict=True)
    # The lines of the lowest chrF, or those that lost most of OLD's.
    scored = zip(of_lines, one.cases, strict=True)
    worst = sorted(scored, key=lambda line: line[0][0] - sum(line[0][1:]))[:MOST_EXAMPLES]
    examples = [
        case.example(models, {"chrF2": ", OLD ".join(f"{score:.2f}" for score in both)})
        for both, case in worst
    ]
    row = Row("quality", one.name, len(one.cases), None, examples=examples)
    for scorer, figures in zip(scorers, _figures(texts, references, scorers), strict=True):
        name = f"{one.name} {scorer.name}"
        row = row._replace(name=name, unit=scorer.name, **figures)
        yield _limited(row, scorer.key, limits)


def _figures(
    texts: Sequence[Sequence[str]], references: Sequence[Sequence[str]], scorers: Sequence[Scorer]
) -> list[dict[str, Any]]:
    """Return the scores of MODEL for a row of each metric and, if there is OLD, its own."""
    if len(texts) == 1:
        return [{"value": scorer.score(texts[0], references).score} for scorer in scorers]
    systems = NamedText("OLD", texts[1]), NamedText("MODEL", texts[0])
    compared = Comparison.of(systems, references, scorers, Resampling.chosen(None, None, None))
    return [
        {"value": new.score, "old": old.score, "p_value": new.p_value, "verdict": new.verdict}
        for old, new in (outcome.systems for outcome in compared.outcomes)
    ]


def _limited(row: Row, key: str, limits: Mapping[str, Any]) -> Row:
    """Return the row with its limits, and with those that are not met."""
    least = limits["quality"][f"min_{key}"]
    loss = limits["quality"][f"max_{key}_loss"]
    problems, score = [], row.value or 0.0
    if least is not None and score < least:
        problems.append(f"{score:.2f} is less than {least:g}")
    if row.old is not None:
        if loss is not None and row.old - score > loss:
            problems.append(f"{row.old - score:.2f} less than OLD's; {loss:g} less is allowed")
        if row.verdict == "worse" and not limits["may_be_worse"]:
            problems.append(f"significantly worse than OLD's (p {p_value_text(row.p_value)})")
    shown = {"at least {:g}": least, "OLD - {:g}": loss}
    limit = ", ".join(form.format(each) for form, each in shown.items() if each is not None)
    return row._replace(limit=limit, problems=problems)
