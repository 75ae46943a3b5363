"""fp32 products on the CPU of this machine against float64, and which library other CPUs get."""

from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nmt_cli.hardware import fp32_products as module
from nmt_cli.hardware.cpu import Cpu
from nmt_cli.hardware.fp32_products import (
    FASTER_BY_ONEDNN,
    MAX_ERROR,
    choose_fp32_products,
    measure_error,
    use_fp32_products,
)
from nmt_cli.hardware.machine import Machine, agree_on_products
from nmt_cli.hardware.torch_private import onednn_computes_fp32
from nmt_cli.messages import logs

CPU = torch.device("cpu")
AVX512 = frozenset({"fpu", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"})
ZEN_4 = Cpu("AuthenticAMD", 25, AVX512)
ZEN_5 = Cpu("AuthenticAMD", 26, AVX512)


MATMUL: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _restore_torch():
    before = MATMUL.fp32_precision
    yield
    MATMUL.fp32_precision = before


@pytest.fixture
def zen(monkeypatch):
    """A machine of the table on which oneDNN passes all checks."""
    monkeypatch.setattr(module, "FASTER_BY_ONEDNN", FASTER_BY_ONEDNN)
    monkeypatch.setattr(module, "read_cpu", lambda: ZEN_5)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(module, "measure_error", lambda chosen: MAX_ERROR / 2)
    assert choose_fp32_products(CPU, "fp32") == "onednn"
    return monkeypatch


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        (ZEN_4, "onednn"),
        (ZEN_5._replace(family=27), "mkl"),
        (Cpu("GenuineIntel", 6, AVX512), "mkl"),
        (Cpu(None, None, AVX512), "mkl"),
        (Cpu("AuthenticAMD", None, AVX512), "mkl"),
        (Cpu("HygonGenuine", 25, AVX512), "mkl"),
    ],
)
def test_only_measured_machines_leave_mkl(zen, cpu, expected):
    zen.setattr(module, "read_cpu", lambda: cpu)
    assert choose_fp32_products(CPU, "fp32") == expected
    assert choose_fp32_products(CPU, "bf16") == "mkl"  # no fp32 products


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (torch.cpu, "_is_amx_tile_supported", True),
        (torch.ops.mkldnn, "_is_mkldnn_bf16_supported", False),
        (torch.backends.mkldnn, "is_available", False),
    ],
)
def test_onednn_is_refused_without_a_warning(zen, capsys, owner, name, value):
    logs.configure(quiet=False)
    zen.setattr(owner, name, lambda: value)
    assert choose_fp32_products(CPU, "fp32") == "mkl"
    assert capsys.readouterr().err == ""


def test_a_user_who_disabled_onednn_keeps_mkl(zen):
    zen.setattr(torch.backends.mkldnn, "enabled", False)
    assert choose_fp32_products(CPU, "fp32") == "mkl"


def test_the_choice_selects_other_kernels():
    if not onednn_computes_fp32():
        pytest.skip("oneDNN does not multiply in fp32 here")
    rows, weight = torch.randn(65, 512), torch.randn(300, 512)
    with use_fp32_products("mkl"):
        by_mkl = F.linear(rows, weight)
    with use_fp32_products("onednn"):
        by_onednn = F.linear(rows, weight)
    assert not torch.equal(by_mkl, by_onednn)  # they sum in different orders


class Gathered:
    """Ranks of which each has made its choice."""

    def __init__(self, *choices):
        self.choices = choices

    def gather(self, own):
        assert own in self.choices
        return list(self.choices)


@pytest.mark.parametrize(
    ("choices", "before", "expected"),
    [
        (["onednn", "onednn"], None, "onednn"),
        (["onednn", "mkl"], None, "mkl"),
        (["onednn", "onednn"], "mkl", "mkl"),  # as in the checkpoint
        (["onednn", "onednn"], "onednn", "onednn"),
        (["mkl", "onednn"], "onednn", "mkl"),
        (["mkl"], "onednn", "mkl"),
    ],
)
def test_ranks_agree_and_a_resumed_run_keeps_its_kernel(choices, before, expected):
    ranks: Any = Gathered(*choices)
    machine = Machine(CPU, "fp32", ranks, fp32_products=choices[0])
    facts = None if before is None else {"fp32_products": before}
    assert agree_on_products(machine, facts).fp32_products == expected


def test_a_gpu_changes_nothing(zen):
    assert choose_fp32_products(torch.device("cuda"), "fp32") == "mkl"


@pytest.mark.parametrize("error", [1.01 * MAX_ERROR, float("nan"), float("inf")])
def test_a_large_error_leads_to_mkl(zen, capsys, error):
    logs.configure(quiet=True)
    zen.setattr(module, "measure_error", lambda chosen: error)
    assert choose_fp32_products(CPU, "fp32") == "mkl"
    assert "failed a check (relative error " in capsys.readouterr().err


@pytest.mark.parametrize("failure", [AttributeError, RuntimeError])
def test_a_build_without_the_setting_leads_to_mkl(zen, capsys, failure):
    def fail(_):
        raise failure("Unknown precision: bf16")

    logs.configure(quiet=True)
    zen.setattr(module, "measure_error", fail)
    assert choose_fp32_products(CPU, "fp32") == "mkl"
    assert "failed a check (Unknown precision: bf16), so MKL" in capsys.readouterr().err


def rounded(product, dtype):
    """Return ``product`` as a library computes it that rounds fp32 factors to ``dtype``."""

    def compute(*factors, **options):
        if factors[0].dtype != torch.float32:
            return product(*factors, **options)
        return product(*(factor.to(dtype).float() for factor in factors), **options)

    return compute


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("owner", "name"), [(torch, "mm"), (torch, "bmm"), (torch, "baddbmm"), (F, "linear")]
)
def test_rounding_in_any_kind_of_product_is_noticed(monkeypatch, owner, name, dtype):
    assert measure_error("mkl") < MAX_ERROR
    monkeypatch.setattr(owner, name, rounded(getattr(owner, name), dtype))
    assert measure_error("mkl") > 10 * MAX_ERROR


def test_measuring_draws_no_random_numbers_and_restores_torch():
    state, before = torch.get_rng_state(), MATMUL.fp32_precision
    measure_error("onednn" if onednn_computes_fp32() else "mkl")
    assert torch.equal(torch.get_rng_state(), state)
    assert MATMUL.fp32_precision == before


@pytest.fixture
def no_amx(monkeypatch):
    """Let blocks be entered on all CPUs; nothing is multiplied in them."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


@pytest.mark.usefixtures("no_amx")
def test_a_block_ends_with_the_setting_before_it_also_after_an_error():
    MATMUL.fp32_precision = "none"
    seen = []
    with suppress(ZeroDivisionError), use_fp32_products("onednn"):
        seen.append(MATMUL.fp32_precision)
        raise ZeroDivisionError
    assert seen == ["bf16"]
    assert MATMUL.fp32_precision == "none"


def draw(*shape):
    """Return numbers whose rounding to bf16 errs by 0.1 to 0.38 %, always downwards."""
    rest = torch.empty(shape).uniform_(0.001, 0.0038)
    return (1 + rest) * 2.0 ** torch.randint(-2, 3, shape)


def transposed(*shape):
    *batch, rows, columns = shape
    return draw(*batch, columns, rows).mT


def of_heads(batch, rows, columns):
    """Return the layout of one projection that is split into heads."""
    return draw(rows, batch, columns + 8)[..., :columns].transpose(0, 1)


ROWS_IN_OUT = [
    (1, 256, 256), (3, 256, 1024), (17, 1024, 256), (20, 256, 1000), (65, 512, 512),
    (300, 512, 700), (1023, 64, 100), (1000, 31, 33), (100, 1, 300), (100, 300, 1), (0, 256, 300),
]  # fmt: skip
BATCHES = [
    (1, 1, 64, 60), (8, 20, 64, 30), (40, 4, 32, 17), (512, 1, 64, 7), (3, 127, 33, 129),
    (64, 2, 8, 2), (0, 2, 64, 2),
]  # fmt: skip


@pytest.fixture(params=["onednn", "mkl"])
def products(request):
    if request.param == "onednn" and not onednn_computes_fp32():
        pytest.skip("oneDNN does not multiply in fp32 here")
    torch.manual_seed(1)
    with use_fp32_products(request.param):
        yield


def results(product, factors):
    """Return the product and the gradients of its factors."""
    leaves = [factor.detach().requires_grad_() for factor in factors]
    result = product(*leaves)
    generator = torch.Generator().manual_seed(2)
    gradient = 1.001 + 0.0028 * torch.rand(result.shape, generator=generator)
    result.backward(gradient.to(result.dtype))
    return [result, *(leaf.grad for leaf in leaves)]


def assert_fp32(product, *factors):
    """Compare ``product`` and the gradients of its factors with float64."""
    exact = results(product, [factor.double() for factor in factors])
    for found, expected in zip(results(product, factors), exact, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=MAX_ERROR, atol=0.0)


@pytest.mark.parametrize("make", [draw, transposed])
@pytest.mark.parametrize(("rows", "width", "out"), ROWS_IN_OUT)
def test_products_of_matrices_are_fp32(products, rows, width, out, make):
    assert_fp32(F.linear, make(rows, width), make(out, width), draw(out))
    assert_fp32(F.linear, make(rows, width), make(out, width))
    assert_fp32(torch.mm, make(rows, width), make(width, out))
    assert_fp32(torch.addmm, make(rows, out), make(rows, width), make(width, out))


@pytest.mark.parametrize("make", [draw, transposed, of_heads])
@pytest.mark.parametrize(("batch", "rows", "width", "out"), BATCHES)
def test_batched_products_are_fp32(products, batch, rows, width, out, make):
    first, second = make(batch, rows, width), make(batch, width, out)
    assert_fp32(torch.bmm, first, second)
    assert_fp32(torch.baddbmm, draw(batch, rows, out), first, second)


def attention_error(attend):
    """Return the largest relative error, in norm, of ``attend`` and its gradients."""
    factors = [torch.randn(2, 4, 20, 32) for _ in range(3)]
    exact = results(F.scaled_dot_product_attention, [factor.double() for factor in factors])
    pairs = zip(results(attend, factors), exact, strict=True)
    return max(((found - expected).norm() / expected.norm()).item() for found, expected in pairs)


def test_attention_is_fp32(products):
    assert attention_error(F.scaled_dot_product_attention) < MAX_ERROR


def test_these_comparisons_can_fail():
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        assert_fp32(rounded(torch.mm, torch.bfloat16), draw(5, 256), draw(256, 7))
    assert attention_error(rounded(F.scaled_dot_product_attention, torch.bfloat16)) > MAX_ERROR
