"""The service's own interface, under ``/v1``: all that a line of jsonl can ask for."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nmt_cli.messages.errors import UserError
from nmt_cli.serving.models import Model, UnknownModelError
from nmt_cli.serving.requests import RefusedError, Service
from nmt_cli.translating.line_records import record_of, request_of
from nmt_cli.translating.segments import sentences
from nmt_cli.translating.translation import Translation


def routes(service: Service) -> list[Route]:
    """Return the paths of this interface."""

    async def translate(http: Request) -> Response:
        record = await service.record(http)
        model, texts = _model_of(service, record), _texts_of(record)
        with_scores = record.pop("token_scores", False)
        if not isinstance(with_scores, bool):
            raise RefusedError(400, "token_scores must be true or false")
        try:
            lines = [request_of({**record, "text": text}) for text in texts]
        except ValueError as error:
            raise RefusedError(400, str(error)) from None
        translations = await service.translate(http, model, lines)
        return JSONResponse(
            {
                "model": model.name,
                "source": model.source,
                "target": model.target,
                "translations": [_shown(each, with_scores) for each in translations],
            }
        )

    async def models(_: Request) -> Response:
        return JSONResponse({"models": [_description(each) for each in service.models.models]})

    async def cut(http: Request) -> Response:
        record = await service.record(http)
        text, source = record.get("text"), record.get("source")
        if not isinstance(text, str) or source not in service.models.sources:
            raise RefusedError(400, "text must be a string, and source the language of a model")
        try:
            segments = sentences(text, str(source))
        except UserError as error:
            raise RefusedError(501, str(error)) from None
        return JSONResponse({"sentences": segments.texts, "gaps": segments.gaps})

    return [
        Route("/v1/translate", translate, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/sentences", cut, methods=["POST"]),
    ]


def _model_of(service: Service, record: dict[str, Any]) -> Model:
    wanted = [record.pop(key, None) for key in ("source", "target", "model")]
    if not all(isinstance(each, str | None) for each in wanted):
        raise RefusedError(400, "source, target and model must be strings")
    try:
        return service.models.find(*wanted)
    except UnknownModelError as error:
        raise RefusedError(404, str(error)) from None


def _texts_of(record: dict[str, Any]) -> list[Any]:
    texts = record.pop("text", None)
    if texts is None:
        raise RefusedError(400, 'the key "text" is missing')
    return texts if isinstance(texts, list) else [texts]


def _description(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "target": model.target,
        "beam_size": model.beam_size,
        "parses": model.parses,
    }


def _shown(translation: Translation, with_scores: bool) -> dict[str, Any]:
    record = record_of(translation)
    if not with_scores:
        for each in (record, *record["alternatives"]):
            each.pop("token_scores", None)
    return record
