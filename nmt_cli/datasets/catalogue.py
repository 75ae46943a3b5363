"""The parallel data sets of ``data get``: where each part is, its size and its checksum.

We have not downloaded these archives ourselves. Sizes and SHA-256 sums are those with which
TensorFlow Datasets checks the same files. The numbers of lines are those that other projects
counted. For the 10^9 corpus one finds 22,520,376, counted from the files, and also 22,520,400.

The paper does not list its corpora. It says WMT 2014 and about 4.5 million pairs for
English-German, 36 million for English-French. The three English-German parts have 4.52 million, the
five English-French ones 40.84 million; how the authors came to 36 million is not known. Their later
program, Tensor2Tensor, reads the same five parts, and for English-German a newer News Commentary.
"""

from typing import NamedTuple


class Archive(NamedTuple):
    """A tar archive on a server, compressed or not, or a zip archive."""

    url: str
    num_bytes: int
    sha256: str | None  # None if it is not known before the download
    file_name: str = ""  # by default the last part of the URL

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.file_name or self.url.rpartition("/")[2]


class Part(NamedTuple):
    """A parallel corpus: two members of an archive, one for each language."""

    name: str
    archive: Archive
    members: str  # path in the archive, with {language}; .gz members are decompressed
    num_lines: int | None  # expected; another number is only a warning, None expects nothing


class EvaluationSet(NamedTuple):
    """A test set that sacreBLEU downloads."""

    name: str  # of our files, such as newstest2014
    sacrebleu_name: str  # such as wmt14/full
    num_lines: int


class ParallelDataset(NamedTuple):
    """The training text, in this order, and the test sets of one language pair."""

    languages: tuple[str, str]  # source and target
    train: tuple[Part, ...]
    evaluation_sets: tuple[EvaluationSet, ...]


EUROPARL_7 = Archive(
    "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    657_632_379,
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
COMMON_CRAWL = Archive(
    "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    918_311_367,
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
NEWS_COMMENTARY_9 = Archive(
    "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
    80_418_416,
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
UNITED_NATIONS = Archive(
    "https://www.statmt.org/wmt13/training-parallel-un.tgz",
    2_365_634_246,
    "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
)
FRENCH_ENGLISH_1E9 = Archive(
    "https://www.statmt.org/wmt10/training-giga-fren.tar",
    2_595_102_720,
    "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
)

EVALUATION_SETS = (
    EvaluationSet("newstest2013", "wmt13", 3000),
    EvaluationSet("newstest2014", "wmt14/full", 3003),  # wmt14 is only a selection of it
)

CATALOGUE: dict[str, ParallelDataset] = {
    "wmt14-en-de": ParallelDataset(
        ("en", "de"),
        (
            Part("Europarl v7", EUROPARL_7, "training/europarl-v7.de-en.{language}", 1_920_209),
            Part("Common Crawl", COMMON_CRAWL, "commoncrawl.de-en.{language}", 2_399_123),
            Part(
                "News Commentary v9",
                NEWS_COMMENTARY_9,
                "training/news-commentary-v9.de-en.{language}",
                201_288,
            ),
        ),
        EVALUATION_SETS,
    ),
    "wmt14-en-fr": ParallelDataset(
        ("en", "fr"),
        (
            Part("Europarl v7", EUROPARL_7, "training/europarl-v7.fr-en.{language}", 2_007_723),
            Part("Common Crawl", COMMON_CRAWL, "commoncrawl.fr-en.{language}", 3_244_152),
            Part("United Nations", UNITED_NATIONS, "un/undoc.2000.fr-en.{language}", 12_886_831),
            Part(
                "News Commentary v9",
                NEWS_COMMENTARY_9,
                "training/news-commentary-v9.fr-en.{language}",
                183_251,
            ),
            Part(
                "10^9 French-English",
                FRENCH_ENGLISH_1E9,
                "giga-fren.release2.fixed.{language}.gz",
                22_520_376,
            ),
        ),
        EVALUATION_SETS,
    ),
}
