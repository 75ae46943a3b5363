"""The levels of CPU that this machine has, for tests of the library."""

import pytest

from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.model.compiled.c_library import LEVELS

LEVELS_HERE = [level for level, flags in LEVELS.items() if flags <= read_cpu().flags]
BEST = LEVELS_HERE[:1]
# For tests whose ``library`` is that of a level.
at_the_best_level = pytest.mark.parametrize("library", BEST, indirect=True)


def at_levels(name, cases, few):
    """Test all ``cases`` of an argument at the best level, and ``few`` at each other one."""
    pairs = [(level, case) for level in LEVELS_HERE for case in (cases if level in BEST else few)]
    return pytest.mark.parametrize(("library", name), pairs, indirect=["library"])
