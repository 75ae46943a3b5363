"""For clients of LibreTranslate; written from its public documentation.

They are `libretranslatepy` and `deep-translator` of PyPI, `libretranslate` of npm, and others. The
documentation of LibreTranslate (https://docs.libretranslate.com) describes all keys. Below is what
differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli.serving.documents import BINARY, FAILED, FILE, LANGUAGE, Documents
from nmt_cli.serving.languages import Detected, name_of
from nmt_cli.serving.read_documents import SERVED_ENDINGS, ReadDocument, read_document
from nmt_cli.serving.requests import RefusedError, texts_of, whole_number
from nmt_cli.serving.served import LinesOfTexts, Served, Texts
from nmt_cli.serving.service import Endpoint, Service, in_turns
from nmt_cli.translating.interface.record_keys import STRING, Key

FORMATS = {"text": None, "html": "html"}


async def translate(service: Service, http: Request) -> Response:
    """Translate a text or a list of texts, `q`, from `source` into `target`.

    Each line of a text is translated by itself, unless its `format` is html. Where `q` is a list,
    so is each value of the answer. With the source auto, a text whose language is not certain, such
    as "OK" or a number, has the language of the other texts, or that of the only model for the
    target; if there is no such language, and if a text is in the target language already, it stays
    as it is. One of at least 20 characters that is certainly in a language of no model is refused.
    There are at most as many `alternatives` as other hypotheses in the search.
    """
    asked = await service.asked(http, _asked, takes_long=_detects)
    found = await service.translate_texts(http, asked.lines)
    answer: dict[str, Any] = {"translatedText": [each[0] for each in found]}
    if asked.detected:
        answer["detectedLanguage"] = [_shown(each) for each in asked.detected]
    if asked.num_alternatives:
        answer["alternatives"] = [each[1:] for each in found]
    if not asked.is_list:
        answer = {key: value[0] for key, value in answer.items()}
    return JSONResponse(answer)


class _Asked(NamedTuple):
    """What a request asks for."""

    lines: LinesOfTexts
    detected: Sequence[Detected]  # the language of each text, if that is to be detected
    num_alternatives: int
    is_list: bool


def _detects(fields: Mapping[str, Any]) -> bool:
    return fields.get("source") == "auto"


def _asked(served: Served, fields: Mapping[str, Any]) -> _Asked:
    texts = texts_of(fields, "q", served.limits)
    source, target = (str(fields.get(name) or "") for name in ("source", "target"))
    form = str(fields.get("format") or "text")
    if form not in FORMATS:
        raise RefusedError(400, "format must be text or html")
    num_alternatives = whole_number(fields, "alternatives")
    choices = served.choices(texts, target) if _detects(fields) else []
    models = [each.model for each in choices] or [served.models.find(source, target)] * len(texts)
    lines = served.lines_of(Texts(texts, models, FORMATS[form], num_alternatives))
    detected = [each.detected for each in choices]
    return _Asked(lines, detected, num_alternatives, isinstance(fields["q"], list))


async def translate_file(service: Service, http: Request) -> Response:
    """Translate a document, the `file`, from `source` into `target`.

    The ending of its name is that of its format: the formats are those of `nmt-cli translate`, and
    `.txt`, whose lines are translated one by one. The document waits in memory, for ten
    minutes, at the address that the answer has. With the source auto, its language is detected.
    """
    documents: Documents = http.app.state.documents
    kept = await documents.translated(http, _read_document)
    address = f"{http.base_url}download_file/{kept.name}"
    return JSONResponse({"translatedFileUrl": address, "failedSegments": kept.failed})


def _read_document(served: Served, fields: Mapping[str, Any]) -> ReadDocument:
    return read_document(served, fields, source="source", target="target")


async def download_file(_: Service, http: Request) -> Response:
    """Return a translated document. Its address is the secret that allows it."""
    documents: Documents = http.app.state.documents
    return documents.find(http.path_params["name"]).response()


async def detect(service: Service, http: Request) -> Response:
    """Return the languages that the text `q` may be in, the most probable one first.

    They are those of the models, before which there is another one if a long text is certainly in
    it. The confidence is in percent, among all languages that can be detected. Of a list only the
    first text is read.
    """
    found = await service.asked(http, _detected, takes_long=lambda fields: True)
    return JSONResponse([_shown(each) for each in found])


def _detected(served: Served, fields: Mapping[str, Any]) -> list[Detected]:
    text = texts_of(fields, "q", served.limits)[0]
    foreign = served.detector.foreign(text.strip())
    return [*([foreign] if foreign else []), *served.detector.detect(text)]


async def languages(service: Service, _: Request) -> Response:
    """List the languages, each with those that it can be translated into."""
    codes = in_turns(service.models.languages)
    return JSONResponse(
        [
            {"code": code, "name": name_of(code), "targets": service.models.targets_of(code)}
            async for code in codes
        ]
    )


async def settings(service: Service, _: Request) -> Response:
    """Return what a page needs to know of the service."""
    first = service.models.models[0]
    return JSONResponse(
        {
            "apiKeys": service.served.has_keys,
            "charLimit": service.limits.characters,
            "filesTranslation": True,
            "frontendTimeout": 500,  # milliseconds between typing and translating
            "keyRequired": service.served.has_keys,
            "language": {
                "source": {"code": first.source, "name": name_of(first.source)},
                "target": {"code": first.target, "name": name_of(first.target)},
            },
            "suggestions": False,
            "supportedFilesFormat": SERVED_ENDINGS,
        }
    )


def _shown(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.of_all, 1), "language": found.language}


PATHS = [
    Endpoint(
        "POST",
        "/translate",
        translate,
        takes={},
        example={"q": "A cat.", "source": "auto", "target": "de", "alternatives": 1},
    ),
    Endpoint(
        "POST",
        "/translate_file",
        translate_file,
        takes={"file": FILE, "source": LANGUAGE, "target": LANGUAGE},
        returns={
            "translatedFileUrl": Key(STRING, "where it is", is_needed=True),
            "failedSegments": FAILED,
        },
        has_file=True,
    ),
    Endpoint("GET", "/download_file/{name}", download_file, media_type=BINARY),
    Endpoint("POST", "/detect", detect, takes={}, returns_list=True, example={"q": "A cat."}),
    Endpoint("GET", "/languages", languages, returns_list=True),
    Endpoint("GET", "/frontend/settings", settings),
]
