"""Files of limits that cannot be read are not called recipes."""

import pytest

from nmt_cli.messages.errors import RecipeError
from nmt_cli.recipe.limits import read_limits


def problem_of(path):
    with pytest.raises(RecipeError) as caught:
        read_limits(path, {})
    return str(caught.value).removeprefix(str(path))


def test_a_folder_is_refused(tmp_path):
    assert problem_of(tmp_path) == " is a directory; name a limits file in it."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#" * 1_000_001, " is larger than 1,000,000 bytes; it is not a limits file."),
        ("suites: 0.1\n---\nsuites: 0.1\n", ":2: a second document (---) begins; only one is read"),
        ("a: [" + "1, " * 20_001 + "]", ":1: more than 20,000 values, the most that are read"),
        ("- suites\n", ":1: must have keys and values, but is a list"),
        ("\tsuites: 0.1\n", ":1: not YAML: a tab stands where YAML has only spaces; write spaces"),
        ("suites: 0.1\nsuites: 0.2\n", ":2: suites: is given twice, first on line 1"),
    ],
)
def test_other_text_is_refused(tmp_path, text, problem):
    path = tmp_path / "limits.yaml"
    path.write_text(text)
    assert problem_of(path) == problem
