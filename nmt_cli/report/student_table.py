"""The table of a distillation: the figures of teacher and student, as cells of text."""

from collections.abc import Mapping
from typing import Any

from nmt_cli.messages.figures import short_number


def cells_of(facts: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of the table, the first with the headings."""
    sets = list(facts["rows"][0]["sets"])
    headings = [f"{metric} {name}" for name in sets for metric in ("BLEU", "chrF2")]
    table = [
        ["system", "precision", "shortlist", "beam", *headings, "MB", "lines/s", "ms of one line"]
    ]
    for row in facts["rows"]:
        scores = [row["sets"][name][key]["score"] for name in sets for key in ("bleu", "chrf")]
        table.append(
            [
                row["system"],
                row["precision"],
                "yes" if row["shortlist"] else "no",
                str(row["beam_size"]),
                *(short_number(score, 2) for score in scores),
                short_number(row["megabytes"], 2),
                short_number(row["lines_per_second"], 1),
                short_number(row["ms_of_one_line"], 1),
            ]
        )
    return table


def notes_of(facts: Mapping[str, Any]) -> list[str]:
    """Return what the figures measure, a sentence or two in each line."""
    each = [scores["bleu"]["signature"] for row in facts["rows"] for scores in row["sets"].values()]
    return [
        f"MB are 10⁶ bytes of all files of a model; speed is that of {facts['cores']} cores "
        f"({facts['cpu']}).",
        f"The signature of BLEU is {' or '.join(dict.fromkeys(each))}.",
    ]
