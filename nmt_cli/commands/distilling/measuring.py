"""Measures teacher and student: quality on the test sets, size and speed on a CPU."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from nmt_cli.commands import translate
from nmt_cli.commands.distilling.distillation import Distillation
from nmt_cli.commands.lines.translation_processes import Processes, opened_engine
from nmt_cli.corpus.references import references_of
from nmt_cli.corpus.text.recipe_text import write_sides
from nmt_cli.files import file_names
from nmt_cli.files.atomic_files import Partial, read_manifest, sha256
from nmt_cli.files.lines import texts_of
from nmt_cli.hardware.cpu import set_num_threads, usable_cores
from nmt_cli.hardware.system_facts import cpu_name
from nmt_cli.messages import logs
from nmt_cli.messages.figures import aligned
from nmt_cli.metrics.bleu import bleu_scorer, chrf_scorer
from nmt_cli.model.stored_weights import as_bytes
from nmt_cli.recipe.sections.corpora import HeldOutFiles
from nmt_cli.report.run_history import student_table
from nmt_cli.saved.model_directory import find_model, save_lexicon
from nmt_cli.training.experiment import name_of
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator

TABLE = "table.txt"
MOST_CORES = 2
ROUNDS = 3  # of all systems in turn, so that another load on the machine meets all of them
TIMED_LINES = 1_000  # of the first test set
LINES_ALONE = 50


class System(NamedTuple):
    """One row of the table: models, and how they translate."""

    name: str
    models: Sequence[Path]  # none: a language model, which has translated already
    precision: str | None
    shortlist: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options of a translator."""
        return {
            "precision": self.precision,
            "ensemble": self.models[1:],
            "shortlist": self.shortlist,
        }


def systems(job: Distillation, folder: Path | None = None) -> list[System]:
    """Return the rows of the table.

    With a ``folder``, the fp32 student of the shortlist is a copy in it that has the lexicon.
    """
    shipped = read_manifest(job.shipped)["shipped"]
    student = (job.run_dir if shipped == "average" else job.int8_run.run_dir) / file_names.AVERAGE
    teachers = [model.path for model in job.models]
    of_teacher = ("fp32", "int8") if teachers else (None,)
    found = [
        *(System("teacher", teachers, precision) for precision in of_teacher),
        System("student", [student], "fp32"),
        System("student", [job.shipped], "int8"),
    ]
    if (lexicon := find_model(job.shipped).lexicon) is None:
        return found
    if folder is not None:
        shutil.copytree(student, folder / file_names.STUDENT)
        student = folder / file_names.STUDENT
        save_lexicon(student, lexicon, uses_shortlist=True)
    with_shortlist = [
        System("student", [student], "fp32", True),
        System("student", [job.shipped], "int8", True),
    ]
    return found + with_shortlist


def measured_sets(job: Distillation) -> tuple[HeldOutFiles, ...]:
    """Return the test sets; without any, the validation sets."""
    data = job.student.recipe.data
    return data.test_sets or data.validation_sets


def measured_from(job: Distillation) -> dict[str, Any]:
    """Return what the figures depend on."""
    teacher = job.folder("teacher")  # a language model's translations of the sets are in it
    return {
        **({} if job.teachers else {"teacher": read_manifest(teacher)["files"]}),
        "systems": [
            [
                system.precision,
                system.shortlist,
                *(find_model(path).fingerprint for path in system.models),
            ]
            for system in systems(job)
        ],
        "sets": [
            [one.name, one.tag, *(sha256(path) for path in one.paths.values())]
            for one in measured_sets(job)
        ],
        "tokenize": job.student.recipe.validation.tokenize,
    }


def measure(job: Distillation, partial: Partial) -> None:
    """Translate every set with every system, time them, and write the table."""
    with TemporaryDirectory() as folder:
        rows = systems(job, Path(folder))
        figures = list(map(_facts_of, rows))
        for one in measured_sets(job):
            source = partial.path / name_of("source", one, "txt")
            target = partial.path / name_of("reference", one, "txt")
            write_sides(one, job.student.recipe.data, source, target)
            for system, row in zip(rows, figures, strict=True):
                parts = system.name, system.precision, "shortlist" * system.shortlist
                name = "-".join(filter(None, parts))
                output = partial.path / name_of(name, one, "txt")
                if system.models:
                    options = {**system.options, "tag": one.tag}
                    _translate_on_cpu(job, system.models[0], source, output, **options)
                else:
                    shutil.copyfile(job.folder("teacher") / name_of("test", one, "txt"), output)
                scores = _scores_of(job, target, output)
                row["sets"][one.name or "test"] = scores
        first = partial.path / name_of("source", measured_sets(job)[0], "txt")
        _add_speed(rows, figures, texts_of(first)[:TIMED_LINES], measured_sets(job)[0].tag)
        measured = {"cpu": cpu_name(), "cores": _cores(), "rows": figures}
        (partial.path / file_names.FIGURES_FILE).write_text(
            json.dumps(measured, indent=2), encoding="utf-8"
        )
        table, notes = student_table(measured)
        text = "\n".join([*aligned(table), "", *notes])
        (partial.path / TABLE).write_text(f"{text}\n", encoding="utf-8")


def _facts_of(system: System) -> dict[str, Any]:
    """Return the figures of a row that need no translation; a language model has none."""
    facts: dict[str, Any] = {"system": system.name, "precision": system.precision, "sets": {}}
    if not system.models:
        names = ("shortlist", "beam_size", "megabytes", "lines_per_second", "ms_of_one_line")
        return {**facts, **dict.fromkeys(names)}
    beam_size = find_model(system.models[0]).settings.decoding.beam_size
    megabytes = round(num_bytes(system) / 1e6, 2)
    return {
        **facts,
        **{"shortlist": system.shortlist, "beam_size": beam_size, "megabytes": megabytes},
    }


def _cores() -> int:
    return min(MOST_CORES, usable_cores())


def scores_on_cpu(
    job: Distillation, model: Path, texts: tuple[Path, Path], output: Path, **options: Any
) -> dict[str, Any]:
    """Translate the source of ``texts`` to ``output``; return its BLEU and chrF by their keys."""
    source, target = texts
    _translate_on_cpu(job, model, source, output, **options)
    return _scores_of(job, target, output)


def _translate_on_cpu(
    job: Distillation, model: Path, source: Path, output: Path, **options: Any
) -> None:
    translate.run(
        model,
        input_path=source,
        output_path=output,
        device="cpu",
        threads=job.options.threads,
        workers=job.options.workers,
        **options,
    )


def _scores_of(job: Distillation, target: Path, output: Path) -> dict[str, Any]:
    references = references_of(job.student.recipe, texts_of(target))
    scorers = bleu_scorer(references.tokenizer.tokenize), chrf_scorer()
    hypotheses = texts_of(output)
    return {
        scorer.key: scorer.score(hypotheses, [references.lines]).figures() for scorer in scorers
    }


def num_bytes(system: System) -> int:
    """Return the bytes on disk of the models in their precision, with all that using them needs."""
    total = 0
    unneeded = {file_names.TRAINING_STATE}
    if not system.shortlist:
        unneeded.add(file_names.LEXICON)
    for model in map(find_model, system.models):
        files = model.manifest["files"].items()
        sizes = {name: entry["bytes"] for name, entry in files if name not in unneeded}
        sizes[file_names.MANIFEST] = (model.path / file_names.MANIFEST).stat().st_size
        if system.precision == "int8":
            sizes[file_names.WEIGHTS] = len(as_bytes(model.weights, in_int8=True))
        total += sum(sizes.values())
    return total


def _add_speed(
    rows: Sequence[System], figures: Sequence[dict[str, Any]], lines: Sequence[str], tag: str | None
) -> None:
    """Add lines per second on all cores, the best of the rounds, and milliseconds of one line."""
    timed = [pair for pair in zip(rows, figures, strict=True) if pair[0].models]
    with logs.progress("timing", "passes", ROUNDS * len(timed)) as counter:
        for _ in range(ROUNDS):
            for system, row in timed:
                with _only_errors():  # not the same messages in each round
                    speed = _lines_per_second(system, lines, {**system.options, "tag": tag})
                    alone = _median_ms(system, lines, tag)
                row["lines_per_second"] = max(round(speed, 1), row.get("lines_per_second", 0.0))
                row["ms_of_one_line"] = min(round(alone, 2), row.get("ms_of_one_line", alone))
                counter.advance(1)


@contextmanager
def _only_errors() -> Iterator[None]:
    is_quiet = logs.are_quiet()
    logs.silence()
    try:
        yield
    finally:
        logs.configure(quiet=is_quiet)


def _lines_per_second(system: System, lines: Sequence[str], options: dict[str, Any]) -> float:
    """Translate the lines in a process for each core, after a first one to warm up."""
    requests = [Request(line, line=number) for number, line in enumerate(lines, 1)]
    with opened_engine(system.models[0], Processes(_cores()), "cpu", 1, options) as engine:
        list(engine.translate(iter([requests[: 8 * _cores()]])))
        started = time.perf_counter()
        list(engine.translate(iter([requests])))
        return len(lines) / (time.perf_counter() - started)


def _median_ms(system: System, lines: Sequence[str], tag: str | None) -> float:
    """Return the median time of lines that are translated one after the other."""
    set_num_threads(_cores())
    translator = Translator.load(system.models[0], device="cpu", tag=tag, **system.options)
    times = []
    for line in lines[: LINES_ALONE + 1]:
        started = time.perf_counter()
        translator.translate_window([line])
        times.append(time.perf_counter() - started)
    return 1000 * median(times[1:] or times)
