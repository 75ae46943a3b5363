"""YAML without its surprises: what is kept as text, and what is refused before it is built."""

import pytest

from nmt_cli.recipe.reading import yaml_tree
from nmt_cli.recipe.reading.yaml_tree import MAX_DEPTH, MAX_VALUES, parse_yaml, write_yaml


def refusal(text):
    tree = parse_yaml(text, "r.yaml")
    assert not tree.readable
    assert tree.value is None
    return str(tree.findings[-1])


def test_every_scalar_is_text_or_none():
    text = "a: 1e-9\nb: no\nc: 017\nd: 12:30:45\ne: 2024-01-01\nf: [~, null, '~', '', yes]\ng:\n"
    assert parse_yaml(text, "r.yaml").value == {
        "a": "1e-9",
        "b": "no",
        "c": "017",
        "d": "12:30:45",
        "e": "2024-01-01",
        "f": [None, None, "~", "", "yes"],
        "g": None,
    }


def test_keys_stay_text_too():
    assert parse_yaml("{1: a, true: b, no: c, '<<': d}", "r.yaml").value == {
        "1": "a",
        "true": "b",
        "no": "c",
        "<<": "d",
    }


def test_each_value_knows_its_line():
    places = parse_yaml(
        "a:\n  - x\n  -\n    b: 1\n# comment\nc: |\n  text\nd: 1\n", "r.yaml"
    ).places
    lines = {path: place.line for path, place in places.items()}
    assert lines[("a",)] == 1
    assert lines[("a", 0)] == 2
    assert lines[("a", 1, "b")] == 4
    assert lines[("c",)] == 6
    assert lines[("d",)] == 8


def test_repeated_keys_are_found_at_every_level():
    tree = parse_yaml("a: 1\nb:\n  c: 1\n  'c': 2\na: 2\n", "r.yaml")
    assert list(map(str, tree.findings)) == [
        "r.yaml:4: b.c: is given twice, first on line 3",
        "r.yaml:5: a: is given twice, first on line 1",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system [id]", "1: tags (tag:yaml.org,2002:python/object/"),
        ("!!map {a: 1}", "1: tags ("),
        ("a: 1\nb: !x 2", "2: tags (!x) are not read"),
        ("a: &x 1\nb: *x", "1: anchors and aliases"),
        ("a: *x", "1: anchors and aliases"),
        ("<<: {a: 1}", "1: merge keys (<<) are not read; write the values out"),
        ("a: 1\n---\na: 2", "2: a second document"),
        ("? [a]\n: 1", "1: a key must be text"),
        ("? {a: 1}\n: 1", "1: a key must be text"),
        ("a:\n\tb: 1", "2: not YAML: a tab stands where"),
        ("a: 'x", "1: not YAML: found unexpected end of stream"),
        ("a: b: c", "1: not YAML: mapping values are not allowed here"),
        ("a: [1, 2", "1: not YAML: "),
        ("x: 1\na: \x07", "2: not YAML: the character U+0007 may not stand in it"),
        ('a: "\\ud800"', "1: half of a surrogate pair"),
        ('a: "\\UFFFFFFFF"', "1: not YAML: an escape names no character"),
        ('a: 1\nb: "x\n  \\UFFFFFFFF"', "3: not YAML: an escape names no character"),
        ("%YAML 2.0\n---\na: 1", "1: not YAML: found incompatible YAML document"),
    ],
)
def test_refused_in_one_line(text, message):
    assert refusal(text).startswith(f"r.yaml:{message}")
    assert "\n" not in refusal(text)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 500_000,
        "{a: " * 200_000,
        "- " * 400_000,
        "? " * 400_000,
        "- x\n" * 250_000,
        "k: [" + "a," * 490_000,
        "a: [" + "{x: y}," * 50_000 + "]",
        "!" * 900_000,
        "&" * 900_000,
        "%TAG ! x\n" * 90_000,
        '"\\\n' * 150_000,
        "a: &a [x,x]\n" + "".join(f"{i}: &b{i} [*a,*a]\n" for i in range(9)),
        "a: &a {x: 1}\n" + "".join(f"b{i}: &b{i}\n  <<: [*a, *a]\n" for i in range(30)),
    ],
)
def test_bombs_are_refused(text, monkeypatch):
    monkeypatch.setattr(yaml_tree, "MAX_VALUES", MAX_VALUES // 10)  # is reached sooner
    assert len(refusal(text)) < 300


def test_depth_has_a_limit():
    assert parse_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH, "r.yaml").readable
    assert "20 levels" in refusal("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("text", ["\x85", "a\u2028b", "\u2029", "a\n\x85 b"])
def test_other_line_breaks_are_read_back_as_they_were_written(text):
    assert parse_yaml(write_yaml({"a": text}), "r.yaml").value == {"a": text}


def test_written_yaml_has_no_aliases_and_short_lists_on_one_line():
    shared = [1, 2]
    assert write_yaml({"a": shared, "b": shared}) == "a: [1, 2]\nb: [1, 2]\n"
