"""The settings of a model that using it requires: ``config.json`` of a model directory.

The file has names and rules of its own, so that a later change of recipes breaks no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.files.file_names import CONFIG
from nmt_cli.files.formats import PLAIN, WITH_OPTIONS, WITH_OTHER_PASTS, WITH_TREES
from nmt_cli.messages.errors import DamagedError
from nmt_cli.recipe.model_values import Architecture, Decoding, TextNormalization, TreeNotation

if TYPE_CHECKING:  # they take time to import, and most models need none for translating
    from nmt_cli.parsing.labels import Labels
    from nmt_cli.parsing.linearization import Linearization
    from nmt_cli.recipe.schema import Recipe
    from nmt_cli.recipe.sections.data import DataConfig
    from nmt_cli.recipe.sections.tokenizer import TokenizerConfig

LARGEST_CONFIG = 1_000_000  # bytes
DEEP = 6  # layers
FEWEST_EXPORTED_POSITIONS = 2_048  # rows of a table of sinusoids
# Share of the sources from which on a model is one of single sentences: captions have 0.998 to 1,
# everyday sentences 0.99, parliament 0.98, a mixture as in WMT 2014 0.94.
MANY_SINGLE = 0.97
UNKNOWN_LANGUAGE = "und"  # the code of ISO 639 for a language that is not known


class TextSettings(NamedTuple):
    """The settings by which text is cut into pieces, and pieces are joined to text."""

    source_language: str
    target_language: str
    type: str  # sentencepiece | whitespace
    joiner: str | None  # whitespace only: ends a piece whose word continues in the next piece
    normalization: TextNormalization


def languages_of(text: TextSettings) -> tuple[str, str]:
    """Return the codes of both languages, the source first."""
    return text.source_language, text.target_language


class AlignmentHead(NamedTuple):
    """The head of the decoder's attention to the source that was trained to align words."""

    layer: int  # from 0
    head: int  # from 0


class LanguagePair(NamedTuple):
    """The tag and the languages of some of the training text."""

    tag: str | None  # in front of each source
    source: str
    target: str


class ModelSettings(NamedTuple):
    """The architecture of a model, its text settings, and its defaults for translation."""

    architecture: Architecture
    vocabulary_size: int
    text: TextSettings
    max_length: int  # pieces of the longest input
    decoding: Decoding
    trees: Linearization | None = None  # how a model that parses writes trees
    alignment: AlignmentHead | None = None  # None if no head was trained to align words
    # Those that its sources had in training; None if they are not known.
    characters: frozenset[str] | None = None
    # The different pairs of the training text; none if they are not known.
    pairs: tuple[LanguagePair, ...] = ()
    # The share of its training text whose sources are one sentence; None if it is not known.
    single_sentences: float | None = None

    @property
    def is_of_single_sentences(self) -> bool:
        """Whether a line of several sentences is unlike what the model was trained on."""
        return self.single_sentences is not None and self.single_sentences >= MANY_SINGLE

    @property
    def format_version(self) -> int:
        """The format version of a folder with these settings."""
        has_options = self.architecture.options or self.text.normalization.fold
        has_window = self.architecture.attention_window is not None
        return max(
            PLAIN,
            WITH_TREES if self.trees is not None else PLAIN,
            WITH_OPTIONS if has_options else PLAIN,
            WITH_OTHER_PASTS if self.architecture.is_recurrent or has_window else PLAIN,
        )

    @property
    def num_positions(self) -> int:
        """The length of the longest sentence that an export of the model has positions for."""
        if self.architecture.positions == "learned":
            return self.architecture.max_positions
        longest_output = self.max_length + self.decoding.max_extra_length
        return max(FEWEST_EXPORTED_POSITIONS, longest_output + 2)


class LengthLimits(NamedTuple):
    """The most pieces of a side, without marks of start and end."""

    source: int
    target: int | None  # None: any number

    def target_within(self, longest: int | None) -> int | None:
        """Return the most pieces of an output if it may not have more than ``longest``."""
        return min((each for each in (longest, self.target) if each is not None), default=None)


def length_limits(*models: ModelSettings) -> LengthLimits:
    """Return what all of ``models`` take: their ``max_length``, and the positions they learned."""
    architectures = [settings.architecture for settings in models]
    learned = [each.max_positions for each in architectures if each.positions == "learned"]
    longest = min(settings.max_length for settings in models)
    if not learned:
        return LengthLimits(longest, None)
    positions = min(learned) - 1  # the mark of start or end takes one
    return LengthLimits(min(longest, positions), positions)


def common_characters(*models: ModelSettings) -> frozenset[str] | None:
    """Return the characters that the sources of all ``models`` had, of those that are known."""
    known = [settings.characters for settings in models if settings.characters is not None]
    return frozenset.intersection(*known) if known else None


def least_share(*shares: float | None) -> float | None:
    """Return the least of ``shares``; None if one is not known."""
    known = [share for share in shares if share is not None]
    return min(known) if len(known) == len(shares) else None


def text_settings(tokenizer: TokenizerConfig, data: DataConfig) -> TextSettings:
    """Return the text settings of these sections of a recipe, whose text was prepared."""
    return TextSettings(
        data.source_language,
        data.target_language,
        tokenizer.type,
        tokenizer.joiner,
        data.normalization.of_model(),
    )


def settings_of(
    recipe: Recipe,
    vocabulary_size: int,
    labels: Labels | None = None,
    characters: frozenset[str] | None = None,
    single_sentences: float | None = None,
) -> ModelSettings:
    """Return the settings of a model trained by ``recipe``.

    ``labels`` are those of its treebanks, if it has any, ``characters`` those of its sources, and
    ``single_sentences`` is the share of these that are one sentence.
    """
    treebank = recipe.data.treebank
    return ModelSettings(
        recipe.model.of_model(),
        vocabulary_size,
        text_settings(recipe.tokenizer, recipe.data),
        recipe.data.max_length,
        recipe.decoding.of_model(),
        treebank.linearization(labels) if treebank is not None else None,
        guided_head(recipe),
        characters,
        _pairs_of(recipe.data),
        single_sentences,
    )


def _pairs_of(data: DataConfig) -> tuple[LanguagePair, ...]:
    """Return the pairs of a recipe with tags or with languages of its corpora."""
    if not any(corpus.tag or corpus.languages for corpus in data.train):
        return ()
    found = (LanguagePair(corpus.tag, *data.languages_of(corpus)) for corpus in data.train)
    return tuple(dict.fromkeys(found))


def guided_head(recipe: Recipe) -> AlignmentHead | None:
    """Return the head that the recipe trains to align words, if it does."""
    guided = recipe.training.guided_alignment
    if guided is None:
        return None
    layer = alignment_layer(recipe.model.decoder_shape.num_layers)
    return AlignmentHead(layer if guided.layer is None else guided.layer - 1, guided.head - 1)


def alignment_layer(num_layers: int) -> int:
    """Return the decoder layer, counted from 0, whose attention aligns words best.

    In published comparisons of models of 6 layers it is the last but one. In a model of 4 layers,
    trained on synthetic text whose words are reordered, the last layer was right for 92 % of the
    words and the one before for 71 %; in both, the row that predicts a token is far better than
    the row that reads it (7 % and 20 %).
    """
    return num_layers - 2 if num_layers >= DEEP else num_layers - 1


def as_json(settings: ModelSettings) -> str:
    """Return the text of ``config.json``."""
    text, trees = settings.text, settings.trees
    content: dict[str, Any] = {
        "format_version": settings.format_version,
        "architecture": {
            **settings.architecture.of_the_paper,
            **settings.architecture.options,
            "vocabulary_size": settings.vocabulary_size,
        },
        "text": {
            "source_language": text.source_language,
            "target_language": text.target_language,
            "tokenizer": text.type,
            "joiner": text.joiner,
            "normalization": {
                name: value
                for name, value in vars(text.normalization).items()
                if name != "fold" or value
            },
            "max_length": settings.max_length,
        },
        "decoding": dict(vars(settings.decoding)),
    }
    if trees is not None:
        labels = labels_as_json(trees.labels) if trees.labels else None
        content["trees"] = {**vars(trees), "labels": labels}
    if settings.alignment is not None:
        content["alignment"] = {name: n + 1 for name, n in settings.alignment._asdict().items()}
    if settings.characters is not None:
        content["characters"] = "".join(sorted(settings.characters))
    if settings.pairs:
        content["pairs"] = [pair._asdict() for pair in settings.pairs]
    if settings.single_sentences is not None:
        content["single_sentences"] = settings.single_sentences
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def labels_as_json(labels: Labels) -> dict[str, list[str]]:
    """Return the labels for a JSON file; ``labels_from_json`` is the inverse."""
    return {name: sorted(some) for name, some in labels._asdict().items()}


def labels_from_json(content: Mapping[str, Any]) -> Labels:
    """Return the labels of a JSON file. Raises ValueError or the like if they are not valid."""
    from nmt_cli.parsing.labels import Labels

    lists = (content["constituents"], content["tags"])
    if not all(isinstance(label, str) for labels in lists for label in labels):
        raise ValueError("a label is not text")
    return Labels(*map(frozenset, lists))


def read_settings(directory: Path) -> ModelSettings:
    """Return the settings of the model in ``directory``.

    Raises DamagedError if they cannot be read or are not valid.
    """
    path = directory / CONFIG
    try:
        return read_config(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DamagedError(f"{path} is damaged: {reason}") from None


def read_config(path: Path) -> ModelSettings:
    """Return the settings in a file ``config.json``; no other file of its folder is needed.

    Raises KeyError or TypeError if it is that of another program, OSError if it cannot be read, and
    ValueError or RecursionError if it is damaged.
    """
    with path.open("rb") as stream:
        data = stream.read(LARGEST_CONFIG + 1)
    if len(data) > LARGEST_CONFIG:
        raise ValueError(f"it is larger than {LARGEST_CONFIG:,} bytes")
    content = json.loads(data)
    architecture = dict(content["architecture"])
    vocabulary_size = architecture.pop("vocabulary_size")
    text = content["text"]
    joiner, kind = text["joiner"], text["tokenizer"]
    is_text = isinstance(joiner, str | None) and kind in {"sentencepiece", "whitespace"}
    sizes = (vocabulary_size, text["max_length"])
    if not is_text or not all(type(size) is int and 0 < size <= 10**7 for size in sizes):
        raise ValueError("its text settings or sizes are not what a model can have")
    model = Architecture(**architecture)
    return ModelSettings(
        model,
        vocabulary_size,
        TextSettings(
            str(text["source_language"]),
            str(text["target_language"]),
            kind,
            joiner,
            TextNormalization(**text["normalization"]),
        ),
        text["max_length"],
        Decoding(**content["decoding"]),
        _trees_from_json(content["trees"]) if "trees" in content else None,
        _head_from_json(content["alignment"], model) if "alignment" in content else None,
        _characters_from_json(content["characters"]) if "characters" in content else None,
        tuple(map(_pair_from_json, content.get("pairs", ()))),
        _share_from_json(content["single_sentences"]) if "single_sentences" in content else None,
    )


def _share_from_json(content: Any) -> float:
    if type(content) not in {int, float} or not 0 <= content <= 1:
        raise ValueError("its share of single sentences is not a number from 0 to 1")
    return float(content)


def _pair_from_json(content: Mapping[str, Any]) -> LanguagePair:
    pair = LanguagePair(**content)
    if not isinstance(pair.tag, str | None) or not all(isinstance(each, str) for each in pair[1:]):
        raise ValueError("a pair of languages has no codes")
    return pair


def _characters_from_json(content: Any) -> frozenset[str]:
    if not isinstance(content, str):
        raise ValueError("its characters are not text")
    return frozenset(content)


def _head_from_json(content: Mapping[str, Any], model: Architecture) -> AlignmentHead:
    layer, head = content["layer"], content["head"]
    counts = ((layer, model.decoder_shape.num_layers), (head, model.decoder_shape.num_heads))
    if not all(type(number) is int and 1 <= number <= most for number, most in counts):
        raise ValueError("its alignment is not a head of the decoder")
    return AlignmentHead(layer - 1, head - 1)


def _trees_from_json(content: Mapping[str, Any]) -> Linearization:
    from nmt_cli.parsing.linearization import Linearization

    values = dict(content)
    labels = values.pop("labels")
    allowed = labels_from_json(labels) if labels is not None else None
    return Linearization(**vars(TreeNotation(**values)), labels=allowed)
