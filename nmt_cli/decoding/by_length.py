"""Searches sentences of similar length together: the shorter they are, the more at a time."""

from collections.abc import Callable, Sequence

from nmt_cli.decoding.isolation import Isolation, Item, Outcome, SearchFunction, naming_lines


class SearchByLength:
    """Runs searches over sentences; those that fail do not affect the others.

    At most ``max_tokens`` are searched at a time, but ``least`` sentences however long they are. If
    memory is full, ``max_tokens`` is lowered for good and ``least`` no longer holds.
    """

    def __init__(self, max_tokens: int, least: int = 1) -> None:
        self.max_tokens, self._least = max_tokens, least

    def num_slots(self, tokens: int) -> int:
        """Return how many sentences of so many tokens are searched at a time."""
        return max(self._least, self.max_tokens // tokens)

    def lower_to(self, max_tokens: int) -> None:
        """Search at most ``max_tokens`` at a time from now on."""
        self.max_tokens, self._least = max(1, min(self.max_tokens, max_tokens)), 1

    def run(
        self,
        search: SearchFunction[Item],
        sentences: Sequence[Item],
        tokens_of: Callable[[Item], int],
        lines: Sequence[int],
    ) -> list[Outcome]:
        """Return the outcomes of ``sentences``, which come longest first.

        ``tokens_of`` returns how many tokens a sentence takes of the limit. ``lines`` are the line
        numbers of the sentences. Raises LinesFailedError for a bug.
        """

        outcomes: list[Outcome] = []
        while len(outcomes) < len(sentences):
            num_slots = self.num_slots(tokens_of(sentences[len(outcomes)]))
            group = []
            for sentence in sentences[len(outcomes) :]:
                if self.num_slots(tokens_of(sentence)) >= 2 * num_slots:
                    break
                group.append(sentence)
            isolation = Isolation(search, group, num_slots)
            with naming_lines(lines[len(outcomes) :]):
                outcomes += isolation.run()
            if isolation.num_slots < num_slots:  # that many did not fit into memory
                self.lower_to(isolation.num_slots * tokens_of(group[0]))
        return outcomes
