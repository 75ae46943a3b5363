"""Our Adam is torch's."""

import torch

from nmt_cli.optimization import Adam

SETTINGS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-9, "fused": True}


def trained(adam, resumed_at):
    """Return the weights after five steps, the last of them by an optimizer read back."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(5, 3)
    optimizer = adam(layer.parameters(), **SETTINGS)
    for step in range(5):
        if step == resumed_at:
            saved = optimizer.state_dict()
            optimizer = adam(layer.parameters(), **SETTINGS)
            optimizer.load_state_dict(saved)
        layer(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
        layer.zero_grad()
    return torch.cat([layer.weight, layer.bias[:, None]], 1).detach()


def test_it_takes_the_steps_of_torchs_adam():
    expected = trained(torch.optim.Adam, resumed_at=None)
    assert torch.equal(trained(Adam, resumed_at=None), expected)
    assert torch.equal(trained(Adam, resumed_at=3), expected)
