"""Links of words beside the text: what preprocess checks, keeps and drops."""

import random
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.corpus import chunk_pool
from nmt_cli.corpus.prepared import changed_text
from nmt_cli.corpus.text import parallel_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

ALIGNED = "data.train.0.alignments=data/a.links"


@pytest.fixture
def aligned(corpus):
    """The small corpus with three random links or none in each line of data/a.links."""
    rng = random.Random(7)
    sides = [Path(f"data/a.{side}").read_text().splitlines() for side in ("en", "de")]
    lines = []
    for source, target in zip(*sides, strict=True):
        pairs = [
            (rng.randrange(len(source.split())), rng.randrange(len(target.split())))
            for _ in range(rng.choice([0, 3]))
        ]
        lines.append(" ".join(f"{s}{rng.choice('--p')}{t}" for s, t in pairs))
    corpus.write("data/a.links", lines)
    return corpus


def stored_links(prepared):
    numbers, lengths = prepared.links.gather(np.arange(len(prepared.links)))
    parts = np.split(numbers, np.cumsum(lengths)[:-1])
    return [[tuple(link) for link in part.reshape(-1, 2).tolist()] for part in parts]


def as_in_the_file():
    """Return the links of data/a.links, each once and in order, read by another way."""
    lines = Path("data/a.links").read_text().replace("p", "-").splitlines()
    return [sorted({tuple(map(int, link.split("-"))) for link in line.split()}) for line in lines]


def test_the_links_of_kept_pairs_are_stored_whatever_the_number_of_workers(aligned, monkeypatch):
    monkeypatch.setattr(chunk_pool, "PAIRS_IN_CHUNK", 7)
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 7)
    lines = Path("data/a.en").read_text().splitlines()
    lines[3] = ""  # dropped as empty
    aligned.write("data/a.en", lines)
    first = aligned.prepare(ALIGNED, "data.max_length=20", workers=1)
    prepared, report = aligned.opened(ALIGNED, "data.max_length=20"), None
    report = prepared.manifest["train"][0]
    dropped = {n - 1 for of in report["dropped"].values() for n in of["first_lines"]}
    assert 3 in dropped
    assert 3 < len(dropped) < 60
    kept = [links for n, links in enumerate(as_in_the_file()) if n not in dropped]
    found = stored_links(prepared)
    assert found == kept + [[] for _ in range(prepared.corpus_sizes[1])]
    assert report["links"] == sum(map(len, kept)) > 20
    assert report["alignments"] == "data/a.links"
    assert "links" not in prepared.manifest["train"][1]
    assert aligned.prepare(ALIGNED, "data.max_length=20", workers=2, force=True) == first


def test_without_alignments_no_links_are_written(corpus):
    files = corpus.prepare()
    assert not any("links" in name for name in files)
    assert "links" not in (corpus.output / "manifest.json").read_text()
    assert corpus.opened().links is None


NOT_A_LINK = "is not a link; a link is 2-1 (source word 2 and target word 1, from 0), or 2p1 if it"
BAD_LINKS = [
    ({3: "0-0 1:1"}, f"data/a.links:4: 1:1 {NOT_A_LINK} is possible only."),
    ({9: "0-0\udcff"}, f"data/a.links:10: 0-0\ufffd {NOT_A_LINK} is possible only."),
    ({5: "1" * 50_000 + "-0"}, f"data/a.links:6: {'1' * 40}... {NOT_A_LINK} is possible only."),
    ({5: "0-0 \x1b[2J"}, f"data/a.links:6: '\\x1b[2J' {NOT_A_LINK} is possible only."),
    (
        {70: "0-0 1-9"},
        "data/a.links:71: the link 1-9 is outside its sentence: "
        "the target has 2 words, counted from 0.",
    ),
    (
        {70: "11-0"},
        "data/a.links:71: the link 11-0 is outside its sentence: "
        "the source has 3 words, counted from 0.",
    ),
    (
        {80: ""},
        "data/a.links has 81 lines but data/a.en has 80; "
        "line n of one must hold the links of line n of the other.",
    ),
]


@pytest.mark.parametrize(("lines", "message"), BAD_LINKS)
@pytest.mark.parametrize("workers", [1, 2])
def test_wrong_links_are_one_line(aligned, lines, message, workers, monkeypatch):
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 50)
    for side, words in (("en", "abcd abcd abcd"), ("de", "abcd abcd")):
        text = Path(f"data/a.{side}").read_text().splitlines()
        text[70] = words
        aligned.write(f"data/a.{side}", text)
    links = [lines.get(number, "") for number in range(max(80, *(n + 1 for n in lines)))]
    data = "".join(f"{line}\n" for line in links).encode(errors="surrogateescape")
    Path("data/a.links").write_bytes(data)
    with pytest.raises(UserError) as caught:
        aligned.prepare(ALIGNED, workers=workers)
    assert str(caught.value) == message
    assert not Path("prepared/small").exists()


def test_a_missing_file_of_links_is_one_line(corpus):
    with pytest.raises(UserError, match=r"^data/a\.links not found; the path is relative to /"):
        corpus.prepare(ALIGNED)


def test_pairs_whose_words_normalization_separates_have_no_links(aligned, capsys):
    logs.configure(quiet=False)
    # The first loses a space, the words of the others stay.
    for line, words in ((0, "abcd : fgh"), (1, "abcd e\u3000e"), (2, "\u201eabcd\u201c e")):
        text = Path("data/a.en").read_text().splitlines()
        text[line] = words
        aligned.write("data/a.en", text)
    links = ["0-0 1-0"] * 80
    aligned.write("data/a.links", links)
    options = (ALIGNED, "data.normalization.punctuation=true")
    aligned.prepare(*options, workers=1)
    prepared = aligned.opened(*options)
    assert stored_links(prepared)[:4] == [[], *3 * [[(0, 0), (1, 0)]]]
    assert prepared.manifest["train"][0]["found"]["pairs_of_other_words"] == 1
    assert "the links of 1 pair in data/a.links were left out, because" in capsys.readouterr().err


def test_text_in_pieces_has_links_of_its_pieces(aligned):
    for side in ("en", "de"):
        text = Path(f"data/a.{side}").read_text()
        aligned.write(f"data/a.{side}", [line.replace(" ", "@@ ") for line in text.splitlines()])
    options = ("tokenizer={type: whitespace, joiner: '@@'}", ALIGNED)
    aligned.prepare(*options, workers=1)
    assert stored_links(aligned.opened(*options))[:80] == as_in_the_file()


def test_changed_links_are_noticed(aligned):
    aligned.prepare(ALIGNED, workers=1)
    manifest = aligned.opened(ALIGNED).manifest
    assert changed_text(aligned.output, manifest) == []
    aligned.write("data/a.links", [""] * 80)
    assert changed_text(aligned.output, manifest) == [Path("data/a.links")]
    with pytest.raises(UserError, match=r"train\.0\.alignments data/a\.links"):
        aligned.opened()  # the recipe has no alignments
