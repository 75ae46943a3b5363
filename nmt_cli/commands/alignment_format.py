"""Alignments of words as text."""

from nmt_cli.decoding.translation import Links


def pharaoh(links: Links) -> str:
    """Return the links in the format of Pharaoh, such as ``0-0 2-1``: source word, target word."""
    return " ".join(f"{source}-{target}" for source, target in links)
