"""The codes of languages, their names, and what identifies the language of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from nmt_cli.messages.proposals import any_of, slips

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

LEAST_LENGTH = 20  # characters of a text whose language can be certain
# All codes of two letters in ISO 639, with those of three letters and their names.
LISTED = """\
aa aar Afar, ab abk Abkhazian, ae ave Avestan, af afr Afrikaans, ak aka Akan, am amh Amharic,
an arg Aragonese, ar ara Arabic, as asm Assamese, av ava Avaric, ay aym Aymara, az aze Azerbaijani,
ba bak Bashkir, be bel Belarusian, bg bul Bulgarian, bi bis Bislama, bm bam Bambara, bn ben Bengali,
bo bod Tibetan, br bre Breton, bs bos Bosnian, ca cat Catalan, ce che Chechen, ch cha Chamorro,
co cos Corsican, cr cre Cree, cs ces Czech, cu chu Church Slavic, cv chv Chuvash, cy cym Welsh,
da dan Danish, de deu German, dv div Divehi, dz dzo Dzongkha, ee ewe Ewe, el ell Greek,
en eng English, eo epo Esperanto, es spa Spanish, et est Estonian, eu eus Basque, fa fas Persian,
ff ful Fulah, fi fin Finnish, fj fij Fijian, fo fao Faroese, fr fra French, fy fry Western Frisian,
ga gle Irish, gd gla Scottish Gaelic, gl glg Galician, gn grn Guarani, gu guj Gujarati, gv glv Manx,
ha hau Hausa, he heb Hebrew, hi hin Hindi, ho hmo Hiri Motu, hr hrv Croatian, ht hat Haitian,
hu hun Hungarian, hy hye Armenian, hz her Herero, ia ina Interlingua, id ind Indonesian,
ie ile Interlingue, ig ibo Igbo, ii iii Sichuan Yi, ik ipk Inupiaq, io ido Ido, is isl Icelandic,
it ita Italian, iu iku Inuktitut, ja jpn Japanese, jv jav Javanese, ka kat Georgian, kg kon Kongo,
ki kik Kikuyu, kj kua Kuanyama, kk kaz Kazakh, kl kal Kalaallisut, km khm Khmer, kn kan Kannada,
ko kor Korean, kr kau Kanuri, ks kas Kashmiri, ku kur Kurdish, kv kom Komi, kw cor Cornish,
ky kir Kyrgyz, la lat Latin, lb ltz Luxembourgish, lg lug Ganda, li lim Limburgan, ln lin Lingala,
lo lao Lao, lt lit Lithuanian, lu lub Luba-Katanga, lv lav Latvian, mg mlg Malagasy,
mh mah Marshallese, mi mri Maori, mk mkd Macedonian, ml mal Malayalam, mn mon Mongolian,
mr mar Marathi, ms msa Malay, mt mlt Maltese, my mya Burmese, na nau Nauru, nb nob Norwegian Bokmål,
nd nde North Ndebele, ne nep Nepali, ng ndo Ndonga, nl nld Dutch, nn nno Norwegian Nynorsk,
no nor Norwegian, nr nbl South Ndebele, nv nav Navajo, ny nya Nyanja, oc oci Occitan, oj oji Ojibwa,
om orm Oromo, or ori Odia, os oss Ossetian, pa pan Punjabi, pi pli Pali, pl pol Polish,
ps pus Pashto, pt por Portuguese, qu que Quechua, rm roh Romansh, rn run Rundi, ro ron Romanian,
ru rus Russian, rw kin Kinyarwanda, sa san Sanskrit, sc srd Sardinian, sd snd Sindhi,
se sme Northern Sami, sg sag Sango, sh hbs Serbo-Croatian, si sin Sinhala, sk slk Slovak,
sl slv Slovenian, sm smo Samoan, sn sna Shona, so som Somali, sq sqi Albanian, sr srp Serbian,
ss ssw Swati, st sot Southern Sotho, su sun Sundanese, sv swe Swedish, sw swa Swahili, ta tam Tamil,
te tel Telugu, tg tgk Tajik, th tha Thai, ti tir Tigrinya, tk tuk Turkmen, tl tgl Tagalog,
tn tsn Tswana, to ton Tonga, tr tur Turkish, ts tso Tsonga, tt tat Tatar, tw twi Twi,
ty tah Tahitian, ug uig Uyghur, uk ukr Ukrainian, ur urd Urdu, uz uzb Uzbek, ve ven Venda,
vi vie Vietnamese, vo vol Volapük, wa wln Walloon, wo wol Wolof, xh xho Xhosa, yi yid Yiddish,
yo yor Yoruba, za zha Zhuang, zh zho Chinese, zu zul Zulu"""
ENTRIES = [entry.split(maxsplit=2) for entry in LISTED.split(",")]
NAMES = {code: name for code, _, name in ENTRIES}
# Countries whose codes are written in place of those of their languages.
COUNTRIES = {
    "cn": "zh", "cz": "cs", "dk": "da", "gb": "en", "ge": "ka", "gr": "el", "jp": "ja", "tw": "zh",
    "ua": "uk", "us": "en", "vn": "vi",
}  # fmt: skip
# Codes that mean the same as others: those of LibreTranslate and Argos, former ones of ISO 639, a
# country in place of the script of Chinese. "no" is mostly written for Bokmål.
ALIASES = {longer: code for code, longer, _ in ENTRIES} | {
    "cmn": "zh", "fil": "tl", "in": "id", "iw": "he", "ji": "yi", "no": "nb", "pb": "pt-br",
    "zh-cn": "zh-hans", "zh-hk": "zh-hant", "zh-mo": "zh-hant", "zh-sg": "zh-hans",
    "zh-tw": "zh-hant", "zt": "zh-hant",
    # Those of libraries (ISO 639-2/B).
    "alb": "sq", "arm": "hy", "baq": "eu", "bur": "my", "chi": "zh", "cze": "cs", "dut": "nl",
    "fre": "fr", "geo": "ka", "ger": "de", "gre": "el", "ice": "is", "mac": "mk", "mao": "mi",
    "may": "ms", "per": "fa", "rum": "ro", "slo": "sk", "tib": "bo", "wel": "cy",
}  # fmt: skip
LABELS = {"nb": "no"}  # of py3langid, where they are not the codes
LONGER_CODE = re.compile("[a-z]{3}")  # of ISO 639-2 and 639-3, such as ckb


def subtags_of(language: str) -> list[str]:
    """Return the parts of a code in lower case: "pt" and "br" of "pt-BR"; aliases are replaced."""
    code = language.replace("_", "-").lower()
    base, *others = ALIASES.get(code, code).split("-")
    return [ALIASES.get(base, base), *others]


def distance(asked: str, code: str) -> tuple[int, bool, bool] | None:
    """Return how far language ``code`` of a model is from the one that a request asks for.

    A code without a region or script is the language of any. None: they are different languages.
    """
    one, other = subtags_of(asked), subtags_of(code)
    shared = min(len(one), len(other))
    if one[:shared] != other[:shared]:
        return None
    is_unusual = "hant" in other and "hant" not in one  # Chinese without a script is simplified
    is_alias = asked.replace("_", "-").lower() != code.replace("_", "-").lower()
    return abs(len(one) - len(other)), is_unusual, is_alias


def fits(asked: str, code: str) -> bool:
    """Return whether a model of language ``code`` is one for ``asked``."""
    return distance(asked, code) is not None


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
    if base in NAMES and re.match("[A-Za-z]{2}_", code):
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
