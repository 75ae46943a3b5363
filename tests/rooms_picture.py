"""Draws the rooms of the package: its folders, and the files beside them.

An arrow is an import. Left out are arrows that follow from the others: if `a` imports `b` and `b`
imports `c`, there is none from `a` to `c`.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from tests.imported_files import imports_of_files

WIDTH, ROW, BOX, GAP, MARGIN = 1000, 84, 30, 24, 20  # dots
LETTER, PADDING = 7.3, 24  # the width of a box is that of its name


def imports_of_rooms() -> dict[str, set[str]]:
    """Return what each room imports of the others."""
    rooms: dict[str, set[str]] = {}
    for file, imported in imports_of_files().items():
        room = _room_of(file)
        rooms.setdefault(room, set()).update({_room_of(each) for each in imported} - {room})
    return rooms


def rows_of(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the rooms of each row, the highest first: a room is just below all that import it."""
    rows: list[list[str]] = []
    left = dict(imports)
    while left:
        imported = set().union(*left.values())
        rows.append(sorted(left.keys() - imported))
        assert rows[-1], f"rooms import each other: {sorted(left)}"
        for room in rows[-1]:
            del left[room]
    return rows


def shortest_arrows(imports: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that do not follow from others (the transitive reduction)."""
    reached: dict[str, set[str]] = {}
    for room in [room for row in reversed(rows_of(imports)) for room in row]:
        reached[room] = imports[room].union(*(reached[below] for below in imports[room]))
    return [
        (room, below)
        for room in sorted(imports)
        for below in sorted(imports[room])
        if not any(below in reached[other] for other in imports[room])
    ]


def picture() -> str:
    """Return the picture as SVG."""
    imports = imports_of_rooms()
    rows = rows_of(imports)
    height = len(rows) * ROW + 2 * MARGIN
    boxes: dict[str, tuple[int, int, int]] = {}
    for number, rooms in enumerate(rows):
        boxes.update(_boxes(_ordered(rooms, imports, boxes), MARGIN + number * ROW))
    arrows = [
        f'<path d="M{_x(boxes[room])} {boxes[room][1] + BOX} L{_x(boxes[below])} '
        f'{boxes[below][1] - 3}"/>'
        for room, below in shortest_arrows(imports)
    ]
    texts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{BOX}" rx="4"/>'
        f'<text x="{left + width // 2}" y="{top + 20}">{room}</text>'
        for room, (left, top, width) in boxes.items()
    ]
    return "\n".join([_head(height), *arrows, "</g>", "<g>", *texts, "</g>", "</svg>", ""])


def _room_of(file: str) -> str:
    parts = file.split("/")
    return parts[0] + "/" if len(parts) > 1 else parts[0]


def _ordered(
    rooms: Iterable[str], imports: Mapping[str, set[str]], boxes: Mapping[str, tuple[int, int, int]]
) -> list[str]:
    """Return the rooms of a row in the order of the middle of those above that import them."""

    def middle(room: str) -> float:
        above = [_x(boxes[user]) for user in boxes if room in imports[user]]
        return sum(above) / len(above) if above else WIDTH / 2

    return sorted(rooms, key=lambda room: (middle(room), room))


def _boxes(rooms: list[str], top: int) -> dict[str, tuple[int, int, int]]:
    """Return the left edge, top and width of each box of a row, spread over the picture."""
    widths = [round(len(room) * LETTER) + PADDING for room in rooms]
    space = (WIDTH - 2 * MARGIN - sum(widths)) / (len(rooms) + 1)
    assert space >= GAP / 2, f"too many rooms in a row: {rooms}"
    lefts = [MARGIN + space]
    for width, _ in pairwise([*widths, 0]):
        lefts.append(lefts[-1] + width + space)
    return {
        room: (round(left), top, width)
        for room, left, width in zip(rooms, lefts, widths, strict=False)
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
