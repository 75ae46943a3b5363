"""Which known name somebody meant who wrote another one; none where nothing is near."""

from collections.abc import Iterable

LONGEST_NAME = 40
LETTERS_PER_EDIT = 6  # one edit is allowed anyway, and one more for each so many letters
SHORTEST_BEGINNING = 3
MOST_PROPOSED = 2  # more of them would be a list and not a proposal


def plain(name: str) -> str:
    """Return ``name`` without its dashes in front, in lower case, its words joined by ``_``."""
    return name.strip().lstrip("-").lower().replace("-", "_").replace(" ", "_")


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the one or two of ``known`` that ``name`` is a slip or a part of.

    A slip has a wrong, missing, additional or swapped letter or two. A part is some of the words
    (``beam`` of ``beam_size``), or the beginning.
    """
    written, candidates = plain(name), list(dict.fromkeys(known))
    if not written or len(written) > LONGEST_NAME:
        return []
    for rank in (_edits_if_few, _words_left_out, _letters_left_out):
        ranked = [(rank(written, plain(candidate)), candidate) for candidate in candidates]
        ranks = [found for found, _ in ranked if found is not None]
        best = [candidate for found, candidate in ranked if ranks and found == min(ranks)]
        if best:
            return best if len(best) <= MOST_PROPOSED else []
    return []


def _edits_if_few(written: str, known: str) -> int | None:
    most = 0 if len(written) < 3 else 1 + len(written) // LETTERS_PER_EDIT
    if abs(len(written) - len(known)) > most:
        return None
    edits = _edits(written, known)
    return edits if edits <= most else None


def _words_left_out(written: str, known: str) -> int | None:
    words, all_words = set(written.split("_")), set(known.split("_"))
    return len(all_words - words) if words <= all_words else None


def _letters_left_out(written: str, known: str) -> int | None:
    is_beginning = len(written) >= SHORTEST_BEGINNING and known.startswith(written)
    return len(known) - len(written) if is_beginning else None


def _edits(one: str, other: str) -> int:
    """Return how many letters to replace, insert, remove or swap with a neighbour."""
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        two_before, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, two_before[j - 2] + 1)
            row.append(cost)
    return row[-1]
