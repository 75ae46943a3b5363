"""Given translations: their scores are the model's own, and those of the search."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.search.sentences import NO_MEMORY
from nmt_cli.search.teacher_forcing import mean_of_models
from nmt_cli.search.torch_models import TorchForcing
from nmt_cli.translating import rescorer as rescorer_module
from nmt_cli.translating.rescorer import Rescored, Rescorer
from nmt_cli.translating.translator import Translator
from tests.fake_models import EOS, packed_model, tiny_recipe

FORMATS = Path(__file__).parents[1] / "formats"
TREEBANK = FORMATS / "format_3/treebank"
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
PAIRS = [
    ("ant bee", "fox"),
    ("cat", "dog eel fox cat bee"),
    ("", ""),
    ("dog dog dog", ""),
    ("ant zebra", "yak ant"),
    (" \u200b", "fox"),
]


def untrained(model=(), max_length=1024, library=None, **options):
    """Return a rescorer by the library, if ``library`` is given, or by torch; and its model."""
    recipe = tiny_recipe(model=dict(model), data={"max_length": max_length})
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), None)
    torch.manual_seed(3)
    model = Transformer(recipe.model, tokenizer.size).eval()
    settings = settings_of(recipe, tokenizer.size)
    scoring = model if library is None else packed_model(model, library)
    return Rescorer(settings, tokenizer, scoring, precision="fp32", **options), tokenizer, model


def expected_scores(tokenizer, model, source, target):
    """Return what torch's own softmax gives for a pair alone, in double precision."""
    sides = [[*tokenizer.encode(source), EOS], [*tokenizer.encode(target), EOS]]
    read = pack(torch.tensor(sides[0]), [len(sides[0])])
    target_input = pack(torch.tensor([1, *sides[1][:-1]]), [len(sides[1])])
    with torch.no_grad():
        rows = model.project(model(read, target_input)).double().log_softmax(dim=1)
    return rows[torch.arange(len(sides[1])), torch.tensor(sides[1])].tolist()


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("config", [{}, {"norm": "pre", "positions": "learned"}])
def test_scores_are_those_of_torch_in_any_batch_and_order(config, is_packed, library):
    for max_tokens in (1, 8, 1000):
        rescorer, tokenizer, model = untrained(
            config, library=library if is_packed else None, max_tokens_per_device=max_tokens
        )
        for order in (1, -1):
            for pair, found in zip(PAIRS[::order], rescorer.rescore(PAIRS[::order]), strict=True):
                if not pair[0].strip(" \u200b"):
                    assert found == Rescored()
                    continue
                scores = expected_scores(tokenizer, model, *pair)
                assert found.error is None
                assert found.token_scores == pytest.approx(scores, abs=1e-5)
                assert found.score == pytest.approx(sum(scores), abs=1e-5)
                pieces = [piece if piece in WORDS else "<unk>" for piece in pair[1].split()]
                assert found.tokens == tuple(pieces)


def test_what_nobody_sees_in_a_source_does_not_matter():
    rescorer, *_ = untrained()
    clean, unclean = rescorer.rescore([("ant bee", "fox"), ("\ufeffant b\u00adee\u200b", "fox")])
    assert unclean == clean


@pytest.mark.parametrize("name", ["sentencepiece", "whitespace"])
def test_the_search_gives_its_output_the_same_scores(name):
    path = FORMATS / "format_2" / name / "run/average"
    lines = (FORMATS / "text/train.en").read_text().splitlines()[:12]
    translator = Translator.load(path, device="cpu", precision="fp32", length_penalty=0.7)
    found = list(translator.translate(lines))
    rescorer = Rescorer.load(path, device="cpu", precision="fp32", length_penalty=0.7)
    rescored = list(rescorer.rescore(zip(lines, (each.text for each in found), strict=True)))
    same = [(a, b) for a, b in zip(found, rescored, strict=True) if a.tokens == b.tokens]
    assert len(same) > 9  # the others would be cut into other pieces than the search chose
    for translation, again in same:
        assert again.score == pytest.approx(translation.score, abs=1e-5)


def test_an_ensemble_gives_its_output_the_same_scores():
    path = FORMATS / "format_2/whitespace/run"
    step = path / "checkpoints/step-00001200"
    lines = (FORMATS / "text/train.en").read_text().splitlines()[:12]
    options: dict[str, Any] = {"device": "cpu", "precision": "fp32", "length_penalty": 0.7}
    loaded = path / "average", {"ensemble": [step, step], **options}
    translator = Translator.load(loaded[0], token_scores=True, **loaded[1])
    found = list(translator.translate(lines))
    pairs = [(line, each.text) for line, each in zip(lines, found, strict=True)]
    together = list(Rescorer.load(loaded[0], **loaded[1]).rescore(pairs))
    alone = Rescorer.load(loaded[0], **options).rescore(pairs)
    for translation, again, other in zip(found, together, alone, strict=True):
        assert again.tokens == translation.tokens
        assert again.token_scores == pytest.approx(translation.token_scores, abs=1e-5)
        assert again.score == pytest.approx(translation.score, abs=1e-5)
        assert again.score != pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("owner", [Translator, Rescorer])
def test_an_unknown_option_is_refused(owner):
    path = FORMATS / "format_2/whitespace/run/average"
    with pytest.raises(TypeError, match="unexpected keyword argument 'lenght_penalty'"):
        owner.load(path, device="cpu", precision="fp32", lenght_penalty=0.6)


def test_a_token_that_one_of_two_models_forbids_has_half_the_probability_of_the_other():
    scores = [[[-1.0, -math.inf], [-2.0]], [[-1.0, math.log(0.4)], [-math.inf]]]
    first, second = mean_of_models(scores)
    assert first == pytest.approx([-1.0, math.log(0.2)])
    assert second == pytest.approx([-2.0 - math.log(2)])
    assert mean_of_models([[[-math.inf]], [[-math.inf]]]) == [[-math.inf]]


def test_the_search_gives_its_trees_the_same_scores():
    recipe = read_recipe(str(TREEBANK / "run/recipe.yaml")).recipe
    lines = open_prepared(TREEBANK / "prepared", recipe, "").validation[0].lines("source")
    translator = Translator.load(TREEBANK / "run", device="cpu", precision="fp32")
    rescorer = Rescorer.load(TREEBANK / "run", device="cpu", precision="fp32", length_penalty=0.3)
    parses = list(translator.translate(lines))
    pairs = list(zip(lines, (parse.text for parse in parses), strict=True))
    for parse, again in zip(parses, rescorer.rescore(pairs), strict=True):
        assert again.tokens == parse.tokens
        assert again.score == pytest.approx(parse.score, abs=1e-5)
    (line, tree), *_ = pairs
    wrong = {
        tree[:-1]: "does not close",
        f"{tree} {tree}": "2 trees in brackets, not one",
        "no brackets": "no has no brackets",
        "(TOP (S (NN rain)))": "words, but the tree has 1 leaf",
        tree.replace("(S", "(UNHEARD-OF", 1): "UNHEARD-OF",
    }
    failed = list(rescorer.rescore([(line, each) for each in wrong]))
    for found, error in zip(failed, wrong.values(), strict=True):
        assert found.score is None
        assert error in str(found.error)


def test_pairs_that_are_too_long_or_no_text_fail_alone():
    rescorer, *_ = untrained({"positions": "learned", "max_positions": 9}, max_length=7)
    long, half = "ant " * 9, "\ud800"
    fits = ("ant " * 7, "bee " * 8)
    pairs = [("ant", "bee"), (long[4:], "bee"), ("ant", long), ("ant", half), fits]
    first, *failed, last = rescorer.rescore(pairs)
    assert [each.error for each in failed] == [
        "its source has 8 pieces, the model takes 7",
        "its target has 9 pieces, the model takes 8",
        "character 1 is U+D800, half of a surrogate pair",
    ]
    assert first.score is not None
    assert last.score is not None


def test_a_target_may_be_as_long_as_an_output_of_the_longest_source():
    rescorer, *_ = untrained()
    longest = "ant " * (1024 + 5)
    fits, too_long = rescorer.rescore([("ant", longest), ("ant", f"{longest} ant")])
    assert fits.error is None
    assert too_long.error == "its target has 1,030 pieces, the model takes 1,029"


def test_a_pass_that_does_not_fit_the_memory_is_halved(monkeypatch):
    sizes, score = [], TorchForcing.token_scores

    def full(self, pairs):
        sizes.append(len(pairs))
        if len(pairs) > 3 or any(len(pair.target) == 6 for pair in pairs):
            raise MemoryError
        return score(self, pairs)

    monkeypatch.setattr(TorchForcing, "token_scores", full)
    rescorer, tokenizer, model = untrained()
    pairs = [("ant", "bee " * (number % 6)) for number in range(40)] + [("ant", "bee " * 6)]
    *found, failed = rescorer.rescore(pairs)
    for pair, each in zip(pairs, found, strict=False):
        expected = sum(expected_scores(tokenizer, model, *pair))
        assert each.score == pytest.approx(expected, abs=1e-5)
    assert failed == Rescored(error=NO_MEMORY.reason)
    assert sizes[-1] <= 3  # once is enough to learn how many fit


def test_a_bug_that_halves_do_not_meet_is_a_warning(monkeypatch):
    warnings, score = list[str](), TorchForcing.token_scores

    def broken(self, pairs):
        if len(pairs) > 2:
            raise TypeError("a bug of many")
        return score(self, pairs)

    rescorer, *_ = untrained()
    pairs = [("ant", "bee " * number) for number in range(4)]
    expected = list(rescorer.rescore(pairs))
    monkeypatch.setattr(TorchForcing, "token_scores", broken)
    monkeypatch.setattr(logs, "warning", warnings.append)
    found = list(rescorer.rescore(pairs))
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
    (warning,) = warnings
    assert "please report it" in warning
    assert "a bug of many" in warning


def test_output_that_is_not_a_number_is_a_failed_pair():
    rescorer, _, model = untrained()
    with torch.no_grad():
        model.output_weight[5] = torch.nan  # the piece cat
    (found,) = rescorer.rescore([("ant", "bee")])
    assert found.error == "the model's output is not a number"


def test_a_bug_names_its_line(monkeypatch):
    score = TorchForcing.token_scores

    def broken(self, pairs):
        if any(len(pair.target) == 7 for pair in pairs):
            raise TypeError("a bug of ours")
        return score(self, pairs)

    monkeypatch.setattr(TorchForcing, "token_scores", broken)
    monkeypatch.setattr(rescorer_module, "WINDOW_PAIRS", 10)
    rescorer, *_ = untrained()
    pairs = [("ant", "bee")] * 13 + [("ant", "bee " * 7)] + [("ant", "bee")] * 3
    with pytest.raises(LinesFailedError, match="line 14 could not") as error:
        list(rescorer.rescore(pairs))
    assert isinstance(error.value.__cause__, TypeError)


def test_a_negative_length_penalty_is_refused():
    with pytest.raises(
        UserError, match="--length-penalty must be at least 0 and at most 10, but is -1"
    ):
        untrained(length_penalty=-1.0)
