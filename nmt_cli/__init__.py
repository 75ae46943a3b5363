"""The Python interface: each name is loaded when it is first used, because torch takes seconds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # "as" makes them public names for type checkers
    from nmt_cli.corpus.text.glossary import Glossary as Glossary
    from nmt_cli.search.sentences import Sampling as Sampling
    from nmt_cli.translating.interface.memory import TranslationMemory as TranslationMemory
    from nmt_cli.translating.interface.options import Constraints as Constraints
    from nmt_cli.translating.interface.request import AnyOf as AnyOf
    from nmt_cli.translating.interface.request import Request as Request
    from nmt_cli.translating.interface.soft_glossary import SoftGlossary as SoftGlossary
    from nmt_cli.translating.rescorer import Rescorer as Rescorer
    from nmt_cli.translating.translator import Translator as Translator

__version__ = "0.2.0"  # setup.py reads it here
MODULES = {
    "AnyOf": "nmt_cli.translating.interface.request",
    "Constraints": "nmt_cli.translating.interface.options",
    "Glossary": "nmt_cli.corpus.text.glossary",
    "Request": "nmt_cli.translating.interface.request",
    "Rescorer": "nmt_cli.translating.rescorer",
    "Sampling": "nmt_cli.search.sentences",
    "SoftGlossary": "nmt_cli.translating.interface.soft_glossary",
    "TranslationMemory": "nmt_cli.translating.interface.memory",
    "Translator": "nmt_cli.translating.translator",
}
__all__ = list(MODULES)


def __getattr__(name: str) -> object:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
