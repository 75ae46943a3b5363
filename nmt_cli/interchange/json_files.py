"""Reads the JSON files of other programs' models."""

import json
from pathlib import Path
from typing import Any

from nmt_cli.errors import DamagedError
from nmt_cli.file_contents import read_text

CONFIG = "config.json"


def read_config(folder: Path, name: str = CONFIG) -> dict[str, Any]:
    """Return a file of settings; {} if there is none. Raises DamagedError if it is no object."""
    path = folder / name
    if not path.exists():
        return {}
    try:
        config = json.loads(read_text(path))
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise DamagedError(f"{path} is damaged: it is not a JSON object.")
    return config
