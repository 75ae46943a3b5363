"""Packages of Argos Translate, as folders and zip files, become models that read plain text."""

import json
import random
import re
import shutil
import tempfile
import zipfile
from contextlib import suppress
from types import SimpleNamespace

import pytest
import sentencepiece

from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.interchange import archives
from nmt_cli.interchange.ctranslate2.importer import import_ctranslate2
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.model_directory import load_model
from tests.architectures import Formula, random_model
from tests.interchange.ctranslate2_files import binary, variables_of, write_folder
from tests.interchange.import_command import assert_scores, run_import
from tests.interchange.test_ctranslate2_import import sentencepiece_model

METADATA = {"package_version": "1.9", "from_code": "en", "from_name": "English", "to_code": "pt-BR"}
SOURCE, TARGET = "the cat", "a bee is asleep"
TEXTS = ["the ants and the bees", "a cat is asleep"] * 5


@pytest.fixture(scope="module")
def pieces():
    """A SentencePiece model."""
    return sentencepiece_model(TEXTS)


@pytest.fixture
def package(tmp_path, pieces, untried):
    """The folder of a package."""
    return write_package(tmp_path / "translate-en_pb-1_9", pieces)[0]


def write_package(folder, pieces, **metadata):
    """Write a package, with the files that Argos Translate has beside the model; return both."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    tokens = processor.id_to_piece(list(range(processor.get_piece_size())))
    model = random_model({"source_eos": False}, len(tokens)).eval()
    folder.mkdir()
    write_folder(
        folder / "model",
        binary(variables_of(model)),
        {"shared": tokens},
        add_source_eos=False,
        layer_norm_epsilon=model.config.norm_epsilon,
    )
    (folder / "metadata.json").write_text(json.dumps(METADATA | metadata))
    (folder / "sentencepiece.model").write_bytes(pieces)
    (folder / "stanza").mkdir()
    (folder / "stanza/resources.json").write_text("{}")
    return folder, model


def zipped(folder, name="package.argosmodel", more=(), **options):
    path = folder.parent / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for each in sorted(folder.rglob("*")):
            file.write(each, each.relative_to(folder.parent))
        for member, content in more:
            file.writestr(member, content)
    return path


def settings_of(model):
    return json.loads((model / "config.json").read_text())["text"]


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("form", ["folder", "argosmodel", "zip", "inner"])
def test_each_form_computes_what_the_model_computes(tmp_path, pieces, monkeypatch, form):
    folder, model = write_package(tmp_path / "en_pb", pieces)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path = {
        "folder": folder,
        "argosmodel": zipped(folder),
        "zip": zipped(folder, "package.zip"),
        "inner": folder / "model",
    }[form]
    result = run_import(path, "--output", tmp_path / "ours")
    assert result.exit_code == 0, result.output
    assert "It reads plain text." in result.stderr
    assert read_manifest(tmp_path / "ours")["imported"] == {
        "program": "ctranslate2",
        "path": str(path),
    }
    loaded = load_model(tmp_path / "ours")
    assert loaded.settings.text[:2] == ("en", "pt-BR")
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    ids = [processor.encode(text) for text in (SOURCE, TARGET)]
    wanted = Formula(model).token_scores(ids[0], ids[1], loaded.tokenizer)
    assert_scores(tmp_path / "ours", [(SOURCE, TARGET)], [wanted])
    assert not list(temporary.iterdir())


def test_the_users_languages_and_sentencepiece_model_come_first(package, tmp_path):
    own = sentencepiece_model(["the ants and the bees", "a cat is asleep", "a dog"] * 5)
    (tmp_path / "own.model").write_bytes(own)
    options = ("--sentencepiece", tmp_path / "own.model", "--target-language", "pt")
    result = run_import(package / "model", "--output", tmp_path / "ours", *options)
    assert result.exit_code == 0, result.output
    loaded = load_model(tmp_path / "ours")
    assert loaded.settings.text[:2] == ("en", "pt")
    assert (loaded.path / "source.spm").read_bytes() == own
    (package / "metadata.json").write_text("[]")  # of something else then
    (package / "sentencepiece.model").unlink()
    assert run_import(package / "model", "--output", tmp_path / "two", *options).exit_code == 0
    assert load_model(tmp_path / "two").settings.text[:2] == ("und", "pt")
    (tmp_path / "own.model").rename(package / "sentencepiece.model")
    assert run_import(package / "model", "--output", tmp_path / "three").exit_code == 0
    assert (tmp_path / "three/source.spm").read_bytes() == own


def test_ctranslate2_and_sentencepiece_give_the_scores_of_the_package(tmp_path, pieces, untried):
    """As Argos Translate runs them."""
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    folder, _ = write_package(tmp_path / "en_pb", pieces)
    assert run_import(folder, "--output", tmp_path / "ours").exit_code == 0
    theirs = ctranslate2.Translator(str(folder / "model"), device="cpu", intra_threads=1)
    processor = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.model"))
    cut = [[processor.encode(text, out_type=str)] for text in (SOURCE, TARGET)]
    (expected,) = theirs.score_batch(*cut)
    assert_scores(tmp_path / "ours", [(SOURCE, TARGET)], [expected.log_probs])


def test_what_a_package_has_beyond_its_model_is_refused_or_named(package, tmp_path, pieces):
    (package / "sentencepiece.model").rename(package / "bpe.model")
    result = run_import(package, "--output", tmp_path / "ours")
    assert result.exit_code == 0, result.output
    assert "warning: the package cuts its text by bpe.model, so the model reads text" in (
        result.stderr.lower()
    )
    folder, _ = write_package(tmp_path / "other", pieces, target_prefix="__de__")
    for path in (folder, zipped(folder)):
        result = run_import(path, "--output", tmp_path / "two")
        assert result.exit_code == 1
        reason = "/model cannot be imported: its translations begin with target_prefix '__de__'."
        assert result.stderr.endswith(f"{reason}\n")
        assert f"Error: {path}/model" in result.stderr


def refused(path, reason, kind=DamagedError):
    with pytest.raises(kind, match=re.escape(reason)) as caught, archives.unpacked(path) as folder:
        import_ctranslate2(folder)
    assert str(caught.value).startswith(f"{path}")
    assert "\n" not in str(caught.value)


def test_a_zip_file_writes_nothing_but_what_may_be_of_a_model(package, tmp_path):
    other = ["x/model/a/b", "x/model/.hidden", "x/.y/a", "\\a", "./.a"]
    path = zipped(package, more=[(name, b"other") for name in other[:3]])
    with archives.unpacked(path) as folder:
        files = [each for each in folder.rglob("*") if each.is_file()]
        assert sorted(str(each.relative_to(folder)) for each in files) == [
            *("metadata.json", "model/config.json", "model/model.bin"),
            *("model/shared_vocabulary.json", "sentencepiece.model", "stanza/resources.json"),
        ]
    for name in ("../../outside", "/outside", "x/../../../outside", "..\\outside", "model/.."):
        path = zipped(package, more=[(name, b"hostile")])
        refused(path, f"is damaged: it holds {name!r}, a path outside; get it again")
    assert not list(tmp_path.parent.rglob("outside"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_files_that_are_damaged_are_refused_in_one_line(package, monkeypatch):
    name = f"{package.name}/metadata.json"
    path = zipped(package, more=[(name, b"{}")])
    refused(path, f"is damaged: it holds {name!r} twice; get it again")
    refused(zipped(package, more=[(f"{name}/a", b"")]), "is damaged: ")
    path = zipped(package)
    content = path.read_bytes()
    for damaged in (b"", content[:100], content[:-30], content.replace(b"\x00\x01", b"\x02\x03")):
        path.write_bytes(damaged)
        refused(path, "is damaged: ")
    generator = random.Random(4)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(3):  # in the directory, which stands last
            damaged[-generator.randrange(1, 900)] = generator.randrange(256)
        path.write_bytes(bytes(damaged))
        with suppress(UserError), archives.unpacked(path) as folder:
            import_ctranslate2(folder)
    path.write_bytes(b"text")
    result = run_import(path, "--output", package.parent / "ours")
    assert "is damaged: File is not a zip file; get it again, or unpack it" in result.stderr
    monkeypatch.setattr(archives, "SMALLEST_LIMIT", 1 << 20)
    refused(zipped(package, more=[("a/bomb", bytes(100 << 20))]), "more than any model's")


def test_files_in_a_zip_file_are_named_by_its_path(package, monkeypatch):
    path = zipped(package)
    (package / "model/model.bin").write_bytes(b"\x06\x00\x00\x00")
    path = zipped(package)
    refused(path, f"{path}/model/model.bin is not a model of CTranslate2, or is damaged: it ends")
    (package / "model/model.bin").unlink()
    path = zipped(package)
    refused(path, f"{path}/model has no model.bin; give the folder", UserError)

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1))
    refused(path, "No space left on device; name another folder in the variable TMPDIR", UserError)
