"""Several models search as one whose probabilities are the mean of theirs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled.c_library import load_library
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.engine import Ensemble
from nmt_cli.search.sentences import Sentence
from nmt_cli.translating.rescorer import Rescorer
from nmt_cli.translating.translator import Translator
from tests.fake_models import TableModel, save_as_model, tiny_recipe
from tests.table_search import beam_search, random_table, search, settings

FORMATS = Path(__file__).parents[1] / "formats"
WORDS = ["ant", "bee", "cat", "dog", "eel"]


def other_table(vocabulary_size):
    """A second table of the same vocabulary, which differs from ``random_table``."""
    table = random_table(vocabulary_size)
    return lambda source, prefix: table((*source, 77), prefix).flip(0)


@pytest.mark.usefixtures("searched_by")
@pytest.mark.parametrize("num_members", [1, 2, 3])
def test_two_tables_search_as_their_mean(num_members):
    tables = [random_table(9), other_table(9), random_table(9, end_bias=1.0)][:num_members]

    def mean(source, prefix):
        rows = [table(source, prefix).double().softmax(0) for table in tables]
        return (sum(rows) / num_members).log().float()

    sentences = [Sentence((n,), 3 + n % 5) for n in range(11)]
    chosen = settings(3, n_best=3)
    expected = search(mean, sentences, chosen)
    models = [TableModel(table) for table in tables]
    found = sorted(beam_search(Ensemble(models), sentences, 4, chosen))
    for each, hypotheses in zip(found, expected, strict=True):
        for one, other in zip(each.hypotheses, hypotheses, strict=True):
            assert one.tokens == other.tokens
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


@pytest.mark.usefixtures("searched_by")
def test_a_probability_of_0_in_one_model_halves_that_of_the_other():
    rows = [torch.tensor([0.0, -torch.inf, 0.0, 0.0]), torch.tensor([-torch.inf, -torch.inf, 0, 0])]
    ensemble = Ensemble([TableModel(lambda source, prefix, row=row: row) for row in rows])
    ((found,),) = [each.hypotheses for each in beam_search(ensemble, [Sentence((1,), 0)], 1, ONE)]
    # The end has 1/3 and 1/2.
    assert found.log_probability == pytest.approx(torch.tensor(5 / 12).log().item(), abs=1e-6)


ONE = settings(1)


@pytest.mark.parametrize("layers", ["library", "torch_layers"])
@pytest.mark.parametrize("name", ["whitespace", "sentencepiece"])
def test_a_model_with_itself_translates_as_alone(name, layers, request):
    request.getfixturevalue(layers)
    path = FORMATS / "format_2" / name / "run/average"
    lines = (FORMATS / "text/train.en").read_text().splitlines()[:6]
    alone: Any = Translator.load(path, device="cpu", precision="fp32")
    twice: Any = Translator.load(path, device="cpu", precision="fp32", ensemble=[path])
    pairs = zip(alone.translate(lines), twice.translate(lines), strict=True)
    for one, other in pairs:
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves an untrained model and returns its folder."""

    def save(name, words=tuple(WORDS), seed=1, **sections):
        torch.manual_seed(seed)
        recipe = tiny_recipe(**sections)
        tokenizer = WhitespaceTokenizer([*CONTROL, *words], Normalizer(recipe.data), None)
        model = Transformer(recipe.model, tokenizer.size)
        with directory_appearing_whole(tmp_path / name) as partial:
            save_as_model(partial, recipe, tokenizer, model)
            partial.manifest["kind"] = "average"
        return tmp_path / name

    return save


def test_the_command_takes_several_models_of_other_shapes(saved, tmp_path):
    first, second = saved("first"), saved("second", seed=2, model={"d_model": 10, "num_layers": 1})
    (tmp_path / "in").write_text("ant bee\n\ncat\n")

    def translated(*arguments):
        words = ["translate", str(first), "--input", str(tmp_path / "in"), *arguments]
        options = ["--device", "cpu", "--threads", "1", "--precision", "fp32", "--format", "tsv"]
        result = CliRunner().invoke(cli.main, [*words, *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    together = translated("--ensemble", str(second))
    assert together.count("\n") == 3
    assert together != translated()
    assert translated("--ensemble", str(second), "--ensemble", str(second)) != together


def test_models_that_do_not_fit_together_are_refused(saved):
    first = saved("first")
    for other, difference in {
        saved("words", words=[*WORDS[1:], "fox"]): "vocabularies",
        saved("joined", tokenizer={"joiner": "@@"}): "settings of joiner",
        saved("french", data={"target_language": "fr"}): "settings of target_language",
        FORMATS / "format_2/sentencepiece/run/average": "types of tokenizers",
        saved("zeros", model={"decoder_start": "zeros"}): "settings of decoder_start",
        saved("no end", model={"source_eos": "false"}): "settings of source_eos",
    }.items():
        expected = f"--ensemble {other} cannot join {first}: they have different {difference}. "
        with pytest.raises(UserError) as error:
            Translator.load(first, device="cpu", ensemble=[saved(f"same {difference}"), other])
        assert str(error.value).startswith(expected)


@pytest.mark.parametrize("is_learned", [True, False])
def test_the_lengths_that_all_models_take_are_the_limits(saved, is_learned):
    learned = {"positions": "learned", "max_positions": 9} if is_learned else {}
    first = saved("first", data={"max_length": 30})
    second = saved("second", data={"max_length": 8}, model=learned, seed=2)
    translator = Translator.load(first, device="cpu", ensemble=[second], too_long="error")
    fits, too_long = translator.translate(["ant " * 8, "ant " * 9])
    assert fits.error is None
    assert len(fits.tokens) <= 8 or not is_learned
    assert str(too_long.error).startswith("it has 9 pieces, the model takes 8")


@pytest.mark.usefixtures("torch_layers")  # they use the weights of the model
def test_a_model_whose_output_is_not_a_number_fails_the_line(saved):
    second = saved("second", seed=2)
    translator: Any = Translator.load(saved("first"), device="cpu", ensemble=[second])
    ensemble = translator._engine._model
    with torch.no_grad():
        ensemble._models[1]._model.output_weight.fill_(torch.nan)
    (translation,) = translator.translate(["ant"])
    assert translation.error == "the model's output is not a number"


@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_loaded_models_have_the_precision(name):
    path = FORMATS / "format_2" / "sentencepiece" / "run/average"
    others = [path]
    options: Any = {"device": "cpu", "precision": name}
    translator = Translator.load(path, ensemble=others, **options)
    without_bf16 = name == "bf16" and not load_library().has_bf16
    assert translator.chosen["precision"] == ("fp32" if without_bf16 else name)
    (translation,) = translator.translate(["a"])
    assert translation.error is None
    (rescored,) = Rescorer.load(path, ensemble=others, **options).rescore([("a", "b")])
    assert rescored.error is None
