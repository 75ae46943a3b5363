"""Pictures of attention as a PNG file: a panel for each kind of attention and each layer."""

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.pictures.attention import HEADINGS, LIGHT, Attention, Kind, style_of

DOTS_PER_INCH = 150
LARGEST_AREA = 2_000.0  # square inches; drawing takes a byte for each of four colours of a dot
LONGEST_SIDE = 400.0  # inches; a picture of more than 65,535 dots a side cannot be drawn
# In inches.
ROW, GAP, MARGIN = 0.22, 0.07, 0.25
NARROWEST, WIDEST, WIDTH_OF_ROW = 2.2, 5.0, 0.07  # of the lines: wider in a higher picture
HEADING, LEGEND_ROW, LEGEND_COLUMN = 0.65, 0.28, 1.15
LONGEST_PIECE = 24  # characters; the rest is cut off
VISIBLE = 0.01  # lines of less weight cannot be seen
SPREAD = 0.6  # share of a row over which the lines of different heads end
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 2)), (0, (6, 2, 1.5, 2)))
FONT_SIZE = 10
MISSING_GLYPH = re.compile(r"Glyph (\d+) .*missing from")
STYLE: dict[Any, Any] = {"font.size": FONT_SIZE}


class _Panel(NamedTuple):
    """One picture: a kind of attention in a layer, and its place in the grid of pictures."""

    kind: Kind
    layer: int  # place in the layers of the attention
    row: int
    column: int


class _Sizes(NamedTuple):
    """The sizes of a figure in inches."""

    lines: float  # between the two columns of a panel
    panel_width: float
    panel_height: float
    width: float
    height: float
    legend_columns: int


def as_png(attention: Attention) -> bytes:
    """Return the bytes of the PNG file.

    Raises UserError if the picture would be too large. Characters without a glyph in the installed
    fonts are drawn as boxes, and a warning names them.
    """
    with matplotlib.rc_context(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        matplotlib.rcdefaults()  # a picture must not depend on the user's own settings
        matplotlib.rcParams.update(STYLE)
        stream = io.BytesIO()
        # Without the name of the software, equal weights give equal bytes.
        figure_of(attention).savefig(stream, format="png", metadata={"Software": None})
    _warn_of_missing_glyphs([str(warning.message) for warning in caught])
    return stream.getvalue()


def figure_of(attention: Attention) -> Figure:
    """Return the figure. Raises UserError if it would be too large."""
    panels = _panels(attention)
    sizes = _sizes(attention, panels)
    if sizes.width * sizes.height > LARGEST_AREA or max(sizes.width, sizes.height) > LONGEST_SIDE:
        raise UserError(
            f"the PNG file would be {sizes.width:,.0f} x {sizes.height:,.0f} inches; choose fewer "
            "--layers or one --kind, or write a page with --output FILE.html."
        )
    figure = Figure(figsize=(sizes.width, sizes.height), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)  # draws without a window
    for panel in panels:
        axes = _add_axes(figure, attention, panel, sizes)
        _draw(axes, attention, panel, GAP / sizes.lines)
    handles = [_line_of(place, f"head {head}") for place, head in enumerate(attention.heads)]
    figure.legend(handles=handles, loc="lower center", ncols=sizes.legend_columns, frameon=False)
    return figure


def _sizes(attention: Attention, panels: Sequence[_Panel]) -> _Sizes:
    pieces = attention.pieces.items()
    widest = max(_width([*of_side, HEADINGS[name]]) for name, of_side in pieces)
    most_rows = max(len(of_side) for _, of_side in pieces)
    lines = min(max(NARROWEST, WIDTH_OF_ROW * most_rows), WIDEST)
    panel_width = lines + 2 * (widest + GAP + MARGIN)
    panel_height = HEADING + ROW * most_rows
    width = panel_width * (1 + max(panel.column for panel in panels))
    legend_columns = min(len(attention.heads), max(1, int(width / LEGEND_COLUMN)))
    legend_height = LEGEND_ROW * (1 + -(-len(attention.heads) // legend_columns))
    height = panel_height * (1 + max(panel.row for panel in panels)) + legend_height
    return _Sizes(lines, panel_width, panel_height, width, height, legend_columns)


def _add_axes(figure: Figure, attention: Attention, panel: _Panel, sizes: _Sizes) -> Axes:
    """Return axes for the lines of ``panel``: x from 0 to 1, y counts rows of pieces downwards."""
    kind = panel.kind
    num_rows = max(len(attention.pieces[name]) for name in (kind.queries, kind.keys))
    left = panel.column * sizes.panel_width + (sizes.panel_width - sizes.lines) / 2
    top = sizes.height - panel.row * sizes.panel_height - HEADING
    box = (left, top - ROW * num_rows, sizes.lines, ROW * num_rows)
    wide, high = sizes.width, sizes.height
    axes = figure.add_axes((box[0] / wide, box[1] / high, box[2] / wide, box[3] / high))
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(num_rows, 0)
    return axes


def _panels(attention: Attention) -> list[_Panel]:
    """Return the panels: kinds side by side if there is one layer, else a row for each kind."""
    is_row = len(attention.layers) == 1
    return [
        _Panel(kind, layer, *((0, number) if is_row else (number, layer)))
        for number, kind in enumerate(attention.kinds)
        for layer in range(len(attention.layers))
    ]


def _width(pieces: Sequence[str]) -> float:
    """Return the width of the widest of ``pieces`` in inches."""
    figure = Figure(dpi=DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    texts = [figure.text(0, 0, _shortened(piece), parse_math=False) for piece in set(pieces)]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    return max(text.get_window_extent(renderer).width for text in texts) / DOTS_PER_INCH


def _draw(axes: Axes, attention: Attention, panel: _Panel, gap: float) -> None:
    """Draw a panel, with ``gap`` between lines and pieces."""
    kind = panel.kind
    for x, name, side in ((-gap, kind.queries, "right"), (1 + gap, kind.keys, "left")):
        place: dict[str, Any] = {"ha": side, "va": "center", "parse_math": False}
        axes.text(x, -0.4, HEADINGS[name], size=8, color="#595959", **place)
        for row, piece in enumerate(attention.pieces[name]):
            axes.text(x, row + 0.5, _shortened(piece), **place)
    title = f"{kind.title}, layer {attention.layers[panel.layer]}"
    axes.text(0.5, -1.6, title, ha="center", va="center", weight="bold")
    weights = attention.weights[kind.name][panel.layer]
    for head, of_head in enumerate(weights):
        shift = 0.5 + SPREAD * ((head + 0.5) / len(weights) - 0.5)
        queries, keys = (of_head >= VISIBLE).nonzero()
        colour, dashes = style_of(head)
        axes.add_collection(
            LineCollection(
                [[(0, q + shift), (1, k + shift)] for q, k in zip(queries, keys, strict=True)],
                colors=[
                    to_rgba(LIGHT[colour], float(min(weight, 1.0)))
                    for weight in of_head[queries, keys]
                ],
                linestyles=DASHES[dashes],
                linewidths=1.2,
            ),
            autolim=False,
        )


def _line_of(place: int, label: str) -> Line2D:
    colour, dashes = style_of(place)
    return Line2D([], [], color=LIGHT[colour], linestyle=DASHES[dashes], linewidth=2, label=label)


def _shortened(piece: str) -> str:
    # A line feed would make a second line of text; other control characters have no glyph.
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in piece)
    return text if len(text) <= LONGEST_PIECE else f"{text[: LONGEST_PIECE - 1]}…"


def _warn_of_missing_glyphs(messages: Sequence[str]) -> None:
    """Warn of the characters that no font has; warn of anything else as matplotlib does."""
    missing: dict[str, None] = {}  # in the order of the text
    for message in messages:
        match = MISSING_GLYPH.search(message)
        if match is None:
            warnings.warn(message, stacklevel=2)
        else:
            missing[chr(int(match[1]))] = None
    if missing:
        logs.warning(
            f"no font of matplotlib has {' '.join(missing)}; a page (--output FILE.html) shows "
            "every character that the browser has."
        )
