"""Attention by our kernels against torch's formula in fp64, a sentence at a time."""

import itertools

import pytest
import torch

from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.attention_window import EVERYTHING, THE_PAST, Window, distances
from nmt_cli.model.dropout import KernelDropout
from nmt_cli.model.packing import Packed
from tests.kernels_in_triton import DEVICE, MARKS
from tests.units_in_the_last_place import errors

from nmt_cli.model.triton_kernels.attention import Heads, attend  # isort: skip

pytestmark = MARKS
NO_DROPOUT = KernelDropout(0.0, None, 0)
UNITS = {torch.bfloat16: 2.0, torch.float32: 1e-5 * 2**23}
TYPES = [torch.float32, torch.bfloat16]


def packed(lengths):
    """Sentences of any length, also 0."""
    bounds = list(itertools.accumulate(lengths, initial=0))
    rows = torch.zeros(bounds[-1], dtype=torch.int64, device=DEVICE)
    return Packed(rows, rows, tuple(lengths), torch.tensor(bounds, dtype=torch.int32).to(DEVICE))


def layout_of(lengths, key_lengths=None):
    queries = packed(lengths)
    keys = queries if key_lengths is None else packed(key_lengths)
    return AttentionLayout(queries, keys)


def inputs(layout, heads, dtype):
    """The projections: one tensor if queries and keys are of the same rows, else two."""
    keys, values = heads.number * heads.d_k, heads.number * heads.d_v
    is_self = layout.key_sentences is layout.query_sentences
    widths = [(2 * keys + values)] if is_self else [keys, keys + values]
    sides = layout.query_sentences, layout.key_sentences
    return [
        torch.randn(len(side.tokens), width).to(DEVICE, dtype).requires_grad_()
        for side, width in zip(sides, widths, strict=False)
    ]


def by_formula(layout, window, heads, tensors, kept=None):
    """softmax(QK^T / sqrt(K)) V of each sentence; weights that are not ``kept`` are dropped."""
    wide = torch.cat([each.double() for each in tensors], 1) if len(tensors) == 1 else None
    keys, values = heads.number * heads.d_k, heads.number * heads.d_v
    if wide is not None:
        q, k, v = wide.split((keys, keys, values), 1)
    else:
        q, (k, v) = tensors[0].double(), tensors[1].double().split((keys, values), 1)
    bounds = layout.query_sentences.bounds.tolist(), layout.key_sentences.bounds.tolist()
    outputs = []
    for number in range(len(bounds[0]) - 1):
        rows, others = (slice(*each[number : number + 2]) for each in bounds)
        query, key, value = (
            each.unflatten(1, (heads.number, -1)).transpose(0, 1)
            for each in (q[rows], k[others], v[others])
        )
        scores = query @ key.mT / heads.d_k**0.5
        hidden = ~window.reaches(distances(query.shape[1], key.shape[1], scores.device))
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        if kept is not None:
            weights = weights * kept[:, rows, others] / (1 - heads.drawn.rate)
        outputs.append((weights @ value).transpose(0, 1).flatten(1))
    return torch.cat(outputs)


def check(layout, window, heads, dtype, kept=None):
    torch.manual_seed(1)
    tensors = inputs(layout, heads, dtype)
    found = attend(layout, window, heads, *tensors)
    direction = torch.randn(found.shape).to(found)
    exact = by_formula(layout, window, heads, tensors, kept)
    gradients = torch.autograd.grad(found, tensors, direction)
    wide = [each.detach().double().requires_grad_() for each in tensors]
    exact_again = by_formula(layout, window, heads, wide, kept)
    expected = torch.autograd.grad(exact_again, wide, direction.double())
    for ours, theirs in zip([found, *gradients], [exact, *expected], strict=True):
        assert errors(ours, theirs) <= UNITS[dtype]


WIDTHS = [(2, 16, 16), (1, 20, 64), (2, 64, 64), (1, 128, 128), (1, 512, 512)]
SHORT, OTHER = [5, 1, 33, 0], [9, 0, 40, 3]  # a sentence without keys, one without queries


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("number", "d_k", "d_v"), WIDTHS)
def test_heads_of_all_widths(number, d_k, d_v, dtype):
    layout = layout_of([5, 1, 33])
    check(layout, THE_PAST, Heads(number, d_k, d_v, NO_DROPOUT), dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("lengths", "key_lengths", "window"),
    [
        (SHORT, None, EVERYTHING),
        (SHORT, OTHER, EVERYTHING),
        (SHORT, None, Window(2, 2)),
        ([150, 70], None, Window(2, 0)),
        ([150, 40], None, Window(70, 70)),
        ([150, 3], [20, 200], EVERYTHING),
        ([512], None, THE_PAST),
    ],
)
def test_sentences_of_any_length_reach_what_they_should(lengths, key_lengths, window, dtype):
    heads = Heads(2 if sum(lengths) < 50 else 1, 32, 32, NO_DROPOUT)
    check(layout_of(lengths, key_lengths), window, heads, dtype)


def drawn(number=1, seed=5, rate=0.3):
    return KernelDropout(rate, torch.tensor([seed << 33], device=DEVICE), number)


def kept_weights(layout, heads):
    """Which weights dropout keeps [H, T, S]: all are equal and the values are one-hot."""
    tensors = inputs(layout, heads, torch.float32)
    with torch.no_grad():
        for each in tensors:
            each.zero_()
        values = tensors[-1][:, -heads.number * heads.d_v :].unflatten(1, (heads.number, -1))
        values.copy_(torch.eye(len(values), heads.d_v, device=DEVICE)[:, None, :])
        found = attend(layout, EVERYTHING, heads, *tensors).unflatten(1, (heads.number, -1))
    return (found > 0).transpose(0, 1)[..., : len(values)]


@pytest.mark.parametrize("lengths", [[20, 12], [100, 28]])
def test_dropped_weights_have_no_gradient(lengths):
    layout = layout_of(lengths)
    heads = Heads(2, 16, 128, drawn())
    check(layout, EVERYTHING, heads, torch.float32, kept_weights(layout, heads))


def test_draws_differ_between_heads_seeds_and_places_and_have_their_share():
    layout = layout_of([64])
    draws = [
        kept_weights(layout, Heads(2, 16, 64, each))
        for each in (drawn(), drawn(number=2), drawn(seed=6))
    ]
    assert torch.equal(draws[0], kept_weights(layout, Heads(2, 16, 64, drawn())))
    for each in draws:
        assert each.double().mean().item() == pytest.approx(0.7, abs=0.02)
    masks = [each[head].flatten().double() for each in draws for head in (0, 1)]
    shares = torch.corrcoef(torch.stack(masks)) - torch.eye(6).to(masks[0])
    assert shares.abs().max() < 0.08  # five deviations


@pytest.mark.parametrize("lengths", [[30, 7], [150]])
def test_gradients_are_the_same_bits_each_time(lengths):
    layout = layout_of(lengths)
    heads = Heads(1, 16, 16, drawn())
    tensors = inputs(layout, heads, torch.bfloat16)
    first, again = (
        torch.autograd.grad(attend(layout, THE_PAST, heads, *tensors).float().sum(), tensors)
        for _ in range(2)
    )
    assert torch.equal(first[0], again[0])
