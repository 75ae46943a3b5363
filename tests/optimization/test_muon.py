"""Steps of Muon, against singular value decompositions and torch's own Muon."""

import math

import pytest
import torch

from nmt_cli.model.transformer import Transformer
from nmt_cli.optimization import Muon, new_optimizer, orthogonalized
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.recipe.sections.training import TrainingConfig

CONFIG = ModelConfig(num_layers=2, d_model=20, d_ff=36, num_heads=5)
NARROW_KEYS = ModelConfig(num_layers=2, d_model=20, d_ff=36, num_heads=5, d_k=3, d_v=6)
RATE, DECAY = 0.02, 0.1


def polynomial(s):
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return s


def by_svd(matrix):
    """Return what Newton-Schulz iterations do to ``matrix``, from its singular values."""
    u, s, vh = torch.linalg.svd(matrix.double(), full_matrices=False)
    return u @ torch.diag(polynomial(s / s.square().sum().sqrt())) @ vh


def new_model(config=CONFIG):
    torch.manual_seed(3)
    return Transformer(config, 31)


def take_steps(model, optimizer, numbers):
    """Take a step by random gradients for each number; those of a negative one are not finite."""
    for group in optimizer.param_groups:
        group["lr"] = RATE
    for number in numbers:
        torch.manual_seed(abs(number))
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
            if number < 0:
                parameter.grad[0] = math.nan
        optimizer.found_inf = torch.tensor(float(number < 0))
        optimizer.step()


def matrices_of(model):
    return {name: p for name, p in model.named_parameters() if "_layers." in name and p.ndim == 2}


def split(name, tensor, config=CONFIG):
    """Return the matrices in a parameter: those of queries, keys and values, each of all heads."""
    d_k, d_v = (config.num_heads * (each or 4) for each in (config.d_k, config.d_v))
    for fused, rows in (("queries_keys_values", (d_k, d_k, d_v)), (".keys_values", (d_k, d_v))):
        if fused in name:
            return tensor.split(rows)
    return (tensor,)


@pytest.mark.parametrize("shape", [(7, 12), (12, 7), (6, 6)])
def test_iterations_change_nothing_but_singular_values(shape):
    torch.manual_seed(1)
    matrices = torch.randn(3, *shape)
    found = orthogonalized(matrices, Muon.COEFFICIENTS, Muon.ITERATIONS)
    for each, matrix in zip(found, matrices, strict=True):
        assert torch.allclose(each.double(), by_svd(matrix), atol=1e-4)
        assert all(0.5 < s < 1.5 for s in torch.linalg.svdvals(each))


@pytest.mark.parametrize("config", [CONFIG, NARROW_KEYS], ids=["equal", "narrow keys"])
def test_a_step_moves_matrices_by_their_orthogonalized_momentum(config):
    model = new_model(config)
    before = {name: matrix.detach().double() for name, matrix in matrices_of(model).items()}
    before = {name: matrix.clone() for name, matrix in before.items()}
    optimizer = new_optimizer(model, TrainingConfig(optimizer="muon", weight_decay=DECAY))
    take_steps(model, optimizer, [1])
    first = {name: m.grad.double().clone() for name, m in matrices_of(model).items()}
    take_steps(model, optimizer, [2])
    assert len(before) == 2 * (4 + 7)
    for name, matrix in matrices_of(model).items():
        expected, buffer = before[name], torch.zeros_like(first[name])
        for gradient in (first[name], matrix.grad.double()):
            buffer = 0.95 * buffer + 0.05 * gradient
            updates = [
                0.2 * math.sqrt(max(part.shape)) * by_svd(part)
                for part in split(name, 0.95 * buffer + 0.05 * gradient, config)
            ]
            expected = expected * (1 - RATE * DECAY) - RATE * torch.cat(updates)
        assert torch.allclose(matrix.double(), expected, atol=1e-5), name


def test_everything_else_moves_by_adamw():
    model, expected = new_model(), new_model()
    take_steps(model, new_optimizer(model, TrainingConfig(optimizer="muon", weight_decay=0.3)), [1])
    adamw = new_optimizer(expected, TrainingConfig(optimizer="adamw", weight_decay=0.3))
    take_steps(expected, adamw, [1])
    matrices = matrices_of(model)
    others = dict(expected.named_parameters()).keys() - matrices.keys()
    assert "output_weight" in others
    assert "encoder_layers.0.self_attention_residual.norm.bias" in others
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, expected.get_parameter(name)) == (name in others)


def test_torchs_muon_takes_about_the_same_steps_where_projections_are_separate():
    """It computes in bf16, also on a CPU."""
    model = new_model()
    ours = new_optimizer(model, TrainingConfig(optimizer="muon", weight_decay=DECAY))
    before = {
        name: [part.clone() for part in split(name, matrix.detach())]
        for name, matrix in matrices_of(model).items()
    }
    assert sum(map(len, before.values())) == 2 * (6 + 10)
    separate = {n: [torch.nn.Parameter(part.clone()) for part in p] for n, p in before.items()}
    theirs = torch.optim.Muon(
        [part for parts in separate.values() for part in parts],
        lr=RATE,
        weight_decay=DECAY,
        adjust_lr_fn="match_rms_adamw",
    )
    for number in (1, 2, 3):
        take_steps(model, ours, [number])
        for name, matrix in matrices_of(model).items():
            for part, gradient in zip(separate[name], split(name, matrix.grad), strict=True):
                part.grad = gradient.clone()
        theirs.step()
    for name, matrix in matrices_of(model).items():
        for found, was, expected in zip(
            split(name, matrix), before[name], separate[name], strict=True
        ):
            moved = expected - was
            assert (found - was - moved).norm() < 0.02 * moved.norm(), name


def test_a_step_that_is_not_finite_changes_nothing():
    model, expected = new_model(), new_model()
    training = TrainingConfig(optimizer="muon", weight_decay=DECAY)
    skipping, finite = (new_optimizer(each, training) for each in (model, expected))
    take_steps(model, skipping, [-9, 1, -2, 3])
    take_steps(expected, finite, [1, 3])
    assert skipping.has_completed(2)
    for found, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(found, wanted)
        for name in skipping.moments_of(found):
            assert torch.equal(skipping.state[found][name], finite.state[wanted][name])


def test_a_step_without_memory_for_its_updates_changes_nothing(monkeypatch):
    model = new_model()
    optimizer = new_optimizer(model, TrainingConfig(optimizer="muon"))
    take_steps(model, optimizer, [1])
    before = [parameter.detach().clone() for parameter in model.parameters()]
    monkeypatch.setattr(torch, "baddbmm", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        take_steps(model, optimizer, [2])
    assert optimizer.has_completed(1)
    assert all(map(torch.equal, model.parameters(), before))
