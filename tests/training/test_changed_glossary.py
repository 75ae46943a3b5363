"""A glossary that changes, or is missing, between sessions of a training."""

import json

import pytest

from nmt_cli.commands import preprocess, train
from nmt_cli.files.file_names import SESSIONS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.runs.run_directory import last_session
from tests.conftest import RECIPE, write_pairs

SYMBOLS = "type: sentencepiece, vocabulary_size: 300, user_defined_symbols: [<t>, </t>]"


def test_a_changed_glossary_is_named_and_a_missing_one_refused(tmp_path, monkeypatch):
    logs.configure(quiet=True)
    write_pairs(tmp_path, "train", 150, seed=1)
    write_pairs(tmp_path, "validation", 5, seed=2)
    terms, run_dir, path = tmp_path / "terms.tsv", tmp_path / "run", tmp_path / "toy.yaml"
    path.write_text(RECIPE.format(folder=tmp_path).replace("type: whitespace", SYMBOLS))
    augment = f"data.train.0.augment={{terms: 0.5, glossary: {terms}}}"
    preprocess.run(recipe=str(path), overrides=[augment], output=tmp_path / "prepared", workers=1)
    warnings: list[str] = []
    monkeypatch.setattr(logs, "warning", warnings.append)

    def session(max_steps, *, resume=True):
        train.run(
            str(path),
            overrides=[augment, f"training.max_steps={max_steps}", "validation.bleu=off"],
            prepared=tmp_path / "prepared",
            run_dir=run_dir,
            resume=resume,
            device="cpu",
            threads=1,
        )
        return [line for line in warnings if "terms" in line]

    with pytest.raises(UserError, match=r"terms\.tsv not found\.$"):
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
