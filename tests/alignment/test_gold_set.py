"""The gold alignments in data/: each link is in its sentence, and no content word was forgotten."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.corpus.text.links import read_links

FOLDER = Path(__file__).parents[2] / "data/gold-alignments"
# Words that may have no counterpart in the other sentence; all others have at least one link.
UNALIGNED = {"source": {",", "of", "that"}, "target": {",", "wie"}}


@pytest.fixture(scope="module")
def pairs():
    """The words of each pair, and its links."""
    texts = [
        (FOLDER / f"everyday.{name}").read_text(encoding="utf-8").splitlines()
        for name in ("en", "de", "links")
    ]
    return [(s.split(), t.split(), read_links(links)) for s, t, links in zip(*texts, strict=True)]


def test_there_are_a_hundred_different_sentences_of_usual_length(pairs):
    assert len({" ".join(source) for source, _, _ in pairs}) == len(pairs) >= 100
    assert len({" ".join(target) for _, target, _ in pairs}) == len(pairs)
    assert all(6 <= len(words) <= 20 for pair in pairs for words in pair[:2])


def test_each_link_is_inside_its_sentence_and_only_listed_words_have_none(pairs):
    without: dict[str, set[str]] = {"source": set(), "target": set()}
    for source, target, links in pairs:
        linked_source, linked_target = (set(each) for each in zip(*links.possible, strict=True))
        assert max(linked_source) < len(source)
        assert max(linked_target) < len(target)
        for side, words, linked in (
            ("source", source, linked_source),
            ("target", target, linked_target),
        ):
            without[side] |= {w for n, w in enumerate(words) if n not in linked}
        assert (len(source) - 1, len(target) - 1) in links.sure  # both end with the same mark
        assert source[-1] == target[-1]
    assert without == UNALIGNED


def test_names_and_numbers_that_are_spelt_alike_are_linked(pairs):
    for source, target, links in pairs:
        for number, word in enumerate(source[:-1]):
            alike = {(number, n) for n, other in enumerate(target) if other == word != ","}
            assert not alike or alike & links.possible, (word, source)


def test_score_reads_the_links(pairs):
    path = str(FOLDER / "everyday.links")
    arguments = ["score", path, path, "--metric", "aer", "--format", "json"]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["aer"] == 0.0
    assert found["lines"] == len(pairs)
    assert found["sure"] == sum(len(links.sure) for _, _, links in pairs)
