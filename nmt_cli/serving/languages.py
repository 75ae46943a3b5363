"""Languages: their names, whether two codes mean the same one, and which one a text is in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# The names of ISO 639, by code.
NAMES = dict(
    line.split(maxsplit=1)
    for line in """\
af Afrikaans
am Amharic
ar Arabic
az Azerbaijani
be Belarusian
bg Bulgarian
bn Bengali
bs Bosnian
ca Catalan
cs Czech
cy Welsh
da Danish
de German
el Greek
en English
eo Esperanto
es Spanish
et Estonian
eu Basque
fa Persian
fi Finnish
fr French
fy Western Frisian
ga Irish
gl Galician
gu Gujarati
ha Hausa
he Hebrew
hi Hindi
hr Croatian
hu Hungarian
hy Armenian
id Indonesian
ig Igbo
is Icelandic
it Italian
ja Japanese
ka Georgian
kk Kazakh
km Khmer
kn Kannada
ko Korean
ku Kurdish
ky Kyrgyz
la Latin
lb Luxembourgish
lo Lao
lt Lithuanian
lv Latvian
mg Malagasy
mk Macedonian
ml Malayalam
mn Mongolian
mr Marathi
ms Malay
mt Maltese
my Burmese
nb Norwegian Bokmål
ne Nepali
nl Dutch
nn Norwegian Nynorsk
no Norwegian
oc Occitan
or Odia
pa Punjabi
pl Polish
ps Pashto
pt Portuguese
ro Romanian
ru Russian
rw Kinyarwanda
sa Sanskrit
si Sinhala
sk Slovak
sl Slovenian
so Somali
sq Albanian
sr Serbian
sv Swedish
sw Swahili
ta Tamil
te Telugu
tg Tajik
th Thai
tk Turkmen
tl Tagalog
tr Turkish
tt Tatar
ug Uyghur
uk Ukrainian
ur Urdu
uz Uzbek
vi Vietnamese
xh Xhosa
yi Yiddish
yo Yoruba
zh Chinese
zu Zulu""".splitlines()
)


class Detected(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float  # from 0 to 1


def name_of(code: str) -> str:
    """Return the English name of a language, or its code if the name is not known."""
    return NAMES.get(base_of(code), code)


def base_of(code: str) -> str:
    """Return the language of a code without its region or script: "pt" of "pt-BR"."""
    return code.replace("_", "-").partition("-")[0].lower()


def fits(asked: str, code: str) -> bool:
    """Return whether a model of language ``code`` is one for ``asked``.

    A code without a region is the language of any region.
    """
    one, other = (each.replace("_", "-").lower() for each in (asked, code))
    return one == other or (base_of(one) == base_of(other) and base_of(one) in {one, other})


class Detector:
    """Finds the language of a text among ``languages``."""

    def __init__(self, languages: Iterable[str]) -> None:
        self._languages = {base_of(code): code for code in languages}

    @cached_property
    def _identifier(self) -> LanguageIdentifier | None:
        """The statistics of the languages that it knows, which take a second to load."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(self._languages) & set(identifier.labels)
        if not known:
            return None
        identifier.set_languages(known)
        return identifier

    def detect(self, text: str) -> list[Detected]:
        """Return the languages that ``text`` may be in, the most probable one first."""
        if len(self._languages) == 1:
            return [Detected(code, 1.0) for code in self._languages.values()]
        if self._identifier is None:
            return [Detected(code, 0.0) for code in self._languages.values()]
        return [
            Detected(self._languages[base], confidence)
            for base, confidence in self._identifier.rank(text)
        ]
