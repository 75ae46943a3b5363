"""The former place of the Python interface, for one release more."""

import sys
import warnings

import nmt_cli

warnings.warn(
    "nmt_cli.decoding ends with the next release; import from nmt_cli itself, as in "
    "`from nmt_cli import Translator`.",
    DeprecationWarning,
    stacklevel=2,
)
for _name in nmt_cli.__all__:
    _module = getattr(nmt_cli, _name).__module__
    sys.modules[f"{__name__}.{_name.lower()}"] = sys.modules[_module]
