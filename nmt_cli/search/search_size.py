"""How many tokens a search holds, less after memory was full; and the room for their entries."""

# Without a failure, until more are searched at a time; a failure costs the steps of a search.
SENTENCES_UNTIL_RAISED = 4096


class SearchSize:
    """At most ``max_tokens`` are searched at a time, but ``least`` sentences however long they are.

    If ``slots_are_alike``, each sentence counts as the longest, because caches have one size.

    When memory was full, ``lower_to`` lowers ``max_tokens``. After some sentences without a failure
    it is doubled, until it is as high as in the beginning. If memory is full again then, it takes
    twice as many sentences until the next time.
    """

    def __init__(self, max_tokens: int, least: int = 1, *, slots_are_alike: bool = True) -> None:
        self.max_tokens, self._least, self.slots_are_alike = max_tokens, least, slots_are_alike
        self._highest = max_tokens, least
        self._num_searched, self._until_raised = 0, SENTENCES_UNTIL_RAISED
        self._was_raised = False

    def num_slots(self, tokens: int) -> int:
        """Return how many sentences of so many tokens are searched at a time."""
        return max(self._least, self.max_tokens // tokens)

    def lower_to(self, max_tokens: int) -> None:
        """Search at most ``max_tokens`` at a time; ``least`` no longer holds."""
        self.max_tokens, self._least = max(1, min(self.max_tokens, max_tokens)), 1
        self._until_raised *= 2 if self._was_raised else 1
        self._num_searched, self._was_raised = 0, False

    def note_searched(self, number: int) -> None:
        """Note that so many sentences were searched without a failure."""
        highest, least = self._highest
        if (self.max_tokens, self._least) == self._highest:
            return
        self._num_searched += number
        if self._num_searched >= self._until_raised:
            self._num_searched, self._was_raised = 0, True
            self.max_tokens = min(highest, 2 * self.max_tokens)
            self._least = least if self.max_tokens == highest else 1


# The room for the past grows by a step, or by an eighth if that is more.
ROOM_STEP, ROOM_GROWTH = 16, 1 / 8


def room_for(num_entries: int) -> int:
    """Return the room for ``num_entries`` of a past, and for some of the next steps."""
    steps = max(1, round(num_entries * ROOM_GROWTH / ROOM_STEP))
    return (-(-num_entries // ROOM_STEP) + steps - 1) * ROOM_STEP
