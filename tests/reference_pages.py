"""Writes what is made from the program: pages of docs/reference/, the keys that shells complete,
the picture of the folders.

python -m tests.reference_pages
"""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.testing import CliRunner

from nmt_cli.cli import main
from nmt_cli.recipe.documentation import described_keys
from nmt_cli.recipe.keys import ChangeKind, change_kind, key_at
from nmt_cli.recipe.model_values import DROPOUTS
from nmt_cli.recipe.sections.data import TreebankConfig
from nmt_cli.recipe.sections.model import DecodingConfig, ModelConfig, Normalization
from nmt_cli.recipe.sections.model_options import PaperModel
from nmt_cli.recipe.sections.training import ValidationConfig
from nmt_cli.recipe.values import Section
from nmt_cli.serving import openapi
from nmt_cli.serving.connections import MOST_CONNECTIONS, MOST_HEAD_BYTES, MOST_HEADERS
from nmt_cli.serving.models import Models
from nmt_cli.serving.operation import ServiceFigures
from nmt_cli.serving.readers import LEAST_SECONDS, MOST_INSIDE
from nmt_cli.serving.requests import (
    MOST_COMPARED,
    MOST_FIELDS,
    MOST_HELD_BYTES,
    MOST_PARTS,
    MOST_PHRASE_CHARACTERS,
    MOST_PHRASES,
    Limits,
)
from nmt_cli.serving.served import KEY_FIELDS, Options
from nmt_cli.serving.service import SMALL_REQUEST, Endpoint, Service
from nmt_cli.translating.interface.record_keys import Key
from nmt_cli.translating.workers.dispatcher import WorkerFigures
from tests import folders_picture

ROOT = Path(__file__).parents[1]
WIDTH = 100
TEXTS = {"title", "description"}  # of a schema
INTRODUCTION = (
    "Requests and answers are JSON in UTF-8. Keys in bold must be given, and an answer always has "
    "them. `/openapi.json` describes the same to programs. The header `X-Request-ID` of an answer "
    "has the name of its request in the log; a request may choose it by the same header."
)


class Block(NamedTuple):
    """A part of the page of HTTP."""

    kind: str  # "h1", "h2", "h3", "p" and "pre" have a text, "table" has rows
    text: str = ""
    rows: Sequence[tuple[str, ...]] = ()  # the first one is the head


def recipe_keys() -> str:
    """Return the page of the keys of a recipe."""
    rows = [
        f"| `{key.name}` | {key.allowed} | {_code(key.default)} | {_on_resume(key.name)} | "
        f"{key.description} |".replace("<", "&lt;")
        for key in described_keys()
    ]
    return "\n".join(
        [
            "# The keys of a recipe",
            "",
            "`nmt-cli recipes keys` prints this list. A key without a default has to be given.",
            "",
            "*On `--resume`* is whether the key may have changed since training began: yes, no, "
            "*declared* (with `--allow-change KEY`), or *best* (declared if it affects the measure "
            "that `validation.best_by` names, otherwise yes).",
            "",
            "| key | allowed | default | on `--resume` | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _on_resume(name: str) -> str:
    """Return whether a training may resume after a change of a key; sections have none."""
    key = key_at(name)
    if key is None or key.effect is None:
        return ""
    kinds = {
        change_kind(name, ValidationConfig(best_by=by, parseval="beam"))
        for by in ("loss", "bleu", "parseval")
    }
    words = {ChangeKind.FORBIDDEN: "no", ChangeKind.DECLARED: "declared", ChangeKind.FREE: "yes"}
    return "best" if len(kinds) > 1 else words[kinds.pop()]


def commands() -> str:
    """Return the page of all commands, with what --help prints."""
    lines = ["# The commands", ""]
    for path in _paths(main, ()):
        shown = CliRunner().invoke(
            main, [*path, "--help"], terminal_width=WIDTH, prog_name="nmt-cli"
        )
        lines += [f"## {' '.join(('nmt-cli', *path))}", "", "```text", shown.stdout, "```", ""]
    return "\n".join(lines)


def http() -> str:
    """Return the page of the service's paths, limits, errors and figures."""
    blocks = [
        Block("h1", "The interface of the service"),
        Block("p", "`nmt-cli serve MODEL...` answers HTTP on `--host` and `--port`."),
        Block(
            "p",
            f"{INTRODUCTION} [Run a service](../how-to/serve.md) is for operators.",
        ),
        *_interface(),
        Block("h2", "Limits"),
        Block(
            "p",
            "A request beyond `--max-body-bytes`, `--max-characters` or `--max-lines` has status "
            f"413, and so has one with more than {MOST_PHRASES:,} terms, required and banned "
            f"phrases, or more than {MOST_PHRASE_CHARACTERS:,} characters in these. Of the "
            "terms of a request that begin with the same word, one of each length is counted: "
            f"their characters times those of the texts may be at most {MOST_COMPARED:,}. Texts "
            "that two models translate, through a pivot language, count twice, as characters "
            "and as lines; both translations must be there within `--max-seconds`. A body "
            "that takes more than `--max-seconds` has 408. Lines beyond `--max-waiting-lines`, and "
            "a translation that takes longer than `--max-seconds`, have 503. A connection that "
            "sends no head of a request, or does not read its answer, is closed after "
            "`--max-seconds`.",
        ),
        Block(
            "p",
            f"A form or a query may have {MOST_FIELDS:,} fields, and a form in parts "
            f"{MOST_PARTS:,}, which may not have parts themselves. "
            f"From clients whose key is not known yet, {MOST_INSIDE} requests of more than "
            f"{SMALL_REQUEST:,} bytes, or with texts whose language is detected, may wait to be "
            f"read, and their bodies may have {MOST_HELD_BYTES:,} bytes together (or "
            "`--max-body-bytes`, if that is more); further ones have 503. One that takes more than "
            f"{LEAST_SECONDS:g} seconds to read, and more than a quarter of `--max-seconds`, has "
            "413.",
        ),
        Block(
            "p",
            f"A head of more than {MOST_HEAD_BYTES:,} bytes, query and trailers included, or of "
            f"more than {MOST_HEADERS} headers has status 431. Connections beyond "
            f"{MOST_CONNECTIONS:,}, or beyond half of the files that the service may open, are "
            "closed with 503. A request with a body that asks for an upgrade of the connection has "
            "status 400; without a body it is answered as any other.",
        ),
        Block("table", rows=[("option", "default", "meaning"), *_limits()]),
        Block("h2", "Figures for Prometheus"),
        Block("table", rows=[("name", "labels", "meaning"), *_figures()]),
    ]
    return "\n".join(map(_markdown, blocks))


def _interface() -> Iterator[Block]:
    """Yield the paths, keys and errors of all interfaces."""
    for title, (description, endpoints) in openapi.interfaces().items():
        yield Block("h2", title)
        yield from (Block("p", each) for each in description.split("\n\n"))
        for endpoint in endpoints:
            yield from _blocks_of(endpoint)
    yield Block("h2", "Keys of users")
    names = " or ".join(f"`{name}`" for name in KEY_FIELDS)
    every = [each for _, endpoints in openapi.interfaces().values() for each in endpoints]
    open_paths = ", ".join(f"`{each.path}`" for each in every if each.takes is None)
    yield Block(
        "p",
        "A service that was started with `--api-keys` answers only requests with one of its keys: "
        f"in the header `Authorization: Bearer KEY`, or as {names} among the keys of the object. "
        "The body is not read if the key in the header is wrong. "
        f"These paths need none: {open_paths}.",
    )
    yield Block("h2", "Errors")
    yield Block(
        "p",
        "An error is an object with the reason: `error`, or `message` if the path is one of DeepL.",
    )
    rows = [(str(status), meaning) for status, meaning in openapi.ERRORS.items()]
    yield Block("table", rows=[("status", "meaning"), *rows])


def _blocks_of(endpoint: Endpoint) -> Iterator[Block]:
    yield Block("h3", f"`{endpoint.method} {endpoint.path}`")
    summary, more = openapi.described(endpoint)
    for paragraph in (summary, *more.split("\n\n")):
        if paragraph:
            yield Block("p", paragraph)
    if endpoint.takes:
        yield from _table("It takes", endpoint.takes)
    if endpoint.example:
        yield Block("pre", command_of(endpoint))
    if endpoint.returns:
        kind = "a list of objects" if endpoint.returns_list else "an object"
        yield from _table(f"The answer is {kind}", endpoint.returns)


def _table(title: str, keys: Mapping[str, Key]) -> Iterator[Block]:
    yield Block("p", f"{title}:")
    rows = [
        (f"**`{name}`**" if key.is_needed else f"`{name}`", key.allowed, key.meaning)
        for name, key in keys.items()
    ]
    yield Block("table", rows=[("key", "value", "meaning"), *rows])
    for name, key in keys.items():
        if key.of_each:
            yield from _table(f"Each of `{name}` is an object", key.of_each)


def command_of(endpoint: Endpoint, address: str = "http://127.0.0.1:5000") -> str:
    """Return the command that sends the example of a path."""
    return f"curl {address}{endpoint.path} -d '{json.dumps(endpoint.example)}'"


def _limits() -> Iterator[tuple[str, ...]]:
    options = {option.name: option for option in main.commands["serve"].params}
    for name in Limits._fields:
        option = options[f"max_{name}"]
        assert isinstance(option, click.Option)
        yield f"`{option.opts[0]}`", f"{option.default:,}", option.help or ""


class _Idle:
    """Workers of a model that have nothing to do."""

    def figures(self) -> WorkerFigures:
        return WorkerFigures(busy_seconds={0: 0.0}, processes={0: 0})


def _figures() -> Iterator[tuple[str, ...]]:
    idle: Any = _Idle()
    figures = ServiceFigures(Service(Models([]), {"": idle}, Options(Limits(0, 0, 0, 0, 0))))
    figures.count("", 200, 0.0)
    for metric in figures.registry.collect():
        samples = [each for each in metric.samples if not each.name.endswith("_created")]
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(each.name for each in samples))
        labels = ", ".join(dict.fromkeys(label for each in samples for label in each.labels))
        yield names, labels, metric.documentation


def _markdown(block: Block) -> str:
    if block.kind == "table":
        head, *rows = (f"| {' | '.join(row)} |" for row in block.rows)
        return "\n".join([head, "|---" * len(block.rows[0]) + "|", *rows, ""])
    if block.kind.startswith("h"):
        return f"{'#' * int(block.kind[1])} {block.text}\n"
    if block.kind == "pre":
        return f"    {block.text}\n"
    return textwrap.fill(block.text, WIDTH, break_on_hyphens=False) + "\n"


def _paths(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, found in sorted(command.commands.items()):
            if not found.hidden:
                yield from _paths(found, (*path, name))


def _code(default: str | None) -> str:
    return "" if default is None else f"`{default}`"


def completed_keys() -> str:
    """Return the keys that shells complete, one a line: the schema needs pydantic."""
    return "".join(f"{key.name}\n" for key in described_keys() if key.allowed)


def model_values() -> str:
    """Return what the keys of a model's settings may be, for reading them without pydantic."""
    sections: dict[str, type[Section]] = {
        "architecture": ModelConfig,
        "normalization": Normalization,
        "decoding": DecodingConfig,
        "trees": TreebankConfig,
    }
    of_training = {*DROPOUTS, "remove_traces", "remove_functions"}
    table = {
        name: {
            key: {
                kind: value for kind, value in rule.items() if kind not in {"title", "description"}
            }
            for key, rule in section.model_json_schema()["properties"].items()
            if key not in of_training
        }
        for name, section in sections.items()
    }
    for key, rule in table["architecture"].items():
        rule["is_of_the_paper"] = key in PaperModel.model_fields
    table["normalization"]["fold"] = {"default": False, "type": "boolean"}  # of a model
    lines = ",\n".join(
        f' "{name}": {{\n'
        + ",\n".join(f'  "{key}": {json.dumps(rule)}' for key, rule in rules.items())
        + "\n }"
        for name, rules in table.items()
    )
    return f"{{\n{lines}\n}}\n"


PAGES = {
    "docs/reference/recipe-keys.md": recipe_keys,
    "docs/reference/commands.md": commands,
    "docs/reference/http.md": http,
    "docs/folders.svg": folders_picture.picture,
    "nmt_cli/command_line/recipe_keys.txt": completed_keys,
    "nmt_cli/recipe/model_values.json": model_values,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
