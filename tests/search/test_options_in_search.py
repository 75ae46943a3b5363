"""The search, step by step, and the pass of training agree whatever options the model has."""

import pytest
import torch

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
from tests.architectures import OPTION_SETS, Formula, random_model
from tests.fake_models import save_as_model, tiny_recipe, translator_of

PIECES = [*CONTROL, *(f"w{number}" for number in range(20))]
LINES = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11"]


@pytest.mark.parametrize("options", OPTION_SETS)
def test_scores_of_the_search_are_those_of_training_also_after_saving(options, tmp_path):
    recipe = tiny_recipe()
    own = None
    if "source_vocabulary_size" in options:
        own = [*CONTROL, *(f"w{n}" for n in reversed(range(options["source_vocabulary_size"] - 3)))]
    tokenizer = WhitespaceTokenizer(PIECES, Normalizer(recipe.data), None, own)
    model = random_model(options, tokenizer.size).eval()
    recipe = recipe.model_copy(update={"model": model.config})
    with directory_appearing_whole(tmp_path / "model") as partial:
        partial.manifest.update(kind="average")
        save_as_model(partial, recipe, tokenizer, model)
    loaded = load_model(tmp_path / "model")
    assert loaded.settings.architecture == model.config.of_model()
    for side in ("source", "target"):
        assert loaded.tokenizer.encode(LINES[0], side) == tokenizer.encode(LINES[0], side)
    saved = zip(model.named_parameters(), loaded.model.named_parameters(), strict=True)
    assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in saved)

    translator = translator_of(
        recipe, tokenizer, loaded.model, token_scores=True, n_best=3, beam_size=3, precision="fp32"
    )
    for line, translation in zip(LINES, translator.translate(LINES), strict=True):
        found = translation.ranked
        assert len(found) == 3
        for each in found:
            target = [PIECES.index(piece) for piece in each.tokens]
            (scores,) = TorchForcing(model, tokenizer).token_scores(
                [SentencePair(tokenizer.encode(line), target)]
            )
            assert each.token_scores == pytest.approx(scores, abs=1e-4)
            expected = Formula(model).token_scores(tokenizer.encode(line), target, tokenizer)
            assert scores == pytest.approx(expected, abs=1e-4)
