"""A glossary that changes, or is missing, between sessions of a training."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from nmt_cli.commands import preprocess, train
from nmt_cli.corpus.text import glossary
from nmt_cli.files.file_names import SESSIONS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.run_directory import last_session
from tests.conftest import RECIPE, write_pairs

SYMBOLS = "type: sentencepiece, vocabulary_size: 300, user_defined_symbols: [<t>, </t>]"


class Toy(NamedTuple):
    """A recipe with a glossary, its run, and the warnings that were logged."""

    path: Path
    terms: Path
    run_dir: Path
    warnings: list[str]

    def session(self, max_steps, *overrides, resume=True):
        """Train until this step; return the warnings on terms so far."""
        every = [f"training.max_steps={max_steps}", "validation.bleu=off", *overrides]
        train.run(
            str(self.path),
            overrides=[self.augment, *every],
            prepared=self.path.parent / "prepared",
            run_dir=self.run_dir,
            resume=resume,
            device="cpu",
            threads=1,
        )
        return [line for line in self.warnings if "terms" in line]

    @property
    def augment(self):
        return f"data.train.0.augment={{terms: 0.5, glossary: {self.terms}}}"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    logs.configure(quiet=True)
    write_pairs(tmp_path, "train", 150, seed=1)
    write_pairs(tmp_path, "validation", 5, seed=2)
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE.format(folder=tmp_path).replace("type: whitespace", SYMBOLS))
    toy = Toy(path, tmp_path / "terms.tsv", tmp_path / "run", [])
    prepared = tmp_path / "prepared"
    preprocess.run(recipe=str(path), overrides=[toy.augment], output=prepared, workers=1)
    monkeypatch.setattr(logs, "warning", toy.warnings.append)
    return toy


def test_a_glossary_is_read_once_for_all_stages(toy, monkeypatch):
    toy.terms.write_text("ant\tbee\n")
    read = list[Path]()

    def noted(path):
        read.append(path)
        return path.read_text()

    monkeypatch.setattr(glossary, "read_packed_text", noted)
    toy.session(4, "data.stages=[{until: {steps: 2}}, {}]", resume=False)
    assert read == [toy.terms]


def test_a_changed_glossary_is_named_and_a_missing_one_refused(toy):
    terms, run_dir, session = toy.terms, toy.run_dir, toy.session
    message = rf"^data\.train\.0\.augment\.glossary: {terms} not found\.$"
    with pytest.raises(UserError, match=message):
        session(3, resume=False)
    assert not (run_dir / SESSIONS).exists()
    terms.write_text("ant\tbee\n")
    assert session(3, resume=False) == []
    terms.write_text("# the same terms\nant\tbee\n")
    assert session(6) == []
    terms.write_text("ant\tcat\n")
    (warning,) = session(9)
    assert warning.startswith(f"the terms of {terms} have changed since the last session of")
    assert list(last_session(run_dir)["glossaries"]) == [str(terms)]
    (run_dir / SESSIONS).write_text(json.dumps([]) + "\n")
    assert last_session(run_dir) == {}


def test_a_finished_training_needs_no_glossary(toy, capsys):
    toy.terms.write_text("ant\tbee\n")
    toy.session(3, resume=False)
    toy.terms.unlink()
    logs.configure(quiet=False)
    toy.session(3)
    assert "is finished; nothing to do." in capsys.readouterr().err
    with pytest.raises(UserError, match=r"terms\.tsv not found\.$"):
        toy.session(6)
