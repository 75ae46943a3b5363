"""The program of a model is recognized by its files."""

import json
import re
from pathlib import Path

import pytest

from nmt_cli.commands import import_model
from nmt_cli.commands.import_model import program_of
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.recipe.model_settings import read_settings
from tests.architectures import random_model
from tests.interchange.conftest import AVERAGE
from tests.interchange.ctranslate2_files import binary, variables_of, write_folder
from tests.interchange.eole_files import EoleModel
from tests.interchange.fairseq_files import write_model as write_fairseq_model
from tests.interchange.import_command import run_import
from tests.interchange.opennmt_files import OpenNmtModel
from tests.interchange.test_ctranslate2_import import SIZE, TOKENS
from tests.interchange.test_huggingface_import import exported
from tests.interchange.test_marian_import import write_folder as write_folder_of_marian


def imported(folder, output):
    result = run_import(folder, "--output", output)
    assert result.exit_code == 0, result.output
    decoding = read_settings(output).decoding
    assert (
        f"beam size {decoding.beam_size}, length penalty {decoding.length_penalty:g}, outputs of "
        f"up to {decoding.max_extra_length} pieces more than the input"
    ) in result.stderr
    return read_manifest(output)["imported"]["program"]


def test_each_program_is_recognized(make_model, tmp_path):
    theirs = tmp_path / "ctranslate2"
    variables = variables_of(random_model({}, SIZE))
    write_folder(theirs, binary(variables), {"source": TOKENS, "target": TOKENS})
    assert imported(theirs, tmp_path / "one") == "ctranslate2"
    assert imported(exported(make_model()), tmp_path / "two") == "huggingface"
    write_folder_of_marian(tmp_path / "marian")
    assert imported(tmp_path / "marian", tmp_path / "three") == "marian"
    assert imported(tmp_path / "marian/model.npz", tmp_path / "four") == "marian"
    assert imported(EoleModel().write(tmp_path / "eole"), tmp_path / "five") == "eole"
    path = OpenNmtModel(biases=("generator",)).write(tmp_path / "model.pt")
    assert imported(path, tmp_path / "six") == "opennmt-py"
    path, _ = write_fairseq_model(tmp_path / "fairseq")
    assert imported(path, tmp_path / "seven") == "fairseq"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "is not recognized as a model: models of CTranslate2 have model.bin"),
        ({"config.json": {"d_model": 8}}, "those of Hugging Face config.json with model_type"),
        (
            {"config.json": {"model_type": "marian"}, "model.bin": {}},
            "has files of ctranslate2 and huggingface; choose one with --from.",
        ),
    ],
)
def test_other_folders_are_refused(tmp_path, files, reason):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match=re.escape(reason)):
        program_of(tmp_path)


def test_what_is_no_folder_of_another_program_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds a model of nmt-cli already"):
        program_of(AVERAGE)
    with pytest.raises(UserError, match="holds a model of nmt-cli already"):
        program_of(AVERAGE.parent)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DamagedError, match=r"config\.json is damaged"):
        program_of(tmp_path)


@pytest.mark.parametrize("program", [import_model.AUTO, *import_model.IMPORTERS])
def test_a_path_that_does_not_exist_is_not_found(tmp_path, program):
    with pytest.raises(UserError, match=r"nothing not found\.$"):
        import_model.run(
            tmp_path / "nothing",
            program=program,
            output=tmp_path / "ours",
            source_language="en",
            target_language="de",
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", ["no code", "en\n", "", "e" * 33])
def test_languages_are_codes_that_recipes_allow(tmp_path, code):
    result = run_import(tmp_path, "--output", tmp_path / "ours", "--target-language", code)
    assert result.exit_code == 2
    assert f"'--target-language': {code!r} is not the code of a language" in result.stderr
    assert result.stderr.count("Error") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("Org/opus-mt", "run: hf download Org/opus-mt --local-dir opus-mt"),
        ("https://a.org/m.zip", "import reads files of this machine, so download it first."),
        ("some/folder/model", f"the path is relative to {Path.cwd()}."),
        ("tests/nothing", f"the path is relative to {Path.cwd()}."),
    ],
)
def test_what_is_not_here_is_to_be_downloaded(given, message, tmp_path):
    result = run_import(given, "--output", tmp_path / "x")
    assert result.exit_code == 1
    assert result.stderr.endswith(f"{message}\n")
