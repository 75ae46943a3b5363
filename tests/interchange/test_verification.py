"""What passes as the same model, and what does not: other programs are imitated by our own."""

import copy

import pytest
import torch

from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.interchange.verification import as_other_programs_read, verification_texts, verify
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.incremental import CachedTransformer
from nmt_cli.search.sentences import SearchSettings, Sentence, SentencePair
from nmt_cli.search.torch_models import TorchForcing
from tests.table_search import beam_search


class Imitation:
    """An engine that computes with a copy of the model, which a test may change."""

    name = "imitation 1.0"
    adds = 0.0  # to each log-probability

    def __init__(self, loaded):
        self.tokenizer, self.model = loaded.tokenizer, copy.deepcopy(loaded.model)

    def source_ids(self, text):
        return self.tokenizer.encode(text)

    def token_scores(self, source, target):
        scores = TorchForcing(self.model, self.tokenizer).token_scores(
            [SentencePair(source, target)]
        )[0]
        return [score + self.adds for score in scores]

    def greedy(self, source, longest):
        config = self.model.config
        start = start_id(config, self.tokenizer)
        settings = SearchSettings(1, 0.0, 1, start, self.tokenizer.eos_id)
        sentence = Sentence([*source, *source_end(config, self.tokenizer)], longest)
        (found,) = beam_search(CachedTransformer(self.model), [sentence], 1, settings)
        return list(found.hypotheses[0].tokens)


@pytest.fixture
def loaded(make_model):
    return load_model(make_model())


@pytest.fixture
def engine(loaded):
    return Imitation(loaded)


@pytest.fixture
def texts(loaded):
    return verification_texts(loaded, None, 4)


def test_the_same_model_passes(loaded, engine, texts):
    found = verify(loaded, engine, texts, is_exact=True)
    assert found.num_sentences == found.num_identical == 4
    assert found.largest < 1e-5
    assert "on 4 sentences" in found.as_sentence()
    assert "all greedy outputs are identical." in found.as_sentence()


def test_other_pieces_are_refused(loaded, engine, texts):
    engine.source_ids = lambda text: [*loaded.tokenizer.encode(text)[:-1], 5]
    with pytest.raises(UserError, match=r"imitation 1\.0 .* the pieces of '.*' have the ids \["):
        verify(loaded, engine, texts, is_exact=True)


@pytest.mark.parametrize(("adds", "passes"), [(5e-5, True), (2e-4, False), (float("nan"), False)])
def test_log_probabilities_agree_within_the_tolerance(loaded, engine, texts, adds, passes):
    engine.adds = adds
    if passes:
        assert verify(loaded, engine, texts, is_exact=True).largest == pytest.approx(adds, rel=0.1)
        return
    with pytest.raises(UserError, match=r"log-probabilities .* differ by .*0\.0001 is allowed"):
        verify(loaded, engine, texts, is_exact=True)


def test_of_quantized_weights_the_difference_is_reported(loaded, engine, texts):
    engine.adds = 0.25
    found = verify(loaded, engine, texts, is_exact=False)
    assert found.mean == pytest.approx(0.25, rel=1e-3)
    assert "allowed" not in found.as_sentence()
    engine.adds = float("nan")
    with pytest.raises(UserError):
        verify(loaded, engine, texts, is_exact=False)


def test_another_greedy_output_is_refused(loaded, engine, texts):
    engine.greedy = lambda source, longest: [5, 6]
    with pytest.raises(UserError, match="the greedy translations of '"):
        verify(loaded, engine, texts, is_exact=True)


def test_greedy_outputs_may_differ_after_a_near_tie(loaded, engine, texts):
    chosen = engine.greedy(loaded.tokenizer.encode(texts[0]), 5)[0]
    twin = 299 if chosen != 299 else 298
    with torch.no_grad():  # two tokens with the same logit at all places
        loaded.model.output_weight[twin] = loaded.model.output_weight[chosen]
    engine = Imitation(loaded)
    real = engine.greedy

    def other_twin(source, longest):
        swapped = {chosen: twin, twin: chosen}
        output = real(source, longest)
        place = next((n for n, token in enumerate(output) if token in swapped), None)
        return output if place is None else [*output[:place], swapped[output[place]]]

    engine.greedy = other_twin
    found = verify(loaded, engine, texts, is_exact=True)
    assert found.num_identical < 4
    same = (
        f"{found.num_identical} of the 4 greedy outputs are identical and the others differ after"
    )
    assert same in found.as_sentence()


def test_sentences_come_from_the_file_or_are_drawn(loaded, tmp_path):
    drawn = verification_texts(loaded, None, 16)
    assert drawn == verification_texts(loaded, None, 16)
    assert len(set(drawn)) > 10
    path = tmp_path / "text.en"
    path.write_text("a b\n\n \nc\n" + "long " * 99 + "\nd\ne\n")
    assert verification_texts(loaded, path, 3) == ["a b", "c", "d"]
    path.write_text("\n")
    with pytest.raises(UserError, match=r"text\.en has no sentence that the model can translate"):
        verification_texts(loaded, path, 3)


def test_the_text_that_other_programs_read_is_normalized(make_model):
    path = make_model()
    settings = load_model(path).settings.text
    assert as_other_programs_read(settings, " a\tb\u2581c \u3000") == "a b c"
    nfc = settings.normalization.changed(nfc=True)
    composed = as_other_programs_read(settings._replace(normalization=nfc), "u\u0308")
    assert composed == "\u00fc"
