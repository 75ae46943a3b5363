"""Text that is in UTF-16 or UTF-32 instead of UTF-8, recognized by its first bytes."""

from pathlib import Path

from nmt_cli.corpus.text_files import open_text
from nmt_cli.errors import UserError

SAMPLE = 4096  # bytes
# A byte order mark is conclusive: no UTF-8 text begins with these bytes.
MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Without a mark, UTF-16 is recognized by Latin letters, whose high bytes are NUL.
LEAST_NULS = 0.3  # share of the high bytes


def other_encoding(path: Path) -> str | None:
    """Return iconv's name for the encoding of ``path``; None if it is UTF-8 or not recognized.

    Returns None also if the file cannot be read: the function that reads it next raises that error.
    """
    try:
        with open_text(path) as stream:
            sample = stream.read(SAMPLE)
    except UserError:
        return None
    for mark, name in MARKS.items():
        if sample.startswith(mark):
            return name
    nuls = [sample[place::2].count(0) for place in (0, 1)]
    for name, high, low in (("UTF-16LE", nuls[1], nuls[0]), ("UTF-16BE", nuls[0], nuls[1])):
        if high > LEAST_NULS * len(sample) / 2 and low < high / 10:
            return name
    return None
