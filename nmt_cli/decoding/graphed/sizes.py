"""The sizes that graphs are made for: 2^n and 1.5 * 2^n, so at most a third of one is unused."""

LEAST_ROOM = 32  # entries of a slot; smaller rooms would need more graphs and save little


def size_for(number: int) -> int:
    """Return the least size that holds ``number``, of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


def size_within(number: int) -> int:
    """Return the largest size that is not above ``number``, which is at least 1."""
    while size_for(number) > number:
        number -= 1
    return number


def memory_room(longest: int) -> int:
    """Return the room for a source of ``longest`` pieces."""
    return size_for(max(LEAST_ROOM, longest))


def past_room(num_places: int, beam_size: int) -> int:
    """Return the room for a past of ``num_places``, and for a first step of ``beam_size``."""
    return size_for(max(LEAST_ROOM, 2 * beam_size, num_places))
