"""The PNG file: every piece has room, and lines have the opacity of their weight."""

import io
import warnings

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba_array
from PIL import Image

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.pictures import figure as figure_module
from nmt_cli.pictures.attention import KINDS
from nmt_cli.pictures.figure import as_png, figure_of
from tests.fake_attention import attention_of, words

LAST = {"layers": (6,), "heads": (1, 2, 3)}


@pytest.mark.parametrize("layers", [(6,), (1, 2)])
@pytest.mark.parametrize(
    ("source", "count"), [((), 2), ((*words(5, 1), "W" * 40), 5), (words(60, 1), 60)]
)
def test_no_text_overlaps_or_leaves_the_picture(source, count, layers):
    # With one head, because lines take most of the time.
    target = words(count, 2) if source else ("a", "b")
    figure = figure_of(attention_of(source or "ij", target, layers=layers, heads=(1,)))
    figure.draw_without_rendering()  # places the legend
    texts = [text for axes in figure.axes for text in axes.texts]
    texts += figure.legends[0].get_texts()
    assert len(texts) > 6 * len(layers) * count
    boxes = np.array([text.get_window_extent().extents for text in texts])
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= figure.bbox.max).all()
    # The boxes of two rows may touch: they hold the font's highest and lowest letters.
    (left, bottom), (right, top) = boxes[:, :2].T + 1, boxes[:, 2:].T - 1
    overlap = (left[:, None] < right) & (left < right[:, None])
    overlap &= (bottom[:, None] < top) & (bottom < top[:, None])
    assert overlap.sum() == len(texts)  # each only with itself


def test_lines_join_their_rows_with_the_opacity_of_the_weight():
    attention = attention_of(words(5, 1), words(6, 2), **LAST)
    figure = figure_of(attention)
    assert len(figure.axes) == len(KINDS)
    for axes, name in zip(figure.axes, KINDS, strict=True):
        collections = [c for c in axes.collections if isinstance(c, LineCollection)]
        for head, lines in enumerate(collections):
            weights = attention.weights[name][0, head]
            found = np.zeros_like(weights)
            colours = to_rgba_array(lines.get_color())
            for ((x1, y1), (x2, y2)), colour in zip(lines.get_segments(), colours, strict=True):
                assert (x1, x2) == (0, 1)
                found[int(y1), int(y2)] = colour[3]
            assert np.allclose(found, weights, atol=0.01)
            assert found.any()
        assert len({tuple(to_rgba_array(c.get_color())[0, :3]) for c in collections}) == 3


def test_a_layer_is_a_row_and_several_are_columns():
    one = attention_of(words(5, 1), words(6, 2), **LAST)
    several = attention_of(words(5, 1), words(6, 2), layers=(1, 2), heads=(1,))

    def grid(attention):
        boxes = [axes.get_position() for axes in figure_of(attention).axes]
        return len({round(b.x0, 6) for b in boxes}), len({round(b.y1, 6) for b in boxes})

    assert grid(one) == (3, 1)
    assert grid(several) == (2, 3)


def test_the_file_is_a_png_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(figure_module, "DOTS_PER_INCH", 30)
    attention = attention_of(words(5, 1), words(6, 2), **LAST)
    data = as_png(attention)
    assert Image.open(io.BytesIO(data)).format == "PNG"
    assert as_png(attention) == data


def test_text_is_drawn_as_it_is_and_missing_glyphs_are_named(monkeypatch, capsys):
    monkeypatch.setattr(figure_module, "DOTS_PER_INCH", 30)
    logs.configure(quiet=True)
    attention = attention_of(["$x^2$", "a\nb", "\U00010d00"], ["y"], **LAST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = {text.get_text(): text for text in figure_of(attention).axes[0].texts}
    assert texts["$x^2$"].get_parse_math() is False
    assert "a\ufffdb" in texts
    as_png(attention)
    assert capsys.readouterr().err == (
        "Warning: no font of matplotlib has \U00010d00; a page (--output FILE.html) shows every "
        "character that the browser has.\n"
    )


def test_a_picture_that_is_too_large_is_refused():
    attention = attention_of(words(60, 1), words(60, 2), layers=tuple(range(1, 25)), heads=(1,))
    with pytest.raises(UserError, match=r"PNG file would be \d+ x \d+ inches; choose fewer --lay"):
        as_png(attention)
