import pytest

from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.text.recipe_text import LinearizedText
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.data import DataConfig, TreebankConfig

TRAIN = "(S (NP (NN rain)) (VP (VBZ falls)))"
DEV = "(SBAR (NN snow))"
ANGLES = "(S(NP<NN>)NP(VP<VBZ>)VP)S"
OF_SLASHES = ["NN", "NP", "S", "VBZ", "VP", "/NP", "/S", "/VP"]


@pytest.fixture
def linearized(tmp_path):
    """Return a function that linearizes a treebank, and its recipe's section data."""

    def linearize(train=TRAIN, dev=DEV, *, spaced=False, **config):
        for name, trees in (("train", train), ("dev", dev)):
            (tmp_path / name).write_text(trees)
        train_files, dev_files = (
            {"source": tmp_path / name, "target": tmp_path / name} for name in ("train", "dev")
        )
        languages = {"source_language": "en", "target_language": "trees"}
        data = DataConfig.model_validate(
            {**languages, "train": [train_files], "validation": dev_files}
        )
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        treebank = TreebankConfig.model_validate(config)
        text = LinearizedText(data, treebank, folder, spaced=spaced)
        return text, data

    return linearize


@pytest.mark.parametrize(
    ("config", "target"),
    [
        ({}, ANGLES),
        ({"spaced": True}, "(S (NP <NN> )NP (VP <VBZ> )VP )S"),
        ({"words": "kept"}, "(S (NP <NN> rain )NP (VP <VBZ> falls )VP )S"),
        ({"notation": "brackets", "tags": "XX"}, "(S (NP XX )NP (VP XX )VP )S"),
        ({"notation": "brackets", "closing": "plain"}, "(S (NP NN ) (VP VBZ ) )"),
        ({"notation": "slashes"}, "S NP NN /NP VP VBZ /VP /S"),
    ],
)
def test_trees_are_written_in_the_notation_of_the_recipe(linearized, config, target):
    text, data = linearized(**config)
    assert list(ParallelText(text.plain(data.train[0]))) == [("rain falls", target)]
    assert list(text.pairs(data.train[0])) == [("rain falls", target)]


def test_validation_is_measured_on_trees_in_brackets(linearized):
    text, data = linearized()
    assert list(ParallelText(text.plain(data.validation))) == [("snow", "(SBAR<NN>)SBAR")]
    measured = list(ParallelText(text.measured(data.validation)))
    assert measured == [("snow", "(TOP (SBAR (NN snow)))")]


def test_each_validation_set_has_trees_of_its_own(tmp_path):
    files = {}
    for name, trees in (("train", TRAIN), ("dev", DEV), ("more", TRAIN + DEV)):
        (tmp_path / name).write_text(trees)
        files[name] = {"source": tmp_path / name, "target": tmp_path / name}
    sets = [{"name": name, **files[name]} for name in ("more", "dev")]
    data = DataConfig.model_validate(
        {"source_language": "en", "target_language": "trees", "train": [files["train"]],
         "validation": sets}
    )  # fmt: skip
    config = TreebankConfig()
    text = LinearizedText(data, config, tmp_path, spaced=False)
    snow = ("snow", "(TOP (SBAR (NN snow)))")
    more, dev = (list(ParallelText(text.measured(files))) for files in data.validation_sets)
    assert dev == [snow]
    assert more == [("rain falls", "(TOP (S (NP (NN rain)) (VP (VBZ falls))))"), snow]


@pytest.mark.parametrize(
    ("config", "pieces"),
    [
        ({}, ["(NP", "(S", "(VP", ")NP", ")S", ")VP", "<NN>", "<VBZ>"]),
        ({"spaced": True}, ["(NP", "(S", "(VP", ")NP", ")S", ")VP", "<NN>", "<VBZ>"]),
        ({"notation": "slashes"}, [f"\u2581{token}" for token in OF_SLASHES]),
    ],
)
def test_pieces_are_the_tokens_of_the_training_trees(linearized, config, pieces):
    text, _ = linearized(**config)
    assert sorted(text.symbols()) == sorted(pieces)
    constituents = ["NP", "S", "VP"]
    assert text.manifest_entries() == {
        "treebank": {"constituents": constituents, "tags": ["NN", "VBZ"]}
    }


def test_labels_that_cannot_be_written_are_refused(linearized, tmp_path):
    both = "(S (NN rain))\n(NP (S rain))"  # S is a constituent and a tag
    with pytest.raises(UserError) as caught:
        linearized(both, notation="slashes")
    assert str(caught.value) == (
        f"{tmp_path / 'train'}: in tree 2, the tag 'S' could not be read again in the notation "
        "slashes; rename it or choose another notation."
    )
    linearized(both, notation="brackets")  # (S and S differ
    text, _ = linearized("(S (s rain))")
    with pytest.raises(UserError, match="is written <s>, which is a mark of the model itself"):
        text.symbols()
