"""The codes of languages, their names, and what identifies the language of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from nmt_cli.messages.proposals import any_of, slips

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# All codes of two letters in ISO 639, with their names.
LISTED = """\
aa Afar, ab Abkhazian, ae Avestan, af Afrikaans, ak Akan, am Amharic, an Aragonese, ar Arabic,
as Assamese, av Avaric, ay Aymara, az Azerbaijani, ba Bashkir, be Belarusian, bg Bulgarian,
bi Bislama, bm Bambara, bn Bengali, bo Tibetan, br Breton, bs Bosnian, ca Catalan, ce Chechen,
ch Chamorro, co Corsican, cr Cree, cs Czech, cu Church Slavic, cv Chuvash, cy Welsh, da Danish,
de German, dv Divehi, dz Dzongkha, ee Ewe, el Greek, en English, eo Esperanto, es Spanish,
et Estonian, eu Basque, fa Persian, ff Fulah, fi Finnish, fj Fijian, fo Faroese, fr French,
fy Western Frisian, ga Irish, gd Scottish Gaelic, gl Galician, gn Guarani, gu Gujarati, gv Manx,
ha Hausa, he Hebrew, hi Hindi, ho Hiri Motu, hr Croatian, ht Haitian, hu Hungarian, hy Armenian,
hz Herero, ia Interlingua, id Indonesian, ie Interlingue, ig Igbo, ii Sichuan Yi, ik Inupiaq,
io Ido, is Icelandic, it Italian, iu Inuktitut, ja Japanese, jv Javanese, ka Georgian, kg Kongo,
ki Kikuyu, kj Kuanyama, kk Kazakh, kl Kalaallisut, km Khmer, kn Kannada, ko Korean, kr Kanuri,
ks Kashmiri, ku Kurdish, kv Komi, kw Cornish, ky Kyrgyz, la Latin, lb Luxembourgish, lg Ganda,
li Limburgan, ln Lingala, lo Lao, lt Lithuanian, lu Luba-Katanga, lv Latvian, mg Malagasy,
mh Marshallese, mi Maori, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, ms Malay,
mt Maltese, my Burmese, na Nauru, nb Norwegian Bokmål, nd North Ndebele, ne Nepali, ng Ndonga,
nl Dutch, nn Norwegian Nynorsk, no Norwegian, nr South Ndebele, nv Navajo, ny Nyanja, oc Occitan,
oj Ojibwa, om Oromo, or Odia, os Ossetian, pa Punjabi, pi Pali, pl Polish, ps Pashto, pt Portuguese,
qu Quechua, rm Romansh, rn Rundi, ro Romanian, ru Russian, rw Kinyarwanda, sa Sanskrit,
sc Sardinian, sd Sindhi, se Northern Sami, sg Sango, sh Serbo-Croatian, si Sinhala, sk Slovak,
sl Slovenian, sm Samoan, sn Shona, so Somali, sq Albanian, sr Serbian, ss Swati, st Southern Sotho,
su Sundanese, sv Swedish, sw Swahili, ta Tamil, te Telugu, tg Tajik, th Thai, ti Tigrinya,
tk Turkmen, tl Tagalog, tn Tswana, to Tonga, tr Turkish, ts Tsonga, tt Tatar, tw Twi, ty Tahitian,
ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, ve Venda, vi Vietnamese, vo Volapük, wa Walloon,
wo Wolof, xh Xhosa, yi Yiddish, yo Yoruba, za Zhuang, zh Chinese, zu Zulu"""
NAMES = dict(entry.split(maxsplit=1) for entry in LISTED.split(","))
# Countries whose codes are written in place of those of their languages.
COUNTRIES = {
    "cn": "zh", "cz": "cs", "dk": "da", "gb": "en", "ge": "ka", "gr": "el", "jp": "ja", "tw": "zh",
    "ua": "uk", "us": "en", "vn": "vi",
}  # fmt: skip
# Codes that mean the same as others: those of LibreTranslate and Argos, former ones of ISO 639, a
# country in place of the script of Chinese. "no" is mostly written for Bokmål.
ALIASES = {
    "cmn": "zh", "fil": "tl", "in": "id", "iw": "he", "ji": "yi", "no": "nb", "pb": "pt-br",
    "zh-cn": "zh-hans", "zh-hk": "zh-hant", "zh-mo": "zh-hant", "zh-sg": "zh-hans",
    "zh-tw": "zh-hant", "zt": "zh-hant",
}  # fmt: skip
LABELS = {"nb": "no"}  # of py3langid, where they are not the codes
LONGER_CODE = re.compile("[a-z]{3}")  # of ISO 639-2 and 639-3, such as ckb


def subtags_of(language: str) -> list[str]:
    """Return the parts of a code in lower case: "pt" and "br" of "pt-BR"; aliases are replaced."""
    code = language.replace("_", "-").lower()
    base, *others = ALIASES.get(code, code).split("-")
    return [ALIASES.get(base, base), *others]


def standard_code(language: str) -> str:
    """Return a code as BCP 47 writes it, such as pt-BR and zh-Hant; aliases are replaced."""
    return _written(subtags_of(language))


def spelled(language: str) -> str:
    """Return the same code as BCP 47 writes it, as pages and documents need it: pt-BR for pt_br."""
    return _written(language.replace("_", "-").lower().split("-"))


def _written(subtags: Sequence[str]) -> str:
    base, *others = subtags
    return "-".join([base, *(each.upper() if len(each) == 2 else each.title() for each in others)])


def base_of(language: str) -> str:
    """Return the code without region and script: "pt" of "pt-BR"."""
    return subtags_of(language)[0]


def label_of(language: str) -> str:
    """Return what py3langid calls a language, if it knows it."""
    base = base_of(language)
    return LABELS.get(base, base)


@lru_cache
def language_identifier() -> LanguageIdentifier:
    """Return the statistics of all languages of py3langid, which take a second to load."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def why_no_code(code: str) -> str | None:
    """Return why ``code`` is not a code of a language, with the one that is meant; None if it is.

    Codes of three letters are not looked up.
    """
    base = base_of(code)
    if base in NAMES and "_" in code:
        right = code.replace("_", "-")
        return f"{code} is no code of a language; did you mean {base} or {right}?"
    if base in NAMES or LONGER_CODE.fullmatch(base):
        return None
    codes = {name.lower(): each for each, name in NAMES.items()}
    meant = [COUNTRIES[base]] if base in COUNTRIES else []
    meant = meant or [codes[name] for name in slips(base, codes)]
    proposal = (
        f"did you mean {any_of(meant)}?" if meant else "write one of ISO 639, such as en or ckb."
    )
    return f"{code} is no code of a language; {proposal}"
