"""The step of a search of one shape, with all that it reads and writes.

Legend: S slots, K beam, E entries of a slot.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from nmt_cli.hardware.device import sent_to
from nmt_cli.search.cached_layers import KeysValues, selected
from nmt_cli.search.graphed.caches import FixedMemory, FixedPast
from nmt_cli.search.graphed.device_beams import DeviceBeams


class StepShape(NamedTuple):
    """The sizes of a search."""

    num_slots: int
    past_room: int  # E of the past
    memory_room: int  # E of the sources


class SlotContents(NamedTuple):
    """A copy of what some slots hold."""

    rows: list[Tensor]  # all but the caches and the ancestry; the first dimension is S
    is_past: Tensor  # S K E
    past: list[KeysValues]  # of each layer
    memory: list[KeysValues]


class GraphedStep:
    """A step that is recorded once and repeated, and the tensors that keep their addresses for it.

    Steps of other shapes use the same memory for their caches.
    """

    def __init__(
        self,
        shape: StepShape,
        beams: DeviceBeams,
        past: list[KeysValues],
        memory: list[KeysValues],
    ) -> None:
        """``past`` and ``memory`` are the memory of the caches' layers."""
        self.shape, self.beams = shape, beams
        beam_size = beams.tokens.shape[1]
        self.past, self.memory = FixedPast(past, beam_size), FixedMemory(memory, beam_size)
        self._past_layers, self._memory_layers = past, memory
        self.repeat: Callable[[], None]  # set when the step has been recorded

    def clear(self) -> None:
        """Free all slots."""
        self.beams.clear()
        self.past.is_past.zero_()
        self.memory.lengths.fill_(1)

    def copied(self, slots: Sequence[int], other: StepShape) -> SlotContents:
        """Return a copy of ``slots``, as much of each as a step of ``other`` shape can hold."""
        at = sent_to(self.past.is_past.device, slots)
        past_room = min(self.shape.past_room, other.past_room)
        memory_room = min(self.shape.memory_room, other.memory_room)
        return SlotContents(
            [each[at] for each in self._rows],
            self.past.is_past[at][:, :, :past_room],
            [selected(layer, at, past_room) for layer in self._past_layers],
            [selected(layer, at, memory_room) for layer in self._memory_layers],
        )

    def put(self, contents: SlotContents) -> None:
        """Replace all slots by ``contents``."""
        for own, rows in zip(self._rows, contents.rows, strict=True):
            own.copy_(rows)
        self.past.is_past.zero_()
        self.past.is_past[:, :, : contents.is_past.shape[2]] = contents.is_past
        for layers, copies in (
            (self._past_layers, contents.past),
            (self._memory_layers, contents.memory),
        ):
            for layer, copy in zip(layers, copies, strict=True):
                layer.keys[..., : copy.room] = copy.keys
                layer.values[:, :, : copy.room] = copy.values
                # NaN of the last shape's entries would reach the sums, even if masked.
                layer.keys[..., copy.room :] = 0.0
                layer.values[:, :, copy.room :] = 0.0

    @property
    def _rows(self) -> list[Tensor]:
        return [*self.beams.state, self.memory.lengths]
