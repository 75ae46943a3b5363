from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from nmt_cli.pictures.attention import DARK, DARK_PAGE, LIGHT, LIGHT_PAGE, style_of

PALETTES = [(LIGHT, LIGHT_PAGE), (DARK, DARK_PAGE)]


def luminance(colour):
    """WCAG 2.2: relative luminance of an sRGB colour."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize(("palette", "page"), PALETTES)
def test_lines_contrast_with_the_page(palette, page):
    """WCAG 2.2 asks 3:1 of graphics."""
    for colour in palette:
        lighter, darker = sorted([luminance(colour), luminance(page)], reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, colour


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_colours_differ_also_to_the_colour_blind(palette):
    """Machado et al. (2009): how deuteranopes and protanopes see sRGB."""
    deuteranope = [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    protanope = [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    normal = np.eye(3)
    seen = np.array([to_rgb(colour) for colour in palette])
    for vision in (normal, deuteranope, protanope):
        for one, other in combinations(range(len(palette)), 2):
            difference = np.abs((seen[one] - seen[other]) @ np.transpose(vision)).max()
            assert difference > 0.15, (palette[one], palette[other])


def test_thirty_two_heads_have_styles_of_their_own():
    styles = {style_of(place) for place in range(32)}
    assert len(styles) == 32
