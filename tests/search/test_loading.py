"""Models are loaded for a CPU by one read of their weights, which also checks them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.file_names import CONFIG, MANIFEST, WEIGHTS
from nmt_cli.messages.errors import DamagedError
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.loading import load_models
from tests.fake_models import packed_model, save_as_model

LARGE = {"d_model": 200, "d_ff": 4_000}  # 6 MB, so that other files count for little


@pytest.fixture
def new_model(toy, tmp_path):
    def write(change=lambda model: None, **sizes):
        recipe = toy.recipe
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=sizes)})
        torch.manual_seed(1)
        model = Transformer(recipe.model, toy.corpus.tokenizer.size)
        with torch.no_grad():
            change(model)
        with directory_appearing_whole(tmp_path / "model", replace=True) as partial:
            partial.manifest["kind"] = "average"
            save_as_model(partial, recipe, toy.corpus.tokenizer, model)
        return model

    return write


def bytes_read():
    """Return how many bytes this process has read from files."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_weights_are_mapped(library, new_model, tmp_path, precision):
    model = new_model(**LARGE)
    load_models(tmp_path / "model", (), "cpu", precision)  # and all that it imports
    size, before = (tmp_path / "model" / WEIGHTS).stat().st_size, bytes_read()
    (member,) = load_models(tmp_path / "model", (), "cpu", precision).members
    assert bytes_read() - before < 0.1 * size
    expected = packed_model(model, library, precision)._memory
    assert isinstance(member.model, PackedModel)
    assert np.array_equal(member.model._memory, expected)


@pytest.mark.parametrize("place", [3, 20, 0.5, -1])
@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, MANIFEST])
def test_a_changed_file_is_named(library, new_model, tmp_path, name, place):
    """Whatever its changed byte means, such as the length of a header or the shape of a weight."""
    del library
    new_model()
    path = tmp_path / "model" / name
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if place == 0.5 else place] ^= 0x11
    path.write_bytes(content)
    wanted = rf"{name} (has changed since it was written|is damaged|has the format_version)"
    with pytest.raises(DamagedError, match=wanted) as error:
        load_models(tmp_path / "model", (), "cpu", "fp32")
    assert "Copy the folder again" in str(error.value)


def test_weights_that_are_not_finite_are_refused(library, new_model, tmp_path):
    del library
    new_model(lambda model: model.output_weight[2].fill_(math.nan))
    with pytest.raises(DamagedError, match=r"output_weight is not finite\."):
        load_models(tmp_path / "model", (), "cpu", "fp32")
