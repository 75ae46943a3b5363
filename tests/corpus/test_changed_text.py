import hashlib

from nmt_cli.corpus.prepared import changed_text


def test_another_tokenizer_under_the_same_name_is_a_change(tmp_path):
    own = tmp_path / "own.model"
    own.write_bytes(b"pieces")
    (tmp_path / "manifest.json").write_text("{}")
    missing = {"source": str(tmp_path / "no.en"), "target": str(tmp_path / "no.de")}
    manifest = {
        "train": [],
        "validation": missing,
        "tokenizer": {"model": str(own)},
        "files": {"tokenizer.model": {"sha256": hashlib.sha256(b"pieces").hexdigest()}},
    }
    assert changed_text(tmp_path, manifest) == []
    own.write_bytes(b"others")
    assert changed_text(tmp_path, manifest) == [own]
    own.unlink()
    assert changed_text(tmp_path, manifest) == []
