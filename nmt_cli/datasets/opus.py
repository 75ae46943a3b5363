"""Corpora of OPUS, the collection at https://opus.nlpl.eu, as data sets of ``data get``.

A corpus is called ``opus:CORPUS/en-de``, or ``opus:CORPUS@v8/en-de`` with a version. OPUS has a zip
archive for each language pair, with one text for each language, and publishes no checksums: the
archive's own (CRC-32 of each text) are compared when it is read.
"""

import re
from pathlib import Path
from typing import NamedTuple

from nmt_cli.datasets.assembly import names_in_zip
from nmt_cli.datasets.catalogue import Archive, ParallelDataset, Part
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.extras import importing
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


def find_corpus(wanted: OpusName) -> tuple[OpusName, ParallelDataset]:
    """Return the name with its version, and the data set, after asking OPUS for both.

    Raises UserError if requests is missing, if OPUS has no such corpus or cannot be asked.
    """
    with importing("data", "data get downloads"):
        from nmt_cli.datasets.download import num_bytes_at
    urls: dict[str, int | None] = {}
    if wanted.version is None:
        wanted, url = _newest(wanted)
        urls = {url: num_bytes_at(url)}
    else:
        folder = f"{FILES}/OPUS-{wanted.corpus}/{wanted.version}/moses"
        pair = sorted(wanted.languages)
        for first, second in (pair, pair[::-1]):  # OPUS sorts them
            url = f"{folder}/{first}-{second}.txt.zip"
            urls[url] = num_bytes_at(url)
            if urls[url] is not None:
                break
    *_, (url, num_bytes) = urls.items()
    if num_bytes is None:
        raise UserError(
            f"OPUS has no {wanted}: {' and '.join(urls)} not found; see {SITE} for its corpora, "
            "versions and languages."
        )
    file_name = f"opus-{wanted.corpus}-{wanted.version}-{url.rpartition('/')[2]}"
    archive = Archive(url, num_bytes, None, file_name)
    part = Part(f"{wanted.corpus} {wanted.version}", archive, "", None)
    return wanted, ParallelDataset(wanted.languages, (part,), ())


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


def with_members(dataset: ParallelDataset, archive: Path, corpus: str) -> ParallelDataset:
    """Return the data set with the names of the texts in ``archive``: Europarl.de-en.{language}.

    Raises UserError if the archive is damaged.
    """
    names = names_in_zip(archive)
    members = [
        f"{corpus}.{first}-{second}.{{language}}"
        for first, second in (dataset.languages, dataset.languages[::-1])
    ]
    parts = [dataset.train[0]._replace(members=each) for each in members]
    there = [
        part for part in parts if {part.member(each) for each in dataset.languages} <= {*names}
    ]
    return dataset._replace(train=(*there, *parts)[:1])
