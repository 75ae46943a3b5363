"""Toy trainings are saved in memory."""

from tests.folders_in_memory import tmp_path as tmp_path
