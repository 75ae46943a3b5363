"""Lines in, translations out: with a model that copies, and with a real one that has not learnt."""

import random
from typing import Any

import pytest
import torch

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, NoTextError, UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.translating.interface import request as request_module
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator
from tests import fake_models
from tests.fake_models import (
    NUM_MARKS,
    ByteTokenizer,
    copying,
    save_as_model,
    tiny_recipe,
    translator_of,
)

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lark"]


def untrained(precision="fp32", model=(), data=(), **options):
    recipe = tiny_recipe(model=dict(model), data=dict(data))
    return fake_models.untrained(WORDS, recipe, precision=precision, **options)


def random_lines(count, longest=12, seed=1):
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(WORDS) for _ in range(rng.randrange(longest + 1))) for _ in range(count)
    ]


def texts(translations):
    return [translation.text for translation in translations]


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({}, "fp32"),
        ({}, "int8"),
        ({"norm": "pre"}, "fp32"),
        ({"positions": "learned", "max_positions": 1100}, "fp32"),
    ],
)
def test_a_line_is_translated_as_it_is_alone(config, precision):
    lines, n_best = random_lines(16, longest=9), 3
    alone = untrained(precision, model=config, n_best=n_best)
    expected = [next(alone.translate([line])) for line in lines]
    for max_tokens, order in ((1, -1), (700, 1), (700, -1), (100_000, -1)):
        options = {"n_best": n_best, "max_tokens_per_device": max_tokens}
        together = untrained(precision, model=config, **options)
        found = list(together.translate(lines[::order]))[::order]
        assert texts(found) == texts(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert len(one.alternatives) == (n_best - 1 if one.tokens else 0)
            assert texts(one.alternatives) == texts(other.alternatives)


def test_the_score_is_the_log_probability_of_the_tokens_over_the_length_penalty():
    from nmt_cli.model.packing import pack

    recipe = tiny_recipe()
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), None)
    model = Transformer(recipe.model, tokenizer.size).eval()
    translator = translator_of(recipe, tokenizer, model, n_best=4, precision="fp32")
    (translation,) = translator.translate(["cat dog eel"])
    source = pack(torch.tensor([*tokenizer.encode("cat dog eel"), 2]), [4])
    candidates: list[Any] = [translation, *translation.alternatives]
    scores = [candidate.score for candidate in candidates]
    assert scores == sorted(scores, reverse=True)
    for candidate in candidates:
        ids = [*tokenizer.encode(" ".join(candidate.tokens)), 2]
        target_input = pack(torch.tensor([1, *ids[:-1]]), [len(ids)])
        with torch.no_grad():
            rows = model.project(model(source, target_input)).log_softmax(dim=1)
        total = rows[torch.arange(len(ids)), torch.tensor(ids)].sum().item()
        assert candidate.score == pytest.approx(total / ((5 + len(ids)) / 6) ** 0.6, abs=1e-4)


def test_the_scores_of_the_tokens_of_all_parts_add_up_to_the_log_probability():
    lines = ["ant bee", "", "cat " * 40]
    options: dict[str, Any] = {"beam_size": 3, "n_best": 2, "length_penalty": 0.5}
    translator = untrained(data={"max_length": 9}, token_scores=True, **options)
    plain = untrained(data={"max_length": 9}, **options)
    found = list(translator.translate(lines))
    assert [each.num_parts for each in found] == [1, 1, 8]
    for each, other in zip(found, plain.translate(lines), strict=True):
        assert texts(each.ranked) == texts(other.ranked)
        for one in each.ranked:
            assert len(one.token_scores) == len(one.tokens) + each.num_parts
            assert sum(one.token_scores) == pytest.approx(one.log_probability, abs=1e-5)
            penalty = ((5 + len(one.token_scores)) / 6) ** 0.5
            assert one.score == pytest.approx(one.log_probability / penalty, abs=1e-5)
        assert all(one.token_scores == () for one in other.ranked)


def test_options_left_open_are_the_recipes(monkeypatch):
    recipe = tiny_recipe(decoding={"beam_size": 3, "length_penalty": 0.1, "max_extra_length": 7})
    translator, _ = copying(monkeypatch, recipe=recipe)
    assert translator._engine.settings[:2] == (3, 0.1)
    translator, _ = copying(monkeypatch, recipe=recipe, beam_size=1, length_penalty=0.0)
    assert translator._engine.settings[:2] == (1, 0.0)


def test_blank_lines_stay_empty_without_the_model(monkeypatch):
    translator, model = copying(monkeypatch)
    lines = ["", " ", "\t\u3000", "\u200b", "\ufeff \u2028", "a"]
    assert texts(translator.translate(lines)) == ["", "", "", "", "", "a"]
    assert model.num_sentences == 1
    assert next(translator.translate([""])) == Translation()


def test_lines_come_out_in_order_whatever_is_in_them(monkeypatch):
    translator, _ = copying(monkeypatch)
    lines = ["b\u2028c\x85d", "<s> </s> ▁", "x\x00y", "z\r", "", "é" * 40, "😀"]
    expected = ["b c d", "<s> </s> ▁", "x y", "z ", "", "é" * 40, "😀"]
    assert texts(translator.translate(iter(lines))) == expected


def test_windows_are_bounded(monkeypatch):
    monkeypatch.setattr(request_module, "WINDOW_LINES", 4)
    monkeypatch.setattr(request_module, "WINDOW_CHARACTERS", 30)
    translator, _ = copying(monkeypatch)
    read = []

    def lines():
        for number in range(20):
            read.append(number)
            yield f"line {number}"

    for number, translation in enumerate(translator.translate(lines())):
        assert translation.text == f"line {number}"
        assert len(read) <= number + 4
    assert len(read) == 20
    assert len(list(translator.translate(["x" * 40] * 3))) == 3


def test_too_long_lines_are_split_and_joined(monkeypatch):
    recipe = tiny_recipe(data={"max_length": 16})
    translator, _ = copying(monkeypatch, recipe=recipe)
    line = "This is one. And here is another, longer one. End"
    short, long = translator.translate(["short", line])
    assert short.num_parts == 1
    assert long.text == line
    assert long.num_parts > 2
    assert not long.truncated
    assert long.score == pytest.approx(0.0, abs=2.0)
    (pieces,) = copying(monkeypatch, recipe=recipe, keep_pieces=True)[0].translate(
        ["a a a a a a a a a a"]
    )
    assert pieces.text.split() == [f"<{byte:02x}>" for byte in b"a a a a" + b"a a a a a a"]


def test_n_best_of_a_line_in_parts(monkeypatch):
    translator, _ = copying(monkeypatch, recipe=tiny_recipe(data={"max_length": 4}), n_best=3)
    (translation,) = translator.translate(["ab cd ef"])
    assert translation.text == "ab cd ef"
    assert translation.num_parts == 3
    assert len(translation.alternatives) == 2


def test_too_long_lines_are_truncated(monkeypatch):
    recipe = tiny_recipe(data={"max_length": 8})
    translator, _ = copying(monkeypatch, recipe=recipe, too_long="truncate")
    short, long = translator.translate(["12345678", "123456789"])
    assert (short.text, short.truncated) == ("12345678", False)
    assert (long.text, long.truncated) == ("12345678", True)


def test_too_long_lines_are_refused(monkeypatch):
    recipe = tiny_recipe(data={"max_length": 8})
    translator, _ = copying(monkeypatch, recipe=recipe, too_long="error")
    good, bad, last = translator.translate(["good", "123456789", "last"])
    assert (good.text, last.text) == ("good", "last")
    assert bad == Translation(
        error="it has 9 pieces, the model takes 8; --too-long split translates it in parts"
    )


def test_learned_positions_limit_input_and_output(monkeypatch):
    recipe = tiny_recipe(
        model={"positions": "learned", "max_positions": 40},
        data={"max_length": 39},
        decoding={"max_extra_length": 500},
    )
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), None)
    model = Transformer(recipe.model, tokenizer.size)
    with torch.no_grad():  # never ends by itself
        model.output_weight[2] = 0.0
        model.output_weight.mul_(20.0)
    for num_words in (3, 39, 200):
        (translation,) = translator_of(recipe, tokenizer, model).translate(["cat " * num_words])
        assert translation.error is None


def failing_for(bad, error):
    """Return what makes a CopyModel fail while one of the lines ``bad`` is in its slots."""

    def fails(sources):
        if bad & {ByteTokenizer().decode(source) for source in sources}:
            raise error

    return fails


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FloatingPointError("the model's output is not a number"), "is not a number"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
            "the memory is full even",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "the memory is full even"),
        (MemoryError(), "the memory is full even for this line alone; shorten it"),
    ],
)
def test_a_line_that_fails_by_its_own_fault_is_isolated(monkeypatch, error, reason):
    bad = {f"line {number}" for number in (3, 4, 77, 199)}
    fails = failing_for(bad, error)
    translator, model = copying(monkeypatch, fails=fails, max_tokens_per_device=1000)
    lines = [f"line {number}" for number in range(200)]
    for line, translation in zip(lines, translator.translate(lines), strict=True):
        assert translation.text == ("" if line in bad else line)
        assert (reason in (translation.error or "")) == (line in bad)
    model.max_slots = 0
    list(translator.translate(["other"] * 20))
    assert model.max_slots == 1000 // (32 * 4)


def failure_of(translator, lines):
    """Return the texts translated before the error, and the error."""
    found: list[str] = []
    with pytest.raises(LinesFailedError) as caught:
        found.extend(translation.text for translation in translator.translate(lines))
    return found, caught.value


def test_a_bug_in_the_search_ends_translation_behind_the_lines_before_it(monkeypatch):
    monkeypatch.setattr(request_module, "WINDOW_LINES", 50)
    bug = TypeError("a bug of ours")
    fails = failing_for({"line 130 is the longest", "line 77"}, bug)
    translator, _ = copying(monkeypatch, fails=fails, max_tokens_per_device=1000)
    lines = [f"line {number}" for number in range(200)]
    lines[130] += " is the longest"
    found, error = failure_of(translator, lines)
    assert found == lines[:77]
    assert (error.first, error.last, error.__cause__) == (77, 77, bug)
    assert str(error).startswith("line 78 could not be translated because of a bug in nmt-cli")


def test_the_first_of_several_lines_that_meet_a_bug_is_named(monkeypatch):
    bad = {f"line {number}" for number in (3, 4, 77, 199)} | {"line 90 and so on"}
    translator, _ = copying(monkeypatch, fails=failing_for(bad, KeyError("a bug")))
    lines = [f"line {number}" for number in range(200)]
    lines[90] += " and so on"
    found, error = failure_of(translator, lines)
    assert found == lines[:3]
    assert (error.first, error.last) == (3, 3)


def test_a_bug_that_no_line_meets_alone_is_logged(monkeypatch):
    def fails(sources):
        texts = {ByteTokenizer().decode(source) for source in sources}
        if {"line 12", "line 40"} <= texts:
            raise ValueError("these two")

    warnings: list[str] = []
    monkeypatch.setattr(logs, "warning", warnings.append)
    translator, _ = copying(monkeypatch, fails=fails)
    lines = [f"line {number}" for number in range(64)]
    assert [each.text for each in translator.translate(lines)] == lines
    assert warnings
    assert all("ValueError: these two" in each for each in warnings)


def test_a_bug_that_meets_every_line_ends_translation_soon(monkeypatch):
    calls = []

    def fails(sources):
        calls.append(1)
        raise TypeError("always")

    translator, _ = copying(monkeypatch, fails=fails)
    found, error = failure_of(translator, [f"line {number}" for number in range(1000)])
    assert found == []
    assert (error.first, error.last) == (0, 0)
    assert len(calls) < 200


@pytest.mark.parametrize("method", ["encode", "decode", "pieces"])
def test_a_bug_in_the_tokenizer_names_its_line(monkeypatch, method):
    translator, _ = copying(monkeypatch)
    original = getattr(ByteTokenizer, method)
    bad = ByteTokenizer().encode("line 30")

    def broken(self, texts_or_ids, **options):
        if "line 30" in texts_or_ids or [*texts_or_ids] == bad:
            raise TypeError("a bug of ours")
        return original(self, texts_or_ids, **options)

    monkeypatch.setattr(ByteTokenizer, method, broken)
    lines = [f"line {number}" for number in range(64)]
    found, error = failure_of(translator, lines)
    assert found == lines[:30]
    assert (error.first, error.last) == (30, 30)
    assert str(error.__cause__) == "a bug of ours"


def test_pieces_without_text_are_an_error_of_the_line(monkeypatch):
    translator, _ = copying(monkeypatch)
    original = ByteTokenizer.decode

    def without_q(self, ids, **options):
        if NUM_MARKS + ord("q") in ids:
            raise NoTextError([NUM_MARKS + ord("q")], 50)
        return original(self, ids, **options)

    monkeypatch.setattr(ByteTokenizer, "decode", without_q)
    first, bad, last = translator.translate(["first", "q", "last"])
    assert (first.text, last.text) == ("first", "last")
    assert bad == Translation(error="the id 116 has no text; the tokenizer has 50 pieces")


def test_running_out_of_memory_halves_the_slots(monkeypatch):
    def fails(sources):
        if len(sources) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")

    translator, model = copying(monkeypatch, fails=fails)
    lines = [f"line {number}" for number in range(50)]
    assert texts(translator.translate(lines)) == lines
    model.max_slots = 0
    assert texts(translator.translate(lines)) == lines
    assert 1 < model.max_slots <= 3


def test_a_broken_device_is_not_an_error_of_the_line(monkeypatch):
    def fails(sources):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    translator, _ = copying(monkeypatch, fails=fails)
    with pytest.raises(torch.AcceleratorError):
        list(translator.translate(["cat", "dog"]))


def test_what_cannot_be_encoded_is_isolated(monkeypatch):
    translator, _ = copying(monkeypatch)
    first, bad, last = translator.translate(["first", "a lone \ud800 surrogate", "last"])
    assert (first.text, last.text) == ("first", "last")
    assert bad.text == ""
    assert bad.error == "character 8 is U+D800, half of a surrogate pair"


def test_a_model_that_is_broken_fails_every_line():
    recipe, tokenizer = tiny_recipe(), ByteTokenizer()
    model = Transformer(recipe.model, tokenizer.size)
    with torch.no_grad():
        model.output_weight.fill_(torch.nan)
    translator = translator_of(recipe, tokenizer, model, precision="fp32")
    for translation in translator.translate(["cat", "dog eel"]):
        assert translation == Translation(error="the model's output is not a number")


def test_interrupting_is_not_an_error_of_the_line(monkeypatch):
    def interrupt(sources):
        raise KeyboardInterrupt

    translator, _ = copying(monkeypatch, fails=interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(translator.translate(["line"]))


def test_long_lines_get_fewer_slots(monkeypatch):
    translator, model = copying(
        monkeypatch, max_tokens_per_device=4 * 200 * 2, recipe=tiny_recipe()
    )
    list(translator.translate(["x" * 199, *["x" * 120] * 3]))
    assert model.max_slots == 2
    list(translator.translate(["y"] * 100))
    assert model.max_slots == 12


@pytest.mark.usefixtures("torch_layers")
def test_the_same_weights_are_used_and_left_in_evaluation_mode():
    recipe = tiny_recipe()
    tokenizer = ByteTokenizer()
    model = Transformer(recipe.model, tokenizer.size).train()
    translator = translator_of(recipe, tokenizer, model, precision="fp32")
    assert not model.training
    before = texts(translator.translate(["abc"]))
    with torch.no_grad():
        model.output_weight.neg_()  # the most probable token becomes the least probable
    assert texts(translator.translate(["abc"])) != before


def test_bf16_translates():
    lines = random_lines(10)
    for line, translation in zip(lines, untrained("bf16").translate(lines), strict=True):
        assert translation.error is None
        assert bool(translation.tokens) == bool(line)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "--beam-size must be at least 1 and at most 1,000, but is 0"),
        (
            {"length_penalty": -0.5},
            "--length-penalty must be at least 0 and at most 10, but is -0.5",
        ),
        (
            {"length_penalty": float("nan")},
            "--length-penalty must be at least 0 and at most 10, but is nan",
        ),
        ({"n_best": 5}, "--n-best 5 must be at least 1 and at most --beam-size 4"),
        ({"n_best": 0}, "--n-best 0 must be at least 1"),
        ({"precision": "fp8"}, "--precision must be auto, fp32, bf16 or int8, but is fp8"),
    ],
)
def test_options_that_make_no_sense(monkeypatch, options, message):
    with pytest.raises(UserError, match=message):
        copying(monkeypatch, **options)


def test_load_reads_a_model_directory(toy, tmp_path):
    from nmt_cli.files.atomic_files import directory_appearing_whole

    torch.manual_seed(1)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    with directory_appearing_whole(tmp_path / "model") as partial:
        save_as_model(partial, toy.recipe, toy.corpus.tokenizer, model)
        partial.manifest["kind"] = "average"
    loaded = Translator.load(tmp_path / "model", device="cpu", precision="fp32", beam_size=3)
    made = translator_of(toy.recipe, toy.corpus.tokenizer, model, precision="fp32", beam_size=3)
    lines = ["cat dog", "fox", "owl newt mole"]
    assert list(loaded.translate(lines)) == list(made.translate(lines))
    with pytest.raises(UserError, match="not found"):
        Translator.load(tmp_path / "none")


@pytest.mark.parametrize("lines", ["A cat", b"A cat", Request("A cat")])
def test_a_single_line_is_no_list_of_lines(lines):
    translator = untrained()
    message = f"lines must be several, such as a list, but are a {type(lines).__name__}"
    with pytest.raises(TypeError, match=message):
        translator.translate(lines)  # before its first item is taken
    with pytest.raises(TypeError, match=message):
        translator.translate_window(lines)


@pytest.mark.parametrize(
    ("item", "kind"), [(3, "int"), (None, "NoneType"), (b"a", "bytes"), (("a",), "tuple")]
)
def test_an_item_that_is_no_line_is_named(item, kind):
    with untrained() as translator:
        message = rf"^line 2 must be a str or a Request, but is a {kind}$"
        with pytest.raises(TypeError, match=message):
            list(translator.translate(["a", item]))
        with pytest.raises(TypeError, match=message):
            translator.translate_window(["a", item])
        with pytest.raises(TypeError, match="but is a Request without a text"):
            list(translator.translate([Request(item)]))
        with pytest.raises(TypeError, match=rf"must be a str or a Request, but is a {kind}$"):
            translator.submit(item)
