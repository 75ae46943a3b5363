"""Models without weights behind the interfaces of the real ones, for tests of what drives them."""

from typing import Any

import torch

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.model.compiled.c_library import Library
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.model_directory import save_model
from nmt_cli.search import engine
from nmt_cli.search.beams import StepInput
from nmt_cli.search.compiled_logits import CompiledLogits
from nmt_cli.search.logits import Logits
from nmt_cli.search.torch_logits import TorchLogits
from nmt_cli.translating.translator import Translator

UNK, BOS, EOS = 0, 1, 2
NUM_MARKS = 3


def save_as_model(partial, recipe, tokenizer, model):
    """Write the files of a model directory as training does."""
    weights = {name: each.detach().numpy() for name, each in model.named_parameters()}
    record = dump_recipe(recipe).encode()
    save_model(partial, settings_of(recipe, tokenizer.size), record, tokenizer, weights)


def translator_of(recipe, tokenizer, model, **options):
    """Return a translator for a model as training has it."""
    return Translator(settings_of(recipe, tokenizer.size), tokenizer, model, **options)


def untrained(words, recipe, **options):
    """Return a translator of text in these pieces with a real model that has not learnt."""
    tokenizer = WhitespaceTokenizer([*CONTROL, *words], Normalizer(recipe.data), None)
    torch.manual_seed(3)
    model = Transformer(recipe.model, tokenizer.size)
    return translator_of(recipe, tokenizer, model, **{"precision": "fp32", **options})


def copying(monkeypatch, fails=lambda sources: None, recipe=None, **options):
    """Return a translator that copies its input, and its model, which may fail at a step."""
    model, recipe = CopyModel(ByteTokenizer.size, fails), recipe or tiny_recipe()
    monkeypatch.setattr(engine, "step_model", lambda *_: model)
    transformer = Transformer(recipe.model, ByteTokenizer.size)
    options = {"precision": "fp32", **options}
    return translator_of(recipe, ByteTokenizer(), transformer, **options), model


def packed_model(model, library, precision="fp32"):
    """Return a model as the library for CPUs has it."""
    weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    return PackedModel(model.config, model.vocabulary_size, weights.items(), precision, library)


class TableModel:
    """``logits(source, prefix)`` decides; the prefixes are followed through the parents."""

    c_library: Library | None = None  # as where there is no library, unless a test sets them

    def __init__(self, logits):
        self.logits = logits
        self.num_rows = []  # of each step
        self.num_started = []  # sentences of each start

    def reset(self, num_slots, beam_size):
        self.beam_size = beam_size
        self.sources = [()] * num_slots
        self.prefixes = [[()] * beam_size for _ in range(num_slots)]

    def encode(self, sentences, start_mark):
        assert start_mark == BOS
        return sentences, self._rows([self.logits(tuple(each), ()) for each in sentences])

    def start(self, slots, sentences):
        self.num_started.append(len(sentences))
        for slot, sentence in zip(slots, sentences, strict=True):
            self.sources[slot] = tuple(sentence)
            self.prefixes[slot] = [()] * self.beam_size

    def step(self, state: StepInput):
        self.num_rows.append(state.tokens.size)
        rows = []
        for slot, source in enumerate(self.sources):
            if state.positions[slot] == 0:  # the slot is free, or rests
                continue
            old = self.prefixes[slot]
            tokens, parents = state.tokens[slot].tolist(), state.parents[slot].tolist()
            self.prefixes[slot] = [
                (*old[parent], token) for parent, token in zip(parents, tokens, strict=True)
            ]
            assert all(len(prefix) == state.positions[slot] for prefix in self.prefixes[slot])
            rows += [self.logits(source, prefix) for prefix in self.prefixes[slot]]
        return self._rows(rows)

    def _rows(self, rows) -> Logits:
        values = torch.stack(rows)
        return (
            CompiledLogits(values.numpy(), self.c_library)
            if self.c_library
            else TorchLogits(values)
        )

    def keep_slots(self, slots):
        self.sources = [self.sources[slot] for slot in slots]
        self.prefixes = [self.prefixes[slot] for slot in slots]

    def forget(self, slots):
        pass  # no sentence sees what another one left


class CopyModel:
    """Outputs the source again; ``fails`` gets the sources in the slots first, and may raise."""

    c_library = None  # the search keeps its hypotheses in numpy

    def __init__(self, vocabulary_size, fails=lambda sources: None):
        self.vocabulary_size = vocabulary_size
        self.fails = fails
        self.num_sentences = 0
        self.max_slots = 0

    def reset(self, num_slots, beam_size):
        self.beam_size = beam_size
        self.sources = [(EOS,)] * num_slots
        self.max_slots = max(self.max_slots, num_slots)

    def encode(self, sentences, start_mark):
        return sentences, TorchLogits(self._rows([sentence[0] for sentence in sentences]))

    def start(self, slots, sentences):
        self.num_sentences += len(sentences)
        for slot, sentence in zip(slots, sentences, strict=True):
            self.sources[slot] = tuple(sentence)

    def step(self, state):
        self.fails(self.sources)
        positions = state.positions.tolist()
        copied = [
            source[min(position, len(source) - 1)]
            for source, position in zip(self.sources, positions, strict=True)
            if position  # 0: the slot is free
        ]
        return TorchLogits(self._rows(copied).repeat_interleave(self.beam_size, dim=0))

    def _rows(self, tokens):
        rows = torch.zeros(len(tokens), self.vocabulary_size)
        rows[torch.arange(len(tokens)), tokens] = 9.0
        return rows

    def keep_slots(self, slots):
        self.sources = [self.sources[slot] for slot in slots]

    def forget(self, slots):
        pass  # no sentence sees what another one left


class ByteTokenizer(MappedSentencePieceTokenizer):
    """A piece for each byte of the UTF-8 text."""

    def __init__(self):
        """There are no models."""

    unk_id, bos_id, eos_id = UNK, BOS, EOS
    size = NUM_MARKS + 256
    source_size: int | None = None

    def encode(self, text, side="source"):
        return [NUM_MARKS + byte for byte in text.encode()]

    def encode_batch(self, texts, side="source"):
        return [self.encode(text) for text in texts]

    def decode(self, ids, side="target", *, keep_pieces=False):
        if keep_pieces:
            return " ".join(self.pieces(ids))
        return bytes(token - NUM_MARKS for token in ids if token >= NUM_MARKS).decode(
            errors="replace"
        )

    def joined(self, text):
        return text

    def pieces(self, ids, side="target"):
        return [f"<{token - NUM_MARKS:02x}>" for token in ids]

    def save(self, directory):
        raise AssertionError("nothing that is tested with this saves it")


def tiny_recipe(**sections):
    """A valid recipe of a tiny model; sections are updated by those given."""
    files = {"source": "none.en", "target": "none.de"}
    recipe: dict[str, Any] = {
        "description": "A toy.",
        "data": {
            "source_language": "en",
            "target_language": "de",
            "train": [files],
            "validation": files,
        },
        "tokenizer": {"type": "whitespace"},
        "model": {"num_layers": 2, "d_model": 20, "d_ff": 28, "num_heads": 5},
        "decoding": {"max_extra_length": 5},
    }
    for name, section in sections.items():
        recipe[name] = {**recipe[name], **section}
    return Recipe.model_validate(recipe)
