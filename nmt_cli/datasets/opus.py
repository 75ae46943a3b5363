"""Corpora of OPUS, the collection at https://opus.nlpl.eu, as data sets of ``data get``.

A corpus is called ``opus:CORPUS/en-de``, or ``opus:CORPUS@v8/en-de`` with a version. OPUS has a zip
archive for each language pair, with one text for each language; both have the languages sorted in
their names. OPUS publishes no checksums: the archive's own (CRC-32 of each text) are compared when
it is read.
"""

import re
from typing import NamedTuple

from nmt_cli.datasets.catalogue import Archive, ParallelDataset, Part
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.proposals import OPUS

SITE = "https://opus.nlpl.eu"
API = f"{SITE}/opusapi/"
FILES = "https://object.pouta.csc.fi"
NAME = re.compile(
    r"opus:([A-Za-z0-9][\w.+-]*)(?:@v?(\w[\w.-]*))?/([A-Za-z]+(?:_\w+)*)-([A-Za-z]+(?:_\w+)*)",
    re.ASCII,
)


class OpusName(NamedTuple):
    """What a name asks for."""

    corpus: str
    version: str | None  # None stands for the newest
    languages: tuple[str, str]  # source and target

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version is not None else ""
        return f"{OPUS}{self.corpus}{version}/{'-'.join(self.languages)}"


def parse_name(name: str) -> OpusName:
    """Return what ``name`` asks for. Raises WrongUsageError if it is not written as above."""
    match = NAME.fullmatch(name)
    if match is None or match[3] == match[4]:
        raise WrongUsageError(
            f"{name} is no name of a corpus; write {OPUS}CORPUS/en-de, or "
            f"{OPUS}CORPUS@v8/en-de for a version, with two languages as OPUS writes them."
        )
    corpus, version, source, target = match.groups()
    return OpusName(corpus, None if version is None else f"v{version}", (source, target))


def find_corpus(name: str) -> tuple[str, ParallelDataset]:
    """Return ``name`` with a version, and the data set, after asking OPUS for both.

    Raises UserError if OPUS has no such corpus or cannot be asked.
    """
    from nmt_cli.datasets.download import num_bytes_at  # imports requests

    wanted = parse_name(name)
    if wanted.version is None:
        wanted, url = _newest(wanted)
    else:
        folder = f"{FILES}/OPUS-{wanted.corpus}/{wanted.version}/moses"
        url = f"{folder}/{'-'.join(sorted(wanted.languages))}.txt.zip"
    num_bytes = num_bytes_at(url)
    if num_bytes is None:
        raise UserError(
            f"OPUS has no {wanted}: {url} not found; see {SITE} for its corpora, versions and "
            "languages."
        )
    file_name = url.rpartition("/")[2]
    pair = file_name.removesuffix(".txt.zip")
    archive = Archive(url, num_bytes, None, f"opus-{wanted.corpus}-{wanted.version}-{file_name}")
    members = f"{wanted.corpus}.{pair}.{{language}}"  # such as Europarl.de-en.{language}
    part = Part(f"{wanted.corpus} {wanted.version}", archive, members, None)
    return str(wanted), ParallelDataset(wanted.languages, (part,), ())


def _newest(wanted: OpusName) -> tuple[OpusName, str]:
    """Return the name with the newest version, and the URL of its archive."""
    from nmt_cli.datasets.download import json_at

    answer = json_at(
        API,
        {
            "corpus": wanted.corpus,
            **dict(zip(("source", "target"), wanted.languages, strict=True)),
            "preprocessing": "moses",
            "version": "latest",
        },
    )
    try:
        corpora = answer["corpora"]
        if not corpora:
            raise UserError(
                f"OPUS has no {wanted}; see {SITE} for its corpora and their languages."
            )
        version, url = corpora[0]["version"], corpora[0]["url"]
        if not (re.fullmatch(r"[\w.-]+", version) and re.match("https?://", url)):
            raise ValueError
    except (LookupError, TypeError, ValueError):
        raise UserError(
            f"{API} gave no version and URL of {wanted}; give a version, as in "
            f"{wanted._replace(version='v1')}."
        ) from None
    logs.info(f"The newest version of {wanted} is {version}.")
    return wanted._replace(version=version), url
