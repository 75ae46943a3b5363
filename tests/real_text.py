"""Real text for tests, in the folder that NMT_CLI_SHARED names."""

import os
from pathlib import Path

import pytest


def real_file(*names):
    """Return a path in the folder; skip the test if there is no such folder."""
    folder = os.environ.get("NMT_CLI_SHARED")
    if folder is None:
        pytest.skip("NMT_CLI_SHARED names no folder with real text")
    return Path(folder, *names)


def real_lines(*names):
    """Return the lines of a file in the folder; skip the test if there is no such folder."""
    text = real_file(*names).read_bytes().decode()
    return text.removesuffix("\n").split("\n")
