"""``nmt-cli check``: may a model replace the old one?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.commands.model_checks.behaviour import SHARES, behaviour, probes
from nmt_cli.commands.model_checks.cost import cost_of
from nmt_cli.commands.model_checks.junit import as_junit
from nmt_cli.commands.model_checks.page import as_html
from nmt_cli.commands.model_checks.quality import quality
from nmt_cli.commands.model_checks.results import Results
from nmt_cli.commands.model_checks.shares import row_of
from nmt_cli.commands.model_checks.suites import Suite
from nmt_cli.commands.model_checks.texts import sets_of_files, translate
from nmt_cli.commands.model_checks.variants import VARIANTS, invariance
from nmt_cli.commands.model_checks.words import CHECKS, frequent_words, single_words
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.language_codes import label_of, language_identifier
from nmt_cli.files.atomic_files import file_appearing_whole, refuse_file
from nmt_cli.files.lines import is_blank
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages.errors import STATUS_LIMIT_NOT_MET, UserError
from nmt_cli.messages.proposals import command
from nmt_cli.recipe.limits import read_limits
from nmt_cli.recipe.model_settings import languages_of
from nmt_cli.recipe.sections.corpora import HeldOutFiles
from nmt_cli.saved.model_directory import Model, find_model

# By default, the largest share of lines that may fail each check.
LIMITS = {
    "behaviour": SHARES,
    "invariance": dict.fromkeys(VARIANTS),
    "single_words": dict.fromkeys(CHECKS),
}


@dataclass(frozen=True)
class CheckOptions:
    """The options of the command, with their defaults."""

    against: Path | None = None
    tests: Sequence[Mapping[str, str | Path]] = ()  # a name, a source and a target each
    suites: Sequence[Path] = ()
    terms: Path | None = None
    limits: Path | None = None
    tag: str | None = None
    output_format: str = "text"
    device: str = AUTO
    precision: str = AUTO
    threads: int | None = None
    no_cost: bool = False
    output: Path | None = None
    force: bool = False


def run(model: Path, **keywords: Any) -> int:
    """Write what the checks of ``model`` found to stdout; return the exit status.

    The keywords are the fields of ``CheckOptions``. Raises UserError if a model, a text or the
    limits are wrong, OutputError if the output cannot be written.
    """
    options = CheckOptions(**keywords)
    limits = read_limits(options.limits, LIMITS)
    glossary = None if options.terms is None else Glossary.read(options.terms)
    paths = [model, *([] if options.against is None else [options.against])]
    found = [find_model(path) for path in paths]
    for each in found:
        if each.settings.trees is not None:
            raise UserError(f"{each.path} parses; check is for models that translate.")
    if options.output is not None:
        refuse_file(options.output, replace=options.force)
    results = _checked(found, options, limits, glossary)
    if options.output is not None:
        with file_appearing_whole(options.output, replace=options.force) as stream:
            stream.write(as_html(results, languages_of(found[0].settings.text)).encode())
    if options.output_format == "json":
        text = json.dumps(results.as_figures(), indent=2)
    else:
        text = as_junit(results) if options.output_format == "junit" else results.as_table()
    StandardOutput().write(f"{text}\n".encode())
    return STATUS_LIMIT_NOT_MET if results.problems else 0


def _checked(
    found: Sequence[Model],
    options: CheckOptions,
    limits: Mapping[str, Any],
    glossary: Glossary | None,
) -> Results:
    files = [HeldOutFiles.model_validate(each) for each in options.tests]
    sets = sets_of_files(files, found[0], options.tag)
    lines = [case for one in sets for case in one.cases if not is_blank(case.source)]
    first = lines[0]
    suites = [Suite.read(path, first.tag, first.languages) for path in options.suites]
    names = Counter([*(one.name for one in sets), *(suite.name for suite in suites)])
    for name, number in names.items():
        if number > 1:
            raise UserError(f"{number} test sets and suites are called {name}; rename one of them.")
    sets += [one for suite in suites if (one := suite.as_set()).cases]
    probed = [*lines, *probes(lines)]
    checks = [
        *behaviour(probed, limits["behaviour"], glossary),
        *invariance(lines, limits["invariance"]),
        *single_words(frequent_words(lines), found[0], limits["single_words"]),
        *(check for suite in suites for check in suite.checks(limits["suites"])),
    ]
    texts = [case.text for one in sets for case in one.cases]
    texts += (case.text for check in checks for case in check.cases)
    machine = {"device": options.device, "precision": options.precision, "tag": options.tag}
    models = [translate(each.path, texts, options.threads, machine) for each in found]
    rows = [row for one in sets for row in quality(one, models, limits)]
    rows += (row_of(each, models, may_be_worse=limits["may_be_worse"]) for each in checks)
    model, old = str(found[0].path), str(found[1].path) if len(found) > 1 else None
    notes = [*_notes(found[0], first.languages[1], limits, options)]
    cost = [] if options.no_cost else cost_of(found, [case.text for case in probed], machine)
    return Results(model, old, rows, notes, cost)


def _notes(
    model: Model, language: str, limits: Mapping[str, Any], options: CheckOptions
) -> Iterator[str]:
    """Yield what could not be checked, and which limits could not be applied."""
    if model.lexicon is None:
        make = command("nmt-cli", "lexicon", model.path)
        yield f"Single words were not looked up: MODEL has no lexicon ({make} SOURCE TARGET)."
    if label_of(language) not in language_identifier().labels:
        yield f"Other languages show only by scripts: py3langid does not know {language}."
    losses = {limits["quality"][f"max_{key}_loss"] for key in ("bleu", "chrf")}
    if options.against is None and losses != {None}:
        yield f"What is lost to OLD has a limit in {options.limits}, but there is no --against OLD."
    if options.terms is None and limits["behaviour"]["terms"] is not None:
        yield f"behaviour.terms has a limit in {options.limits}, but there are no --terms FILE."
