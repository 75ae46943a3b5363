"""What SentencePiece's own interface does not return, read from the model itself.

A model is a message of protocol buffers, whose fields ``sentencepiece_model.proto`` defines.
SentencePiece's own module for them needs the package protobuf, which nothing else here needs.
"""

from collections.abc import Iterator

# Numbers of fields, and values.
PIECE_OF_MODEL, TRAINER_OF_MODEL = 1, 2
TYPE_OF_PIECE, ALGORITHM_OF_TRAINER = 3, 3
USER_DEFINED = 4
ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
# Kinds of fields; those of the other kinds have a fixed size in bytes.
NUMBER, TEXT_OR_MESSAGE = 0, 2
FIXED_SIZES = {1: 8, 5: 4}


def symbol_ids(model: bytes) -> frozenset[int]:
    """Return the ids of the user-defined symbols of ``model``, which SentencePiece has loaded."""
    pieces = (value for field, value in _fields(model) if field == PIECE_OF_MODEL)
    return frozenset(
        number
        for number, piece in enumerate(pieces)
        if isinstance(piece, bytes) and (TYPE_OF_PIECE, USER_DEFINED) in _fields(piece)
    )


def algorithm_of(model: bytes) -> str:
    """Return the algorithm of ``model``, which SentencePiece has loaded: a key of the recipe."""
    number: int | bytes = 1  # of a model that does not name it
    for field, trainer in _fields(model):
        if field == TRAINER_OF_MODEL and isinstance(trainer, bytes):
            number = dict(_fields(trainer)).get(ALGORITHM_OF_TRAINER, number)
    return ALGORITHMS.get(int(number), "unknown")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        field, kind = key >> 3, key & 7
        if kind == NUMBER:
            value, place = _number(message, place)
            yield field, value
            continue
        if kind == TEXT_OR_MESSAGE:
            size, place = _number(message, place)
        else:
            size = FIXED_SIZES[kind]
        yield field, message[place : place + size]
        place += size


def _number(message: bytes, place: int) -> tuple[int, int]:
    """Return the number at ``place``, 7 bits a byte from the lowest, and the place behind it."""
    number = shift = 0
    while message[place] & 0x80:
        number |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1
