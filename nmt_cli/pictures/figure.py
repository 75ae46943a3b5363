"""Pictures of attention as a PNG file: a panel for each kind of attention and each layer."""

import io
import re
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.pictures.attention import HEADINGS, LIGHT, Attention, AttentionKind, style_of

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


def as_png(attention: Attention) -> bytes:
    """Return the bytes of the PNG file.

    Raises UserError if the picture would be too large. Characters without a glyph in the installed
    fonts are drawn as boxes, and a warning names them.
    """
    stream = io.BytesIO()
    plain = style.context(STYLE, after_reset=True)  # without the user's own settings
    with plain, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Without the name of the software, equal weights give equal bytes.
        figure_of(attention).savefig(stream, format="png", metadata={"Software": None})
    messages = "\n".join(str(warning.message) for warning in caught)
    missing = dict.fromkeys(MISSING_GLYPH.findall(messages))  # in the order of the text
    if missing:
        logs.warning(
            f"no font of matplotlib has {' '.join(chr(int(code)) for code in missing)}; a page "
            "(--output FILE.html) shows every character that the browser has."
        )
    return stream.getvalue()


def figure_of(attention: Attention) -> Figure:
    """Return the figure. Raises UserError if it would be too large.

    It has the kinds side by side if there is one layer, else a row for each kind.
    """
    pieces, kinds, num_layers = attention.pieces.items(), attention.kinds, len(attention.layers)
    widest = max(_width([*of_side, HEADINGS[name]]) for name, of_side in pieces)
    most_pieces = max(len(of_side) for _, of_side in pieces)
    lines = min(max(NARROWEST, WIDTH_OF_ROW * most_pieces), WIDEST)  # between columns of pieces
    panel_width = lines + 2 * (widest + GAP + MARGIN)
    panel_height = HEADING + ROW * most_pieces
    num_rows, num_columns = (1, len(kinds)) if num_layers == 1 else (len(kinds), num_layers)
    width = panel_width * num_columns
    legend_columns = min(len(attention.heads), max(1, int(width / LEGEND_COLUMN)))
    legend_height = LEGEND_ROW * (1 + -(-len(attention.heads) // legend_columns))
    height = panel_height * num_rows + legend_height
    if width * height > LARGEST_AREA or max(width, height) > LONGEST_SIDE:
        raise UserError(
            f"the PNG file would be {width:,.0f} x {height:,.0f} inches; choose fewer --layers or "
            "one --kind, or write a page with --output FILE.html."
        )
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)  # draws without a window
    for place, (kind, layer) in enumerate(product(kinds, range(num_layers))):
        row, column = divmod(place, num_columns)
        num_pieces = max(len(attention.pieces[name]) for name in (kind.queries, kind.keys))
        left = column * panel_width + (panel_width - lines) / 2
        top, high = height - row * panel_height - HEADING, ROW * num_pieces
        box = (left / width, (top - high) / height, lines / width, high / height)
        _draw(figure.add_axes(box), attention, kind, layer, GAP / lines)
    handles = [_line_of(place, f"head {head}") for place, head in enumerate(attention.heads)]
    figure.legend(handles=handles, loc="lower center", ncols=legend_columns, frameon=False)
    return figure


def _width(pieces: Sequence[str]) -> float:
    """Return the width of the widest of ``pieces`` in inches."""
    figure = Figure(dpi=DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    texts = [figure.text(0, 0, _shortened(piece), parse_math=False) for piece in set(pieces)]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    return max(text.get_window_extent(renderer).width for text in texts) / DOTS_PER_INCH


def _draw(axes: Axes, attention: Attention, kind: AttentionKind, layer: int, gap: float) -> None:
    """Draw the lines of a kind and layer, with ``gap`` between lines and pieces.

    x is from 0 to 1, and y counts rows of pieces downwards.
    """
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(max(len(attention.pieces[name]) for name in (kind.queries, kind.keys)), 0)
    for x, name, side in ((-gap, kind.queries, "right"), (1 + gap, kind.keys, "left")):
        place: dict[str, Any] = {"ha": side, "va": "center", "parse_math": False}
        axes.text(x, -0.4, HEADINGS[name], size=8, color="#595959", **place)
        for row, piece in enumerate(attention.pieces[name]):
            axes.text(x, row + 0.5, _shortened(piece), **place)
    title = f"{kind.title}, layer {attention.layers[layer]}"
    axes.text(0.5, -1.6, title, ha="center", va="center", weight="bold")
    weights = attention.weights[kind.name][layer]
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
