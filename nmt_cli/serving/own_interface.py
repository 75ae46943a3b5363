"""All that a line of jsonl can ask for, and all that is known of a translation."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli.corpus.text.language_codes import fits
from nmt_cli.serving.models import Model
from nmt_cli.serving.requests import RefusedError, refuse_many_phrases, refuse_wrong_keys
from nmt_cli.serving.served import Served
from nmt_cli.serving.service import Endpoint, Service, in_turns
from nmt_cli.translating.interface import record_keys
from nmt_cli.translating.interface.record_keys import (
    COUNT,
    LINE,
    STRING,
    TRUTH,
    Key,
    list_of,
    objects,
)
from nmt_cli.translating.interface.request import Request as Line
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.segments import joined_for, sentences


async def translate(service: Service, http: Request) -> Response:
    """Translate a text or a list of texts, with all that is known of each translation.

    Keys other than `text`, `source`, `target`, `model` and `token_scores` are those of a line of
    jsonl, and hold for each text. If `split` is true, each sentence of a text is translated by
    itself, and the answer is that of the whole text. If it is not given, so is a text that
    certainly has several sentences, by a model that was trained on single ones. A client that shows
    pairs of sentences first cuts the text by `/v1/sentences`, and sends the sentences as a list.

    Where no model has both languages, but one translates from the source into a pivot language, and
    another one from there into the target, both translate the text, one after the other, and
    `through` is the pivot language. It takes the time of two translations, and mistakes add up: the
    second model does not see the source, so it translates mistakes of the first, and cannot know
    what the pivot language does not say, such as whether an English "you" is one person. What is
    asked of the translation (alternatives, phrases, the search) is asked of the second model, and
    scores, pieces and matches of a memory are those of the second. Words of the source are aligned
    with those of the target through the words of the pivot language. A glossary of the service is
    used by the model whose languages it is for; terms in the request are refused.
    """
    model, lines, with_scores = await service.asked(http, _asked, only_json=True)
    translations = await service.translate(http, [model] * len(lines), lines)
    # One after the other, because the encoder of JSON lets nothing else go on.
    parts = [_json(_shown(each, with_scores)) async for each in in_turns(translations)]
    head = {"model": model.name, "source": model.source, "target": model.target, **_through(model)}
    body = _json(head)[:-1] + b',"translations":[' + b",".join(parts) + b"]}"
    return Response(body, media_type=JSONResponse.media_type)


def _json(value: Any) -> bytes:
    """Return ``value`` as ``JSONResponse`` writes it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _asked(served: Served, record: dict[str, Any]) -> tuple[Model, list[Line], bool]:
    """Return the model, what is wanted of each text, and whether with the scores of pieces."""
    refuse_wrong_keys(record, REQUEST)
    refuse_many_phrases(record)
    texts = record["text"] if isinstance(record["text"], list) else [record["text"]]
    served.limits.refuse_large(texts)
    wanted = (record.pop(key, None) for key in ("source", "target", "model"))
    model, with_scores = served.models.find(*wanted), record.pop("token_scores", False)
    terms = None
    if isinstance(record.get("glossary"), str):
        model, terms = served.with_glossary(record.pop("glossary"), model)
    elif model.steps and record.get("glossary"):
        raise RefusedError(
            400,
            f"glossary: two models translate {model.source} to {model.target} through "
            f"{model.through}; they take only a glossary of the service that is for one of them",
        )
    protect = served.patterns(model, record.pop("protect", None))
    try:
        first = record_keys.request_of({**record, "protect": protect, "text": texts[0]})
        rest = [record_keys.request_of({"text": text}).text for text in texts[1:]]
    except ValueError as error:
        raise RefusedError(400, str(error)) from None
    lines = [first, *(first._replace(text=text) for text in rest)]
    if terms is not None:
        lines = [each._replace(glossary=terms.for_line(each.text, each.markup)) for each in lines]
    return model, lines, with_scores


async def cut_sentences(service: Service, http: Request) -> Response:
    """Cut a text into sentences, by the rules of its language.

    The text is `gaps[0] + sentences[0] + gaps[1] + ...`. A translation is put together in the same
    way with `target_gaps`, which have the blanks that the language `target` writes.
    """
    body = await service.asked(http, _cut_sentences, only_json=True)
    return Response(body, media_type=JSONResponse.media_type)


def _cut_sentences(served: Served, record: dict[str, Any]) -> bytes:
    refuse_wrong_keys(record, CUT)
    text, source = record["text"], record["source"]
    served.limits.refuse_large([text])
    known = served.models.sources
    if not any(fits(source, code) for code in known):
        raise RefusedError(400, f"no model has the source {source!r}; known: {', '.join(known)}")
    segments = sentences(text, source)
    parts = {"sentences": segments.texts, "gaps": segments.gaps}
    if "target" in record:
        joined = joined_for(segments, source, record["target"])
        parts["target_gaps"] = joined.target_gaps or joined.gaps
    return _json(parts)


async def models(service: Service, _: Request) -> Response:
    """List the models."""
    every = in_turns(service.models.every)  # of many languages there are thousands of pairs
    return JSONResponse({"models": [_description(service, each) async for each in every]})


def _description(service: Service, model: Model) -> dict[str, Any]:
    described = {key: value for key, value in model._asdict().items() if key in MODEL}
    names = [each.name for each in service.served.glossaries if each.fits(model)]
    return {**described, "glossaries": names, **_through(model)}


def _through(model: Model) -> dict[str, str]:
    return {"through": model.through} if model.through else {}


def _shown(translation: Translation, with_scores: bool) -> dict[str, Any]:
    record = record_keys.record_of(translation)
    if not with_scores:
        for each in (record, *record["alternatives"]):
            each.pop("token_scores", None)
    return record


CODE = Key(STRING, "code of a language, such as en or pt-BR", is_needed=True)
PIVOT = "the pivot language, if two models translate"
THROUGH = {"through": CODE._replace(meaning=PIVOT, is_needed=False)}
REQUEST = {
    **{name: key for name, key in LINE.items() if name != "tag"},  # the languages have a tag
    "text": Key(
        {"anyOf": [STRING, list_of(STRING, 1)]},
        "what to translate; each text of a list by itself",
        is_needed=True,
        words="a string, or a list of strings that is not empty",
    ),
    "source": CODE._replace(
        meaning="code of the language of the text, such as en or pt-BR; may be left out where the "
        "models leave no choice",
        is_needed=False,
    ),
    "target": CODE._replace(meaning="that of the translation", is_needed=False),
    "model": Key(
        STRING, "name of a model of `/v1/models`; by default the first for these languages"
    ),
    "glossary": Key(
        {"anyOf": [STRING, LINE["glossary"].schema]},
        "name of a glossary that the service was started with, or the terms of this request",
        words=f"a string, or {LINE['glossary'].allowed}",
    ),
    "protect": Key(
        list_of(STRING),
        "patterns of text that is copied, beside placeholders: `common`, and those that the "
        "service was started with, which are the default",
        words="a list of names",
    ),
    "token_scores": Key(TRUTH, "whether the answer has the score of each piece"),
}
ANSWER = {
    "model": Key(STRING, "name of the model that was chosen", is_needed=True),
    "source": CODE,
    "target": CODE,
    **THROUGH,
    "translations": objects(
        "for each text, in order, what `translate --format jsonl` writes", record_keys.TRANSLATION
    ),
}
CUT = {
    "text": Key(STRING, "what to cut", is_needed=True),
    "source": CODE._replace(meaning="its language, which is that of a model"),
    "target": CODE._replace(meaning="that of the translation", is_needed=False),
}
PARTS = {
    "sentences": Key(list_of(STRING), "each sentence", is_needed=True),
    "gaps": Key(
        list_of(STRING, 1),
        "the white space before, between and after them, one more than there are sentences",
        is_needed=True,
    ),
    "target_gaps": Key(list_of(STRING, 1), "those of the translation, if `target` is given"),
}
MODEL = {
    "name": Key(STRING, "by which requests choose it", is_needed=True),
    "source": CODE,
    "target": CODE,
    "beam_size": Key(COUNT, "the most that a request may ask for", is_needed=True),
    "parses": Key(TRUTH, "whether it writes trees", is_needed=True),
    "glossaries": Key(list_of(STRING), "names of those for its languages", is_needed=True),
    **THROUGH,
}
MODELS = {"models": objects("each model", MODEL)}
PATHS = [
    Endpoint(
        "POST",
        "/v1/translate",
        translate,
        REQUEST,
        ANSWER,
        example={"text": ["A cat.", "Two cats."], "source": "en", "n_best": 2},
        is_closed=True,
        only_json=True,
    ),
    Endpoint(
        "POST",
        "/v1/sentences",
        cut_sentences,
        CUT,
        PARTS,
        example={"text": "A cat. Two cats.", "source": "en"},
        is_closed=True,
        only_json=True,
    ),
    Endpoint("GET", "/v1/models", models, returns=MODELS),
]
