"""The Wall Street Journal part of a Penn Treebank: its files, sections and cleaned trees."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.files.lines import LineTexts, one_line
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import where_missing
from nmt_cli.parsing.labels import with_root, without_functions, without_traces
from nmt_cli.parsing.tree import Tree, read_trees

# The file's name holds the section, so the folders around it may have any names: wsj/02/ of
# LDC99T42, combined/ of other releases, in capitals on some discs.
FILE_NAME = re.compile(r"wsj_\d{4}\.mrg")  # in lower case


class Split(NamedTuple):
    """The sections of a part of the treebank."""

    name: str
    sections: tuple[int, ...]
    num_trees: int  # in LDC99T42, as the field reports; another number is only a warning


# Section 6.3 of the paper follows these sections, which are those of the field.
SPLITS = (
    Split("train", tuple(range(2, 22)), 39_832),
    Split("dev", (22,), 1_700),
    Split("test", (23,), 2_416),
)


def find_files(treebank: Path) -> dict[int, list[Path]]:
    """Return the .mrg files of each section, in the order of their names, in any subfolder.

    Raises UserError if ``treebank`` is not a folder, has none, has a file twice, or lacks sections.
    """
    if not treebank.is_dir():
        state = "is not a folder" if treebank.exists() else f"not found{where_missing(treebank)}"
        raise UserError(f"{treebank} {state}; give the folder of your Penn Treebank.")
    found: dict[str, Path] = {}  # by the names in lower case
    for path in sorted(treebank.rglob("*")):
        name = path.name.lower()
        if not FILE_NAME.fullmatch(name):
            continue
        if name in found:
            raise UserError(
                f"{found[name]} and {path} have the same name; give the folder of one of the two."
            )
        found[name] = path
    if not found:
        raise UserError(
            f"{treebank} and its subfolders have no files named like wsj_0200.mrg; "
            "give the folder of your Penn Treebank, such as treebank_3/parsed/mrg/wsj."
        )
    sections: dict[int, list[Path]] = {}
    for name, path in sorted(found.items()):
        sections.setdefault(int(name[4:6]), []).append(path)
    missing = [number for split in SPLITS for number in split.sections if number not in sections]
    if missing:
        raise UserError(
            f"{treebank} has no files of {_listed(missing)}, only of {_listed(sections)}; train "
            "needs sections 02 to 21, dev 22 and test 23."
        )
    return sections


def cleaned_trees(paths: Iterable[Path]) -> Iterator[Tree]:
    """Yield the trees of .mrg files with the root TOP, without traces and function labels.

    Raises UserError with file and line if a tree is not well-formed.
    """
    for path in paths:
        with open_text(path) as stream:
            for tree in read_trees(map(one_line, LineTexts(stream)), str(path)):
                plain = without_traces(tree)
                if plain is not None:
                    yield with_root(without_functions(plain))


def write_splits(treebank: Path, folder: Path) -> list[dict[str, Any]]:
    """Write NAME.trees and NAME.words of each split to ``folder``; return facts about each.

    Line n of both files is the same sentence. Raises UserError if ``treebank`` is not a
    folder, lacks sections or has a file twice, or if a tree is not well-formed.
    """
    sections = find_files(treebank)
    return [_write_split(split, sections, folder) for split in SPLITS]


def _write_split(split: Split, sections: Mapping[int, list[Path]], folder: Path) -> dict[str, Any]:
    paths = [path for section in split.sections for path in sections[section]]
    num_trees = 0
    with (
        (folder / f"{split.name}.trees").open("wb") as trees,
        (folder / f"{split.name}.words").open("wb") as words,
        logs.progress(f"Reading {split.name}", "trees", split.num_trees) as counter,
    ):
        for tree in cleaned_trees(paths):
            trees.write(f"{tree}\n".encode())
            words.write(f"{' '.join(tree.words)}\n".encode())
            num_trees += 1
            counter.advance()
    if num_trees != split.num_trees:
        logs.warning(f"trees in {split.name}: {num_trees:,}, expected: {split.num_trees:,}.")
    return {
        "name": split.name,
        "sections": list(split.sections),
        "files": len(paths),
        "trees": num_trees,
        "expected_trees": split.num_trees,
    }


def _listed(sections: Collection[int]) -> str:
    word = "section" if len(sections) == 1 else "sections"
    return f"{word} {', '.join(f'{number:02}' for number in sorted(sections))}"
