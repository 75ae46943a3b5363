"""Text, or a tokenizer of the user, that has changed since the text was prepared."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt_cli.files.atomic_files import sha256
from nmt_cli.files.file_names import (
    FURTHER_TOKENIZER_FILES,
    MANIFEST,
    SENTENCEPIECE_MODEL,
    TOKENIZER_FILES,
    validation_part,
)
from nmt_cli.recipe.corpora_config import FORMS_OF_ROWS


def changed_tokenizer_files(folder: Path, prepared: Mapping[str, Any]) -> list[Path]:
    """Return the tokenizer's files in ``folder`` that are not those of the ``prepared`` files.

    None has changed if the model was removed.
    """
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return []
    return [
        folder / name
        for name in (*TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES)
        if _sha256_of(folder / name) != prepared.get(name, {}).get("sha256")
    ]


def trained_on(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of those ``files`` of a prepared corpus that decide what a training learns.

    The recipe in the corpus does not: it may be that of another training with the same text.
    """
    of_tokenizers = (*TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES)
    return {
        name: facts
        for name, facts in files.items()
        if name.startswith("train.") or name in of_tokenizers
    }


def _sha256_of(path: Path) -> str | None:
    try:
        return sha256(path)
    except OSError:
        return None


def changed_text(directory: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Return the files that have changed since ``directory`` was prepared from them.

    They are texts, scores, and the recipe's tokenizer.model. A text has changed if its size
    differs. If its size is the same but it is newer than the manifest, its hash decides. (The
    manifest holds no times, so that the same text always gives the same bytes.) Missing files are
    ignored: a machine may have only the prepared text.
    """
    prepared_at = (directory / MANIFEST).stat().st_mtime_ns
    corpora = [*manifest["train"], *validation_facts(manifest).values()]
    tests = manifest.get("test", [])
    corpora += tests if isinstance(tests, list) else [tests]
    changed = [path for corpus in corpora for path in _changed(corpus, prepared_at)]
    changed += _changed_tokenizer(manifest)
    return list(dict.fromkeys(changed))


def validation_facts(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what the manifest holds about the text of each validation set, by its part."""
    facts = manifest["validation"]
    each = facts if isinstance(facts, list) else [facts]
    return {validation_part(one.get("name")): one for one in each}


KINDS_OF_FILES = ("source", "target", *FORMS_OF_ROWS, "scores", "alignments")


def files_in(facts: Mapping[str, Any]) -> list[Path]:
    """Return the files that the manifest's ``facts`` about a corpus name."""
    return [Path(facts[kind]) for kind in KINDS_OF_FILES if kind in facts]


def _changed(corpus: Mapping[str, Any], prepared_at: int) -> Iterator[Path]:
    for side in KINDS_OF_FILES:
        if side not in corpus:
            continue
        path = Path(corpus[side])
        try:
            status = path.stat()
            num_bytes = corpus.get(f"{side}_bytes", status.st_size)  # older manifests have none
            is_younger = max(status.st_mtime_ns, status.st_ctime_ns) >= prepared_at
            if status.st_size != num_bytes or (
                is_younger and sha256(path) != corpus[f"{side}_sha256"]
            ):
                yield path
        except OSError:
            continue


def _changed_tokenizer(manifest: Mapping[str, Any]) -> list[Path]:
    model = manifest["tokenizer"].get("model")
    if model is None:
        return []
    if Path(model).is_dir():  # that of model.from
        return changed_tokenizer_files(Path(model), manifest["files"])
    present = _sha256_of(Path(model))
    if present is None:  # it was removed, or was that of model.from
        return []
    prepared = manifest["files"][SENTENCEPIECE_MODEL]["sha256"]
    return [] if present == prepared else [Path(model)]
