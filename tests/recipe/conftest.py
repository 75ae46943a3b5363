"""Recipes written for a test, and the reader's errors about them."""

import pytest

from nmt_cli.messages.errors import RecipeError
from nmt_cli.recipe.reading.reader import read_recipe


def problems_of(name_or_path, overrides=()):
    with pytest.raises(RecipeError) as caught:
        read_recipe(name_or_path, overrides)
    return str(caught.value).split("\n")


@pytest.fixture
def write(tmp_path):
    def write_recipe(text, name="r.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write_recipe
