"""For clients of DeepL, such as `deepl` of PyPI and Weblate; written from its public documentation.

The documentation of DeepL (https://developers.deepl.com/docs) describes all keys. Below is what
differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from nmt_cli.corpus.text.glossary import BETWEEN_FORMS
from nmt_cli.corpus.text.language_codes import base_of
from nmt_cli.serving.documents import BINARY, FILE, LANGUAGE, Documents, Kept
from nmt_cli.serving.languages import name_of
from nmt_cli.serving.models import ServedGlossary
from nmt_cli.serving.read_documents import ReadDocument, read_document
from nmt_cli.serving.requests import RefusedError, Upload, texts_of
from nmt_cli.serving.served import LinesOfTexts, Served, Texts, nothing
from nmt_cli.serving.service import Endpoint, Service, in_turns
from nmt_cli.translating.interface.record_keys import STRING, Key
from nmt_cli.translating.interface.request import TagRules

# Options that would change the translation, and that no model here has.
REFUSED = ("glossary_ids", "style_id", "custom_instructions", "translation_memory_id")
TAG_LISTS = ("ignore_tags", "splitting_tags", "non_splitting_tags")  # as ``TagRules`` has them
MOST_TAG_CHARACTERS = 4_000  # of each of these lists: workers get it with each line
IMPARTIAL = ("default", "prefer_less", "prefer_more")  # formality that may be ignored
TSV = "text/tab-separated-values"
MOST_CHARACTERS = 10**12  # of an account; clients want a limit
# The client refuses these codes, and asks for one of the regions.
REGIONS = {"en": ("EN-GB", "EN-US"), "pt": ("PT-BR", "PT-PT")}


async def translate(service: Service, http: Request) -> Response:
    """Translate each `text` into `target_lang`, also in HTML or XML (`tag_handling`).

    Each line of a text without markup is translated by itself, and as one sentence if
    `split_sentences` is 0. Without `source_lang`, a text whose language is not certain has that of
    the other texts, as in the interface of LibreTranslate. `glossary_id` is the name of a glossary
    that the service was started with. `ignore_tags`, `splitting_tags` and `non_splitting_tags` need
    `tag_handling`, and are lists, or names with commas between them, of at most 4,000 characters;
    `outline_detection` is that of XML. A `formality` other than `default`, `prefer_less` and
    `prefer_more` is refused, and so are `glossary_ids`, `style_id`, `custom_instructions` and
    `translation_memory_id`. All other keys are ignored: `context`, `preserve_formatting`,
    `model_type`, `show_billed_characters`, `tag_handling_version` and unknown ones.
    """
    lines, sources = await service.asked(http, _asked, takes_long=_detects)
    found = await service.translate_texts(http, lines)
    translations = [
        {"detected_source_language": language, "text": best, "billed_characters": size}
        for (language, size), (best, *_) in zip(sources, found, strict=True)
    ]
    return JSONResponse({"translations": translations})


def _detects(fields: Mapping[str, Any]) -> bool:
    return not fields.get("source_lang")


def _asked(served: Served, fields: Mapping[str, Any]) -> tuple[LinesOfTexts, list[tuple[str, int]]]:
    """Return what the fields ask for, and the language and the size of each text.

    Raises RefusedError if no model can do it.
    """
    texts, languages = _texts(served, fields)
    shown = (base_of(language).upper() for language in languages)
    return served.lines_of(texts), list(zip(shown, map(len, texts.texts), strict=True))


def _texts(served: Served, fields: Mapping[str, Any]) -> tuple[Texts, list[str]]:
    texts = texts_of(fields, "text", served.limits)
    _refuse_wishes(fields)
    markup = fields.get("tag_handling") or None
    if markup not in (None, "html", "xml"):  # any value of JSON
        raise RefusedError(400, "tag_handling must be html or xml")
    tags = _tag_rules(fields, markup)
    source, target = fields.get("source_lang"), str(fields.get("target_lang") or "")
    name, cuts = fields.get("glossary_id"), str(fields.get("split_sentences", "1")) != "0"
    if not source:
        if name:
            raise RefusedError(400, "glossary_id needs source_lang, the language of the glossary")
        choices = served.choices(texts, target)
        models = [each.model for each in choices]
        asked = Texts(texts, models, markup, cuts=cuts, tags=tags)
        return asked, [each.detected.language for each in choices]
    model, glossary = served.models.find(str(source), target), None
    if name:
        model, glossary = served.with_glossary(str(name), model)
    asked = Texts(texts, [model] * len(texts), markup, cuts=cuts, glossary=glossary, tags=tags)
    return asked, [model.source] * len(texts)


def _tag_rules(fields: Mapping[str, Any], markup: str | None) -> TagRules:
    """Return the rules for elements by their names. Raises RefusedError if they cannot be read."""
    found = list[frozenset[str]]()
    for key in TAG_LISTS:
        value = fields.get(key) or []
        given = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in given):
            raise RefusedError(400, f"{key} must be a list of names, or names between commas")
        if given and markup is None:
            raise RefusedError(400, f"{key} needs tag_handling, which is html or xml")
        names = ",".join(given)
        if len(names) > MOST_TAG_CHARACTERS:
            message = f"{key} has {len(names):,} characters, more than {MOST_TAG_CHARACTERS:,}"
            raise RefusedError(413, message)
        names = names.lower() if markup == "html" else names
        found.append(frozenset(name.strip() for name in names.split(",")))
    is_outlined = str(fields.get("outline_detection", "1")).lower() not in {"0", "false"}
    kept, separating, inline = found
    return TagRules(kept, separating, inline, detects=is_outlined or markup != "xml")


def _refuse_wishes(fields: Mapping[str, Any], also: Sequence[str] = ()) -> None:
    for key in (*REFUSED, *also):
        if fields.get(key):
            raise RefusedError(400, f"{key} is not supported")
    if (fields.get("formality") or "default") not in IMPARTIAL:
        raise RefusedError(400, "no model here has a choice of formality")


async def upload(service: Service, http: Request) -> Response:
    """Take a document, the `file`, and translate it meanwhile.

    The ending of its name, or of `filename`, is that of its format: the formats are those of
    `/translate_file`. An `output_format` must be the same. The document waits in memory, for ten
    minutes. Other keys are as in `/v2/translate`, but lists of tags are refused.
    """
    documents: Documents = http.app.state.documents
    kept = await documents.started(http, _read_document)
    return JSONResponse({"document_id": kept.name, "document_key": kept.key})


def _read_document(served: Served, fields: dict[str, Any]) -> ReadDocument:
    _refuse_wishes(fields, also=TAG_LISTS)
    if (name := fields.get("filename")) and isinstance(file := fields.get("file"), Upload):
        fields["file"] = file._replace(name=str(name))
    if (glossary := fields.get("glossary_id")) and not fields.get("source_lang"):
        raise RefusedError(400, "glossary_id needs source_lang, the language of the glossary")
    found = read_document(
        served, fields, source="source_lang", target="target_lang", glossary=glossary
    )
    wanted = fields.get("output_format")
    if wanted and str(wanted).lower() != found.ending.removeprefix("."):
        raise RefusedError(400, f"output_format must be that of the file, {found.ending[1:]}")
    return found


async def document_status(service: Service, http: Request) -> Response:
    """Return how far a document is. It takes the `document_key` of the upload.

    Of one that is done, `failed_segments` names the segments that could not be translated and stay
    as they are, as `failedSegments` of `/translate_file` does.
    """
    kept = await _kept(service, http)
    status = "error" if kept.error else "translating" if kept.data is None else "done"
    more: Mapping[str, Mapping[str, Any]] = {
        "translating": {"seconds_remaining": 1},
        "done": {"billed_characters": kept.num_characters, "failed_segments": kept.failed},
        "error": {"error_message": kept.error},
    }
    return JSONResponse({"document_id": kept.name, "status": status, **more[status]})


async def document_result(service: Service, http: Request) -> Response:
    """Return a translated document, once. It takes the `document_key` of the upload."""
    kept = await _kept(service, http)
    response = kept.response()
    http.app.state.documents.discard(kept)
    return response


async def _kept(service: Service, http: Request) -> Kept:
    documents: Documents = http.app.state.documents
    return documents.find(http.path_params["name"], await service.asked(http, _document_key))


def _document_key(_: Served, fields: Mapping[str, Any]) -> str:
    return str(fields.get("document_key", ""))


async def languages(service: Service, http: Request) -> Response:
    """List the languages to translate from, or with `type=target` those to translate into."""
    if await service.asked(http, _are_sources):
        sources = service.models.sources
        return JSONResponse([{"language": _upper(c), "name": name_of(c)} for c in sources])
    codes = dict.fromkeys(model.target for model in service.models.models)
    return JSONResponse(
        [
            {"language": region, "name": name_of(code), "supports_formality": False}
            for code in codes
            for region in REGIONS.get(code.lower(), (_upper(code),))
        ]
    )


def _are_sources(_: Served, fields: Mapping[str, Any]) -> bool:
    which = fields.get("type", "source")
    if which not in ("source", "target"):  # any value of JSON
        raise RefusedError(400, "type must be source or target")
    return bool(which == "source")


async def usage(service: Service, http: Request) -> Response:
    """Count the characters that were translated since the service began."""
    await service.asked(http, nothing)
    count = service.num_characters
    return JSONResponse({"character_count": count, "character_limit": MOST_CHARACTERS})


async def glossaries(service: Service, http: Request) -> Response:
    """List the glossaries."""
    await service.asked(http, nothing)
    return JSONResponse({"glossaries": [_described(each) for each in service.served.glossaries]})


async def pairs(service: Service, http: Request) -> Response:
    """List the languages of the glossaries in pairs.

    For languages that it lists, Weblate makes glossaries of its own; no request can make one here.
    """
    await service.asked(http, nothing)
    found = service.served.glossaries
    every = dict.fromkeys((base_of(each.source), base_of(each.target)) for each in found)
    shown = [{"source_lang": source, "target_lang": target} for source, target in every]
    return JSONResponse({"supported_languages": shown})


async def glossary(service: Service, http: Request) -> Response:
    """Describe a glossary."""
    await service.asked(http, nothing)
    return JSONResponse(_described(service.served.glossary(http.path_params["name"])))


async def entries(service: Service, http: Request) -> Response:
    """Return the terms of a glossary, a line for each: source, tab, target forms."""
    await service.asked(http, nothing)
    terms = service.served.glossary(http.path_params["name"]).terms.terms.values()
    between = f" {BETWEEN_FORMS} "
    rows = [f"{each.source}\t{between.join(each.targets)}" async for each in in_turns(terms)]
    return PlainTextResponse("\n".join(rows), media_type=TSV)


def _upper(code: str) -> str:
    return code.replace("_", "-").upper()


def _described(glossary: ServedGlossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.name,
        "name": glossary.name,
        "ready": True,
        "source_lang": base_of(glossary.source),
        "target_lang": base_of(glossary.target),
        "creation_time": glossary.read_at.isoformat(),
        "entry_count": len(glossary.terms.terms),
    }


DOCUMENT_KEY = {"document_key": Key(STRING, "that of the upload", is_needed=True)}
PATHS = [
    Endpoint(
        "POST",
        "/v2/translate",
        translate,
        takes={},
        example={"text": ["A cat."], "source_lang": "EN", "target_lang": "DE"},
    ),
    Endpoint(
        "POST",
        "/v2/document",
        upload,
        takes={"file": FILE, "source_lang": LANGUAGE, "target_lang": LANGUAGE},
        returns={
            "document_id": Key(STRING, "its name", is_needed=True),
            "document_key": Key(STRING, "what allows to fetch it", is_needed=True),
        },
        has_file=True,
    ),
    Endpoint("POST", "/v2/document/{name}", document_status, takes=DOCUMENT_KEY),
    Endpoint(
        "POST", "/v2/document/{name}/result", document_result, DOCUMENT_KEY, media_type=BINARY
    ),
    Endpoint("GET", "/v2/languages", languages, takes={}, returns_list=True),
    Endpoint("GET", "/v2/usage", usage, takes={}),
    Endpoint("GET", "/v2/glossary-language-pairs", pairs, takes={}),
    Endpoint("GET", "/v2/glossaries", glossaries, takes={}),
    Endpoint("GET", "/v2/glossaries/{name}", glossary, takes={}),
    Endpoint("GET", "/v2/glossaries/{name}/entries", entries, takes={}, media_type=TSV),
]
