"""The service's own interface, under ``/v1``: all that a line of jsonl can ask for."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli.messages.errors import UserError
from nmt_cli.serving.models import Model
from nmt_cli.serving.requests import RefusedError
from nmt_cli.serving.service import Service
from nmt_cli.translating.line_records import record_of, request_of
from nmt_cli.translating.request import Request as Line
from nmt_cli.translating.segments import sentences
from nmt_cli.translating.translation import Translation


async def translate(service: Service, http: Request) -> Response:
    """Translate a text or a list of texts, with all that is known of each translation."""
    record = await service.record(http)
    model, texts = _model_of(service, record), record.pop("text", None)
    with_scores = record.pop("token_scores", False)
    if not isinstance(with_scores, bool):
        raise RefusedError(400, "token_scores must be true or false")
    lines = _lines(service, model, record, texts if isinstance(texts, list) else [texts])
    translations = await service.translate(http, [model] * len(lines), lines)
    return JSONResponse(
        {
            "model": model.name,
            "source": model.source,
            "target": model.target,
            "translations": [_shown(each, with_scores) for each in translations],
        }
    )


async def cut(service: Service, http: Request) -> Response:
    """Cut a text into sentences."""
    record = await service.record(http)
    text, source = record.get("text"), record.get("source")
    if not isinstance(text, str) or source not in service.models.sources:
        raise RefusedError(400, "text must be a string, and source the language of a model")
    try:
        segments = sentences(text, str(source))
    except UserError as error:
        raise RefusedError(501, str(error)) from None
    return JSONResponse({"sentences": segments.texts, "gaps": segments.gaps})


async def models(service: Service, _: Request) -> Response:
    """List the models."""
    every = service.models.models
    return JSONResponse({"models": [_description(service, each) for each in every]})


def _model_of(service: Service, record: dict[str, Any]) -> Model:
    wanted = [record.pop(key, None) for key in ("source", "target", "model")]
    if not all(isinstance(each, str | None) for each in wanted):
        raise RefusedError(400, "source, target and model must be strings")
    return service.model(*wanted)


def _lines(service: Service, model: Model, record: dict[str, Any], texts: list[Any]) -> list[Line]:
    """Return what is wanted of each text. Raises RefusedError if a key or a value is wrong."""
    if not texts or texts == [None]:
        raise RefusedError(400, "text must be a string, or a list of strings that is not empty")
    glossary = None
    if isinstance(record.get("glossary"), str):
        glossary = service.glossary(record.pop("glossary"), model)
    try:
        first = request_of({**record, "text": texts[0]})
        rest = [request_of({"text": text}).text for text in texts[1:]]
    except ValueError as error:
        raise RefusedError(400, str(error)) from None
    lines = [first, *(first._replace(text=text) for text in rest)]
    if glossary is None:
        return lines
    return [line._replace(glossary=glossary.for_line(line.text, line.markup)) for line in lines]


def _description(service: Service, model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "target": model.target,
        "beam_size": model.beam_size,
        "parses": model.parses,
        "glossaries": [each.name for each in service.glossaries if each.fits(model)],
    }


def _shown(translation: Translation, with_scores: bool) -> dict[str, Any]:
    record = record_of(translation)
    if not with_scores:
        for each in (record, *record["alternatives"]):
            each.pop("token_scores", None)
    return record


PATHS = [
    ("POST", "/v1/translate", translate),
    ("POST", "/v1/sentences", cut),
    ("GET", "/v1/models", models),
]
