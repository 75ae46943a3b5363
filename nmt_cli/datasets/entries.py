"""What a public data set consists of: archives to download, the texts in them, and test sets."""

from typing import NamedTuple


class Archive(NamedTuple):
    """A tar archive on a server, compressed or not."""

    url: str
    num_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.url.rpartition("/")[2]


class Part(NamedTuple):
    """A parallel corpus: two members of an archive, one for each language."""

    name: str
    archive: Archive
    members: str  # path in the archive, with {language}; .gz members are decompressed
    num_lines: int  # expected; another number is only a warning

    def member(self, language: str) -> str:
        """Return the path of the text in ``language``."""
        return self.members.format(language=language)


class EvaluationSet(NamedTuple):
    """A test set that sacreBLEU downloads."""

    name: str  # of our files, such as newstest2014
    sacrebleu_name: str  # such as wmt14/full
    num_lines: int


class ParallelDataset(NamedTuple):
    """The training text, in this order, and the test sets of one language pair."""

    source_language: str
    target_language: str
    train: tuple[Part, ...]
    evaluation_sets: tuple[EvaluationSet, ...]

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source_language, self.target_language

    @property
    def archives(self) -> list[Archive]:
        """The archives of the training text, each once."""
        return list(dict.fromkeys(part.archive for part in self.train))
