"""Adam that does not import torch's compiler."""

from inspect import unwrap

import torch


class Adam(torch.optim.Adam):
    """torch's Adam without the wrappers that exclude it from ``torch.compile``.

    Those wrappers import the compiler at their first call. That costs every process that trains
    1.5 s and 70 MB, and the optimizer is never compiled here.
    """

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))

    def make_moments(self) -> None:
        """Create the moments now, as zeros, so that no step has to allocate memory for them."""
        for parameter in self.param_groups[0]["params"]:
            if not self.state[parameter]:
                self.state[parameter].update(
                    step=torch.zeros((), dtype=torch.float32, device=parameter.device),
                    exp_avg=torch.zeros_like(parameter),
                    exp_avg_sq=torch.zeros_like(parameter),
                )

    def has_completed(self, num_steps: int) -> bool:
        """Return whether ``num_steps`` steps updated every weight; False if one was interrupted."""
        return all(state["step"].item() == num_steps for state in self.state.values())
