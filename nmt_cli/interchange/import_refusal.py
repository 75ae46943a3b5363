"""The one message with all reasons why a model cannot be imported."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.errors import UserError


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn ValueError, which has the reasons, into UserError about the model at ``path``.

    A schema raises ValueError too, for values that no architecture has.
    """
    try:
        yield
    except ValueError as error:
        reasons = " ".join(str(error).split())
        raise UserError(f"{path} cannot be imported: {reasons}.") from None
