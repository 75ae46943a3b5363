"""The layer's own sum, dropout and norm are the witness of the compiled ones."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nmt_cli.model import layers
from nmt_cli.model.layers import Residual, add_dropout_norm, compile_residuals

WIDTH, RATE = 24, 0.3

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own parts


@pytest.fixture
def fresh_compiler():
    """What other tests compiled does not count, nor does what this one compiles count for them."""
    torch.compiler.reset()
    layers._compiled.cache_clear()
    yield
    torch.compiler.reset()
    layers._compiled.cache_clear()


@pytest.fixture(
    params=["aot_eager", pytest.param("inductor", marks=[pytest.mark.slow, pytest.mark.compiler])]
)
def compiler(request, fresh_compiler, monkeypatch):
    """The graph alone, which is quick; and with the kernel made of it, as users have it."""
    if request.param != "inductor":
        graph_alone = functools.partial(torch.compile, backend=request.param)
        monkeypatch.setattr(torch, "compile", graph_alone)


def residuals(device="cpu", *, pre_norm):
    """Two residuals of the same weights, the second compiled."""
    torch.manual_seed(1)
    plain, compiled = (Residual(WIDTH, RATE, 1e-5, pre_norm=pre_norm).to(device) for _ in range(2))
    nn.init.normal_(plain.norm.weight)
    nn.init.normal_(plain.norm.bias)
    compiled.load_state_dict(plain.state_dict())
    compile_residuals(nn.ModuleList([compiled]))
    return plain, compiled


def with_gradients(residual, sublayer, rows):
    """The result of a residual, and the gradients of its rows and of all weights."""
    weights = [*sublayer.parameters(), *residual.norm.parameters()]
    rows = rows.clone().requires_grad_()
    torch.manual_seed(2)  # of the draws of dropout
    result = residual(rows, sublayer)
    seen = torch.linspace(-1, 1, WIDTH, device=rows.device)  # LayerNorm hides a gradient of ones
    return [result, *torch.autograd.grad((result.float().square() * seen).sum(), [rows, *weights])]


@pytest.mark.parametrize("pre_norm", [False, True])
def test_the_compiled_end_is_the_layers_own(pre_norm, compiler):
    plain, compiled = residuals(pre_norm=pre_norm)
    sublayer = nn.Linear(WIDTH, WIDTH)
    for count in (40, 33, 7):
        rows = torch.randn(count, WIDTH)
        expected = with_gradients(plain, sublayer, rows)
        # One kernel serves all numbers of rows.
        with torch.compiler.set_stance("default" if count == 40 else "fail_on_recompile"):
            found = with_gradients(compiled, sublayer, rows)
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_compiled_dropout_may_draw_by_itself(compiler):
    rows, branch = torch.zeros(4_000, WIDTH), torch.ones(4_000, WIDTH, requires_grad=True)
    result = layers._compiled()(rows, branch, None, RATE, None, None, 0.0)
    assert result.max().item() == pytest.approx(1 / (1 - RATE))
    assert (result == 0).float().mean().item() == pytest.approx(RATE, abs=0.01)
    result.sum().backward()
    assert branch.grad is not None
    assert torch.equal(branch.grad, result.detach())  # what was dropped has no gradient


def test_nothing_is_compiled_for_validation(monkeypatch):
    monkeypatch.setattr("nmt_cli.model.layers._compiled", None)
    plain, compiled = residuals(pre_norm=False)
    rows, sublayer = torch.randn(5, WIDTH), nn.Linear(WIDTH, WIDTH)
    assert torch.equal(compiled.eval()(rows, sublayer), plain.eval()(rows, sublayer))


@pytest.mark.parametrize("pre_norm", [False, True])
def test_rows_leave_in_the_type_that_the_next_product_wants(pre_norm):
    torch.manual_seed(4)
    rows, branch = torch.randn(9, WIDTH), torch.randn(9, WIDTH).bfloat16()
    norm = (None, None, 0.0) if pre_norm else (torch.ones(WIDTH), torch.zeros(WIDTH), 1e-5)
    result = add_dropout_norm(rows, branch, None, 0.0, *norm)
    # The sums of pre-norm grow from layer to layer, and so they stay as they are.
    assert result.dtype is (torch.float32 if pre_norm else torch.bfloat16)
    total = rows + branch.float()
    expected = total if pre_norm else F.layer_norm(total, (WIDTH,))
    assert torch.equal(result, expected.to(result.dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("pre_norm", [False, True])
def test_the_kernel_of_a_gpu_stays_close(pre_norm, fresh_compiler):
    plain, compiled = residuals("cuda", pre_norm=pre_norm)
    plain.dropout.rate = compiled.dropout.rate = 0.0  # its draws are not those of the layer
    sublayer = nn.Linear(WIDTH, WIDTH).cuda()
    for count in (40, 33, 7):
        rows = torch.randn(count, WIDTH, device="cuda")
        expected = with_gradients(plain, sublayer, rows)
        with torch.autocast("cuda", torch.bfloat16):
            rounded = with_gradients(compiled, sublayer, rows)
        for ours, theirs in zip(rounded, expected, strict=True):
            assert (ours.float() - theirs).norm() < 0.02 * theirs.norm()
