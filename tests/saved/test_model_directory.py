import json
import math
import resource
import shutil

import pytest
import torch

from nmt_cli.corpus.lexicon import Lexicon
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole, verify, write_manifest
from nmt_cli.files.file_names import CONFIG, LEXICON, MANIFEST, RECIPE, TRAINING_STATE, WEIGHTS
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import AlignmentHead, as_json, read_config, settings_of
from nmt_cli.recipe.schema import with_fold
from nmt_cli.recipe.sections.training import GuidedAlignmentConfig
from nmt_cli.saved import checkpoints, model_directory
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.model_directory import find_model, load_model, save_lexicon, verified
from tests.fake_models import save_as_model, tiny_recipe


def write_model(toy, directory, *, kind="regular", step=None, quality=None, since=None, seed=1):
    torch.manual_seed(seed)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    with directory_appearing_whole(directory) as partial:
        save_as_model(partial, toy.recipe, toy.corpus.tokenizer, model)
        validation = None if quality is None else {"quality": quality}
        if validation is not None and since is not None:
            validation["quality_since"] = since
        partial.manifest.update(kind=kind, step=step, validation=validation)
    return model


@pytest.fixture
def run_dir(toy, tmp_path):
    """A run with checkpoints 1, 2 and 3; checkpoint 2 was the best by validation."""
    for step, quality in ((1, -3.0), (2, -1.0), (3, -2.0)):
        directory = tmp_path / "run" / "checkpoints" / f"step-{step:08d}"
        write_model(toy, directory, step=step, quality=quality)
    return tmp_path / "run"


def test_a_model_is_what_was_saved(toy, tmp_path):
    model = write_model(toy, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.settings == settings_of(toy.recipe, toy.corpus.tokenizer.size)
    assert loaded.tokenizer.encode("owl ant") == toy.corpus.tokenizer.encode("owl ant")
    assert not loaded.model.training
    for found, saved in zip(loaded.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(found, saved)


def test_the_head_that_aligns_words_is_named_only_in_models_that_have_one(toy, tmp_path):
    write_model(toy, tmp_path / "plain")
    assert "alignment" not in (tmp_path / "plain" / CONFIG).read_text()
    assert load_model(tmp_path / "plain").settings.alignment is None
    guided = GuidedAlignmentConfig(head=3)
    training = toy.recipe.training.model_copy(update={"guided_alignment": guided})
    recipe = toy.recipe.model_copy(update={"training": training})
    write_model(toy._replace(recipe=recipe), tmp_path / "guided")
    path = tmp_path / "guided" / CONFIG
    assert json.loads(path.read_text())["alignment"] == {"layer": 1, "head": 3}
    assert load_model(tmp_path / "guided").settings.alignment == AlignmentHead(0, 2)
    for wrong in ({"layer": 2, "head": 3}, {"layer": 1, "head": 0}, {"layer": 1, "head": True}):
        path.write_text(json.dumps({**json.loads(path.read_text()), "alignment": wrong}))
        with pytest.raises(ValueError, match="its alignment is not a head of the decoder"):
            read_config(path)


def test_whether_its_text_was_folded_is_named_only_if_it_was(toy, tmp_path):
    """Without the key, text stays as it is."""
    for fold, version in ((False, 2), (True, 4)):
        folder = tmp_path / str(fold)
        write_model(toy._replace(recipe=with_fold(toy.recipe, fold=fold)), folder)
        content = json.loads((folder / CONFIG).read_text())
        assert content["format_version"] == version
        assert content["text"]["normalization"].get("fold", False) is fold
        loaded = load_model(folder)
        assert loaded.settings.text.normalization.fold is fold
        assert (loaded.tokenizer.encode("a\u00adnt") == loaded.tokenizer.encode("ant")) is fold


@pytest.mark.parametrize("changes", [{"decoder": "ssru"}, {"attention_window": 2}])
def test_programs_without_these_layers_refuse_it(toy, changes):
    model = toy.recipe.model.model_copy(update=changes)
    settings = settings_of(toy.recipe.model_copy(update={"model": model}), 10)
    assert settings.format_version == 5
    assert json.loads(as_json(settings))["format_version"] == 5


def test_it_can_be_moved(toy, tmp_path):
    write_model(toy, tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    assert load_model(tmp_path / "elsewhere").path == tmp_path / "elsewhere"


def test_nothing_in_it_is_pickled(toy, tmp_path):
    write_model(toy, tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        CONFIG, MANIFEST, WEIGHTS, RECIPE, "vocabulary.txt"
    ]  # fmt: skip


def test_a_run_means_its_average_else_its_best_else_its_last(toy, run_dir):
    assert find_model(run_dir).path.name == "step-00000002"
    for checkpoint in list_checkpoints(run_dir):
        facts = {"kind": "regular", "step": checkpoint.step, "validation": None}
        write_manifest(checkpoint.path, facts)
    assert find_model(run_dir).path.name == "step-00000003"
    write_model(toy, run_dir / "average", kind="average")
    assert find_model(run_dir).path.name == "average"
    assert find_model(run_dir / "checkpoints" / "step-00000001").path.name == "step-00000001"


@pytest.mark.parametrize(
    ("where", "name"), [(checkpoints, "read_manifest"), (model_directory, "verify")]
)
def test_a_checkpoint_that_a_training_removes_meanwhile_is_not_damaged(
    run_dir, monkeypatch, capsys, where, name
):
    """The best one is removed right before it is read: then another one is the best."""
    best, original = find_model(run_dir).path, getattr(where, name)

    def after_removal(path, **options):
        if path == best:
            shutil.rmtree(best, ignore_errors=True)
        return original(path, **options)

    monkeypatch.setattr(where, name, after_removal)
    assert load_model(run_dir).path.name == "step-00000003"
    assert "manifest" not in capsys.readouterr().err


def test_the_best_is_one_of_those_measured_like_the_newest(toy, run_dir):
    """The first three are of a version that did not record how they were measured."""
    for step, quality in ((4, -9.0), (5, -7.0), (6, -8.0)):
        directory = run_dir / "checkpoints" / f"step-{step:08d}"
        write_model(toy, directory, step=step, quality=quality, since=3)
    assert find_model(run_dir).path.name == "step-00000005"


def test_what_is_measured_alike_compares_with_checkpoints_of_earlier_versions(toy, run_dir):
    write_model(toy, run_dir / "checkpoints" / "step-00000004", step=4, quality=-1.5, since=0)
    assert find_model(run_dir).path.name == "step-00000002"


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, RECIPE, "vocabulary.txt", MANIFEST])
def test_damage_is_named(toy, tmp_path, name):
    write_model(toy, tmp_path / "model")
    path = tmp_path / "model" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=f"{name} "):
        load_model(tmp_path / "model")
    path.unlink()
    with pytest.raises(DamagedError):
        load_model(tmp_path / "model")


def test_a_model_is_loaded_without_the_state_of_its_training(toy, tmp_path):
    write_model(toy, tmp_path / "model")
    state = tmp_path / "model" / TRAINING_STATE
    state.write_bytes(b"optimizer")
    (tmp_path / "model" / MANIFEST).unlink()
    write_manifest(tmp_path / "model", {"kind": "regular"})
    state.write_bytes(b"something")  # damaged, or removed to save space
    load_model(tmp_path / "model")
    state.unlink()
    load_model(tmp_path / "model")
    with pytest.raises(DamagedError, match=f"{TRAINING_STATE} is missing"):
        verify(tmp_path / "model")


def test_weights_that_do_not_fit_the_recipe_are_refused(toy, tmp_path):
    other = toy.recipe.model_copy(
        update={"model": toy.recipe.model.model_copy(update={"d_ff": 12})}
    )
    model = Transformer(other.model, toy.corpus.tokenizer.size)
    with directory_appearing_whole(tmp_path / "model") as partial:
        save_as_model(partial, toy.recipe, toy.corpus.tokenizer, model)
        partial.manifest["kind"] = "average"
    with pytest.raises(DamagedError, match=r"inner.weight is float32 \[12, 20\]"):
        load_model(tmp_path / "model")


def test_only_finite_weights_are_loaded(toy, tmp_path):
    """Also large ones, whose sum no float can hold."""
    torch.manual_seed(1)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    for name, value in (("nan", math.nan), ("infinite", -math.inf), ("large", 3e38)):
        with torch.no_grad():
            model.output_weight[2:4] = value
        with directory_appearing_whole(tmp_path / name) as partial:
            save_as_model(partial, toy.recipe, toy.corpus.tokenizer, model)
            partial.manifest["kind"] = "average"
        if name == "large":
            loaded = load_model(tmp_path / name).model
            assert torch.equal(loaded.output_weight, model.output_weight)
            continue
        with pytest.raises(DamagedError, match=r"output_weight is not finite\."):
            load_model(tmp_path / name)


@pytest.mark.parametrize("what", ["missing", "a file", "empty", "a corpus", "an empty run"])
def test_what_is_no_model_is_reported(toy, tmp_path, what):
    path = tmp_path / "thing"
    expected = {
        "missing": "thing not found; give a model directory",
        "a file": "thing is a file; give a model directory",
        "empty": "thing is empty; give a model directory",
        "a corpus": "thing is a prepared corpus, not a model; give a model directory",
        "an empty run": "thing holds no checkpoint yet",
    }
    if what == "a file":
        path.write_text("x")
    elif what == "empty":
        path.mkdir()
    elif what == "a corpus":
        shutil.copytree(toy.prepared, path)
    elif what == "an empty run":
        (path / "checkpoints").mkdir(parents=True)
    with pytest.raises(UserError, match=expected[what]):
        load_model(path)


def rewrite_config(directory, change):
    """Change config.json of a model and seal its manifest again, as a hostile author would."""
    config = json.loads((directory / CONFIG).read_text())
    change(config)
    (directory / CONFIG).write_text(json.dumps(config))
    (directory / MANIFEST).unlink()
    write_manifest(directory, {"kind": "average"})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("architecture", "num_layers", 1000),
        ("architecture", "d_model", 65_536),
        ("architecture", "d_ff", 1_048_576),
        ("architecture", "vocabulary_size", 9_999_999),
        ("architecture", "d_k", 65_536),
    ],
)
def test_enormous_sizes_end_in_one_line_without_memory(toy, tmp_path, section, key, value):
    write_model(toy, tmp_path / "model", kind="average")
    rewrite_config(tmp_path / "model", lambda config: config[section].update({key: value}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedError) as error:
        load_model(tmp_path / "model")
    assert "\n" not in str(error.value)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000  # kB


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.pop("text"),
        lambda config: config["architecture"].update(num_heads="many"),
        lambda config: config["architecture"].update(new_key=1),
        lambda config: config["decoding"].update(beam_size=0),
        lambda config: config["text"].update(joiner=3),
        lambda config: config["text"].update(tokenizer="pickle"),
        lambda config: config["text"].update(max_length=True),
        lambda config: config.update(architecture=[]),
    ],
)
def test_settings_that_cannot_be_are_one_line(toy, tmp_path, change):
    write_model(toy, tmp_path / "model", kind="average")
    rewrite_config(tmp_path / "model", change)
    with pytest.raises(DamagedError, match=r"config\.json is damaged: ") as error:
        load_model(tmp_path / "model")
    assert "\n" not in str(error.value)


def test_the_recipe_of_a_model_is_a_record_that_loading_never_reads(toy, tmp_path):
    write_model(toy, tmp_path / "model", kind="average")
    (tmp_path / "model" / RECIPE).write_text("no recipe at all: [")
    rewrite_config(tmp_path / "model", lambda config: None)
    load_model(tmp_path / "model")


def test_the_sources_own_vocabulary_is_saved_and_its_size_is_checked(tmp_path):
    model = {"tied_embeddings": "none", "source_vocabulary_size": 5}
    recipe = tiny_recipe()
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=model)})
    for pieces in (["cat", "ant"], ["cat", "ant", "bee"]):
        own = [*CONTROL, *pieces]
        tokenizer = WhitespaceTokenizer([*CONTROL, "bee"], Normalizer(recipe.data), None, own)
        with directory_appearing_whole(tmp_path / str(len(own))) as partial:
            partial.manifest.update(kind="average")
            save_as_model(partial, recipe, tokenizer, Transformer(recipe.model, tokenizer.size))
    loaded = load_model(tmp_path / "5").tokenizer
    assert loaded.encode("ant bee cat") == [4, 0, 3]
    assert loaded.encode("ant bee cat", "target") == [0, 3, 0]
    assert (loaded.pieces([3, 4], "source"), loaded.pieces([3])) == (["cat", "ant"], ["bee"])
    with pytest.raises(DamagedError, match="own vocabulary has 6 pieces, "):
        load_model(tmp_path / "6")


def test_a_model_may_have_a_lexicon(toy, tmp_path):
    directory = tmp_path / "model"
    write_model(toy, directory)
    without = verified(directory)
    assert (without.lexicon, without.uses_shortlist) == (None, False)
    size = toy.corpus.tokenizer.size
    for frequent, uses_shortlist in ((3, False), (4, True)):
        lexicon = Lexicon.of([frequent], [[]] * size, size)
        save_lexicon(directory, lexicon, uses_shortlist=uses_shortlist)
        found = verified(directory)
        assert found.lexicon is not None
        assert found.lexicon.frequent.tolist() == [frequent]
        assert found.uses_shortlist is uses_shortlist
        assert found.fingerprint != without.fingerprint
    save_lexicon(directory, Lexicon.of([3], [[]], size), uses_shortlist=True)
    with pytest.raises(DamagedError, match="3 numbers, which are not lists for"):
        verified(directory)
    (directory / LEXICON).unlink()
    with pytest.raises(DamagedError, match="lexicon is missing or not a plain file"):
        verified(directory)
