"""The Transformer on a GPU, whose step of a search is one CUDA graph.

A step of base launches hundreds of small kernels, which takes a CPU longer than their work takes a
GPU. A graph launches them at once, but only for the shapes and addresses that it was recorded with.
So the sizes of searches are those of a few ``FrameShape``s, and frames keep their graphs.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain

import torch

from nmt_cli.decoding.beams import Beams
from nmt_cli.decoding.graphed.books import DeviceBooks, Marks
from nmt_cli.decoding.graphed.caches import DevicePast, DeviceSources, Storage
from nmt_cli.decoding.graphed.frames import LEAST_ROOM, Frame, FrameShape, size_for
from nmt_cli.decoding.incremental import Encoded, IncrementalTransformer
from nmt_cli.hardware.cuda_graphs import GraphRecorder, Readback
from nmt_cli.model.transformer import Transformer

MOST_FRAMES = 64


class GraphedTransformer(IncrementalTransformer):
    """Steps of beam search, books included, that follow each other without the CPU.

    Between searches it keeps the memory of the largest caches, and the graphs, until ``release``.
    Not to be shared between threads.
    """

    _past: DevicePast
    _memory: DeviceSources

    def __init__(self, model: Transformer, marks: Marks) -> None:
        super().__init__(model)
        self._marks = marks
        self.release()

    def release(self) -> None:
        """Give up all memory."""
        self._frame: Frame | None = None
        self._frames: dict[FrameShape, Frame] = {}  # the one used last comes last
        like = self._model.output_weight
        self._storages = Storage(self._shape, like), Storage(self._shape, like)
        self._recorder = GraphRecorder(self._device)
        self._addresses, self._num_positions = self._present_addresses(), 0

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences, which are one of the sizes."""
        self._frame = None
        self._size = num_slots, beam_size
        self._forget_old_graphs()

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks."""
        longest = max(LEAST_ROOM, size_for(max(len(each.source[0]) for each in encoded)))
        if self._frame is None:
            num_slots, beam_size = self._size
            past_room = size_for(max(LEAST_ROOM, 2 * beam_size))
            self._frame = self._entered(FrameShape(num_slots, beam_size, past_room, longest))
            self._frame.clear()
        elif longest > self._frame.shape.source_room:
            self._move(self._frame.shape._replace(source_room=longest))
        super().start(slots, encoded)

    def put(self, slots: Sequence[int], beams: Beams) -> None:
        """Let the books of ``slots`` be those of ``beams``."""
        self._provide_positions(int(beams.longest[slots].max(initial=0)) + 1)
        self._in_use().books.put(slots, beams)

    def steps(self, number: int, num_places: int) -> Readback:
        """Launch so many steps; return their reports, of which there will be one for each.

        All steps together use at most ``num_places`` places of the past of each slot.
        """
        shape = self._in_use().shape
        room = size_for(max(LEAST_ROOM, 2 * shape.beam_size, num_places))
        if room > shape.past_room or room <= shape.past_room // 2:
            self._move(shape._replace(past_room=room))
        frame, reports = self._in_use(), Readback()
        for _ in range(number):
            frame.repeat_step()
            reports.add(frame.books.report)
        return reports

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, which are one of the sizes; ``slots[i]`` becomes slot i."""
        self._move(self._in_use().shape._replace(num_slots=len(slots)), slots)

    @torch.no_grad()
    def _provide_positions(self, number: int) -> None:
        if number <= self._num_positions:
            return
        self._num_positions = number
        none = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._model.target_embedding.embed(none, none, number)  # grows a table if need be
        if self._forget_old_graphs():
            self._move(self._in_use().shape)

    def _in_use(self) -> Frame:
        assert self._frame is not None, "a sentence has started"
        return self._frame

    def _move(self, shape: FrameShape, slots: Sequence[int] | None = None) -> None:
        """Go on in a frame of ``shape``, with all slots or with ``slots``."""
        old = self._in_use()
        state = old.taken(range(old.shape.num_slots) if slots is None else slots, shape)
        self._frame = self._entered(shape)
        self._frame.put(state)

    def _entered(self, shape: FrameShape) -> Frame:
        """Return the frame of ``shape``, after which all caches hold anything."""
        frame = self._frames.pop(shape, None)
        if frame is None:
            try:
                frame = self._new_frame(shape)
            except BaseException:  # such as full memory
                self.release()
                raise
        self._frames[shape] = frame
        if len(self._frames) > MOST_FRAMES:
            del self._frames[next(iter(self._frames))]
        self._past, self._memory = frame.past, frame.sources
        return frame

    def _new_frame(self, shape: FrameShape) -> Frame:
        rooms = shape.past_room, shape.source_room
        for storage, room in zip(self._storages, rooms, strict=True):
            if storage.grow(shape.num_slots * room):
                self._frames.clear()
        past, sources = (
            storage.layers(shape.num_slots, room)
            for storage, room in zip(self._storages, rooms, strict=True)
        )
        books = DeviceBooks(shape.num_slots, shape.beam_size, self._marks, self._device)
        frame = Frame(shape, books, past, sources)
        self._past, self._memory = frame.past, frame.sources
        frame.repeat_step = self._recorder.record(partial(self._step, frame))
        return frame

    @torch.no_grad()
    def _step(self, frame: Frame) -> None:
        self._past, self._memory = frame.past, frame.sources
        books = frame.books
        masks = frame.past.advance(books.parents, books.lengths == 0)
        frame.sources.update_masks()
        # ``put`` has provided for all positions.
        logits = self._decoded(books.tokens, books.lengths, 1, masks)
        books.advance(logits, frame.past.num_places())

    def _forget_old_graphs(self) -> bool:
        """Forget all graphs if a tensor of the model is elsewhere now; return whether it is."""
        present = self._present_addresses()
        if present == self._addresses:
            return False
        self._addresses = present
        self._frames.clear()
        return True

    def _present_addresses(self) -> list[int]:
        tensors = chain(self._model.parameters(), self._model.buffers())
        return [tensor.data_ptr() for tensor in tensors]
