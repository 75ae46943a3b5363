"""Seeds that are derived from the recipe's seed, so that no state of a generator is stored."""

import hashlib


def derived_bits(*parts: object) -> int:
    """Return 64 random bits, equal for parts that are equal as text."""
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
