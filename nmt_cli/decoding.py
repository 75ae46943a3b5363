"""The former place of the Python interface, for one release more."""

import sys
import warnings
from importlib import import_module

ROOMS = {
    "constraints": "translating",
    "request": "translating",
    "rescorer": "translating",
    "sampling": "search",
    "translator": "translating",
}
warnings.warn(
    "nmt_cli.decoding ends with the next release; import from nmt_cli itself, as in "
    "`from nmt_cli import Translator`.",
    DeprecationWarning,
    stacklevel=2,
)
for _name, _room in ROOMS.items():
    sys.modules[f"{__name__}.{_name}"] = import_module(f"nmt_cli.{_room}.{_name}")
