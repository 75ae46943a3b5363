"""LibreTranslate's interface, for its clients; written from its public documentation."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli.serving.languages import Detected, name_of
from nmt_cli.serving.requests import RefusedError, texts_of, whole_number
from nmt_cli.serving.service import Service, Texts

FORMATS = {"text": None, "html": "html"}


async def translate(service: Service, http: Request) -> Response:
    """Translate a text or a list of texts."""
    fields = await service.fields(http)
    texts = texts_of(fields, "q")
    source, target = (str(fields.get(name, "")) for name in ("source", "target"))
    form = str(fields.get("format") or "text")
    if form not in FORMATS:
        raise RefusedError(400, "format must be text or html")
    num_alternatives = whole_number(fields, "alternatives", 0)
    detected = [service.detector.detect(text)[0] for text in texts] if source == "auto" else []
    languages = [found.language for found in detected] or [source] * len(texts)
    models = [service.model(language, target) for language in languages]
    asked = Texts(texts, models, FORMATS[form], num_alternatives)
    found = await service.translate_texts(http, asked)
    answer: dict[str, Any] = {"translatedText": [each[0] for each in found]}
    if detected:
        answer["detectedLanguage"] = [_shown(each) for each in detected]
    if num_alternatives:
        answer["alternatives"] = [each[1:] for each in found]
    if not isinstance(fields["q"], list):
        answer = {key: value[0] for key, value in answer.items()}
    return JSONResponse(answer)


async def detect(service: Service, http: Request) -> Response:
    """Return the languages that a text may be in, the most probable one first."""
    fields = await service.fields(http)
    text = texts_of(fields, "q")[0]
    return JSONResponse([_shown(each) for each in service.detector.detect(text)])


async def languages(service: Service, _: Request) -> Response:
    """List the languages, each with those that it can be translated into."""
    codes = [*service.models.sources, *(model.target for model in service.models.models)]
    return JSONResponse(
        [
            {"code": code, "name": name_of(code), "targets": service.models.targets_of(code)}
            for code in dict.fromkeys(codes)
        ]
    )


async def settings(service: Service, _: Request) -> Response:
    """Return what a page needs to know of the service."""
    first = service.models.models[0]
    return JSONResponse(
        {
            "apiKeys": service.has_keys,
            "charLimit": service.limits.characters,
            "filesTranslation": False,
            "frontendTimeout": 500,  # milliseconds between typing and translating
            "keyRequired": service.has_keys,
            "language": {
                "source": {"code": first.source, "name": name_of(first.source)},
                "target": {"code": first.target, "name": name_of(first.target)},
            },
            "suggestions": False,
            "supportedFilesFormat": [],
        }
    )


def _shown(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence, 1), "language": found.language}


PATHS = [
    ("POST", "/translate", translate),
    ("POST", "/detect", detect),
    ("GET", "/languages", languages),
    ("GET", "/frontend/settings", settings),
]
