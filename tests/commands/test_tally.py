"""What is counted of the lines that are translated."""

from nmt_cli.commands.lines.tally import Tally
from nmt_cli.files.lines import Line
from nmt_cli.messages import logs
from nmt_cli.translating.interface.translation import Translation


def test_empty_translations_are_counted_but_not_those_of_blank_lines(capsys):
    logs.configure(quiet=False)
    tally = Tally(0)
    for text, translation in (
        ("A dog.", Translation(text="Ein Hund.", score=-1.0)),
        ("Hm.", Translation(score=-2.0)),
        ("", Translation()),
        ("Hm?", Translation(text=" ", score=-2.0)),
    ):
        tally.count(Line(text, False, True, 0, False), translation)
    tally.report()
    assert "Warning: the translation is empty: 2 lines (2, 4)." in capsys.readouterr().err
