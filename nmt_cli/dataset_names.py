"""The names of the data sets that ``data get`` writes, and the folders of their files."""

from pathlib import Path

FOLDER = Path("data")  # the folder of all data, as the shipped recipes name it
TREEBANK = "wsj"
NAMES = ("wmt14-en-de", "wmt14-en-fr", TREEBANK)
# Treebanks of shipped recipes that no command writes, and where they are.
ELSEWHERE = {
    FOLDER / "treebank/gum": "GUM is in https://github.com/amir-zeldes/gum, folder const/",
    FOLDER / "treebank/wsj-sample": "NLTK distributes this sample of the Penn Treebank: "
    "nltk.download('treebank'), folder combined/",
}


def data_get_hint(path: Path) -> str:
    """Return "; nmt-cli data get NAME writes it" if ``path`` is in its missing folder.

    For treebanks that no command writes, return where they are, otherwise "". Messages insert the
    text before their full stop.
    """
    if (place := ELSEWHERE.get(path.parent)) is not None and not path.parent.exists():
        return f"; {place}; write the trees one after the other into this file"
    name = path.parent.name
    if name not in NAMES or path.parent != FOLDER / name or path.parent.exists():
        return ""
    if name == TREEBANK:
        return (
            f"; nmt-cli data get {name} --treebank FOLDER writes it from your copy of the "
            "Penn Treebank"
        )
    return f"; nmt-cli data get {name} writes it"
