"""The Python interface: each name is loaded when it is first used, because torch takes seconds."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt_cli.search.sampling import Sampling
    from nmt_cli.translating.constraints import Constraints
    from nmt_cli.translating.request import Request
    from nmt_cli.translating.rescorer import Rescorer
    from nmt_cli.translating.translator import Translator

__all__ = ["Constraints", "Request", "Rescorer", "Sampling", "Translator"]
ROOMS = {"Sampling": "search"}  # the others are in translating


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = ROOMS.get(name, "translating")
    return getattr(import_module(f"nmt_cli.{room}.{name.lower()}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
