"""Corpora whose file has both sides of a pair in each line."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.files.lines import one_line
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.corpora import Corpus, ParallelFiles

PAIRS = [
    ("A dog.", "Ein Hund."),
    ("我们有一只狗。", "لدينا كلب"),
    ("สุนัข", "İstanbul'da ığdır"),
    ("", ""),
    ("blåbærsyltetøy", "x" * 100_000),
]


@pytest.fixture
def read(tmp_path):
    def read_pairs(content, form="tsv", columns=None, suffix="", **others):
        path = tmp_path / f"text{suffix}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        text = ParallelText(Corpus(**{form: path}, columns=columns, **others))
        return list(text), text.num_invalid

    return read_pairs


def refusal(read, *arguments, **options):
    with pytest.raises(UserError) as caught:
        read(*arguments, **options)
    return str(caught.value)


def as_tsv(pairs, row="{0}\t{1}\n"):
    return "".join(row.format(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("row", "header", "columns"),
    [
        ("{0}\t{1}\n", "", None),
        ("{0}\t{1}\tmore\t\n", "", None),
        ("7\t{1}\t{0}\r\n", "", ("3", "2")),
        ("{1}\t7\t{0}\r\n", "Deutsch\tid\ten text\r\n", ("en text", "Deutsch")),
        ("{0}\t{1}\n", "\ufeffen\tde\n", ("en", "de")),
    ],
)
def test_columns_are_taken_by_number_or_name(read, row, header, columns):
    assert read(header + as_tsv(PAIRS, row), columns=columns)[0] == PAIRS


def test_a_table_may_be_compressed_and_end_without_a_line_feed(read):
    content = gzip.compress(as_tsv(PAIRS).rstrip("\n").encode())
    assert read(content, suffix=".tsv.gz")[0] == PAIRS


def test_keys_are_taken_also_from_an_object_within(read):
    lines = [json.dumps({"id": 7, "source": s, "target": t}) for s, t in PAIRS]
    assert read("\n".join(lines), "jsonl")[0] == PAIRS
    lines = [json.dumps({"translation": {"en": s, "pt-BR": t}}) for s, t in PAIRS]
    columns = ("translation.en", "translation.pt-BR")
    assert read("\r\n".join(lines), "jsonl", columns=columns)[0] == PAIRS
    lines = [json.dumps({"translation.en": s, "": t}) for s, t in PAIRS]
    with pytest.raises(ValueError, match="at least 1 character"):
        read("\n".join(lines), "jsonl", columns=("translation.en", ""))


def test_a_blank_row_is_a_pair_without_text(read):
    assert read("a\tb\n\n \nc\td\n")[0] == [("a", "b"), ("", ""), ("", ""), ("c", "d")]


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_any_text_of_an_object_is_one_line(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("rows") / "text.jsonl"
    rows = [json.dumps(dict(zip(("source", "target"), pair, strict=True))) for pair in pairs]
    path.write_text("\n".join(rows))
    first = path.read_text().startswith
    expected = [tuple(map(one_line, pair)) for pair in pairs]
    found = list(ParallelText(ParallelFiles(jsonl=path)))
    assert first("{")
    assert found[1:] == expected[1:]
    assert found[0] == tuple(side.removeprefix("\ufeff") for side in expected[0])


def test_bytes_that_are_no_text_are_replaced_and_counted(read):
    pairs, num_invalid = read(b"\xff a\tb\nc\t\xe2\x82\n\xff\t\xff\n")
    assert pairs == [("\ufffd a", "b"), ("c", "\ufffd"), ("\ufffd", "\ufffd")]
    assert num_invalid == {"source": 2, "target": 2}
    rows = b'{"source": "\xff", "target": "b"}\n{"source": "a", "target": "\\ud800"}\n'
    pairs, num_invalid = read(rows, "jsonl")
    assert num_invalid == {"source": 1, "target": 1}
    assert "\ufffd" in pairs[0][0]
    assert "\ufffd" in pairs[1][1]


@pytest.mark.parametrize(
    ("form", "columns", "content", "problem"),
    [
        ("tsv", None, "a\tb\nc\n", ":2: the line has 1 column, but columns names 1 and 2"),
        ("tsv", ("en", "de"), "en\tde\nc\n", ":2: the line has 1 column, but columns names en and"),
        ("tsv", ("en", "fr"), "en\tde\n", ":1: no column is named 'fr'; its first line has the "),
        ("tsv", ("en", "de"), "en\tde\n", " is empty"),
        ("tsv", None, "", " is empty"),
        ("jsonl", None, '{"source": "a", "target": "b"}\n\n{"a"', ":3: the line is not JSON: "),
        ("jsonl", None, "[" * 100_000, ":1: the line is not JSON: it has too many levels"),
        ("jsonl", None, f'{{"source": {"1" * 9999}}}', ":1: the line is not JSON: it has too many"),
        ("jsonl", None, '["a", "b"]', ":1: the line must be a JSON object"),
        ("jsonl", None, '{"source": "a"}', ":1: the object has no key 'target'; its keys are 's"),
        (
            "jsonl",
            None,
            '{"t": {"en": "a"}}',
            ":1: the object has no key 'source'; its keys are 't.",
        ),
        ("jsonl", None, "{}", ":1: the object is empty."),
        (
            "jsonl",
            None,
            '{"source": null, "target": ""}',
            ":1: 'source' must be text, but is null.",
        ),
        (
            "jsonl",
            None,
            '{"source": "", "target": [1]}',
            ":1: 'target' must be text, but is a list or an object.",
        ),
    ],
)
def test_a_wrong_row_is_named_by_its_line(read, tmp_path, form, columns, content, problem):
    assert refusal(read, content, form, columns).startswith(f"{tmp_path}/text{problem}")


def test_a_wrong_row_far_behind_is_named_by_its_line(read, tmp_path):
    content = "en\tde\n" + "a\tb\n" * 4999 + "c\n"
    found = refusal(read, content, columns=("en", "de"))
    assert found.startswith(f"{tmp_path}/text:5001: the line has 1 column")


def test_links_are_those_of_the_pairs_and_not_of_the_header(read, tmp_path):
    links = tmp_path / "links"
    links.write_text("0-0\n0-0\n")
    pairs, _ = read("en\tde\na\tb\nc\td\n", columns=("en", "de"), alignments=links)
    assert pairs == [("a", "b"), ("c", "d")]
    found = refusal(read, "en\tde\na\tb\n", columns=("en", "de"), alignments=links)
    assert found.endswith("text has 1; line n of one must hold the links of pair n of the other.")
