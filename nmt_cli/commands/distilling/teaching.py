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
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.alignment.symmetrization import SYMMETRIZATIONS
from nmt_cli.commands import align, rescore, translate
from nmt_cli.commands.distilling.distillation import Distillation, TeacherText
from nmt_cli.commands.distilling.teacher_texts import (
    lines_in,
    pair_writer,
    texts_from,
    write_texts,
)
from nmt_cli.commands.experiments.pipeline import (
    PipelineStage,
    folder_stage,
    replacing,
    was_made_from,
)
from nmt_cli.commands.lines.translation_processes import num_gpus
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


def _teaching_options(each: Distillation) -> dict[str, Any]:
    """Return the options of ``translate`` on which the translations depend."""
    settings, config = each.models[0].settings, each.config
    of_search: dict[str, Any] = {"beam_size": max(config.n_best, settings.decoding.beam_size)}
    if config.choose == "mbr":
        of_search = {"choose": "mbr", "sampling": Sampling(seed=each.recipe.training.seed)}
    return {
        "n_best": config.n_best,
        **of_search,
        "keep_pieces": settings.text.type == "whitespace",
        "precision": each.options.precision,
    }


def _checksums(folder: Path) -> dict[str, str]:
    return {name: entry["sha256"] for name, entry in verify(folder)["files"].items()}


def translated_from(each: Distillation) -> dict[str, Any]:
    """Return what the translations depend on."""
    return {
        "texts": _checksums(each.folder("texts")),
        "tags": [text.tag for text in each.texts],
        "teachers": [model.fingerprint for model in each.models],
        **json.loads(json.dumps(_teaching_options(each))),  # as the manifest gives them back
    }


def _teach(each: Distillation, is_forced: bool) -> None:
    """Translate all texts; what was translated before the command was killed is not done again."""
    made_from, begun = translated_from(each), each.folder("teacher-begun")
    with claimed(begun, "--run-dir"):
        if is_forced or not was_made_from(begun, made_from):
            remove_directory(begun)
            make_folders(begun)
            write_manifest(begun, {"kind": DISTILLED, "made_from": made_from})
        outputs = [_translated(each, text, begun) for text in each.texts]
        with replacing(each.folder("teacher")) as partial:
            for output in outputs:
                shutil.copyfile(output, partial.path / output.name)
            partial.manifest.update(kind=DISTILLED, made_from=made_from)
        remove_directory(begun)


def _translated(each: Distillation, text: TeacherText, folder: Path) -> Path:
    """Translate a text into a file in ``folder``; return its path."""
    options, output = each.options, folder / f"{text.name}.tsv.gz"
    on_gpus = num_gpus(options.device) if options.device in {AUTO, "cuda"} else 0
    logs.info(f"{text.path}:")
    status = translate.run(
        each.models[0].path,
        ensemble=[model.path for model in each.models[1:]],
        input_path=each.folder("texts") / text.source,
        output_path=output,
        resume=True,
        output_format="tsv",
        tag=text.tag,
        device=options.device,
        threads=options.threads,
        workers=None if on_gpus else options.workers,
        devices=options.devices or on_gpus if on_gpus else None,
        arguments=each.arguments,
        **_teaching_options(each),
    )
    if status:
        logs.warning(f"{text.path}: the lines that could not be translated are left out.")
    return output


def chosen_from(each: Distillation) -> dict[str, Any]:
    """Return what the choice of the pairs depends on."""
    return {
        "translations": _checksums(each.folder("teacher")),
        "choose": each.config.choose,
        "targets": each.config.targets,
    }


def _choose(each: Distillation, partial: Partial) -> None:
    num_pairs = 0
    with logs.progress("choosing", "lines") as counter:
        for text in each.texts:
            with pair_writer(partial.path, text) as write:
                for source, reference, candidates in _candidates(each, text):
                    for target in _best(candidates, reference, each):
                        write(source, target)
                        num_pairs += 1
                    counter.advance(1)
    if not num_pairs:
        raise UserError(f"{each.teachers[0]} gave no translation of any line.")
    logs.info(f"Chose {counted(num_pairs, 'pair')}.")


def _pairs_in(folder: Path, text: TeacherText) -> Iterator[tuple[str, str]]:
    return zip(lines_in(folder / text.source), lines_in(folder / text.target), strict=True)


def _candidates(each: Distillation, text: TeacherText) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each line with its reference, which may be empty, and its translations."""
    rows = (row.split("\t") for row in lines_in(each.folder("teacher") / f"{text.name}.tsv.gz"))
    of_lines = groupby(rows, key=lambda row: row[0])
    pairs = _pairs_in(each.folder("texts"), text)
    for (source, reference), (_, ranked) in zip(pairs, of_lines, strict=True):
        yield source, reference, [row[3] for row in ranked]


def _best(candidates: Iterable[str], reference: str, each: Distillation) -> list[str]:
    """Return the different translations that are kept, the best first."""
    different = [text for text in dict.fromkeys(candidates) if not is_blank(text)]
    if reference and each.config.choose == "reference":
        scores = chrf_of_each(different, [reference])[:, 0].round(DIGITS)
        different = [different[place] for place in np.argsort(-scores, kind="stable")]
    return different[: each.config.targets]


def filtered_from(each: Distillation) -> dict[str, Any]:
    """Return what the filtered pairs depend on."""
    assert each.reverse_model is not None
    return {
        "pairs": _checksums(each.folder("chosen")),
        "reverse_model": find_model(each.reverse_model).fingerprint,
        "keep_share": each.config.keep_share,
        "precision": each.options.precision,
    }


def _filter(each: Distillation, partial: Partial) -> None:
    """Leave out the pairs whose source the reverse model finds least likely for its length."""
    assert each.reverse_model is not None
    chosen, scores = each.folder("chosen"), []
    for text in each.texts:
        path = partial.path / f"{text.name}.scores"
        rescore.run(
            each.reverse_model,
            chosen / text.target,
            chosen / text.source,
            output_path=path,
            device=each.options.device,
            threads=each.options.threads,
            precision=each.options.precision,
            length_penalty=1.0,
        )
        scores.append(_scores_in(path))
    least = _least_score(np.concatenate(scores), each.config.keep_share)
    for text, of_text in zip(each.texts, scores, strict=True):
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


def aligned_from(each: Distillation) -> dict[str, Any]:
    """Return what the links depend on."""
    return {"pairs": _checksums(each.pairs), **ALIGNING}


def _align(each: Distillation, partial: Partial) -> None:
    """Align the words of all texts together, because rare words occur in several of them."""
    with TemporaryDirectory() as name:
        together, links = Path(name), Path(name) / "links"
        for side in ("source", "target"):
            with (together / side).open("wb") as whole:
                for text in each.texts:
                    with (each.pairs / getattr(text, side)).open("rb") as part:
                        shutil.copyfileobj(part, whole)
        align.run(
            together / "source",
            together / "target",
            output_path=links,
            workers=each.options.workers,
            **ALIGNING,
        )
        with links.open("rb") as whole:
            for text in each.texts:
                with (
                    (each.pairs / text.source).open("rb") as lines,
                    (partial.path / text.name).open("wb") as part,
                ):
                    part.writelines(whole.readline() for _ in lines)


def _is_translated(each: Distillation) -> bool:
    return was_made_from(each.folder("teacher"), translated_from(each))


def stages_of_teaching(each: Distillation) -> list[PipelineStage]:
    """Return the stages before the training."""
    texts, chosen, filtered, links = (
        (each.folder(name), DISTILLED) for name in ("texts", "chosen", "filtered", "links")
    )
    no_filter = "no --reverse-model is given." if each.reverse_model is None else None
    no_links = None if each.is_aligned else "distillation.guided_alignment is null."
    return [
        folder_stage(each, "texts", *texts, texts_from, write_texts),
        PipelineStage("teach", each, _is_translated, _teach),
        folder_stage(each, "choose", *chosen, chosen_from, _choose),
        folder_stage(each, "filter", *filtered, filtered_from, _filter, no_filter),
        folder_stage(each, "align", *links, aligned_from, _align, no_links),
    ]
