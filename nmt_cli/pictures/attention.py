"""What a picture of attention shows: pieces, the weights between them, and colours of heads.

It is written as JSON, or as a page: one HTML file that needs neither other files nor a network.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The colours of the heads: near Okabe and Ito's, changed so that each has a contrast of at least
# 3:1 to the page and any two differ also to readers who see no red or no green
# (tests/pictures/test_colours.py).
LIGHT = (
    "#0066AB", "#D23D1E", "#489570", "#C87CA8", "#C2891A", "#5495E8", "#000000", "#882351"
)  # fmt: skip
DARK = (
    "#45A0FF", "#CF641B", "#14B274", "#D983BA", "#EEE54B", "#8DDAFF", "#FFFFFF", "#975DC9"
)  # fmt: skip
LIGHT_PAGE, DARK_PAGE = "#FFFFFF", "#16181C"
NUM_DASHES = 4  # solid lines, and three kinds of broken lines


def style_of(place: int) -> tuple[int, int]:
    """Return the numbers of the colour in the palette and of the dashes of the head at ``place``.

    Each round through the palette has other dashes.
    """
    return place % len(LIGHT), place // len(LIGHT) % NUM_DASHES


DIGITS = 6  # of a weight in JSON


class AttentionKind(NamedTuple):
    """A kind of attention, and which pieces attend to which."""

    name: str
    title: str
    queries: str  # the sequence of pieces that attend
    keys: str  # the sequence that they attend to


# Row t of the decoder reads piece t of the target input and predicts piece t of the target output.
# Self-attention is between the same pieces; attention to the source explains the output.
KINDS = {
    kind.name: kind
    for kind in (
        AttentionKind("encoder", "Encoder self-attention", "source", "source"),
        AttentionKind("decoder", "Decoder self-attention", "target_input", "target_input"),
        AttentionKind("memory", "Encoder-decoder attention", "target_output", "source"),
    )
}
HEADINGS = {"source": "Source", "target_input": "Target input", "target_output": "Target output"}


class Attention(NamedTuple):
    """The attention weights of one sentence pair in one model."""

    model: str
    source: str
    target: str
    is_given: bool  # whether the user gave the target; otherwise it is the model's translation
    pieces: Mapping[str, tuple[str, ...]]  # of each sequence of HEADINGS
    languages: Mapping[str, str]  # of each sequence, as HTML names languages
    layers: tuple[int, ...]  # counted from 1
    aligning_layer: int  # the place in layers of the one that aligns words best
    heads: tuple[int, ...]  # counted from 1
    weights: Mapping[str, NDArray[np.float32]]  # by the name of the kind: layer, head, query, key

    @property
    def kinds(self) -> list[AttentionKind]:
        """The kinds of attention that have weights."""
        return [KINDS[name] for name in self.weights]


def as_json(attention: Attention) -> str:
    """Return a JSON object with the pieces and all weights."""
    record: dict[str, Any] = {
        "model": attention.model,
        **attention.pieces,
        "layers": attention.layers,
        "heads": attention.heads,
        "weights": {
            name: np.round(weights.astype(np.float64), DIGITS).tolist()
            for name, weights in attention.weights.items()
        },
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


THOUSANDTHS = 1000  # whole numbers take half the space of decimal fractions
LONGEST_TITLE = 60
# Inside a <script> element, "</script" would end the data and "<!--" hide what follows.
ESCAPED = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def as_html(attention: Attention) -> str:
    """Return the page; its script draws the pictures that the reader chooses."""
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_file("page.html")).substitute(
        title=escape(f"Attention: {_shortened(attention.source)}"),
        script_hash=f"sha256-{digest}",  # the browser runs no other script
        colours=_colours(),
        style=_file("page.css"),
        model=escape(attention.model),
        source=escape(attention.source),
        target=escape(attention.target),
        source_language=escape(attention.languages["source"]),
        target_language=escape(attention.languages["target_output"]),
        target_heading="Target" if attention.is_given else "Translation",
        data=_data(attention),
        script=script,
    )


def _file(name: str) -> str:
    return resources.files("nmt_cli.pictures").joinpath(name).read_text(encoding="utf-8")


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TITLE else f"{text[:LONGEST_TITLE]}…"


def _colours() -> str:
    """Return the style of each head's lines, and of the background, in light and dark."""

    def rules(page: str, palette: tuple[str, ...]) -> str:
        lines = [f":root {{ --page: {page}; }}"]
        lines += [f".colour-{i} {{ --head: {colour}; }}" for i, colour in enumerate(palette)]
        return "\n".join(lines)

    dark = rules(DARK_PAGE, DARK)
    light = rules(LIGHT_PAGE, LIGHT)
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _data(attention: Attention) -> str:
    record = {
        "pieces": attention.pieces,
        "headings": HEADINGS,
        "languages": attention.languages,
        "layers": attention.layers,
        "aligning_layer": attention.aligning_layer,
        "heads": attention.heads,
        "styles": [
            f"colour-{colour} dashes-{dashes}"
            for colour, dashes in map(style_of, range(len(attention.heads)))
        ],
        "kinds": [
            {
                "title": kind.title,
                "queries": kind.queries,
                "keys": kind.keys,
                "weights": np.rint(attention.weights[kind.name] * THOUSANDTHS).astype(int).tolist(),
            }
            for kind in attention.kinds
        ],
    }
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).translate(ESCAPED)
