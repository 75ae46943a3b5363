"""Folders in memory, where fsync takes no time: tests in which much is saved use them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    memory = "/dev/shm"
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Replace pytest's own fixture of this name where a conftest.py imports it."""
    with folder_in_memory() as folder:
        yield folder
