"""The page of attention: one HTML file that needs neither other files nor a network."""

import base64
import hashlib
import json
from html import escape
from importlib import resources
from string import Template

import numpy as np

from nmt_cli.pictures.attention import (
    DARK,
    DARK_PAGE,
    HEADINGS,
    LIGHT,
    LIGHT_PAGE,
    Attention,
    style_of,
)

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
