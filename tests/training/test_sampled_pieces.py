"""Training on pieces and text that are drawn anew: tokenizer.sampling, data.train.augment."""

import json
import multiprocessing
from functools import partial
from itertools import count, islice

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import preprocess
from nmt_cli.corpus.augmenter import changes_of
from nmt_cli.corpus.change_pool import ChangePool
from nmt_cli.corpus.loader import PlannedBatch, load_batches
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.hardware import cpu
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.training import trainer as trainer_module
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.starting import plan_batches
from nmt_cli.training.validation import Validator
from tests.conftest import RECIPE, ToyExperiment, write_pairs
from tests.forked_ranks import run_ranks
from tests.srun_variables import srun_of
from tests.trainers import CPU, changed, new_trainer, weights_of

MAX_TOKENS = 70  # of a micro-batch


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """The toy experiment with SentencePiece, prepared without sampling and trained with it."""
    folder = tmp_path_factory.mktemp("sampled")
    write_pairs(folder, "train", 60, seed=1)
    write_pairs(folder, "validation", 5, seed=2)
    path = folder / "toy.yaml"
    path.write_text(
        RECIPE.format(folder=folder).replace("type: whitespace", "vocabulary_size: 300")
    )
    logs.configure(quiet=True)
    preprocess.run(recipe=str(path), output=folder / "prepared", workers=1)
    recipe = read_recipe(str(path), ["tokenizer.sampling=0.2", "validation.bleu=off"]).recipe
    corpus = open_prepared(folder / "prepared", recipe, "nmt-cli preprocess toy")
    return ToyExperiment(path, recipe, folder / "prepared", corpus)


@pytest.fixture(scope="module")
def augmented(sampled, tmp_path_factory):
    """All that changes what is trained on: augmentation, alignments, sampling, mixing, stages.

    A smaller corpus beside that of ``sampled`` has a temperature, and in the second stage a share.
    """
    folder, of_sampled = tmp_path_factory.mktemp("augmented"), sampled.recipe_path.parent
    write_pairs(folder, "more", 20, seed=3)
    lines = (of_sampled / "train.en").read_text().splitlines()
    links = [
        " ".join(f"{i}-{n - 1 - i}" for i in range(n)) for n in map(len, map(str.split, lines))
    ]
    (folder / "links").write_text("\n".join(links) + "\n")
    augment = (
        "{upper_case: 0.2, typos: 0.3, noise: 0.1, merge: 0.3, remove_end_punctuation: 0.1, "
        "terms: 0.2}"
    )
    keys = [
        *("tokenizer.user_defined_symbols=[<t>, </t>]", "tokenizer.sampling=0.1"),
        f"data.train=[{{name: a, source: {of_sampled}/train.en, target: {of_sampled}/train.de, "
        f"alignments: {folder}/links, augment: {augment}}}, "
        f"{{name: b, source: {folder}/more.en, target: {folder}/more.de, tag: <b>}}]",
        *("data.mixing={temperature: 5}", "training.guided_alignment={weight: 0.1}"),
        "data.stages=[{until: {epochs: 1}}, {shares: {a: 30, b: 70}}]",
        *("validation.bleu=off", "training.tokens_per_step=300"),
    ]
    path, prepared = str(sampled.recipe_path), folder / "prepared"
    preprocess.run(recipe=path, overrides=keys, output=prepared, workers=1)
    recipe = read_recipe(path, keys).recipe
    corpus = open_prepared(prepared, recipe, "nmt-cli preprocess toy")
    return ToyExperiment(sampled.recipe_path, recipe, prepared, corpus)


@pytest.fixture(scope="module")
def plan(sampled):
    return plan_batches(sampled.recipe, sampled.corpus)


def batches_of(sampled, plan, first, number, *, recipe=None, **cut):
    corpus = sampled.corpus
    change = changes_of(recipe or sampled.recipe, corpus, {})
    batches = load_batches(plan, [corpus.source, corpus.target], count(first), change)
    return [batch.into_micro_batches(MAX_TOKENS, **cut) for batch in islice(batches, number)]


def sentences_of(batches, side):
    """Return the sentences of one side, without their ``</s>``."""
    found = []
    for pairs in (pairs for batch in batches for pairs in batch.micro_batches):
        numbers, lengths = getattr(pairs, side)
        if len(lengths):
            found += [part[:-1].tolist() for part in np.split(numbers, np.cumsum(lengths)[:-1])]
    return found


def test_an_epoch_has_the_same_text_in_other_pieces_within_the_limits(sampled, plan):
    tokenizer, size = sampled.corpus.tokenizer, len(plan.batches_of(0))
    assert len(plan.batches_of(1)) == size
    plain_recipe = changed(sampled.recipe, tokenizer={"sampling": None})
    plain = batches_of(sampled, plan, 0, size, recipe=plain_recipe)
    epochs = [batches_of(sampled, plan, size * epoch, size) for epoch in (0, 1)]
    for side in ("source", "target"):
        texts = [
            [tokenizer.decode(ids) for ids in sentences_of(batches, side)]
            for batches in (plain, *epochs)
        ]
        assert texts[0] == texts[1]
        assert sorted(texts[0]) == sorted(texts[2])
        cuts = [
            {tokenizer.decode(ids): ids for ids in sentences_of(batches, side)}
            for batches in (plain, *epochs)
        ]
        for one, other in ((0, 1), (1, 2)):
            assert sum(cuts[one][text] != cuts[other][text] for text in cuts[0]) > 20
    micro_batches = [pairs for batches in epochs for b in batches for pairs in b.micro_batches]
    sizes = [len(side.tokens) for pairs in micro_batches for side in pairs.sides]
    assert 0.8 * MAX_TOKENS < max(sizes) <= MAX_TOKENS
    longest = max(int(each.source.lengths.max(initial=0)) for each in micro_batches)
    assert longest <= max(sampled.corpus.source.lengths.max(), sampled.corpus.target.lengths.max())


def test_a_batch_is_the_same_wherever_reading_begins_and_however_it_is_cut(sampled, plan):
    stream = batches_of(sampled, plan, 0, 9)
    later = batches_of(sampled, plan, 5, 4)
    cut = batches_of(sampled, plan, 5, 4, multiple_of=4)
    for side in ("source", "target"):
        assert sentences_of(stream[5:], side) == sentences_of(later, side)
        assert sentences_of(cut, side) == sentences_of(later, side)


def train(sampled, run_dir, steps, *, ranks=ALONE, resume=False, **model):
    recipe = changed(
        sampled.recipe,
        training={"max_steps": steps},
        model=model,
        validation={"every_steps": 100},
        checkpoints={"every_steps": 100},
    )
    cut = BatchCut(MAX_TOKENS, ranks.size)
    trainer = new_trainer(sampled, run_dir, recipe, cut, ranks, resume=resume)
    trainer.train(StopRequest())
    return weights_of(trainer)


def records(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    names = ("step", "stage", "loss", "alignment_loss", "source_tokens", "target_tokens")
    steps = (record for record in lines if "loss" in record)
    return [{name: step[name] for name in names if name in step} for step in steps]


def test_a_run_resumed_within_an_epoch_and_at_its_border_is_bit_equal(sampled, plan, tmp_path):
    border = len(plan.batches_of(0))
    assert 4 < border < 20
    expected = train(sampled, tmp_path / "whole", border + 3)
    for steps in (border - 3, border, border + 3):
        found = train(sampled, tmp_path / "parts", steps, resume=steps > border - 3)
    assert torch.equal(found, expected)
    assert records(tmp_path / "parts") == records(tmp_path / "whole")
    epoch = records(tmp_path / "whole")[:border]
    for side in ("source", "target"):
        plain = getattr(sampled.corpus, side).num_tokens
        assert 1.1 * plain < sum(record[f"{side}_tokens"] for record in epoch) < 2 * plain


@pytest.mark.parametrize("num_ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_train_on_the_pieces_of_one(sampled, tmp_path, num_ranks):
    train(sampled, tmp_path / "alone", 8, dropout=0.0)
    run_ranks(
        num_ranks,
        tmp_path,
        lambda ranks: train(sampled, tmp_path / "shared", 8, ranks=ranks, dropout=0.0),
    )
    alone, shared = records(tmp_path / "alone"), records(tmp_path / "shared")
    for one, other in zip(alone, shared, strict=True):
        assert other.pop("loss") == pytest.approx(one.pop("loss"), abs=1e-5)
        assert other == one


def test_changed_text_is_the_same_after_interruptions_and_on_more_ranks(augmented, tmp_path):
    border = len(plan_batches(augmented.recipe, augmented.corpus).batches_of(0))
    assert 3 < border < 9  # then the second stage begins
    ends = border - 2, border, border + 2
    work = partial(train, augmented, dropout=0.0)
    expected = work(tmp_path / "whole", ends[-1])
    for steps in ends:
        found = work(tmp_path / "parts", steps, resume=steps > ends[0])
    assert torch.equal(found, expected)
    alone = records(tmp_path / "whole")
    assert records(tmp_path / "parts") == alone
    assert len({each["source_tokens"] for each in alone}) > 3
    assert [each["stage"] for each in alone] == [1] * border + [2] * 2
    assert any(each["alignment_loss"] > 0 for each in alone[border:])
    for num_ranks in (2, 3):
        run_dir = tmp_path / f"{num_ranks} ranks"
        on_rank = partial(work, run_dir, ends[-1])
        weights, *_ = run_ranks(num_ranks, tmp_path, lambda ranks, on=on_rank: on(ranks=ranks))
        assert torch.allclose(weights, expected, atol=1e-5)
        for one, other in zip(alone, records(run_dir), strict=True):
            assert one["source_tokens"] == other["source_tokens"]
            assert one["target_tokens"] == other["target_tokens"]


def test_ranks_of_different_glossaries_do_not_train_together(augmented, tmp_path):
    """Two nodes may have files of their own at the same path."""
    first, *others = augmented.recipe.data.train
    augment = first.augment.model_copy(update={"glossary": tmp_path / "terms.tsv"})
    corpora = (first.model_copy(update={"augment": augment}), *others)
    recipe = changed(augmented.recipe, data={"train": corpora})

    def start(ranks):
        with pytest.MonkeyPatch.context() as patch:
            own = Glossary.of({"ant": f"bee {ranks.rank}"})
            patch.setattr(Glossary, "read", lambda _: own)
            train(augmented._replace(recipe=recipe), tmp_path / "x", 1, ranks=ranks)

    message = r"rank 0 and rank 1 differ in the terms of the glossaries \(sha256 \w+ and sha256"
    with pytest.raises(UserError, match=message):
        run_ranks(2, tmp_path, start)


def columns_of(batches, number):
    found = []
    for batch in islice(batches, number):
        (pairs,) = batch.micro_batches
        found += [array.tolist() for column in pairs.columns for array in column]
    batches.close()
    return found


def test_processes_change_batches_as_a_thread_does(augmented):
    recipe, corpus = augmented.recipe, augmented.corpus
    texts, change = [corpus.source, corpus.target, corpus.links], changes_of(recipe, corpus, {})
    plan = plan_batches(recipe, corpus)
    first = len(plan.batches_of(0)) - 2  # they go on into the next epoch
    expected = columns_of(load_batches(plan, texts, count(first), change), 6)
    assert expected != columns_of(load_batches(plan, texts, count(first)), 6)
    pool = ChangePool(recipe, corpus, {}, 2, with_links=True)
    assert columns_of(load_batches(plan, texts, count(first), change, pool=pool), 6) == expected
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_process_that_dies_is_one_line(augmented):
    plan = plan_batches(augmented.recipe, augmented.corpus)
    planned = PlannedBatch(0, 0, *plan.listed(0))
    with ChangePool(augmented.recipe, augmented.corpus, {}, 2, with_links=False) as pool:
        assert pool.begin(planned)().links is None
        waiting = pool.begin(planned)
        for process in pool._pool._processes.values():
            process.kill()
        message = r"one of 2 processes that augment or sample batches died, .* --resume\."
        with pytest.raises(UserError, match=message):
            [each() for each in (waiting, pool.begin(planned), pool.begin(planned))]


@pytest.mark.slow
def test_processes_raise_their_errors_here(augmented, tmp_path):
    corpus = augmented.corpus._replace(directory=tmp_path)
    plan = plan_batches(augmented.recipe, corpus)
    pool = ChangePool(augmented.recipe, corpus, {}, 1, with_links=False)
    batches = load_batches(plan, [corpus.source, corpus.target], count(), pool=pool)
    with pytest.raises(DamagedError, match=r"train\.source.* cannot be read: No such file"):
        next(batches)


@pytest.mark.parametrize(
    ("device", "cores", "tasks", "number"),
    [
        *(("cuda", 9, 1, 8), ("cuda", 99, 1, 16), ("cuda", 1, 1, 0), ("cpu", 9, 1, 0)),
        *(("cuda", 64, 8, 7), ("cuda", 8, 8, 0)),
    ],
)
def test_a_gpu_has_processes_if_cores_are_left(
    device, cores, tasks, number, augmented, tmp_path, monkeypatch
):
    if tasks > 1:
        for name, value in srun_of(tasks).items():
            monkeypatch.setenv(name, value)
    trainer = new_trainer(augmented, tmp_path / "run")
    machine = trainer.training.machine._replace(device=torch.device(device))
    monkeypatch.setattr(type(trainer.training), "machine", machine)
    monkeypatch.setattr(trainer_module, "Sender", lambda _: None)
    monkeypatch.setattr(trainer_module, "load_batches", lambda *given: given[-1])
    monkeypatch.setattr(cpu, "usable_cores", lambda: cores)
    pool = trainer._batches_to_come()
    assert (pool.number if pool is not None else 0) == number


def test_validation_never_samples(sampled):
    torch.manual_seed(1)
    model = Transformer(sampled.recipe.model, sampled.corpus.tokenizer.size)
    start = start_id(model.config, sampled.corpus.tokenizer)
    engine = GradientEngine.of(model, start, 0.1, 1, CPU)
    plain = changed(sampled.recipe, tokenizer={"sampling": None})
    measured = [
        Validator(recipe, sampled.corpus, engine).validate(MAX_TOKENS, StopRequest())
        for recipe in (sampled.recipe, plain)
    ]
    assert measured[0] == measured[1] is not None


def test_inspect_names_its_lengths_as_those_of_plain_pieces(sampled):
    call = ["inspect", str(sampled.recipe_path), "--set", f"data.prepared={sampled.prepared}"]
    shown = [
        CliRunner().invoke(cli.main, [*call, *more]).stderr
        for more in (
            [],
            ["--set", "tokenizer.sampling=0.1"],
            ["--set", "data.train.0.augment.typos=0.1"],
        )
    ]
    warning = f"Warning: the lengths are those of the plain pieces in {sampled.prepared}; "
    assert [text.count(warning) for text in shown] == [0, 1, 1]
