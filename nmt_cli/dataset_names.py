"""The names of the data sets that ``data get`` writes, and the folders of their files."""

from pathlib import Path

FOLDER = Path("data")  # the folder of all data, as the shipped recipes name it
TREEBANK = "wsj"
NAMES = ("wmt14-en-de", "wmt14-en-fr", TREEBANK)


def data_get_hint(path: Path) -> str:
    """Return "; nmt-cli data get NAME writes it" if ``path`` is in its missing folder.

    Otherwise return "". Messages insert the text before their full stop.
    """
    name = path.parent.name
    if name not in NAMES or path.parent != FOLDER / name or path.parent.exists():
        return ""
    if name == TREEBANK:
        return (
            f"; nmt-cli data get {name} --treebank FOLDER writes it from your copy of the "
            "Penn Treebank"
        )
    return f"; nmt-cli data get {name} writes it"
