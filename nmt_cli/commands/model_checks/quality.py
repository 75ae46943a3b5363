"""Scores of the test sets, compared with OLD's as ``score --compare`` does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nmt_cli.commands.model_checks.results import Example, Row
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
    texts = [[each.get(case.text, "") for case in one.cases] for each in models]
    references = [one.references.lines]
    tokenizer = one.references.tokenizer
    if tokenizer.remark is not None:
        logs.warning(
            f"{one.name}: BLEU takes the tokenizer {tokenizer.tokenize}: {tokenizer.remark}"
        )
    scorers = bleu_scorer(tokenizer.tokenize), chrf_scorer()
    rows = [
        Row("quality", f"{one.name} {each.name}", len(one.cases), None, unit=each.name)
        for each in scorers
    ]
    if len(models) == 1:
        rows = [
            row._replace(value=scorer.score(texts[0], references).score)
            for row, scorer in zip(rows, scorers, strict=True)
        ]
    else:
        systems = [NamedText("OLD", texts[1]), NamedText("MODEL", texts[0])]
        resampling = Resampling.chosen(None, None, None)
        compared = Comparison.of(systems, references, scorers, resampling)
        for place, outcome in enumerate(compared.outcomes):
            old, new = outcome.systems
            rows[place] = rows[place]._replace(
                value=new.score, old=old.score, p_value=new.p_value, verdict=new.verdict
            )
    worst = _worst(one, texts, scorers[1])
    for row, scorer in zip(rows, scorers, strict=True):
        yield _limited(row, scorer.key, limits)._replace(examples=worst)


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


def _worst(one: TestSet, texts: Sequence[Sequence[str]], scorer: Scorer) -> list[Example]:
    """Return the lines of the lowest chrF, or those that lost most of OLD's."""
    scores = [scorer.scores_of_each(each, [one.references.lines])[0] for each in texts]
    gains = [each[0] - (each[1] if len(each) > 1 else 0.0) for each in zip(*scores, strict=True)]
    return [
        {
            **one.cases[place].shown(texts[0][place]),
            **({"OLD": texts[1][place]} if len(texts) > 1 else {}),
            "chrF2": ", OLD ".join(f"{side[place]:.2f}" for side in scores),
        }
        for place in sorted(range(len(gains)), key=gains.__getitem__)[:MOST_EXAMPLES]
    ]
