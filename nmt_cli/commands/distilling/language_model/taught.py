"""The stage ``teach`` with a language model: its translations, in the form of a model's."""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from nmt_cli.commands.distilling.distillation import Distillation
from nmt_cli.commands.distilling.language_model import asking
from nmt_cli.commands.distilling.language_model.answer_store import AnswerStore
from nmt_cli.commands.distilling.language_model.answers import Checks
from nmt_cli.commands.distilling.language_model.chat_client import ChatClient
from nmt_cli.commands.distilling.language_model.prompts import Prompt, SourceLine, teacher_of
from nmt_cli.commands.distilling.measuring import measured_sets
from nmt_cli.commands.distilling.teacher_texts import lines_in
from nmt_cli.commands.experiments.pipeline import replacing
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.recipe_text import write_sides
from nmt_cli.files.atomic_files import Partial, sha256
from nmt_cli.files.folders import DISTILLED
from nmt_cli.files.lines import is_blank
from nmt_cli.files.locks import claimed
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.training.experiment import name_of

MOST_CHARACTERS = 6_000  # of the lines of a request, unless one is longer


class Part(NamedTuple):
    """A text, how it is asked and checked, and the file of its translations."""

    path: Path
    output: str
    checks: Checks

    def lines(self) -> Iterator[SourceLine | None]:
        """Yield the lines; None for one that is blank."""
        for line in lines_in(self.path):
            yield None if is_blank(line) else self.checks.prompt.line(line)


def asked_from(job: Distillation) -> dict[str, Any]:
    """Return what the translations of the texts and of the test sets depend on."""
    config, corpora = job.teacher_config, job.recipe.data.train
    tests = [[one.tag, *map(sha256, one.paths.values())] for one in measured_sets(job)]
    glossaries = [path for corpus in corpora if (path := corpus.augment.glossary) is not None]
    return {
        "languages": [_languages_of(job, text.tag) for text in job.texts],
        "teacher": [*teacher_of(config), config.retries],
        "tests": tests,
        "glossaries": [sha256(path) for path in glossaries],
    }


def teach(job: Distillation, made_from: dict[str, Any], is_forced: bool) -> None:
    """Translate all texts and the test sets; what was answered before is not asked again."""
    assert job.server is not None
    config, folder = job.teacher_config, job.folder("answers")
    client = ChatClient(job.server, config)
    with claimed(folder, "--run-dir"), TemporaryDirectory() as texts:
        if is_forced:
            for path in folder.glob("*.jsonl"):
                path.unlink()
        parts = list(_parts_of(job, Path(texts)))
        store = AnswerStore(folder, teacher_of(config), config.retries)
        if store.num_others and not store.first_failures:
            logs.info(
                f"The {counted(store.num_others, 'answer')} in {folder} are of another model, "
                "prompt, domain or temperature; all lines are asked anew."
            )
        lines = filter(None, chain.from_iterable(part.lines() for part in parts))
        are_done = Counter(store.is_done(line.key) for line in lines)
        with logs.progress("teaching", "lines", are_done.total(), are_done[True]) as counter:
            batches = _batches_of(parts, store, config.lines_per_request)
            asking.Asking(client, store, job.server, are_done.total()).run(batches, counter)
        with replacing(job.folder("teacher")) as partial:
            partial.manifest.update(kind=DISTILLED, made_from=made_from)
            _write(parts, store, partial)
        has_price = job.server.prices is not None
        cost = f", which cost {job.server.cost_of(*store.spent):,.4f}" * has_price
        logs.info(
            f"The teacher read {store.spent.prompt:,} and wrote {store.spent.completion:,} "
            f"tokens in {counted(store.num_requests, 'request')}{cost}."
        )


def _languages_of(job: Distillation, tag: str | None) -> tuple[str, str]:
    """Return the languages of the first corpus with this tag, or those of the recipe."""
    data = job.recipe.data
    named = (corpus.languages for corpus in data.train if corpus.tag == tag and corpus.languages)
    languages = next(named, data.languages)
    if UNKNOWN_LANGUAGE in languages:
        raise UserError(
            "data.source_language and data.target_language are asked for in the prompt of a "
            f"language model, but are {' and '.join(languages)}; give those of the text."
        )
    return languages


def _parts_of(job: Distillation, folder: Path) -> Iterator[Part]:
    """Yield the texts, and then the sets by which the teacher is measured."""
    checks = dict[str | None, Checks]()

    def checks_of(tag: str | None) -> Checks:
        if tag not in checks:
            corpora = [corpus for corpus in job.recipe.data.train if corpus.tag == tag]
            paths = dict.fromkeys(filter(None, (corpus.augment.glossary for corpus in corpora)))
            glossary = reduce(Glossary.with_more, map(Glossary.read, paths)) if paths else None
            prompt = Prompt(job.teacher_config, _languages_of(job, tag), tag, glossary)
            checks[tag] = Checks(job.recipe, prompt)
        return checks[tag]

    for text in job.texts:
        path = job.folder("texts") / text.source
        yield Part(path, f"{text.name}.tsv.gz", checks_of(text.tag))
    for one in measured_sets(job):
        path = folder / name_of("source", one, "txt")
        write_sides(one, job.recipe.data, path, folder / "target")
        yield Part(path, name_of("test", one, "txt"), checks_of(one.tag))


def _batches_of(
    parts: Iterable[Part], store: AnswerStore, most_lines: int
) -> Iterator[asking.Batch]:
    """Yield the lines that are not done, in batches of the same text."""
    begun = set[bytes]()
    for part in parts:
        lines, num_characters = list[SourceLine](), 0
        for line in filter(None, part.lines()):
            if store.is_done(line.key) or line.key in begun:
                continue
            num_characters += len(line.text)
            if lines and (num_characters > MOST_CHARACTERS or len(lines) == most_lines):
                yield asking.Batch(part.checks, lines)
                lines, num_characters = [], len(line.text)
            begun.add(line.key)
            lines.append(line)
        if lines:
            yield asking.Batch(part.checks, lines)


def _write(parts: Iterable[Part], store: AnswerStore, partial: Partial) -> None:
    """Write the translations; those of a corpus as ``translate`` writes tables."""
    reasons = Counter[str]()
    for part in parts:
        path = partial.path / part.output
        is_table = path.suffix == ".gz"
        with gzip.GzipFile(path, "wb", mtime=0) if is_table else path.open("wb") as stream:
            for number, line in enumerate(part.lines(), 1):
                text = "" if line is None else store.texts.get(line.key, "")
                if line is not None and line.key not in store.texts:
                    reasons[store.failures[line.key][-1]] += 1
                stream.write(
                    f"{number}\t1\t\t{text}\n".encode() if is_table else f"{text}\n".encode()
                )
    partial.manifest["left_out"] = dict(reasons)
    if reasons:
        logs.warning(
            f"Left out {counted(reasons.total(), 'line')}, whose translations failed: "
            f"{asking.shown_reasons(reasons)}."
        )
