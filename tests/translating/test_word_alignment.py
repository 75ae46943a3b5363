"""Alignments by attention: of models that reverse words, of parts, and for unknown words."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import AlignmentHead, alignment_layer, settings_of
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.search import engine
from nmt_cli.search.sentences import Attended, Hypothesis, Sentence, SentencePair
from nmt_cli.search.torch_models import TorchForcing
from nmt_cli.translating.encoding.copies import Part
from nmt_cli.translating.interface.options import Constraints, TranslatorOptions
from nmt_cli.translating.outputs import attention_to_source
from nmt_cli.translating.outputs.attended_words import joined_links, links_of_parts
from nmt_cli.translating.outputs.attention_to_source import AttentionToSource, most_attended
from nmt_cli.translating.outputs.translation_builder import TranslationBuilder
from nmt_cli.translating.translator import Translator
from tests.fake_models import EOS, ByteTokenizer, CopyModel, tiny_recipe, translator_of, untrained

FORMATS = Path(__file__).parents[1] / "formats"
WORDS = ["ant", "bee", "cat@@", "dog", "eel@@"]


def test_a_model_that_reverses_words_aligns_them_in_reverse():
    path = FORMATS / "format_2/whitespace/run/average"
    lines = sorted(set((FORMATS / "text/train.en").read_text().splitlines()))
    lines = [line for line in lines if len(set(line.split())) == len(line.split()) >= 2][:25]
    translator = Translator.load(path, device="cpu", precision="fp32", alignments=True)
    num_right = num_words = 0
    for line, found in zip(lines, translator.translate(lines), strict=True):
        words = line.split()
        assert [target for _, target in found.alignment] == list(range(len(found.text.split())))
        if found.text.split() == words[::-1]:
            num_words += len(words)
            reverse = [(len(words) - 1 - target, target) for target in range(len(words))]
            num_right += len(set(reverse) & set(found.alignment))
    assert num_words > 40
    assert num_right / num_words > 0.9


@pytest.mark.parametrize(
    ("source_eos", "tag", "head"),
    [(True, [], None), (False, [], None), (True, [17], None), (True, [17], AlignmentHead(1, 2))],
)
def test_the_attention_is_that_of_the_pass_over_each_output(source_eos, tag, head, monkeypatch):
    monkeypatch.setattr(attention_to_source, "TOKENS_AT_ONCE", 9)
    torch.manual_seed(4)
    config = ModelConfig.model_validate(
        {"num_layers": 3, "d_model": 20, "d_ff": 28, "num_heads": 5, "source_eos": source_eos}
    )
    model, tokenizer = Transformer(config, 37).eval(), ByteTokenizer()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # sharper attention than that of fresh weights
    model_settings = tokenizer_of()[1]._replace(alignment=head)
    of_search = AttentionToSource(model, tokenizer, model_settings)
    layer = 2 if head is None else head.layer
    words = [[5, 9, 4], [11], [3, 20, 21, 22, 23, 24], [8, 8]]
    sources = [[*tag, *pieces] for pieces in words]
    outputs: list[list[tuple[int, ...]]] = [[(8, 3), ()], [(17, 4, 4, 9)], [], [(6,)]]
    order, end = [2, 0, 3, 1], [EOS] * source_eos

    def found_for(number):
        return tuple(Hypothesis(tokens, -1.0, -1.0) for tokens in outputs[number])

    sentences = [Sentence([*sources[number], *end], 9, tag_length=len(tag)) for number in order]
    found = list(of_search.complete([*map(found_for, order)], sentences))
    assert found[0] == ()
    for number, hypotheses in zip(order, found, strict=True):
        for tokens, hypothesis in zip(outputs[number], hypotheses, strict=True):
            assert hypothesis.tokens == tokens
            assert hypothesis.attended is not None
            pair = SentencePair(sources[number], tokens)
            (weights,) = TorchForcing(model, tokenizer).attention([pair], [layer])
            memory = weights.memory[0]
            of_words = memory.mean(0) if head is None else memory[head.head]
            expected = of_words[: len(tokens), len(tag) : len(pair.source)].argmax(1)
            assert hypothesis.attended.tokens == tuple(expected.tolist())
            assert hypothesis.attended.words == hypothesis.attended.tokens  # a piece is a word
            assert hypothesis.attended.num_source_words == len(words[number])


def test_the_layer_is_the_last_or_of_deep_models_the_one_before():
    assert [alignment_layer(count) for count in (1, 2, 5, 6, 8)] == [0, 1, 4, 4, 6]


def tokenizer_of(joiner=None):
    recipe = tiny_recipe(tokenizer={"joiner": joiner} if joiner else {})
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), joiner)
    return tokenizer, settings_of(recipe, tokenizer.size), recipe


def test_the_attention_of_pieces_is_added_up_to_that_of_words():
    # To the first source word: 0.4 of the best piece, but 0.6 on the three pieces of the second.
    attention = [[0.4, 0.2, 0.2, 0.2], [0.4, 0.2, 0.2, 0.2], [0.7, 0.1, 0.1, 0.1]]
    sources, targets = [[0], [1], [1], [1]], [[0], [0], [1]]
    found = most_attended(np.array(attention), targets, sources)
    assert found == Attended((0, 0, 0), (1, 0), 2)
    # A word is the mean of its pieces: one sure piece counts as much as another.
    assert most_attended(np.array([[0.9, 0.1], [0.3, 0.7]]), [[0], [0]], [[0], [1]]).words == (0,)
    nothing = np.zeros((0, 2))
    assert most_attended(nothing, [], [[0], [0]]) == Attended((), (), 1)
    assert most_attended(nothing.T, [[0], [1]], []) == Attended((), (), 0)


def hypothesis(*attended):
    return Hypothesis((3, 4), -1.0, -1.0, (), Attended(*attended))


def test_the_words_of_parts_are_counted_through_the_line():
    crossed = hypothesis((1, 0), (1, 0), 2)
    parts = [Part([3, 4], ""), Part([5], " "), Part([3, 4], " "), Part([3, 4], "")]
    # The last part begins in the middle of a word of both sides.
    of_parts = [crossed, hypothesis((), (), 1), crossed, crossed]
    found = joined_links(links_of_parts(of_parts, parts)).links
    assert found == ((1, 0), (0, 1), (4, 2), (3, 3), (5, 3), (4, 4))


def test_models_that_parse_have_no_alignments():
    with pytest.raises(UserError, match="--alignments are between the words"):
        Translator.load(FORMATS / "format_3/treebank/run", device="cpu", alignments=True)


def test_an_unknown_piece_becomes_the_whole_word_that_it_attends_to():
    tokenizer, settings, _ = tokenizer_of("@@")
    text, clean = "\u200b ant fox@@ ee\u00adl@@ hen bee", "ant fox@@ eel@@ hen bee"
    part = Part(tokenizer.encode(clean), "", text)  # the line as it is, and what the model reads
    assert part.tokens[1] == tokenizer.unk_id
    tokens = [*tokenizer.encode("cat@@ dog"), tokenizer.unk_id, *tokenizer.encode("bee")]
    found = Hypothesis(tuple(tokens), -1.0, -1.0, (), Attended((0, 0, 2, 0), (), 0))
    for keep_pieces, text in ((False, "catdog foxeelhen bee"), (True, "cat@@ dog foxeelhen bee")):
        options = TranslatorOptions(replace_unknown=True, keep_pieces=keep_pieces)
        assert TranslationBuilder(tokenizer, settings, 0.6, options)._part(found, part) == text


@pytest.mark.parametrize("too_long", ["split", "truncate"])
def test_unknown_words_of_a_copied_line_are_its_own(monkeypatch, too_long):
    tokenizer, _, recipe = tokenizer_of()
    recipe = tiny_recipe(data={"max_length": 6, "normalization": {"nfc": True}})
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), None)
    monkeypatch.setattr(engine, "step_model", lambda *_: CopyModel(tokenizer.size))

    def diagonal(self, founds, sentences):
        for (one,) in founds:
            places = tuple(range(len(one.tokens)))
            yield (one._replace(attended=Attended(places, (), 0)),)

    monkeypatch.setattr(AttentionToSource, "complete", diagonal)
    translator = translator_of(
        recipe,
        tokenizer,
        Transformer(recipe.model, tokenizer.size),
        precision="fp32",
        replace_unknown=True,
        too_long=too_long,
    )
    lines = ["ant zebra  cafe\u0301 bee", "", "yak", "gnu ant owl bee pig. ram dog ewe elk"]
    copied = ["ant zebra caf\u00e9 bee", "", "yak", "gnu ant owl bee pig. ram dog ewe elk"]
    if too_long == "truncate":
        copied[3] = "gnu ant owl bee pig. ram"
    found = list(translator.translate(lines))
    assert [each.text for each in found] == copied
    assert found[2].tokens == ("<unk>",)


def test_alignments_count_the_words_that_are_cut_off():
    recipe = tiny_recipe(data={"max_length": 3})
    options = {"split_sentences": True, "alignments": True, "too_long": "truncate"}
    options["constraints"] = Constraints(min_length=2)
    texts, words = ("ant bee cat", "Dog ten."), [*WORDS, "D", "."]
    line = f"{texts[0]} tan goat eel. {texts[1]}"
    (found,) = untrained(words, recipe, **options).translate([line])
    first, second = untrained(words, recipe, **options).translate(texts)
    num_words = len(first.text.split())
    moved = ((source + 6, target + num_words) for source, target in second.alignment)
    assert found.alignment == (*first.alignment, *moved)


def test_models_that_spell_every_word_have_none_to_replace():
    path = FORMATS / "format_2/sentencepiece/run/average"
    with pytest.raises(UserError, match="--replace-unknown is for models of text in pieces"):
        Translator.load(path, device="cpu", replace_unknown=True)
