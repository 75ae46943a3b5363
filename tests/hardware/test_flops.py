import pytest
import torch

from nmt_cli.hardware.flops import peak_flops, peak_flops_of


@pytest.mark.parametrize(
    ("name", "fp32", "bf16"),
    [
        ("NVIDIA H200", 66.9, 989.4),
        ("NVIDIA H100 80GB HBM3", 66.9, 989.4),
        ("NVIDIA H100 PCIe", 51.2, 756),
        ("NVIDIA A100-SXM4-80GB", 19.5, 312),
        ("NVIDIA A100-PCIE-40GB", 19.5, 312),
        ("NVIDIA GH200 480GB", 66.9, 989.4),
        ("Tesla V100-SXM2-16GB", 15.7, None),
        ("NVIDIA L4", 30.3, 121),
        ("NVIDIA L40S", 91.6, 362.05),
        ("NVIDIA GeForce RTX 4090", 82.6, 165.2),
        ("NVIDIA RTX 6000 Ada Generation", 91.1, 364.25),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("NVIDIA GeForce RTX 4090 D", None, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, None),
        ("NVIDIA L", None, None),
        ("", None, None),
    ],
)
def test_a_peak_is_known_of_exactly_this_gpu(name, fp32, bf16):
    for precision, teraflops in (("fp32", fp32), ("bf16", bf16)):
        expected = None if teraflops is None else pytest.approx(teraflops * 1e12)
        assert peak_flops_of(name, precision) == expected


def test_tf32_has_half_the_peak_of_bf16():
    assert peak_flops_of("NVIDIA A100-SXM4-80GB", "tf32") == pytest.approx(156e12)
    assert peak_flops_of("NVIDIA H100 80GB HBM3", "tf32") == pytest.approx(494.7e12)
    assert peak_flops_of("Tesla V100-SXM2-16GB", "tf32") is None


def test_the_peak_of_a_gpu_is_that_of_its_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA H20{device.index}")
    assert peak_flops(torch.device("cuda:0"), "bf16") == pytest.approx(989.4e12)
    assert peak_flops(torch.device("cuda:1"), "bf16") is None


def test_the_peak_of_a_cpu_is_unknown():
    assert peak_flops(torch.device("cpu"), "fp32") is None
