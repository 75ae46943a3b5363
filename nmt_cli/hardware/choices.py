"""The value of --device, --precision and --fp32-products that leaves the choice to the program.

Apart from the modules that choose, because the command line must not import torch.
"""

AUTO = "auto"
