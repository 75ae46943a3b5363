import numpy as np
import pytest

from nmt_cli.corpus.binarized import HEADER
from nmt_cli.corpus.lexicon import Lexicon
from nmt_cli.messages.errors import DamagedError

BY_SOURCE = [[7, 3], [], [3, 9, 1]]


def written(path, lexicon):
    path.write_bytes(lexicon.as_bytes())
    return path


@pytest.mark.parametrize("size", [10, 70_000])
def test_a_lexicon_is_what_was_written(tmp_path, size):
    path = written(tmp_path / "lexicon", Lexicon.of([5, 4], BY_SOURCE, size))
    itemsize = 2 if size == 10 else 4
    assert path.stat().st_size == HEADER.size + itemsize * (4 + 2 + 5)
    lexicon = Lexicon.read(path, 3, size)
    assert lexicon.frequent.tolist() == [4, 5]
    assert [lexicon.targets_of(n).tolist() for n in range(3)] == [[3, 7], [], [1, 3, 9]]
    assert lexicon.candidates([2, 0, 2]).tolist() == [1, 3, 4, 5, 7, 9]
    assert lexicon.candidates([]).tolist() == [4, 5]


def test_without_any_list(tmp_path):
    path = written(tmp_path / "lexicon", Lexicon.of([], [[], []], 5))
    assert Lexicon.read(path, 2, 5).candidates([0, 1]).tolist() == []


def test_a_damaged_file_is_refused(tmp_path):
    path = written(tmp_path / "lexicon", Lexicon.of([5, 4], BY_SOURCE, 10))
    for source_size in (2, 4, 50):
        with pytest.raises(
            DamagedError, match=f"11 numbers, which are not lists for {source_size}"
        ):
            Lexicon.read(path, source_size, 10)
    with pytest.raises(DamagedError, match="it names piece 9, but the target has 9 pieces"):
        Lexicon.read(path, 3, 9)
    content = path.read_bytes()
    for damaged in (b"", content[:40], content[:-1], content + b"\0\0", b"x" + content[1:]):
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=str(path)):
            Lexicon.read(path, 3, 10)
    numbers = np.frombuffer(content, np.uint16, offset=HEADER.size).copy()
    numbers[0] += 1
    path.write_bytes(content[: HEADER.size] + numbers.tobytes())
    with pytest.raises(DamagedError, match="which are not lists"):
        Lexicon.read(path, 3, 10)
