"""The stages of a distillation before the training: from the texts to pairs with links.

texts      distillation/texts     each different line once, and what augmentation made of it
teach      distillation/teacher   the n best translations of each
choose     distillation/chosen    the pairs that the student may learn from
filter     distillation/filtered  the best of them by the model of the other direction
align      distillation/links     the links of their words
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.alignment.symmetrization import SYMMETRIZATIONS
from nmt_cli.commands import align, rescore, translate
from nmt_cli.commands.distilling.distillation import Distillation, TeacherText
from nmt_cli.commands.distilling.teacher_texts import lines_in, pair_writer, texts_from, write_texts
from nmt_cli.commands.experiments.pipeline import (
    PipelineStage,
    folder_stage,
    replacing,
    was_made_from,
)
from nmt_cli.commands.lines.translation_processes import num_gpus
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.files.atomic_files import (
    Partial,
    make_folders,
    remove_directory,
    verify,
    write_manifest,
)
from nmt_cli.files.folders import DISTILLED
from nmt_cli.files.lines import is_blank
from nmt_cli.files.locks import claimed
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.metrics.chrf import DIGITS, chrf_of_each
from nmt_cli.saved.model_directory import find_model
from nmt_cli.search.sentences import Sampling

ALIGNING: dict[str, Any] = {"symmetrization": next(iter(SYMMETRIZATIONS)), "iterations": 5}


def _teaching_options(job: Distillation) -> dict[str, Any]:
    """Return the options of ``translate`` on which the translations depend."""
    settings, config = job.models[0].settings, job.config
    of_search: dict[str, Any] = {"beam_size": max(config.n_best, settings.decoding.beam_size)}
    if config.choose == "mbr":
        of_search = {"choose": "mbr", "sampling": Sampling(seed=job.recipe.training.seed)}
    return {
        "n_best": config.n_best,
        **of_search,
        "keep_pieces": settings.text.type == "whitespace",
        "precision": job.options.precision,
    }


def _checksums(folder: Path) -> dict[str, str]:
    return {name: entry["sha256"] for name, entry in verify(folder)["files"].items()}


def translated_from(job: Distillation) -> dict[str, Any]:
    """Return what the translations depend on."""
    of_texts = {
        "texts": _checksums(job.folder("texts")),
        "tags": [text.tag for text in job.texts],
    }
    if job.server is not None:
        return json.loads(json.dumps({**of_texts, **_of_language_model().asked_from(job)}))
    return {
        **of_texts,
        "teachers": [model.fingerprint for model in job.models],
        **json.loads(json.dumps(_teaching_options(job))),  # as the manifest gives them back
    }


def _of_language_model() -> ModuleType:
    from nmt_cli.commands.distilling.language_model import taught  # imports requests

    return taught


def _teach(job: Distillation, is_forced: bool) -> None:
    """Translate all texts; what was translated before the command was killed is not done again."""
    if job.server is not None:
        _of_language_model().teach(job, translated_from(job), is_forced)
        return
    made_from, begun = translated_from(job), job.folder("teacher-begun")
    with claimed(begun, "--run-dir"):
        if is_forced or not was_made_from(begun, made_from):
            remove_directory(begun)
            make_folders(begun)
            write_manifest(begun, {"kind": DISTILLED, "made_from": made_from})
        outputs = [_translated(job, text, begun) for text in job.texts]
        with replacing(job.folder("teacher")) as partial:
            for output in outputs:
                shutil.copyfile(output, partial.path / output.name)
            partial.manifest.update(kind=DISTILLED, made_from=made_from)
        remove_directory(begun)


def _translated(job: Distillation, text: TeacherText, folder: Path) -> Path:
    """Translate a text into a file in ``folder``; return its path."""
    options, output = job.options, folder / f"{text.name}.tsv.gz"
    on_gpus = num_gpus(options.device) if options.device in {AUTO, "cuda"} else 0
    logs.info(f"{text.path}:")
    status = translate.run(
        job.models[0].path,
        ensemble=[model.path for model in job.models[1:]],
        input_path=job.folder("texts") / text.source,
        output_path=output,
        resume=True,
        output_format="tsv",
        tag=text.tag,
        device=options.device,
        threads=options.threads,
        workers=None if on_gpus else options.workers,
        devices=options.devices or on_gpus if on_gpus else None,
        arguments=job.arguments,
        **_teaching_options(job),
    )
    if status:
        logs.warning(f"{text.path}: the lines that could not be translated are left out.")
    return output


def chosen_from(job: Distillation) -> dict[str, Any]:
    """Return what the choice of the pairs depends on."""
    return {
        "translations": _checksums(job.folder("teacher")),
        "choose": job.config.choose,
        "targets": job.config.targets,
    }


def _choose(job: Distillation, partial: Partial) -> None:
    num_pairs = 0
    with logs.progress("choosing", "lines") as counter:
        for text in job.texts:
            with pair_writer(partial.path, text) as write:
                for source, reference, candidates in _candidates(job, text):
                    for target in _best(candidates, reference, job):
                        write(source, target)
                        num_pairs += 1
                    counter.advance(1)
    if not num_pairs:
        raise UserError("the teacher gave no translation of any line.")
    logs.info(f"Chose {counted(num_pairs, 'pair')}.")


def _pairs_in(folder: Path, text: TeacherText) -> Iterator[tuple[str, str]]:
    return zip(lines_in(folder / text.source), lines_in(folder / text.target), strict=True)


def _candidates(job: Distillation, text: TeacherText) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each line with its reference, which may be empty, and its translations."""
    rows = (row.split("\t") for row in lines_in(job.folder("teacher") / f"{text.name}.tsv.gz"))
    of_lines = groupby(rows, key=lambda row: row[0])
    pairs = _pairs_in(job.folder("texts"), text)
    for (source, reference), (_, ranked) in zip(pairs, of_lines, strict=True):
        yield source, reference, [row[3] for row in ranked]


def _best(candidates: Iterable[str], reference: str, job: Distillation) -> list[str]:
    """Return the different translations that are kept, the best first."""
    different = [text for text in dict.fromkeys(candidates) if not is_blank(text)]
    if reference and job.config.choose == "reference":
        scores = chrf_of_each(different, [reference])[:, 0].round(DIGITS)
        different = [different[place] for place in np.argsort(-scores, kind="stable")]
    return different[: job.config.targets]


def filtered_from(job: Distillation) -> dict[str, Any]:
    """Return what the filtered pairs depend on."""
    assert job.reverse_model is not None
    return {
        "pairs": _checksums(job.folder("chosen")),
        "reverse_model": find_model(job.reverse_model).fingerprint,
        "keep_share": job.config.keep_share,
        "precision": job.options.precision,
    }


def _filter(job: Distillation, partial: Partial) -> None:
    """Leave out the pairs whose source the reverse model finds least likely for its length."""
    assert job.reverse_model is not None
    chosen, scores = job.folder("chosen"), []
    for text in job.texts:
        path = partial.path / f"{text.name}.scores"
        rescore.run(
            job.reverse_model,
            chosen / text.target,
            chosen / text.source,
            output_path=path,
            device=job.options.device,
            threads=job.options.threads,
            precision=job.options.precision,
            length_penalty=1.0,
        )
        scores.append(_scores_in(path))
    least = _least_score(np.concatenate(scores), job.config.keep_share)
    for text, of_text in zip(job.texts, scores, strict=True):
        with pair_writer(partial.path, text) as write:
            for pair, is_kept in zip(_pairs_in(chosen, text), of_text >= least, strict=True):
                if is_kept:
                    write(*pair)
    kept = sum(int((of_text >= least).sum()) for of_text in scores)
    logs.info(f"Kept {kept:,} of {counted(sum(map(len, scores)), 'pair')}.")


def _scores_in(path: Path) -> npt.NDArray[np.float64]:
    """Return the score of each line; without one it is -inf."""
    return np.fromiter((float(line or "-inf") for line in lines_in(path)), np.float64)


def _least_score(scores: npt.NDArray[np.float64], share: float) -> float:
    """Return the score that the best ``share`` of the finite ``scores`` have at least."""
    finite = np.sort(scores[np.isfinite(scores)])
    if not len(finite):
        raise UserError("the model of --reverse-model could score no pair.")
    return float(finite[len(finite) - max(1, round(share * len(finite)))])


def aligned_from(job: Distillation) -> dict[str, Any]:
    """Return what the links depend on."""
    return {"pairs": _checksums(job.pairs), **ALIGNING}


def _align(job: Distillation, partial: Partial) -> None:
    """Align the words of all texts together, because rare words occur in several of them."""
    with TemporaryDirectory() as name:
        together, links = Path(name), Path(name) / "links"
        for side in SIDES:
            with (together / side).open("wb") as whole:
                for text in job.texts:
                    with (job.pairs / getattr(text, side)).open("rb") as part:
                        shutil.copyfileobj(part, whole)
        align.run(
            together / "source",
            together / "target",
            output_path=links,
            workers=job.options.workers,
            **ALIGNING,
        )
        with links.open("rb") as whole:
            for text in job.texts:
                with (
                    (job.pairs / text.source).open("rb") as lines,
                    (partial.path / text.name).open("wb") as part,
                ):
                    part.writelines(whole.readline() for _ in lines)


def _is_translated(job: Distillation) -> bool:
    return was_made_from(job.folder("teacher"), translated_from(job))


def stages_of_teaching(job: Distillation) -> list[PipelineStage]:
    """Return the stages before the training."""
    texts, chosen, filtered, links = (
        (job.folder(name), DISTILLED) for name in ("texts", "chosen", "filtered", "links")
    )
    no_filter = "no --reverse-model is given." if job.reverse_model is None else None
    no_links = None if job.is_aligned else "distillation.guided_alignment is null."
    return [
        folder_stage(job, "texts", *texts, texts_from, write_texts),
        PipelineStage("teach", job, _is_translated, _teach),
        folder_stage(job, "choose", *chosen, chosen_from, _choose),
        folder_stage(job, "filter", *filtered, filtered_from, _filter, no_filter),
        folder_stage(job, "align", *links, aligned_from, _align, no_links),
    ]
