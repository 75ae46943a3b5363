"""The recipes that are installed with nmt-cli: their names, their files, and names that are near.

A recipe in a folder has the folder in its name, such as ``table3/c-2-layers``.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

PACKAGE_OF_SHIPPED = "nmt_cli.shipped_recipes"
FOLDER_IN_CHECKOUT = Path(__file__).parents[3] / "recipes"
SUFFIX = ".yaml"
SHOWN_OF_A_FOLDER = 3


def shipped_recipes() -> list[str]:
    """Return the names of the recipes that are installed with nmt-cli."""
    folder = _folder()
    return sorted(
        path.relative_to(folder).as_posix().removesuffix(SUFFIX)
        for path in folder.rglob(f"*{SUFFIX}")
    )


def shipped_file(name: str) -> Path | None:
    """Return the file of the shipped recipe called ``name``; None if there is none."""
    return _folder() / f"{name}{SUFFIX}" if name in shipped_recipes() else None


def shipped_name(path: Path) -> str | None:
    """Return the name of the shipped recipe that ``path`` is; None for any other file."""
    try:
        folder = path.parent.resolve().relative_to(_folder().resolve())
    except (OSError, ValueError, RuntimeError):  # RuntimeError is a circle of links
        return None
    is_recipe = path.suffix == SUFFIX
    return (folder / path.name).as_posix().removesuffix(SUFFIX) if is_recipe else None


def is_near_shipped(name: str) -> bool:
    """Return whether ``name``, which is not shipped, looks like a shipped recipe in a folder."""
    folder, slash, _ = name.partition("/")
    return bool(slash) and folder in _folders(shipped_recipes())


def meant_by(name: str) -> str:
    """Return a message about ``name``, which is not shipped, with the name that is probably meant.

    If none is near, the message names all shipped recipes and how to name a file.
    """
    from nmt_cli.recipe.reading.problem_messages import (
        shown,  # needs pydantic, which shells that complete do not
    )

    names = shipped_recipes()
    folder = name.rstrip("/")
    if folder in _folders(names):
        some = ", ".join([n for n in names if n.startswith(f"{folder}/")][:SHOWN_OF_A_FOLDER])
        return f"{shown(name)} is a folder of shipped recipes; name one of them: {some}, ..."
    near = get_close_matches(name.lower(), names, n=1)
    text = f"{shown(name)} is not a shipped recipe ({_listed(names)})"
    if near:
        return f"{text}; did you mean {near[0]}?"
    return f"{text}; a file's name ends in .yaml or has a slash in it."


def _listed(names: Sequence[str]) -> str:
    """Return all names as text; of a folder only its own name."""
    plain = [name for name in names if "/" not in name]
    return ", ".join([*plain, *(f"{folder}/..." for folder in _folders(names))])


def _folders(names: Sequence[str]) -> list[str]:
    return sorted({name.partition("/")[0] for name in names if "/" in name})


def _folder() -> Path:
    try:
        installed = resources.files(PACKAGE_OF_SHIPPED)
    except ModuleNotFoundError:  # run from a checkout that is not installed
        return FOLDER_IN_CHECKOUT
    return next(Path(str(file)).parent for file in installed.iterdir() if file.is_file())
