"""Prepares a training: new, from another model, or from its newest checkpoint.

A resumed training continues at its place in the text, also if the recipe plans other batches now.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt_cli.corpus.augmenter import read_glossaries
from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.epoch_pairs import refuse_wrong_weights
from nmt_cli.corpus.prepared import PreparedCorpus, trained_on
from nmt_cli.corpus.references import references_of
from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.files.file_names import CHECKPOINTS, RECIPE, validation_part
from nmt_cli.hardware.machine import Machine, agree_on_products, log_changes
from nmt_cli.hardware.system_facts import version_of
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.metrics import bleu
from nmt_cli.model.transformer import Transformer, round_to_int8
from nmt_cli.optimization import MovingAverage, new_optimizer
from nmt_cli.recipe.keys import as_written, changes_of_quality, values_beside_paths
from nmt_cli.recipe.model_settings import least_share
from nmt_cli.recipe.reading.model_origin import first_model
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.checkpoints import best_checkpoint, checkpoint_name, list_checkpoints
from nmt_cli.saved.model_directory import find_model
from nmt_cli.saved.training_state import LastSaved, Progress, TrainingState, load_newest
from nmt_cli.training.batch_cut import BatchCut, fit_to_memory
from nmt_cli.training.expected_length import refuse_rate_of_zero
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.guided_alignment import guidance_of
from nmt_cli.training.joining import join_main_rank
from nmt_cli.training.kernel_choice import choose_kernels
from nmt_cli.training.options import DEFAULTS, NO_SCRIPT, TrainOptions
from nmt_cli.training.training import FIGURES, Training, enter_stage, sizes_and_weights
from nmt_cli.training.warm_start import start_from


def prepare_training(
    recipe: Recipe,
    corpus: PreparedCorpus,
    run_dir: Path,
    machine: Machine,
    cut: BatchCut,
    *,
    is_resumed: bool = False,
    options: TrainOptions = DEFAULTS,
) -> Training:
    """Return a training on this rank, as it begins; batches are cut by ``cut`` or smaller.

    The main rank reads its state: from the newest undamaged checkpoint in ``run_dir`` if
    ``is_resumed``, else the weights from the model of ``--init-from``, or that of the recipe's
    ``model.from``, if one is given. The other ranks receive it. Raises UserError if no checkpoint
    can be resumed from, if the text is another one than before, if that model does not fit, if the
    ranks would not train the same, if the learning rate becomes 0 too early, if a glossary cannot
    be read, or if a sentence pair does not fit the memory.
    """
    ranks, init_from = machine.ranks, options.init_from
    _require_same_training(recipe, corpus, machine, cut, init_from)
    plan = plan_batches(recipe, corpus)
    state = _new_state(recipe, corpus, machine)
    state.progress.script = options.script
    manifest = None
    if is_resumed and ranks.is_main:
        manifest = _resume(recipe, corpus, run_dir, plan, state, options)
        if init_from is not None:
            logs.info(f"--init-from {init_from} is not used: the run goes on from its own weights.")
    elif (parent := first_model(recipe, init_from)) is not None and ranks.is_main:
        state.origin = start_from(parent, state.model, corpus.tokenizer)
        state.average = _new_average(recipe, state.model)
    learnt = _learnt(corpus, run_dir, state) if ranks.is_main else {}
    if ranks.size > 1:
        join_main_rank(ranks, recipe, corpus, plan, state)
        manifest, learnt = ranks.from_main((manifest, learnt))
    corpus = corpus._replace(**learnt)
    machine = agree_on_products(machine, manifest)
    engine = GradientEngine.of(
        state.model,
        start_id(recipe.model, corpus.tokenizer),
        recipe.training.label_smoothing,
        recipe.training.seed,
        machine,
        guidance_of(recipe, corpus),
    )
    kept = options.keep_validations
    training = Training(run_dir, recipe, corpus, plan, engine, state, cut, {}, kept)
    if not training.is_complete():
        refuse_rate_of_zero(training)
        training.glossaries = read_glossaries(recipe)
        terms = ", ".join(map(str, training.glossaries.values()))
        ranks.require_same({"the terms of the glossaries": terms})
        first = state.progress.batch_index
        training.engine = choose_kernels(engine, corpus, plan, first, cut, manifest)
    if manifest is not None:
        log_changes(manifest, training.engine.arithmetic())
    if not training.is_complete():
        # Changed text and sampled pieces may be more than tokens_per_step counts.
        is_changed = recipe.tokenizer.sampling is not None or recipe.data.is_augmented
        limit = None if is_changed else recipe.training.tokens_per_step
        training.cut = fit_to_memory(cut, state, training.engine, corpus, limit, manifest)
    return training


def _learnt(corpus: PreparedCorpus, run_dir: Path, state: TrainingState) -> dict[str, Any]:
    """Return what ``corpus`` and the model that training began from know of their sources.

    That is their characters and share of single sentences; None: unknown. A checkpoint that it is
    resumed from has those of both.
    """
    known = {"characters": corpus.characters, "single_sentences": corpus.single_sentences}
    if state.origin is None:
        return known
    step = state.saved.step
    began_from = run_dir / CHECKPOINTS / checkpoint_name(step) if step else state.origin["path"]
    before = find_model(Path(began_from)).settings
    known["single_sentences"] = least_share(before.single_sentences, corpus.single_sentences)
    if before.characters is None or corpus.characters is None:
        return {**known, "characters": None}
    return {**known, "characters": before.characters | corpus.characters}


def _new_state(recipe: Recipe, corpus: PreparedCorpus, machine: Machine) -> TrainingState:
    training = recipe.training
    torch.manual_seed(training.seed)
    model = Transformer(recipe.model, corpus.tokenizer.size).to(machine.device)
    if training.quantization_aware is not None:
        round_to_int8(model)
    return TrainingState(model, new_optimizer(model, training), average=_new_average(recipe, model))


def _new_average(recipe: Recipe, model: Transformer) -> MovingAverage | None:
    """Return a moving average that begins at the weights of ``model``, if the recipe has one."""
    decay = recipe.training.ema_decay
    return MovingAverage(model, decay) if decay is not None else None


def _resume(
    recipe: Recipe,
    corpus: PreparedCorpus,
    run_dir: Path,
    plan: BatchPlan,
    state: TrainingState,
    options: TrainOptions,
) -> Mapping[str, Any]:
    """Read ``state`` from the newest checkpoint; return the manifest of that checkpoint.

    The progress is adapted to what changed since the recipe of the checkpoint.
    """
    checkpoint = load_newest(run_dir, state)
    manifest = checkpoint.manifest
    _refuse_other_text(run_dir, corpus, trained_on(manifest["prepared_files"]))
    logs.info(f"Resuming from {checkpoint.path}, batch {state.progress.batch_index:,}.")
    before, progress = read_recipe(str(checkpoint.path / RECIPE)).recipe, state.progress
    last_stage = max(0, len(recipe.data.stages) - 1)  # the recipe may have fewer stages now
    stage = min(progress.stage, last_stage)
    planned_by = _plan_settings(before, corpus, progress.stage)
    is_same_plan = planned_by == _plan_settings(recipe, corpus, stage)
    plan_before = plan if is_same_plan else plan_batches(before, corpus)
    enter_stage(plan_before, before, corpus, progress)
    plan_before.begin_at(manifest["epoch"], manifest["first_batch_of_epoch"])
    progress.stage = stage
    if not is_same_plan:
        enter_stage(plan, recipe, corpus, progress)
        move_to_plan(progress, plan_before, plan)
    script_before, progress.script = progress.script, options.script
    if progress.script == script_before:
        measured = [_as_measured(each, script_before) for each in (before, recipe)]
        changes = changes_of_quality(*measured)
    else:
        changes = [_change_of_script(run_dir, script_before, options)]
    changes += _changes_of_measured_text(recipe, corpus, manifest["prepared_files"])
    if "validation.tokenize" not in changes and progress.script is None:
        changes += _changes_of_tokenizer(recipe, corpus, run_dir)
    _begin_anew_after(changes, progress, recipe)
    state.saved = LastSaved(checkpoint.step, manifest["kind"], state.validation is not None)
    return manifest


def _refuse_other_text(run_dir: Path, corpus: PreparedCorpus, before: Mapping[str, Any]) -> None:
    found = trained_on(corpus.manifest["files"])
    for name in sorted(found.keys() | before.keys()):
        if found.get(name) != before.get(name):
            raise UserError(
                f"{run_dir} was trained on another {name} than {corpus.directory} holds now; "
                "prepare the same text again, or choose another --run-dir."
            )


def _changes_of_measured_text(
    recipe: Recipe, corpus: PreparedCorpus, before: Mapping[str, Any]
) -> list[str]:
    """Return what changed in the text of the validation sets that decide, in words."""
    now, sets = corpus.manifest["files"], recipe.validation.all_deciding(corpus.validation)
    parts = tuple(f"{validation_part(each.name)}." for each in sets)
    names = [name for name in now.keys() | before.keys() if name.startswith(parts)]
    is_same = all(now.get(name) == before.get(name) for name in names)
    return [] if is_same else ["the validation text"]


def _changes_of_tokenizer(recipe: Recipe, corpus: PreparedCorpus, run_dir: Path) -> list[str]:
    """Return the change of the tokenizer by which BLEU chose the best checkpoint, in words.

    The packages that are installed now may be others.
    """
    if recipe.validation.best_by != "bleu":
        return []
    best = best_checkpoint(list_checkpoints(run_dir))
    if best is None:
        return []
    lines = recipe.validation.deciding(corpus.validation).lines("target")
    now = bleu.name_in_signatures(references_of(recipe, lines).tokenizer.tokenize)
    signature = best.manifest["validation"].get("bleu_signature")
    before = now if signature is None else bleu.tokenizer_in(signature)
    return [] if now == before else [f"the tokenizer of BLEU (was {before}, is {now})"]


def _as_measured(recipe: Recipe, script: str | None) -> Recipe:
    """Return the recipe as if BLEU, or F1 of trees, decided where a script judges translations."""
    if script is None:
        return recipe
    best_by = "bleu" if recipe.data.treebank is None else "parseval"
    validation = recipe.validation.model_copy(update={"best_by": best_by})
    return recipe.model_copy(update={"validation": validation})


def _change_of_script(run_dir: Path, before: str | None, options: TrainOptions) -> str:
    """Return the change of the script in words. Raises UserError if it is only left out."""
    if options.validation_script is None:
        given = shlex.quote(before or NO_SCRIPT)
        raise UserError(
            f"--validation-script {given} chose the best checkpoint of {run_dir} so far: give "
            f"it again, or --validation-script {NO_SCRIPT} to let validation.best_by decide from "
            "here on."
        )
    was, now = (each if each is not None else NO_SCRIPT for each in (before, options.script))
    return f"--validation-script (was {was}, is {now})"


def _begin_anew_after(changes: Sequence[str], progress: Progress, now: Recipe) -> None:
    """Reset the best quality and the patience if quality is measured differently from now on."""
    if not changes:
        return
    progress.best_quality = progress.best_nll = None
    progress.validations_without_improvement = 0
    progress.quality_since = progress.step
    figure = FIGURES[now.validation.best_by]
    if progress.script is not None:
        figure = "the number of --validation-script"
    logs.info(
        f"The best validation and the patience start anew at step {progress.step:,}, because "
        f"{' and '.join(changes)} changed: {figure} cannot be compared with earlier values."
    )


def _require_same_training(
    recipe: Recipe, corpus: PreparedCorpus, machine: Machine, cut: BatchCut, init_from: Path | None
) -> None:
    """Raise RanksDifferError if the ranks would train something else, or in another way.

    The text is compared by its files. The number of threads and the library of fp32 products
    are not compared: they change only rounding.
    """
    files = corpus.manifest["files"].items()
    max_tokens = f"{cut.max_tokens:,}" if cut.is_limit_chosen else "not given"
    machine.ranks.require_same(
        {
            "the version of nmt-cli": str(version_of("nmt-cli")),
            **values_beside_paths(recipe),
            "the pairs of each corpus": as_written(corpus.corpus_sizes),
            # It names the paths of one machine.
            **{f"the prepared {name}": each["sha256"] for name, each in files if name != RECIPE},
            "--precision": machine.precision,
            "--deterministic": as_written(machine.is_deterministic),
            "--exchange": machine.exchange,
            "--max-tokens-per-device": max_tokens,
            "--init-from": "not given" if init_from is None else "given",
        }
    )


def plan_batches(recipe: Recipe, corpus: PreparedCorpus) -> BatchPlan:
    """Return the plan of ``corpus``, in its first stage.

    Raises UserError if a pair does not fit into a step, or if a stage has wrong weights.
    """
    for stage in range(len(recipe.data.stages)):
        refuse_wrong_weights(sizes_and_weights(recipe, corpus, stage), f"data.stages.{stage}")
    tokens_per_step, seed, corpora = _plan_settings(recipe, corpus)
    return BatchPlan(corpus.source.lengths, corpus.target.lengths, tokens_per_step, seed, corpora)


def _plan_settings(
    recipe: Recipe, corpus: PreparedCorpus, stage: int = 0
) -> tuple[int, int, list[tuple[int, float]]]:
    """Return all that decides which batches the text gives in a stage."""
    return (
        recipe.training.tokens_per_step,
        recipe.training.seed,
        sizes_and_weights(recipe, corpus, stage),
    )


def move_to_plan(progress: Progress, old: BatchPlan, new: BatchPlan) -> None:
    """Replace the batch index of the ``old`` plan by the corresponding one of the ``new`` plan.

    The new index is in the same epoch, after the same share of its batches. Skipped batches keep
    their distance from it, because only this distance decides whether training has diverged.
    """
    epoch, used = old.locate(progress.batch_index)
    before, after = old.batches_of(epoch), new.batches_of(epoch)
    place = _same_share(used, len(before), len(after))
    moved_by = after.start + place - progress.batch_index
    progress.batch_index += moved_by
    progress.skipped = [index + moved_by for index in progress.skipped]
    goes_on = (
        f"{used:,} of the {len(before):,} batches of epoch {epoch + 1:,} were used, and training "
        f"goes on after {place:,} of its {len(after):,} new ones"
        if used
        else f"training goes on at the beginning of epoch {epoch + 1:,}"
    )
    logs.info(f"The changed recipe plans other batches: {goes_on}.")


def _same_share(used: int, num_before: int, num_after: int) -> int:
    """Return about ``num_after * used / num_before``, less than ``num_after``.

    The result is 0 only if ``used`` is 0 or the epoch has one batch, because training validates and
    saves at the beginning of an epoch.
    """
    if used == 0 or num_after == 1:
        return 0
    return min(max(1, round(used * num_after / num_before)), num_after - 1)
