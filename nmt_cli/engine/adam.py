"""Adam that does not import torch's compiler."""

from inspect import unwrap

import torch


class Adam(torch.optim.Adam):
    """torch's Adam, without what keeps ``torch.compile`` from looking into it.

    Those wrappers import the compiler when they are first called: 1.5 s and 70 MB of every process
    that trains, for nothing, since nobody compiles the optimizer here.
    """

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
