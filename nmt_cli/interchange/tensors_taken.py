"""Takes tensors by their names in other programs, each of them once."""

from collections.abc import Mapping, Sequence

import numpy as np

from nmt_cli.interchange.files import Array
from nmt_cli.interchange.options import refuse
from nmt_cli.messages.figures import counted

NAMED = 5  # tensors in a reason


class TensorsTaken:
    """Gives out tensors by name, and collects the reasons why they do not make a model."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors, self._taken = tensors, set[str]()
        self.reasons: list[str] = []
        self._missing: list[str] = []
        self._shapes: list[str] = []

    @property
    def is_wrong(self) -> bool:
        """Whether there is a reason already, so that the tensors need not be computed with."""
        return bool(self.reasons or self._missing or self._shapes)

    def has(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        return name in self._tensors

    def length(self, name: str) -> int:
        """Return the first size of a tensor; 0 if there is none of this name."""
        found = self._tensors.get(name)
        return 0 if found is None or not found.ndim else len(found)

    def take(self, name: str, *shape: int) -> Array:
        """Return a tensor of ``shape``; if there is none, one of zeros, and a reason."""
        found = self.take_if_there(name)
        if found is None:
            self._missing.append(name)
        elif found.shape != shape:
            self._shapes.append(f"{name} has the shape {list(found.shape)}, not {list(shape)}")
        elif not np.isfinite(found).all():
            self.reasons.append(f"{name} holds a number that is not finite")
        else:
            return found
        return np.broadcast_to(np.float32(0), shape)

    def take_if_there(self, name: str) -> Array | None:
        """Return a tensor, or None if there is none of this name."""
        self._taken.add(name)
        return self._tensors.get(name)

    def take_same(self, name: str, other: str, expected: Array) -> Array:
        """Return ``expected``, the tensor ``other``; add a reason if ``name`` is another one."""
        found = self.take_if_there(name)
        if found is not None and not np.array_equal(found, expected):
            self.reasons.append(f"{name} is not {other}, as its options say")
        return expected

    def take_shared(self, names: Sequence[str], *shape: int) -> Array:
        """Return the tensor that has at least one of ``names``, which must be equal."""
        first = next((name for name in names if self.has(name)), names[0])
        found = self.take(first, *shape)
        for name in names:
            self.take_same(name, first, found)
        return found

    def take_number(self, name: str, default: float) -> float:
        """Return a number; ``default`` if there is none of this name."""
        found = self.take_if_there(name)
        if found is None:
            return default
        if found.size != 1 or not np.isfinite(found).all():
            self.reasons.append(f"{name} is not a number")
            return default
        return float(found.flat[0])

    def refuse_wrong(self) -> None:
        """Raise ValueError with all reasons, if there are any.

        Tensors that are missing, and those that nobody took, are among them.
        """
        left = [name for name in self._tensors if name not in self._taken]
        reasons = [*self.reasons, *self._shapes[:NAMED]]
        if len(self._shapes) > NAMED:
            more = counted(len(self._shapes) - NAMED, "more tensor")
            reasons.append(f"{more} of another shape")
        for names, what in ((self._missing, "missing"), (left, "unknown")):
            if names:
                more = ", ..." if len(names) > NAMED else ""
                listed = ", ".join(names[:NAMED])
                reasons.append(f"{counted(len(names), 'tensor')} {what}: {listed}{more}")
        refuse(reasons)
