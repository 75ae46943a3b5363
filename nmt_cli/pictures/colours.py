"""The colours of the heads, which readers with any colour vision can distinguish."""

# Near Okabe and Ito's colours, changed so that each has a contrast of at least 3:1 to the page and
# any two differ also to readers who see no red or no green (tests/pictures/test_colours.py).
LIGHT = (
    "#0066AB", "#D23D1E", "#489570", "#C87CA8", "#C2891A", "#5495E8", "#000000", "#882351"
)  # fmt: skip
DARK = (
    "#45A0FF", "#CF641B", "#14B274", "#D983BA", "#EEE54B", "#8DDAFF", "#FFFFFF", "#975DC9"
)  # fmt: skip
LIGHT_PAGE, DARK_PAGE = "#FFFFFF", "#16181C"
NUM_DASHES = 4  # solid lines, and three kinds of broken lines


def colour_of(place: int) -> int:
    """Return the place in the palette of the head at ``place``."""
    return place % len(LIGHT)


def dashes_of(place: int) -> int:
    """Return the number of the dashes of this head; each round through the palette has others."""
    return place // len(LIGHT) % NUM_DASHES
