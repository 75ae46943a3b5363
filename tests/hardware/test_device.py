import pytest
import torch

from nmt_cli.hardware.device import choose_device
from nmt_cli.messages.errors import UserError


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choose_device("auto") == torch.device("cpu")
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="--device cuda:1 asked for, 0 GPUs are visible"):
        choose_device("cuda:1")
    for name in ("gpu", "meta", "cuda:x", ""):
        with pytest.raises(UserError, match="--device must be auto, cpu, cuda or cuda:N"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto").type == "cuda"
    assert choose_device("cuda:1") == torch.device("cuda", 1)
