"""The value of --device, --precision and --fp32-products that leaves the choice to the program.

In a module of its own, because the command line needs it and must not import torch.
"""

AUTO = "auto"
