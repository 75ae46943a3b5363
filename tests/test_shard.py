"""How users name a part of a text."""

import pytest

from nmt_cli.corpus.text.shard_text import Shard, parse_shard


def test_a_part_is_read():
    assert parse_shard("3/16") == Shard(3, 16)
    assert str(parse_shard("16/16")) == "16/16"


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "0/0", "-1/4", "1/4/2", "a/b", "٣/٤"])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a part such as 3/16, from 1/16 to 16/16\."):
        parse_shard(text)
