"""A head of the decoder learns the links of words: its loss, its gradient, and what comes of it."""

import json
import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.commands import preprocess
from nmt_cli.corpus.augmenter import changes_of
from nmt_cli.corpus.binarized import Sentences
from nmt_cli.corpus.loader import Batch, SentencePairs, load_batches
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.corpus.tokenizers.piece_words import WordFinder, words_of_pieces
from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.recipe.model_settings import AlignmentHead, text_settings
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.guided_alignment import guidance_of, linked_pieces
from nmt_cli.training.starting import plan_batches
from tests.architectures import OPTION_SETS, random_model
from tests.conftest import RECIPE, ToyExperiment, write_pairs
from tests.forked_ranks import run_ranks
from tests.trainers import CPU, changed, new_trainer, weights_of

MAX_TOKENS = 70  # of a micro-batch
GUIDED = "training.guided_alignment={weight: 0.5, head: 2}"


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """The toy experiment in pieces, whose first corpus links each word with its copy."""
    folder = tmp_path_factory.mktemp("guided")
    for name, size in (("train", 60), ("other", 20), ("validation", 5)):
        write_pairs(folder, name, size, seed=size)
    with (folder / "train.links").open("w") as links:
        for line in (folder / "train.en").read_text().splitlines():
            last = len(line.split()) - 1
            linked = [n for n in range(last + 1) if n % 4 != 3]  # some words have no links
            print(*(f"{n}-{last - n}" for n in linked), file=links)
    text = RECIPE.format(folder=folder).replace("type: whitespace", "vocabulary_size: 300")
    first = f"target: {folder}/train.de"
    other = f"{{source: {folder}/other.en, target: {folder}/other.de}}"
    text = text.replace(f"{first}}}]", f"{first}, alignments: {folder}/train.links}}, {other}]")
    path = folder / "toy.yaml"
    path.write_text(text)
    logs.configure(quiet=True)
    preprocess.run(recipe=str(path), output=folder / "prepared", workers=1)
    recipe = read_recipe(str(path), [GUIDED, "validation.bleu=off"]).recipe
    corpus = open_prepared(folder / "prepared", recipe, "nmt-cli preprocess toy")
    return ToyExperiment(path, recipe, folder / "prepared", corpus)


def texts_of(guided):
    return [guided.corpus.source, guided.corpus.target, guided.corpus.links]


def sampled_batch(guided):
    """Return a batch whose pieces are drawn, and most of whose words have several."""
    recipe = changed(guided.recipe, tokenizer={"sampling": 0.5})
    plan = plan_batches(recipe, guided.corpus)
    change = changes_of(recipe, guided.corpus, {})
    return next(load_batches(plan, texts_of(guided), [3], change))


def engine_of(guided, options, machine=CPU):
    """Return an engine with a random model in double, guided as the recipe has it."""
    model = random_model(options, guided.corpus.tokenizer.size).double()
    start = start_id(model.config, guided.corpus.tokenizer)
    guidance = guidance_of(guided.recipe, guided.corpus)
    return GradientEngine.of(model, start, 0.1, 1, machine, guidance)


def split(sentences):
    return np.split(sentences.tokens, np.cumsum(sentences.lengths)[:-1])


def linked_in_loops(guided, source, target, links):
    """Return the source places that each target place is linked with; without ``</s>``."""
    text = text_settings(guided.recipe.tokenizer, guided.recipe.data)
    pieces = guided.corpus.tokenizer.pieces
    of_source = words_of_pieces(pieces(source[:-1].tolist()), text)
    of_target = words_of_pieces(pieces(target[:-1].tolist()), text)
    wanted = {tuple(link) for link in links.reshape(-1, 2).tolist()}
    return [
        [s for s, words in enumerate(of_source) if wanted & set(product(words, mine))]
        for mine in of_target
    ]


def test_links_of_words_become_those_of_all_their_pieces(guided):
    (pairs,) = sampled_batch(guided).micro_batches
    guidance: Any = guidance_of(guided.recipe, guided.corpus)
    finders = guidance.finders
    found = set(zip(*(side.tolist() for side in linked_pieces(pairs, finders)), strict=True))
    expected = set[tuple[int, int]]()
    first_source = first_target = most = 0
    for source, target, links in zip(*map(split, pairs), strict=True):
        for place, linked in enumerate(linked_in_loops(guided, source, target, links)):
            expected |= {(first_source + s, first_target + place) for s in linked}
            most = max(most, len(linked))
        first_source, first_target = first_source + len(source), first_target + len(target)
    assert found == expected
    assert most > 2
    assert len(expected) > 100


def test_a_piece_of_several_words_has_each_link_once(guided):
    tokenizer: Any = SimpleNamespace(
        size=4, source_size=None, eos_id=0, pieces=lambda ids, side: ["</s>", "▁in▁the", "re", "▁a"]
    )
    text = text_settings(guided.recipe.tokenizer, guided.recipe.data)
    source, target = (WordFinder(tokenizer, text, side) for side in SIDES)
    sentences = Sentences(np.array([3, 0, 1, 2, 3, 0]), np.array([2, 4]))  # a, in there a
    links = Sentences(np.array([0, 0, 0, 0, 1, 1, 1, 0]), np.array([2, 6]))
    found = linked_pieces(SentencePairs(sentences, sentences, links), (source, target))
    assert sorted(zip(*(side.tolist() for side in found), strict=True)) == [
        (0, 0),
        *product([2, 3], [2, 3]),
    ]


def alignment_in_loops(guided, engine, pairs):
    """Return the loss of the guided head by the weights that the pictures of attention show."""
    head, total = engine.guidance.head, 0.0
    tokenizer = guided.corpus.tokenizer
    for source, target, links in zip(*map(split, pairs), strict=True):
        pair = SentencePair(source[:-1].tolist(), target[:-1].tolist())
        (forced,) = TorchForcing(engine.model, tokenizer).attention([pair], [head.layer])
        weights = forced.memory[0, head.head].tolist()
        for place, linked in enumerate(linked_in_loops(guided, source, target, links)):
            total -= sum(math.log(weights[place][s]) / len(linked) for s in linked)
    return total


@pytest.mark.parametrize("options", OPTION_SETS)
def test_the_loss_is_the_cross_entropy_of_the_weights_of_the_head(guided, options):
    (pairs,) = sampled_batch(guided).micro_batches
    if "source_vocabulary_size" in options:
        options = {**options, "source_vocabulary_size": 300}
    engine = engine_of(guided, options)
    last = (options.get("decoder_num_layers") or 2) - 1
    assert engine.guidance.head == AlignmentHead(0, 1)
    head = AlignmentHead(last, 1)
    engine = engine._replace(guidance=engine.guidance._replace(head=head))
    expected = alignment_in_loops(guided, engine, pairs)
    engine.model.train()
    found = engine.loss_sums(pairs)
    assert found.alignment.item() == pytest.approx(expected, rel=1e-6)
    alone = engine._replace(guidance=None).loss_sums(pairs)
    assert alone.alignment is None
    assert found.loss.item() == alone.loss.item()
    assert found.nll.item() == alone.nll.item()


def test_spare_rows_change_nothing(guided):
    (pairs,) = sampled_batch(guided).micro_batches
    expected = engine_of(guided, {}).loss_sums(pairs).alignment.item()
    spare = engine_of(guided, {}, CPU._replace(fp32_products="onednn"))
    assert spare.loss_sums(pairs).alignment.item() == pytest.approx(expected, rel=1e-9)
    rounded = engine_of(guided, {}, CPU._replace(precision="bf16"))
    rounded.model.float()
    assert rounded.loss_sums(pairs).alignment.item() == pytest.approx(expected, rel=0.05)


def test_the_gradient_is_that_of_finite_differences(guided):
    (pairs, *_) = sampled_batch(guided).into_micro_batches(MAX_TOKENS).micro_batches
    # Without ReLU, whose kinks differences would meet.
    engine = engine_of(guided, {"norm": "pre", "activation": "gelu"})
    batch = Batch(0, (pairs,))
    report = engine.compute(batch).read()
    gradient = {n: p.grad.clone() for n, p in engine.model.named_parameters()}

    @torch.no_grad()
    def lowered():
        sums = engine.loss_sums(pairs)
        return (sums.loss + 0.5 * sums.alignment).item() / batch.num_target_tokens

    generator = torch.Generator().manual_seed(5)
    parameters = list(engine.model.named_parameters())
    of_attention = [each for each in parameters if "memory_attention" in each[0]]
    for name, parameter in {**dict(of_attention), **dict(parameters[::4])}.items():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        values = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                parameter += step * direction
            values.append(lowered())
        with torch.no_grad():
            parameter += 1e-6 * direction
        expected = (values[0] - values[1]) / 2e-6
        found = (gradient[name] * direction).sum().item()
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-7), name
    alignment = engine.loss_sums(pairs).alignment.item()
    assert report.alignment == pytest.approx(alignment / batch.num_target_tokens, rel=1e-9)


def test_a_batch_in_parts_has_the_gradient_of_the_whole(guided):
    (pairs,) = sampled_batch(guided).micro_batches
    engine = engine_of(guided, {})
    whole = engine.compute(Batch(0, (pairs,))).read()
    expected = torch.cat([p.grad.flatten() for p in engine.model.parameters()])
    parts = Batch(0, (pairs,)).into_micro_batches(MAX_TOKENS, multiple_of=3)
    assert len(parts.micro_batches) == 3
    cut = engine.compute(parts).read()
    found = torch.cat([p.grad.flatten() for p in engine.model.parameters()])
    assert (found - expected).norm() < 1e-10 * expected.norm()
    assert cut.alignment == pytest.approx(whole.alignment, rel=1e-12)


def test_pairs_without_links_add_nothing(guided):
    (pairs,) = sampled_batch(guided).micro_batches
    none = Sentences(np.zeros(0, np.int64), np.zeros_like(pairs.links.lengths))
    engine = engine_of(guided, {})
    report = engine.compute(Batch(0, (pairs._replace(links=none),))).read()
    found = torch.cat([p.grad.flatten() for p in engine.model.parameters()])
    plain = engine._replace(guidance=None).compute(Batch(0, (pairs._replace(links=None),))).read()
    expected = torch.cat([p.grad.flatten() for p in engine.model.parameters()])
    assert torch.equal(found, expected)
    assert report == plain._replace(alignment=0.0)


def test_the_weight_falls_by_as_much_in_each_step(guided):
    engine = engine_of(guided, {})
    guidance = engine.guidance._replace(weight=0.6, decay_steps=3)
    engine = engine._replace(guidance=guidance)
    weights = [engine.after(step).guidance for step in range(5)]
    assert [w.weight for w in weights[:3]] == pytest.approx([0.6, 0.4, 0.2])
    assert weights[3:] == [None, None]
    assert engine._replace(guidance=guidance._replace(decay_steps=None)).after(99) == (
        engine._replace(guidance=guidance._replace(decay_steps=None))
    )


def train(guided, run_dir, steps, *, ranks=ALONE, resume=False, multiple_of=1, **sections):
    recipe = changed(
        guided.recipe,
        **{
            "training": {"max_steps": steps},
            "validation": {"every_steps": 100},
            "checkpoints": {"every_steps": 100},
            "tokenizer": {"sampling": 0.2},
            **sections,
        },
    )
    cut = BatchCut(MAX_TOKENS, multiple_of)
    trainer = new_trainer(guided, run_dir, recipe, cut, ranks, resume=resume)
    trainer.train(StopRequest())
    return weights_of(trainer)


def records(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [record for record in lines if "loss" in record]


def test_a_resumed_run_is_bit_equal_while_the_weight_falls(guided, tmp_path):
    config = guided.recipe.training.guided_alignment.model_copy(update={"decay_steps": 8})
    recipe = changed(guided.recipe, training={"guided_alignment": config})
    falling = guided._replace(recipe=recipe)
    expected = train(falling, tmp_path / "whole", 10)
    for steps in (5, 10):
        found = train(falling, tmp_path / "parts", steps, resume=steps > 5)
    assert torch.equal(found, expected)
    logged = [record.get("alignment_loss") for record in records(tmp_path / "whole")]
    assert all(loss > 0 for loss in logged[:8])
    assert logged[8:] == [None, None]
    parts = [record.get("alignment_loss") for record in records(tmp_path / "parts")]
    assert parts == logged
    unguided = guided._replace(recipe=changed(recipe, training={"guided_alignment": None}))
    assert not torch.equal(train(unguided, tmp_path / "unguided", 10), expected)
    assert not any("alignment_loss" in record for record in records(tmp_path / "unguided"))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_several_ranks_train_the_weights_of_one(guided, tmp_path, num_ranks):
    alone = train(guided, tmp_path / "alone", 6, multiple_of=6)
    shared = run_ranks(
        num_ranks,
        tmp_path,
        lambda ranks: train(guided, tmp_path / "shared", 6, ranks=ranks, multiple_of=6),
    )
    assert torch.equal(shared[0], shared[-1])
    assert (shared[0] - alone).abs().max() < 1e-5
    for one, other in zip(records(tmp_path / "alone"), records(tmp_path / "shared"), strict=True):
        assert other["alignment_loss"] == pytest.approx(one["alignment_loss"], abs=1e-5)
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-5)
