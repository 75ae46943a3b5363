"""What a language model is asked: an instruction, and lines as a JSON object by their numbers."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.language_codes import NAMES, base_of, standard_code
from nmt_cli.recipe.sections.training import NAME_IN_PROMPT, TeacherConfig

PROMPT = (
    "Translate from {source_language} to {target_language}. Keep placeholders, tags, numbers and "
    "URLs as they are. Write the translations only, without comments, explanations or alternatives."
)
OF_DOMAIN = " The text is about {domain}."
OF_TERMS = " Translate these terms as they are given here:\n{terms}"
# Follows any prompt, because the answer is read by it.
FORM = (
    "The lines to translate are in the JSON object below. Answer with a JSON object only, which "
    "has the same numbers as its keys, and the translation of each line as the value."
)


class SourceLine(NamedTuple):
    """A line to translate, the terms that occur in it, and a checksum of all that is asked."""

    text: str
    terms: tuple[str, ...]
    key: bytes


class Prompt:
    """What is asked for the lines of a text."""

    def __init__(
        self,
        config: TeacherConfig,
        languages: tuple[str, str],
        tag: str | None = None,
        glossary: Glossary | None = None,
    ) -> None:
        """``languages`` are codes, the source first."""
        self._config, self.languages, self._glossary = config, languages, glossary
        source, target = map(_name_of, languages)
        self._values = {"source_language": source, "target_language": target, "tag": tag or ""}
        self._seed = json.dumps([*teacher_of(config), self.instruction(())]).encode()

    def line(self, text: str) -> SourceLine:
        """Return a line with its terms and its key."""
        found = self._glossary.found_in(text) if self._glossary else []
        terms = tuple(f"{term.source} = {' or '.join(term.targets)}" for term in found)
        asked = "\n".join([text, *terms]).encode()
        return SourceLine(text, terms, hashlib.sha256(self._seed + asked).digest()[:16])

    def instruction(self, terms: Iterable[str]) -> str:
        """Return what stands in front of the lines."""
        config, shown = self._config, "\n".join(dict.fromkeys(terms))
        own = PROMPT + OF_DOMAIN * bool(config.domain) + OF_TERMS * bool(shown)
        values = {**self._values, "domain": config.domain or "", "terms": shown}
        return NAME_IN_PROMPT.sub(lambda match: values[match[1]], config.prompt or own)

    def message(self, lines: Sequence[SourceLine]) -> str:
        """Return the message for these lines."""
        instruction = self.instruction(term for line in lines for term in line.terms)
        texts = {str(number): line.text for number, line in enumerate(lines, 1)}
        return f"{instruction}\n\n{FORM}\n\n{json.dumps(texts, ensure_ascii=False, indent=0)}"


def teacher_of(config: TeacherConfig) -> list[object]:
    """Return what every translation depends on, beside the languages and the line."""
    return [config.model, config.temperature, config.prompt or PROMPT, config.domain, FORM]


def _name_of(code: str) -> str:
    """Return the name of a language, with its code where a region or a script is in that."""
    name, code = NAMES.get(base_of(code), ""), standard_code(code)
    return name if name and "-" not in code else f"{name} ({code})".strip()
