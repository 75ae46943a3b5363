"""The export command: what it refuses and what it leaves behind, without the other programs."""

import json
import sys
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.command_line import interchange
from nmt_cli.commands import export
from nmt_cli.interchange.ctranslate2.exporter import card_of_ctranslate2
from nmt_cli.interchange.exported_model import ExportedModel, keys_not_exported, model_card
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.model_directory import find_model, load_model
from tests.interchange.test_verification import Imitation


def run(*arguments):
    return CliRunner().invoke(cli.main, ["export", *map(str, arguments)])


@pytest.fixture
def imitated(monkeypatch):
    """Let exports consist of one file, and our own model verify them."""
    chosen = SimpleNamespace(model=None, adds=0.0)

    def engine(folder, exported):
        assert (folder / "weights").exists()
        imitation = Imitation(load_model(chosen.model))
        imitation.adds = chosen.adds
        return imitation

    def write(exported, folder, quantization):
        (folder / "weights").write_text(quantization)

    changed = export.FORMATS["ctranslate2"]._replace(write=write, engine=engine)
    monkeypatch.setitem(export.FORMATS, "ctranslate2", changed)
    return chosen


def test_a_verified_export_has_a_card_and_a_manifest(make_model, tmp_path, imitated):
    imitated.model, output = make_model(), tmp_path / "out"
    result = run(imitated.model, "--format", "ctranslate2", "--output", output, "--verify", 3)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "Verified with imitation 1.0 on 3 sentences" in result.stderr
    names = {path.name for path in output.iterdir()}
    assert names == {
        *("README.md", "manifest.json", "sentencepiece.model", "weights"),
    }
    card = (output / "README.md").read_text()
    for part in ("on 3 sentences", "not normalized", "((5 + length) / 6)^0.6", "p is 0.5"):
        assert part in card
    assert json.loads((output / "manifest.json").read_text())["kind"] == "export"
    again = run(imitated.model, "--format", "ctranslate2", "--output", output)
    assert again.exit_code == 1
    assert "already exists; add --force" in again.stderr
    again = run(imitated.model, "--format=ctranslate2", "--output", output, "--force", "--verify=1")
    assert again.exit_code == 0
    with pytest.raises(UserError, match="is a model that was exported for another program, not a"):
        find_model(output)


def test_the_card_of_an_imported_model_says_that_it_was_imported(make_model):
    loaded = load_model(make_model())
    cards = []
    for facts in ({}, {"imported": {"program": "marian", "path": "theirs"}}):
        exported = ExportedModel.of(loaded._replace(manifest={**loaded.manifest, **facts}))
        card = card_of_ctranslate2(exported)
        cards.append(model_card(exported, card, "float32", None))
    assert "A Transformer that nmt-cli trained and exported, with weights in float32." in cards[0]
    assert "A Transformer that nmt-cli imported (`--from marian`) and exported, with" in cards[1]
    assert "The text was not normalized in training." in cards[0]
    assert "How the text was normalized in training is not known here." in cards[1]


def test_a_failed_verification_leaves_nothing(make_model, tmp_path, imitated):
    imitated.model, imitated.adds = make_model(), 0.1
    before = sorted(tmp_path.iterdir())
    result = run(imitated.model, "--format=ctranslate2", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: nothing was written, because imitation 1.0 with")
    assert result.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_without_verification_stderr_says_so(make_model, tmp_path, imitated):
    options = ("--format=ctranslate2", "--output", tmp_path / "out", "--verify=0", "--quiet")
    result = run(make_model(), *options)
    assert result.stderr == "Warning: the export was not verified (--verify 0).\n"
    assert "It was not verified." in (tmp_path / "out/README.md").read_text()


def test_force_replaces_only_an_export(make_model, tmp_path, imitated):
    model = make_model()
    result = run(model, "--format=ctranslate2", "--output", model, "--force")
    assert result.exit_code == 1
    assert "exists and is not an export; choose another --output" in result.stderr
    assert load_model(model)


def test_a_missing_program_is_one_line_that_says_what_to_install(make_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    result = run(make_model(), "--format=ctranslate2", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: models are exported to CTranslate2 with ctranslate2, which is not installed; run: "
        f"{sys.executable} -m pip install ctranslate2\n"
    )
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = run(tmp_path / "model", "--format=huggingface", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: exports to Hugging Face are verified with transformers, which is not installed; "
        f"run: {sys.executable} -m pip install transformers, or leave the check out with "
        "--verify 0.\n"
    )
    assert not (tmp_path / "out").exists()
    result = run(
        tmp_path / "model", "--format=huggingface", "--output", tmp_path / "out", "--verify=0"
    )
    assert result.exit_code == 0  # writing the folder needs no other program
    assert (tmp_path / "out/model.safetensors").exists()


def test_sentences_without_a_check_are_refused(tmp_path):
    options = ("--format=ctranslate2", "--output", tmp_path / "out", "--verify=0")
    assert run(tmp_path, *options, "--sentences", tmp_path / "text").exit_code == 2


def test_the_quantizations_of_the_command_are_those_of_the_programs(make_model, tmp_path):
    option = next(each for each in interchange.export.params if each.name == "quantization")
    assert isinstance(option.type, click.Choice)
    choices = [each.quantizations for each in export.FORMATS.values()]
    assert set(option.type.choices) == {name for names in choices for name in names}
    options = ("--format=huggingface", "--output", tmp_path / "o")
    result = run(tmp_path, *options, "--quantization=int4")
    assert result.exit_code == 2
    assert "'int4' is not one of 'float32', 'float16', 'bfloat16', 'int8'" in result.stderr
    result = run(make_model(), *options, "--quantization=int8")
    assert result.exit_code == 2
    assert "--quantization int8 is not one of Hugging Face; give one of float32" in result.stderr


def test_all_reasons_are_listed(make_model, tmp_path, monkeypatch):
    chosen = export.FORMATS["ctranslate2"]._replace(reasons_against=lambda _: ["a is b", "c is d"])
    monkeypatch.setitem(export.FORMATS, "ctranslate2", chosen)
    with pytest.raises(UserError, match=r"be exported to CTranslate2: a is b; c is d\.$"):
        export.run(
            make_model(),
            output_format="ctranslate2",
            output=tmp_path / "out",
            quantization="float32",
            verify=0,
        )


def test_keys_without_an_export_are_refused_unless_they_have_their_default(make_model, monkeypatch):
    architecture = load_model(make_model()).settings.architecture
    assert list(keys_not_exported(architecture)) == []
    monkeypatch.setattr(
        "nmt_cli.interchange.exported_model.EXPORTED_KEYS", frozenset({"d_k", "d_v"})
    )
    reasons = list(keys_not_exported(architecture))
    assert "model.d_model 18 cannot be exported yet" in reasons
    assert not any("norm" in reason for reason in reasons)
