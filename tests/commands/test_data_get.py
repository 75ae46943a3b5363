import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import data_get
from nmt_cli.commands.recipes import _named_files
from nmt_cli.datasets import assembly
from nmt_cli.datasets.assembly import DownloadedSet
from nmt_cli.datasets.catalogue import CATALOGUE, Archive, EvaluationSet, ParallelDataset, Part
from nmt_cli.files.atomic_files import verify
from nmt_cli.files.locks import OutputInUseError, claimed
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import FOLDER, NAMES, TREEBANK
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import shipped_file
from tests.loopback_server import Fault
from tests.tar_files import tar_of

# Line separators of other programs are inside the lines.
NEWS = {"en": "A fox\u2028runs\nIt rains\n", "de": "Ein Fuchs rennt\nEs\u0085regnet"}
WEB = {"en": "\nHello\nBye\n", "de": "Leer\nHallo\nTschüss\n"}
NOTES = {"en": "last\n", "de": "zuletzt\n"}

SPLITS, KINDS = ("train", "dev", "test"), ("trees", "words")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def serve(server, path, members, mode="w:gz"):
    content = tar_of(members, mode)
    return Archive(server.put(path, content), len(content), hashlib.sha256(content).hexdigest())


def serve_news_and_notes(server, news=NEWS):
    texts = {f"t/news.{language}": text.encode() for language, text in news.items()}
    texts |= {f"t/notes.{language}": text.encode() for language, text in NOTES.items()}
    return serve(server, "/wmt/news.tgz", texts)


@pytest.fixture
def toy(server, monkeypatch, tmp_path):
    """A data set of three parts in two archives and one test set."""
    packed = {f"web.{lang}.gz": gzip.compress(text.encode()) for lang, text in WEB.items()}
    web = serve(server, "/old/web.tar", packed, "w")
    news = serve_news_and_notes(server)
    dataset = ParallelDataset(
        ("en", "de"),
        (
            Part("News", news, "t/news.{language}", 2),
            Part("Web", web, "web.{language}.gz", 3),
            Part("Notes", news, "t/notes.{language}", 1),
        ),
        (EvaluationSet("newstest", "toy/full", 2),),
    )
    monkeypatch.setitem(CATALOGUE, "toy-en-de", dataset)
    files = {"en": tmp_path / "cache.src", "de": tmp_path / "cache.ref"}
    files["en"].write_text("one\ntwo\n")
    files["de"].write_text("eins\nzwei\n")

    def downloaded(name, languages, num_lines):
        assert (name, languages, num_lines) == ("toy/full", "en-de", 2)
        return DownloadedSet(files["en"], files["de"], "http://x/t.tgz", "0a")

    monkeypatch.setattr(assembly, "download_set", downloaded)
    return dataset


def expect_files(folder):
    read = {path.name: path.read_bytes().decode() for path in folder.iterdir()}
    del read["manifest.json"]
    assert read == {
        "train.en": "A fox\u2028runs\nIt rains\n\nHello\nBye\nlast\n",
        "train.de": "Ein Fuchs rennt\nEs\u0085regnet\nLeer\nHallo\nTschüss\nzuletzt\n",
        "newstest.en": "one\ntwo\n",
        "newstest.de": "eins\nzwei\n",
    }


def test_the_parts_are_joined_in_their_order(toy):
    data_get.run("toy-en-de")
    expect_files(Path("data/toy-en-de"))
    assert names_in("data") == ["downloads", "toy-en-de"]
    assert names_in("data/downloads") == ["news.tgz", "web.tar"]


def test_the_manifest_tells_where_each_part_comes_from(toy, server):
    data_get.run("toy-en-de")
    manifest = verify(Path("data/toy-en-de"))
    assert (manifest["kind"], manifest["name"]) == ("dataset", "toy-en-de")
    assert [part["lines"] for part in manifest["train"]] == [2, 3, 1]
    web = toy.train[1].archive
    assert manifest["train"][1] == {
        "name": "Web",
        "url": f"{server.url}/old/web.tar",
        "bytes": web.num_bytes,
        "sha256": web.sha256,
        "members": ["web.en.gz", "web.de.gz"],
        "lines": 3,
        "expected_lines": 3,
    }
    assert manifest["test_sets"] == [
        {"name": "newstest", "sacrebleu": "toy/full", "url": "http://x/t.tgz", "md5": "0a",
         "lines": 2}
    ]  # fmt: skip


def test_the_command_downloads_through_faults(toy, server):
    server.faults = [Fault(sent=50), Fault(damaged=True)]
    result = CliRunner().invoke(cli.main, ["data", "get", "toy-en-de", "--output", "d/mine"])
    assert result.exit_code == 0, result.output
    expect_files(Path("d/mine"))
    assert result.stdout == ""
    assert result.stderr.count("trying again") >= 1
    assert result.stderr.endswith("Wrote d/mine.\n")
    assert names_in("d/downloads") == ["news.tgz", "web.tar"]


def test_the_next_run_goes_on_with_what_is_there(toy, server):
    server.faults = [Fault(), *[Fault(status=500)] * 5]
    with pytest.raises(UserError, match=r"old/web\.tar gave 500 Internal Server Error"):
        data_get.run("toy-en-de", downloads=Path("kept"))
    assert not Path("data/toy-en-de").exists()
    del server.requests[:]
    data_get.run("toy-en-de", downloads=Path("kept"))
    assert server.requests == [("/old/web.tar", None)]
    expect_files(Path("data/toy-en-de"))


def test_another_number_of_lines_is_a_warning(toy, monkeypatch, capsys):
    news, *others = toy.train
    changed = toy._replace(train=(news._replace(num_lines=1_000), *others))
    monkeypatch.setitem(CATALOGUE, "toy-en-de", changed)
    data_get.run("toy-en-de")
    assert capsys.readouterr().err == "Warning: News has 2 pairs, 1,000 were expected.\n"
    manifest = json.loads(Path("data/toy-en-de/manifest.json").read_text())
    assert (manifest["train"][0]["lines"], manifest["train"][0]["expected_lines"]) == (2, 1000)


def test_sides_of_different_length_are_refused(toy, server, monkeypatch):
    shorter = serve_news_and_notes(server, {"en": NEWS["en"], "de": "Ein\u2028Fuchs\n"})
    train = tuple(
        part._replace(archive=shorter) if part.archive.name == "news.tgz" else part
        for part in toy.train
    )
    monkeypatch.setitem(CATALOGUE, "toy-en-de", toy._replace(train=train))
    with pytest.raises(UserError, match=r"news\.tgz: t/news\.en has 2 lines but t/news\.de has 1;"):
        data_get.run("toy-en-de")
    assert names_in("data") == ["downloads"]


def test_what_exists_is_replaced_only_with_force(toy, server):
    data_get.run("toy-en-de")
    Path("data/toy-en-de/train.en").write_text("changed")
    del server.requests[:]
    with pytest.raises(UserError, match=r"toy-en-de already exists; add --force to replace it"):
        data_get.run("toy-en-de")
    assert server.requests == []
    data_get.run("toy-en-de", force=True)
    assert server.requests == []
    expect_files(Path("data/toy-en-de"))


@pytest.mark.parametrize("force", [False, True])
def test_files_of_the_user_are_never_replaced(toy, server, force):
    Path("data/toy-en-de").mkdir(parents=True)
    Path("data/toy-en-de/train.en").write_text("mine")
    with pytest.raises(UserError, match="is not a data set of data get; choose another --output"):
        data_get.run("toy-en-de", force=force)
    assert server.requests == []
    assert Path("data/toy-en-de/train.en").read_text() == "mine"


def test_an_empty_folder_is_no_obstacle(toy):
    Path("data/toy-en-de").mkdir(parents=True)
    data_get.run("toy-en-de")
    expect_files(Path("data/toy-en-de"))


def test_one_command_at_a_time(toy):
    with claimed(Path("data/toy-en-de"), "--output"), pytest.raises(OutputInUseError):
        data_get.run("toy-en-de")


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("wmt14-en-d", "wmt14-en-de?"),
        ("wmt14", "wmt14-en-de or wmt14-en-fr?"),
        ("wjs", "wsj?"),
        ("x" * 99, "wmt14-en-de, wmt14-en-fr, wsj or opus:CORPUS/en-de?"),
    ],
)
def test_an_unknown_name_is_one_line(name, proposal):
    result = CliRunner().invoke(cli.main, ["data", "get", name])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {name} is not a data set of data get; did you mean ")
    assert f"did you mean {proposal}" in result.stderr
    assert result.stderr.count("\n") == 1
    assert names_in(".") == []


@pytest.mark.parametrize("name", ["multi30k", "Multi30k", "multi30k-en-de"])
def test_the_place_of_multi30k_is_that_of_its_recipe(name):
    result = CliRunner().invoke(cli.main, ["data", "get", name])
    assert result.exit_code == 2
    recipe = shipped_file("multi30k-en-de")
    assert recipe is not None
    comment = " ".join(recipe.read_text().replace("#", "").split())
    address = "https://github.com/multi30k/dataset, folder data/task1/raw"
    assert address in result.stderr
    assert address in comment
    assert "test_2016_flickr (.en.gz and .de.gz, unpacked) into data/multi30k/" in result.stderr
    assert result.stderr.count("\n") == 1


TREE = "( (S (NP-SBJ (DT The) (NN kettle)) (VP (VBD sang) (NP (-NONE- *)))) )\n"


@pytest.fixture
def treebank(tmp_path):
    logs.configure(quiet=True)
    for section in range(25):
        folder = tmp_path / f"ptb/{section:02}"
        folder.mkdir(parents=True)
        (folder / f"wsj_{section:02}00.mrg").write_text(TREE)
    return tmp_path / "ptb"


def test_a_treebank_is_assembled(treebank):
    result = CliRunner().invoke(cli.main, ["data", "get", "wsj", "--treebank", str(treebank)])
    assert result.exit_code == 0
    assert result.stdout == ""
    manifest = verify(Path("data/wsj"))
    assert (manifest["kind"], manifest["name"]) == ("dataset", "wsj")
    assert [split["trees"] for split in manifest["splits"]] == [20, 1, 1]
    listed = dict(_named_files(read_recipe("parsing").recipe))
    assert {path.name for path in listed.values()} == {f"{part}.trees" for part in SPLITS}
    assert set(manifest["files"]) == {f"{part}.{kind}" for part in SPLITS for kind in KINDS}
    assert {path.parent for path in listed.values()} == {Path("data/wsj")}
    tree = "(TOP (S (NP (DT The) (NN kettle)) (VP (VBD sang))))\n"
    assert Path("data/wsj/train.trees").read_text() == tree * 20
    assert Path("data/wsj/test.words").read_text() == "The kettle sang\n"


def test_a_wrong_tree_leaves_nothing(treebank):
    (treebank / "23/wsj_2300.mrg").write_text(TREE.rstrip()[:-1])
    with pytest.raises(UserError, match=r"wsj_2300\.mrg:1: the tree that begins here does not clo"):
        data_get.run("wsj", treebank=treebank)
    assert names_in(".") == ["ptb"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("wsj", {}, "the Penn Treebank is licensed .* --treebank FOLDER$"),
        ("wsj", {"treebank": Path("ptb"), "downloads": Path("d")}, "leave out --downloads"),
        ("wmt14-en-de", {"treebank": Path("ptb")}, "--treebank is for wsj"),
    ],
)
def test_options_that_do_not_fit_are_refused(treebank, name, options, message):
    with pytest.raises(UserError, match=message):
        data_get.run(name, **options)
    assert names_in(".") == ["ptb"]


@pytest.mark.parametrize(
    ("recipe", "name"), [("base", "wmt14-en-de"), ("base-en-fr", "wmt14-en-fr")]
)
def test_the_files_are_those_that_the_recipe_names(recipe, name):
    listed = dict(_named_files(read_recipe(recipe).recipe))
    dataset = CATALOGUE[name]
    stems = ["train", *(wanted.name for wanted in dataset.evaluation_sets)]
    written = {
        FOLDER / name / f"{stem}.{language}" for stem in stems for language in dataset.languages
    }
    assert set(listed.values()) == written


def test_messages_know_every_data_set():
    assert [*CATALOGUE, TREEBANK] == [*NAMES]


def test_the_sizes_are_those_of_wmt14():
    """The totals that the field reports, with the counts of each part by others."""
    totals = {
        name: sum(part.num_lines or 0 for part in CATALOGUE[name].train) for name in CATALOGUE
    }
    assert totals == {"wmt14-en-de": 4_520_620, "wmt14-en-fr": 40_842_333}
    for dataset in CATALOGUE.values():
        assert {wanted.name: wanted.num_lines for wanted in dataset.evaluation_sets} == {
            "newstest2013": 3000,
            "newstest2014": 3003,
        }
        for archive in (part.archive for part in dataset.train):
            assert re.fullmatch("[0-9a-f]{64}", archive.sha256 or "")
            assert archive.url.startswith("https://www.statmt.org/")
    assert len({part.archive for part in CATALOGUE["wmt14-en-fr"].train}) == 5
