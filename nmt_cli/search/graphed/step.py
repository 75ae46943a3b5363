"""The step of a search of one shape, with all that it reads and writes.

Legend: S slots, K beam, E entries of a slot.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from nmt_cli.hardware.device import sent_to
from nmt_cli.search.attention_cache import HeadShape, KeysValues, Memory, Past
from nmt_cli.search.graphed.device_beams import DeviceBeams


class StepShape(NamedTuple):
    """The sizes of a search."""

    num_slots: int
    past_room: int  # E of the past
    memory_room: int  # E of the sources


class Storage:
    """The memory of a cache, zero at first; caches of several shapes share it, one at a time."""

    def __init__(self, shape: HeadShape, like: Tensor) -> None:
        self._shape, self._like = shape, like
        self._num_places = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def holds(self, num_places: int) -> bool:
        """Return whether there is room for so many entries of all slots."""
        return num_places <= self._num_places

    def grow(self, num_places: int) -> None:
        """Make new tensors with room for so many entries, or more if that saves later growth.

        If a view of the old ones is left, both are in memory.
        """
        self._layers, shape = [], self._shape
        # Twice as much, because all graphs have to be recorded again.
        self._num_places = num_places = max(num_places, 2 * self._num_places)
        widths = [num_places * shape.num_heads * width for width in (shape.d_k, shape.d_v)]
        self._layers = [
            (self._like.new_zeros(widths[0]), self._like.new_zeros(widths[1]))
            for _ in range(shape.num_layers)
        ]

    def layers(self, num_slots: int, room: int) -> list[KeysValues]:
        """Return the memory as the keys and values of each layer."""
        heads, (_, _, d_k, d_v) = (num_slots, self._shape.num_heads), self._shape
        return [
            KeysValues(
                keys[: num_slots * self._shape.num_heads * d_k * room].view(*heads, d_k, room),
                values[: num_slots * self._shape.num_heads * room * d_v].view(*heads, room, d_v),
            )
            for keys, values in self._layers
        ]


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
        self.past, self.memory = Past(past, beam_size), Memory(memory, beam_size)
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
            [layer.selected(at, past_room) for layer in self.past.layers],
            [layer.selected(at, memory_room) for layer in self.memory.layers],
        )

    def put(self, contents: SlotContents) -> None:
        """Replace all slots by ``contents``."""
        for own, rows in zip(self._rows, contents.rows, strict=True):
            own.copy_(rows)
        self.past.is_past.zero_()
        self.past.is_past[:, :, : contents.is_past.shape[2]] = contents.is_past
        for layers, copies in (
            (self.past.layers, contents.past),
            (self.memory.layers, contents.memory),
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
