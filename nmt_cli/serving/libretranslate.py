"""For clients of LibreTranslate; written from its public documentation.

They are `libretranslatepy` and `deep-translator` of PyPI, `libretranslate` of npm, and others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli.serving.languages import Detected, name_of
from nmt_cli.serving.requests import (
    CODE,
    TEXTS,
    Endpoint,
    RefusedError,
    is_large,
    texts_of,
    whole_number,
)
from nmt_cli.serving.service import Service, Texts
from nmt_cli.translating.record_keys import FROM_0, NUMBER, STRING, TRUTH, Key, list_of, object_of

FORMATS = {"text": None, "html": "html"}


async def translate(service: Service, http: Request) -> Response:
    """Translate a text or a list of texts.

    Each line of a text is translated by itself, unless it is HTML. Where `q` is a list, so is each
    value of the answer. With the source auto, a text whose language is not certain, such as "OK" or
    a number, has the language of the other texts, or that of the only model for the target; if
    there is no such language, and if a text is in the target language already, it stays as it is.
    """
    fields = await service.fields(http)
    # Detection loads its statistics first.
    is_long = is_large(http) or fields.get("source") == "auto"
    asked, detected = await service.aside(is_long, _asked, service, fields)
    found = await service.translate_texts(http, asked)
    return await service.aside(is_large(http), _answer, fields["q"], asked, detected, found)


def _asked(service: Service, fields: Mapping[str, Any]) -> tuple[Texts, list[Detected]]:
    """Return what the fields ask for, and the language of each text if it is to be detected."""
    texts = texts_of(fields, "q", service.limits)
    source, target = (str(fields.get(name, "")) for name in ("source", "target"))
    form = str(fields.get("format") or "text")
    if form not in FORMATS:
        raise RefusedError(400, "format must be text or html")
    num_alternatives = whole_number(fields, "alternatives", 0)
    choices = service.choices(texts, target) if source == "auto" else []
    models = [each.model for each in choices] or [service.model(source, target)] * len(texts)
    return Texts(texts, models, FORMATS[form], num_alternatives), [c.detected for c in choices]


def _answer(
    q: str | list[str], asked: Texts, detected: list[Detected], found: list[list[str]]
) -> Response:
    answer: dict[str, Any] = {"translatedText": [each[0] for each in found]}
    if detected:
        answer["detectedLanguage"] = [_shown(each) for each in detected]
    if asked.num_alternatives:
        answer["alternatives"] = [each[1:] for each in found]
    if not isinstance(q, list):
        answer = {key: value[0] for key, value in answer.items()}
    return JSONResponse(answer)


async def detect(service: Service, http: Request) -> Response:
    """Return the languages that a text may be in, the most probable one first."""
    fields = await service.fields(http)
    text = texts_of(fields, "q", service.limits)[0]
    found = await service.aside(True, service.detector.detect, text)
    return JSONResponse([_shown(each) for each in found])


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


Q = Key("a string or a list of strings", "what to translate", TEXTS, is_needed=True)
REQUEST = {
    "q": Q,
    "source": CODE._replace(meaning="code of the language of the text, or auto to detect it"),
    "target": CODE._replace(meaning="code of the language of the translation"),
    "format": Key("text or html", "what the text is", {"enum": ["text", "html"]}),
    "alternatives": Key("a whole number", "how many further translations", FROM_0),
}
DETECTED = {
    "language": CODE,
    "confidence": Key("a number", "from 0 to 100", NUMBER, is_needed=True),
}
ANSWER = {
    "translatedText": Key("a string or a list of strings", "the translation", TEXTS, True),
    "detectedLanguage": Key(
        "an object, or a list of objects",
        "if the source is auto: `language` and `confidence`, from 0 to 100",
        {"anyOf": [object_of(DETECTED), list_of(object_of(DETECTED))]},
    ),
    "alternatives": Key(
        "a list of strings, or a list of lists",
        "if asked for, best first; no more than hypotheses in the search",
        {"anyOf": [list_of(STRING), list_of(list_of(STRING))]},
    ),
}
LANGUAGE = {
    "code": CODE,
    "name": Key("a string", "in English", STRING, is_needed=True),
    "targets": Key("a list of strings", "into which it is translated", list_of(STRING), True),
}
NAMED = object_of({"code": CODE, "name": LANGUAGE["name"]})
SETTINGS = {
    "apiKeys": Key("true or false", "whether there are keys", TRUTH, is_needed=True),
    "keyRequired": Key("true or false", "whether one is needed", TRUTH, is_needed=True),
    "charLimit": Key("a number", "most characters of a request", FROM_0, is_needed=True),
    "frontendTimeout": Key("a number", "milliseconds until a page translates", FROM_0, True),
    "language": Key(
        "an object",
        "`source` and `target` of the first model, each with `code` and `name`",
        {"type": "object", "properties": {"source": NAMED, "target": NAMED}},
        is_needed=True,
    ),
    "filesTranslation": Key("false", "files are not translated", TRUTH, is_needed=True),
    "supportedFilesFormat": Key("a list", "it is empty", list_of(STRING), is_needed=True),
    "suggestions": Key("false", "suggestions are not collected", TRUTH, is_needed=True),
}
PATHS = [
    Endpoint(
        "POST",
        "/translate",
        translate,
        REQUEST,
        ANSWER,
        example={"q": "A cat.", "source": "auto", "target": "de", "alternatives": 1},
    ),
    Endpoint(
        "POST",
        "/detect",
        detect,
        {"q": Q._replace(meaning="the text; of a list only the first")},
        DETECTED,
        returns_list=True,
        example={"q": "A cat."},
    ),
    Endpoint("GET", "/languages", languages, returns=LANGUAGE, returns_list=True),
    Endpoint("GET", "/frontend/settings", settings, returns=SETTINGS),
]
