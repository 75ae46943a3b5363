"""``translate --engine ctranslate2`` and ``Translator.load(..., engine="ctranslate2")``."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import export
from nmt_cli.commands.lines.line_windows import STEADY_WINDOW
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.folders import kind_of
from nmt_cli.files.locks import claimed
from nmt_cli.interchange.ctranslate2 import cached_export, exporter, sentence_driver
from nmt_cli.interchange.ctranslate2.sentence_driver import Threads
from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.search.sampling import Sampling
from nmt_cli.translating.request import Constraints, Request
from nmt_cli.translating.translator import Translator
from tests.imported_modules import ended

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: make test-all installs it")

FORMATS = Path(__file__).parents[1] / "formats"
MODELS = {
    kind: FORMATS / f"format_2/{kind}/run/average" for kind in ("sentencepiece", "whitespace")
}
MODEL = MODELS["sentencepiece"]
LINES = (FORMATS / "text/train.en").read_text(encoding="utf-8").splitlines()[:200]
TOLERANCE = 1e-4  # of a log-probability


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Keep exports in one folder for all tests of this file."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        exports = folder / "nmt-cli/ctranslate2"
        exports.mkdir(parents=True)  # a test may run before any model was exported
        yield exports


def loaded(path=MODEL, **options: Any) -> Any:
    options = {"engine": "ctranslate2", "ctranslate2_threads": Threads(2), **options}
    return Translator.load(path, **options)


def own(path=MODEL, **options: Any) -> Any:
    return Translator.load(path, device="cpu", precision="fp32", **options)


def run(*words, text=""):
    words = ("translate", *words, "--engine", "ctranslate2")
    return CliRunner().invoke(cli.main, [*map(str, words)], input=text)


def compare_scores(ours, theirs):
    """Compare the scores of an output that both engines found."""
    assert theirs.score == pytest.approx(ours.score, abs=TOLERANCE)
    assert theirs.log_probability == pytest.approx(ours.log_probability, abs=20 * TOLERANCE)
    assert theirs.token_scores == pytest.approx(ours.token_scores, abs=TOLERANCE)


def test_translations_are_those_of_our_search_and_scores_have_our_length_penalty():
    num_same = 0
    for path in MODELS.values():
        with_ours = own(path, token_scores=True).translate(LINES)
        with_theirs = loaded(path, token_scores=True).translate(LINES)
        for ours, theirs in zip(with_ours, with_theirs, strict=True):
            if theirs.tokens == ours.tokens:
                num_same += 1
                compare_scores(ours, theirs)
            else:  # its search ended before it met the better one
                assert theirs.score < ours.score
    assert num_same >= 0.99 * len(MODELS) * len(LINES)


@pytest.mark.parametrize(
    "options",
    [
        {"length_penalty": 0.0, "n_best": 2},
        {"beam_size": 1},
        {"max_extra_length": 0},
        {"constraints": Constraints(max_length=4)},
        {"constraints": Constraints(prefix="mole")},
        {"beam_size": 4, "n_best": 4, "max_tokens_per_device": 40},
    ],
)
def test_options_mean_the_same(options):
    lines = LINES[:20]
    with_ours = list(own(token_scores=True, **options).translate(lines))
    with_theirs = list(loaded(token_scores=True, **options).translate(lines))
    same = [
        (ours, theirs)
        for ours, theirs in zip(with_ours, with_theirs, strict=True)
        if ours.tokens == theirs.tokens
    ]
    assert len(same) >= 0.9 * len(lines)
    for ours, theirs in same:
        compare_scores(ours, theirs)
    assert {len(each.ranked) for each in with_theirs} <= {options.get("n_best", 1)}


def test_lines_that_reach_the_longest_output_end_there_as_in_our_search(make_model):
    model = make_model()  # its weights are random: it hardly ever ends an output
    lines = ["the", "one two three", "a b c d e f g h"]
    expected = list(own(model, n_best=3, beam_size=3).translate(lines))
    found = list(loaded(model, n_best=3, beam_size=3).translate(lines))
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    for ours, theirs in zip(expected, found, strict=True):
        for one, other in zip(ours.ranked, theirs.ranked, strict=True):
            compare_scores(one, other)


def test_lines_ask_for_what_they_want():
    wanted = [
        Request(LINES[0], prefix="mole", n_best=3, beam_size=3),
        Request(LINES[1], length_penalty=0.0, beam_size=1),
        Request(LINES[2], required=["mole"]),
        Request(LINES[3], error="it is wrong"),
        "",
        "\ud800",
    ]
    ours, theirs = (
        list(each.translate(wanted)) for each in (own(beam_size=4), loaded(beam_size=4))
    )
    assert theirs[0].text.startswith("mole")
    assert len(theirs[0].ranked) == 3
    assert [each.score for each in theirs[0].ranked] == pytest.approx(
        [each.score for each in ours[0].ranked], abs=TOLERANCE
    )
    assert theirs[1].score == pytest.approx(ours[1].score, abs=TOLERANCE)
    assert "has no required and no banned phrases" in str(theirs[2].error)
    assert [each.error for each in theirs[3:]] == [each.error for each in ours[3:]]


def test_long_lines_are_translated_in_parts_and_tags_come_in_front():
    long = " ".join(LINES)
    (ours,), (theirs,) = (each.translate([long]) for each in (own(), loaded()))
    assert theirs.num_parts == ours.num_parts > 1
    (refused,) = loaded(too_long="error").translate([long])
    assert "--too-long split translates it in parts" in refused.error


def test_submitted_lines_and_windows_have_the_same_translations():
    expected = [each.text for each in loaded().translate(LINES[:30])]
    with loaded() as translator:
        futures = [translator.submit(line) for line in LINES[:30]]
        assert [each.result().text for each in futures] == expected
    windows = iter([LINES[:7], [], LINES[7:30]])
    found = list(loaded().translate_windows(windows))
    assert [[each.text for each in window] for window in found] == [
        expected[:7],
        [],
        expected[7:],
    ]


def test_an_error_of_the_text_comes_after_the_windows_before():
    def windows():
        yield LINES[:2]
        raise UserError("the text cannot be read")

    translated = loaded().translate_windows(windows())
    assert len(next(translated)) == 2
    with pytest.raises(UserError, match="the text cannot be read"):
        next(translated)


class Failing:
    """CTranslate2's translator, which fails in batches with a certain piece."""

    def __init__(self, translator, piece, error):
        self._translator, self._piece, self._error = translator, piece, error

    def translate_batch(self, sources, *arguments, **options):
        if any(self._piece in source for source in sources):
            raise self._error
        return self._translator.translate_batch(sources, *arguments, **options)

    def __getattr__(self, name):
        return getattr(self._translator, name)


def failing(error):
    translator = loaded(MODELS["whitespace"])
    driver = translator._engine.driver
    driver._translator = Failing(driver._translator, "</s>_2", error)
    return translator


@pytest.fixture
def marked(monkeypatch):
    """Lines of which the third has the piece that makes batches fail."""
    of_source = sentence_driver.CTranslate2Driver._source_of
    pieces_of = {}

    def source_of(self, sentence):
        pieces = of_source(self, sentence)
        return [*pieces, "</s>_2"] if tuple(sentence.tokens) in pieces_of else pieces

    monkeypatch.setattr(sentence_driver.CTranslate2Driver, "_source_of", source_of)
    translator = loaded(MODELS["whitespace"])
    (job,) = translator._jobs.prepare([Request(LINES[2])])
    pieces_of[tuple(job.sentences[0].tokens)] = True
    return LINES[:5]


def test_a_sentence_that_fails_leaves_the_others_of_its_batch_alone(marked):
    translations = list(failing(MemoryError()).translate(marked))
    errors = [str(each.error) for each in translations]
    assert [error == "None" for error in errors] == [True, True, False, True, True]
    assert "the memory is full" in errors[2]


def test_a_bug_names_its_line_and_keeps_the_lines_before(marked):
    with pytest.raises(LinesFailedError, match="line 3 could not be translated") as caught:
        list(failing(RuntimeError("a bug")).translate_windows(iter([marked])))
    assert len(caught.value.finished) == 2
    with failing(RuntimeError("a bug")) as translator:
        futures = [translator.submit(line) for line in marked]
        assert isinstance(futures[2].exception(), RuntimeError)
        assert futures[3].result().text


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"sampling": Sampling()}, "--sample"),
        ({"alignments": True}, "--alignments"),
        ({"replace_unknown": True}, "--replace-unknown"),
        ({"ensemble": [MODEL]}, "--ensemble"),
        ({"device": "cuda"}, "--device cuda"),
        ({"fp32_products": "mkl"}, "--fp32-products"),
        ({"no_cuda_graphs": True}, "--no-cuda-graphs"),
        ({"well_formed_trees": True}, "--well-formed-trees"),
        ({"constraints": Constraints(min_length=2)}, "--min-length"),
        ({"constraints": Constraints(no_repeat_ngram=3)}, "--no-repeat-ngram"),
        ({"constraints": Constraints(required=["mole"])}, "--required"),
        ({"constraints": Constraints(banned=["mole"])}, "--banned"),
        ({"constraints": Constraints(glossary=Glossary([]))}, "--glossary"),
        ({"precision": "fp64"}, "--precision must be"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(options, name):
    with pytest.raises(UserError, match=name):
        loaded(**options)


def test_a_parser_is_refused():
    with pytest.raises(UserError, match=r"has no search for trees, and .* parses"):
        loaded(FORMATS / "format_3/treebank/run/average")


def test_precision_chooses_the_type_of_computation_or_is_refused(monkeypatch):
    assert loaded().chosen["precision"] == "fp32"
    translator = loaded(precision="int8")
    assert translator._engine.driver._translator.compute_type.startswith("int8")
    assert translator.chosen["precision"] == "int8"
    with pytest.raises(UserError, match="--precision bf16 on this CPU; give fp32 or int8"):
        sentence_driver._refuse_precision("bf16", {"float32", "int8", "int16"})
    assert sentence_driver.chosen_precision("auto", "int8_float32") == "int8"


def test_a_model_is_exported_once_and_again_if_the_export_is_damaged(cache, make_model, capsys):
    logs.configure(quiet=False)
    model = make_model(num_layers=1)
    before = set(cache.iterdir())
    loaded(model)
    (folder,) = set(cache.iterdir()) - before
    assert kind_of(folder) == "export"
    assert "log-probabilities of" in capsys.readouterr().err  # it was verified
    loaded(model)
    assert "Exporting" not in capsys.readouterr().err
    weights = folder / "model.bin"
    weights.write_bytes(weights.read_bytes()[:-1])
    loaded(model)
    assert "is damaged, so the model is exported again" in capsys.readouterr().err
    assert [name for name in cache.iterdir() if name.name.startswith(".")] == []


def test_an_export_that_is_not_the_model_is_not_kept(cache, make_model, monkeypatch):
    def wrong(model, folder, quantization):
        name = "decoder_layers.1.feed_forward.outer.weight"
        exporter.write_ctranslate2(
            model._replace(weights={**model.weights, name: model.weights[name] * 1.5}), folder
        )

    monkeypatch.setattr(exporter, "FORMAT", exporter.FORMAT._replace(write=wrong))
    before = set(cache.iterdir())
    with pytest.raises(UserError, match="is not the model"):
        loaded(make_model(norm="pre"))
    assert set(cache.iterdir()) == before


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    refused = (
        r"cannot be exported: \S+ cannot be used: Not a directory; choose another XDG_CACHE_HOME\. "
        r"Or export it to a folder of your own and give that\.$"
    )
    with pytest.raises(UserError, match=refused):
        loaded()


def test_a_process_waits_for_another_that_exports_the_model(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        lock.__exit__(None, None, None)

    lock = claimed(cached_export.exports_folder() / cached_export.name_of(read_manifest(MODEL)), "")
    lock.__enter__()
    monkeypatch.setattr(time, "sleep", sleep)
    loaded()
    assert len(waits) == 1


@pytest.mark.parametrize("kind", list(MODELS))
def test_a_folder_of_export_is_taken_as_it_is(tmp_path, kind, cache):
    before = set(cache.iterdir())
    export.run(
        MODELS[kind],
        output_format="ctranslate2",
        output=tmp_path / "out",
        quantization="float32",
        verify=1,
    )
    found = list(loaded(tmp_path / "out").translate(LINES[:5]))
    assert [each.text for each in found] == [
        each.text for each in own(MODELS[kind]).translate(LINES[:5])
    ]
    assert set(cache.iterdir()) == before


def test_an_export_of_two_sentencepiece_models_is_taken(make_model, two_models):
    tokenizer, options = two_models
    model = make_model(pieces=tokenizer, **options)
    export.run(
        model,
        output_format="ctranslate2",
        output=model.parent / "out",
        quantization="float32",
        verify=1,
    )
    lines = [">>deu<< the cat", "a dog"]
    expected = [each.text for each in own(model).translate(lines)]
    assert [each.text for each in loaded(model.parent / "out").translate(lines)] == expected


def test_an_export_without_our_settings_says_what_is_missing(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"has no nmt-cli.json, .* --format ctranslate2 --output"):
        loaded(tmp_path)


def test_a_missing_package_is_one_line_before_anything_is_exported(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    result = run(MODEL, text="one\n")
    assert result.exit_code == 1
    assert "--engine ctranslate2 translates with ctranslate2, which is not installed" in (
        result.stderr
    )
    assert list(tmp_path.rglob("*.bin")) == []


def test_the_command_has_lines_out_for_lines_in_with_any_format(tmp_path):
    text = f"{LINES[0]}\n\n{LINES[1]}\r\n{LINES[2]}"
    result = run(MODEL, "--quiet", text=text.encode())
    expected = [each.text for each in own().translate(LINES[:3])]
    assert result.stdout_bytes.decode() == f"{expected[0]}\n\n{expected[1]}\r\n{expected[2]}"
    result = run(MODEL, "--format=jsonl", "--n-best=2", "--quiet", "--workers=1", text=text)
    first, *_ = map(json.loads, result.stdout.splitlines())
    assert first["text"] == expected[0]
    assert len(first["alternatives"]) == 1
    assert run(MODEL, "--devices=2", text=text).exit_code == 2


def test_a_cached_export_is_used_without_torch(cache, tmp_path):
    assert run(MODEL, text="one\n").exit_code == 0
    (tmp_path / "in").write_text("one\n")
    words = ["translate", str(MODEL), "--engine=ctranslate2", "--input=in", "--quiet"]
    found = ended(words, tmp_path)
    assert (found.status, found.stdout.count("\n")) == (0, 1), found.stderr
    assert "torch" not in found.modules


def test_an_unfinished_output_goes_on_with_the_same_engine_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(STEADY_WINDOW, "cpu", 8)
    Path("in").write_text("\n".join(LINES[:24]) + "\n")
    assert run(MODEL, "--input=in", "--output=whole").exit_code == 0
    outcomes = sentence_driver.CTranslate2Driver.outcomes
    calls = []

    def interrupted(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return outcomes(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sentence_driver.CTranslate2Driver, "outcomes", interrupted)
        stopped = run(MODEL, "--input=in", "--output=out")
    assert "of 16 lines is kept" in stopped.stderr
    words = ["translate", str(MODEL), "--input=in", "--output=out", "--resume"]
    other = CliRunner().invoke(cli.main, words)
    assert "engine: ctranslate2 -> not given" in other.stderr
    assert run(*words[1:]).exit_code == 0
    assert Path("out").read_bytes() == Path("whole").read_bytes()
    again = run(*words[1:])
    assert "nothing to do" in again.stderr
