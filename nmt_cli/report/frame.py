"""The frame of a page that is one HTML file: tiles, sections, tables and examples of text.

The functions take plain text and return HTML, which ``page`` joins. A page fetches nothing.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from string import Template

LONGEST_TEXT = 500  # characters of an example


def page(title: str, parts: Iterable[str], subtitle: str = "") -> str:
    """Return the page."""
    html, style, script = (
        (resources.files("nmt_cli.report") / f"page.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(html).substitute(
        title=escape(title),
        subtitle=f"<p>{escape(subtitle)}</p>" if subtitle else "",
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",  # the browser runs no other script
        content="\n".join(parts),
    )


def tiles(shown: Iterable[tuple[str, str, str]]) -> str:
    """Return figures at the top of a page: a heading, a value and a line of small text of each.

    Those without a value are left out.
    """
    lines = [
        f"<div><dt>{escape(heading)}</dt><dd>{escape(value)}</dd><dd>{escape(note)}</dd></div>"
        for heading, value, note in shown
        if value
    ]
    return f'<dl class="tiles">{"".join(lines)}</dl>'


def columns(parts: Iterable[str]) -> str:
    """Return the parts side by side, in two columns where the screen is wide enough."""
    return f'<div class="columns">{"".join(parts)}</div>'


def section(heading: str, *parts: str) -> str:
    """Return a part of the page under a heading."""
    return f"<section><h2>{escape(heading)}</h2>{''.join(parts)}</section>"


def note(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    """Return lines to copy, such as a command."""
    return f'<pre tabindex="0">{escape(text)}</pre>'


def folded(heading: str, *parts: str) -> str:
    """Return parts that the reader unfolds."""
    return f"<details><summary>{escape(heading)}</summary>{''.join(parts)}</details>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of short texts and figures; without headings it has none."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in others)}</tr>"
        for first, *others in rows
    )
    thead = f"<thead><tr>{head}</tr></thead>" if headings else ""
    return f'<div class="wide" tabindex="0"><table>{thead}<tbody>{body}</tbody></table></div>'


def examples(
    headings: Sequence[str], languages: Sequence[str | None], rows: Iterable[Sequence[str]]
) -> str:
    """Return a table of texts, whose cells are below each other on a narrow screen.

    ``languages`` are the codes of the columns, "" if unknown, or None if a column has figures.
    Texts are cut after 500 characters, with a mark.
    """
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "\n".join(f"<tr>{''.join(map(_cell, headings, languages, row))}</tr>" for row in rows)
    return f'<table class="examples"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(heading: str, language: str | None, text: str) -> str:
    start = f'<td data-heading="{escape(heading)}"'
    if language is None:
        return f"{start}>{escape(text)}</td>"
    left_out = len(text) - LONGEST_TEXT
    cut = f"<i>… {left_out:,} more characters</i>" if left_out > 0 else ""
    shown = f'<div dir="auto" lang="{escape(language)}">{escape(text[:LONGEST_TEXT])}</div>{cut}'
    return f'{start} class="text">{shown}</td>'
