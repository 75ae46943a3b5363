"""Options of earlier versions, and what to do without them."""

from collections.abc import Collection

# By the keywords of Translator and Rescorer; the command line has options of the same names.
REMOVED = {
    "compile": "on a CPU, compiled layers are always used; leave it out",
    "engine": "nmt-cli always searches by itself; leave it out. CTranslate2 loads what "
    "nmt-cli export --format ctranslate2 writes",
    "fp32_products": "on a CPU, nmt-cli multiplies by itself; leave it out",
}


def refuse_removed(keywords: Collection[str], owner: str) -> None:
    """Raise TypeError if an argument of ``owner`` was an option of earlier versions."""
    for name, advice in REMOVED.items():
        if name in keywords:
            raise TypeError(f"{owner} has no option {name}: {advice}.")
