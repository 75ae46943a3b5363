"""Draws the folders of the package, the files beside them, and their imports.

An arrow is an import. Left out are arrows that follow from the others: if `a` imports `b` and `b`
imports `c`, there is none from `a` to `c`.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from tests.imported_files import imports_of_files

WIDTH, ROW, BOX, GAP, MARGIN = 1000, 84, 30, 24, 20  # dots
LETTER, PADDING = 7.3, 24  # the width of a box is that of its name


def imports_of_folders() -> dict[str, set[str]]:
    """Return what each folder, or file beside the folders, imports of the others."""
    folders: dict[str, set[str]] = {}
    for file, imported in imports_of_files().items():
        folder = _folder_of(file)
        folders.setdefault(folder, set()).update({_folder_of(each) for each in imported} - {folder})
    return folders


def rows_of(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the rows, the highest first: a folder is just below all that import it."""
    rows: list[list[str]] = []
    left = dict(imports)
    while left:
        imported = set().union(*left.values())
        rows.append(sorted(left.keys() - imported))
        assert rows[-1], f"folders import each other: {sorted(left)}"
        for folder in rows[-1]:
            del left[folder]
    return rows


def shortest_arrows(imports: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that do not follow from others (the transitive reduction)."""
    reached: dict[str, set[str]] = {}
    for folder in [folder for row in reversed(rows_of(imports)) for folder in row]:
        reached[folder] = imports[folder].union(*(reached[below] for below in imports[folder]))
    return [
        (folder, below)
        for folder in sorted(imports)
        for below in sorted(imports[folder])
        if not any(below in reached[other] for other in imports[folder])
    ]


def picture() -> str:
    """Return the picture as SVG."""
    imports = imports_of_folders()
    rows = rows_of(imports)
    height = len(rows) * ROW + 2 * MARGIN
    boxes: dict[str, tuple[int, int, int]] = {}
    for number, folders in enumerate(rows):
        boxes.update(_boxes(_ordered(folders, imports, boxes), MARGIN + number * ROW))
    arrows = [
        f'<path d="M{_x(boxes[folder])} {boxes[folder][1] + BOX} L{_x(boxes[below])} '
        f'{boxes[below][1] - 3}"/>'
        for folder, below in shortest_arrows(imports)
    ]
    texts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{BOX}" rx="4"/>'
        f'<text x="{left + width // 2}" y="{top + 20}">{folder}</text>'
        for folder, (left, top, width) in boxes.items()
    ]
    return "\n".join([_head(height), *arrows, "</g>", "<g>", *texts, "</g>", "</svg>", ""])


def _folder_of(file: str) -> str:
    parts = file.split("/")
    return parts[0] + "/" if len(parts) > 1 else parts[0]


def _ordered(
    folders: Iterable[str],
    imports: Mapping[str, set[str]],
    boxes: Mapping[str, tuple[int, int, int]],
) -> list[str]:
    """Return the folders of a row in the order of the middle of those above that import them."""

    def middle(folder: str) -> float:
        above = [_x(boxes[user]) for user in boxes if folder in imports[user]]
        return sum(above) / len(above) if above else WIDTH / 2

    return sorted(folders, key=lambda folder: (middle(folder), folder))


def _boxes(folders: list[str], top: int) -> dict[str, tuple[int, int, int]]:
    """Return the left edge, top and width of each box of a row, spread over the picture."""
    widths = [round(len(folder) * LETTER) + PADDING for folder in folders]
    space = (WIDTH - 2 * MARGIN - sum(widths)) / (len(folders) + 1)
    assert space >= GAP / 2, f"too many folders in a row: {folders}"
    lefts = [MARGIN + space]
    for width, _ in pairwise([*widths, 0]):
        lefts.append(lefts[-1] + width + space)
    return {
        folder: (round(left), top, width)
        for folder, left, width in zip(folders, lefts, widths, strict=False)
    }


def _x(box: tuple[int, int, int]) -> int:
    return box[0] + box[2] // 2


def _head(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="13">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n'
        "<style>g rect {fill: #eef3f8; stroke: #456} text {text-anchor: middle; fill: #123}"
        " path {stroke: #89a; fill: none; marker-end: url(#head)}</style>\n"
        '<marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 L8 4 L0 8 z" style="fill: #89a; stroke: none;'
        ' marker-end: none"/></marker>\n<g>'
    )
