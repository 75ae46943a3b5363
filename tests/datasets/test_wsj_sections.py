import pytest

from nmt_cli.datasets.wsj_sections import SPLITS, cleaned_trees, find_files, write_splits
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from tests.real_text import real_lines

# Two trees with everything that is removed: an empty root, function labels, indices, gaps, traces
# and the constituents that hold nothing else.
RAW = """
( (S
    (NP-SBJ-1 (DT The) (NN kettle) )
    (VP (VBD seemed)
      (S
        (NP-SBJ (-NONE- *-1) )
        (VP (TO to)
          (VP (VB sing)
            (ADVP|PRT (RB along) )))))
    (. .) ))
( (S
    (NP-SBJ (NNP Ada) )
    (VP (VBD laughed)
      (PRN (-LRB- -LRB-) (NP=2 (PRP$ her) (NNS eyes) ) (-RRB- -RRB-) ))
    (. .) ))
"""
TREES = [
    "(TOP (S (NP (DT The) (NN kettle)) (VP (VBD seemed) (S (VP (TO to) (VP (VB sing) "
    "(ADVP (RB along)))))) (. .)))",
    "(TOP (S (NP (NNP Ada)) (VP (VBD laughed) (PRN (-LRB- -LRB-) (NP (PRP$ her) (NNS eyes)) "
    "(-RRB- -RRB-))) (. .)))",
]
WORDS = ["The kettle seemed to sing along .", "Ada laughed -LRB- her eyes -RRB- ."]
SECTIONS = range(25)


def one_tree(number):
    return f"( (S (NP-SBJ (CD {number})) (VP (VBD sang) (NP (-NONE- *)))) )\n"


def folders_of_sections(root, section, file):
    return root / f"{section:02}" / file


def one_folder(root, _, file):
    return root / file


def capitals(root, section, file):
    return root / f"PARSED/MRG/WSJ/{section:02}" / file.upper()


def make_treebank(root, layout=folders_of_sections, sections=SECTIONS):
    """Write two files for each section: one tree in the first, two in the second."""
    for section in sections:
        for file, trees in (("00", 1), ("01", 2)):
            path = layout(root, section, f"wsj_{section:02}{file}.mrg")
            path.parent.mkdir(parents=True, exist_ok=True)
            first = 1000 * section + 100 * int(file)
            path.write_text("".join(one_tree(first + i) for i in range(trees)))
    return root


@pytest.fixture(autouse=True)
def _quiet():
    logs.configure(quiet=True)


def test_traces_functions_and_the_empty_root_are_removed(tmp_path):
    path = tmp_path / "wsj_0200.mrg"
    path.write_text(RAW)
    trees = list(cleaned_trees([path]))
    assert [str(tree) for tree in trees] == TREES
    assert [" ".join(tree.words) for tree in trees] == WORDS


def test_a_tree_of_nothing_but_traces_is_left_out(tmp_path):
    path = tmp_path / "wsj_0200.mrg"
    path.write_text("( (NP (-NONE- *)) )\n( (X (NN x)) )\n")
    assert [str(tree) for tree in cleaned_trees([path])] == ["(TOP (X (NN x)))"]


@pytest.mark.parametrize("layout", [folders_of_sections, one_folder, capitals])
def test_every_layout_gives_the_sections_of_the_field(tmp_path, layout):
    root, output = make_treebank(tmp_path / "ptb", layout), tmp_path / "out"
    output.mkdir()
    (root / "README").write_text("not a tree")
    facts = write_splits(root, output)
    # Three trees a section; the first number of a sentence is its section.
    for name, sections in (("train", range(2, 22)), ("dev", [22]), ("test", [23])):
        numbers = [1000 * s + rest for s in sections for rest in (0, 100, 101)]
        words = (output / f"{name}.words").read_text().splitlines()
        assert words == [f"{number} sang" for number in numbers]
        trees = (output / f"{name}.trees").read_text().splitlines()
        assert trees == [f"(TOP (S (NP (CD {n})) (VP (VBD sang))))" for n in numbers]
    assert [(fact["name"], fact["files"], fact["trees"]) for fact in facts] == [
        ("train", 40, 60),
        ("dev", 2, 3),
        ("test", 2, 3),
    ]


def test_another_number_of_trees_is_a_warning(tmp_path, capsys):
    root = make_treebank(tmp_path / "ptb")
    write_splits(root, tmp_path)
    warnings = capsys.readouterr().err.splitlines()
    assert warnings[0] == "Warning: trees in train: 60, expected: 39,832."
    assert len(warnings) == 3


def test_the_splits_are_those_of_the_paper():
    """Section 6.3: about 40,000 training sentences; sections 22 and 23 for choosing and testing."""
    assert [split.name for split in SPLITS] == ["train", "dev", "test"]
    assert SPLITS[0].sections == tuple(range(2, 22))
    assert round(SPLITS[0].num_trees, -4) == 40_000


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text.rstrip()[:-1], r"wsj_0501\.mrg:2: .*does not close"),
        (lambda text: text + ")", r"wsj_0501\.mrg:3: .*closing bracket"),
    ],
)
def test_a_wrong_tree_is_named_by_file_and_line(tmp_path, spoil, message):
    root = make_treebank(tmp_path / "ptb")
    path = root / "05/wsj_0501.mrg"
    path.write_text(spoil(path.read_text()))
    with pytest.raises(UserError, match=message):
        write_splits(root, tmp_path)


def test_missing_sections_are_listed(tmp_path):
    root = make_treebank(tmp_path, sections=[0, 1, *range(3, 22), 23])
    with pytest.raises(
        UserError, match=r"no files of sections 02, 22, only of sections 00, 01, 03"
    ):
        find_files(root)


def test_a_folder_without_trees_is_refused(tmp_path):
    (tmp_path / "brown").mkdir()
    (tmp_path / "brown/cf01.mrg").write_text(one_tree(1))
    with pytest.raises(UserError, match=r"have no files named like wsj_0200\.mrg; give"):
        find_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"), [("missing", "not found"), ("file", "is not a folder")]
)
def test_a_path_that_is_no_folder_is_refused(tmp_path, name, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=message):
        find_files(tmp_path / name)


def test_two_copies_are_refused(tmp_path):
    make_treebank(tmp_path / "a")
    make_treebank(tmp_path / "b", sections=[7])
    with pytest.raises(
        UserError, match=r"a/07/wsj_0700\.mrg and .*b/07/wsj_0700\.mrg have the same"
    ):
        find_files(tmp_path)


def test_real_clean_trees_stay_as_they_are(tmp_path):
    sample = real_lines("treebank", "wsj-sample", "dev.trees")
    path = tmp_path / "wsj_2200.mrg"
    path.write_text("\n".join(sample).replace(" (", "\n  ("), encoding="utf-8")
    assert [str(tree) for tree in cleaned_trees([path])] == sample


def test_a_line_separator_in_a_word_is_refused(tmp_path):
    path = tmp_path / "wsj_0200.mrg"
    path.write_text("( (S (NN rain\u2028fall)) )\n")
    with pytest.raises(UserError, match=r"wsj_0200\.mrg:1: a label or word has a space"):
        list(cleaned_trees([path]))
