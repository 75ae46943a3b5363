import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import report
from nmt_cli.files.atomic_files import verify
from nmt_cli.files.locks import claimed
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.report import charts, drawing
from tests.fake_runs import RECIPE, step_record, validation_record, write_run

CHARTS = {"loss", "validation_perplexity", "validation_bleu", "learning_rate", "speed"}


@pytest.fixture(autouse=True)
def _small_pictures_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drawing, "PIXELS", 160)  # is drawn sooner
    logs.configure(quiet=True)


@pytest.fixture
def one_chart(monkeypatch):
    """Draw the first chart only, where another thing than the charts is looked at."""
    all_charts = charts.all_charts
    monkeypatch.setattr(charts, "all_charts", lambda sets: all_charts(sets)[-1:])


@pytest.fixture
def two_runs(tmp_path):
    paths = []
    for name, dropout in (("one", 0.1), ("<two>", 0.3)):
        records = [step_record(s) for s in range(1, 1201)] + [validation_record(100, 3.25, 20.5)]
        path = write_run(tmp_path / name, records)
        (path / "recipe.yaml").write_text(RECIPE + f"model: {{dropout: {dropout}}}\n")
        session = {"device": "cuda:0", "precision": "bf16", "ranks": 8}
        (path / "sessions.jsonl").write_text(json.dumps(session) + "\n")
        paths.append(path)
    return paths


class Page(HTMLParser):
    """What a browser would show and fetch."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.charts, self.fetched, self.open_tags, self.text = [], [], [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "svg":
            self.charts.append(attributes["aria-label"])
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag != "meta":
            self.open_tags.append(tag)
        links = [v for k, v in attributes.items() if k in {"src", "href", "xlink:href"}]
        self.fetched += [link for link in links if not link.startswith("#")]  # within the page

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.rows and {"td", "th"} & set(self.open_tags):
            self.rows[-1][-1] += data


def page_of(path):
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open_tags == []
    return page


def test_a_run_gets_its_report(two_runs):
    report.run(two_runs[:1])
    directory = two_runs[0] / "report"
    assert {path.stem for path in directory.glob("*.png")} == CHARTS
    assert verify(directory)["kind"] == "report"
    assert len(page_of(directory / "index.html").charts) == len(CHARTS)


def test_a_page_needs_nothing_else(two_runs, tmp_path):
    report.run(two_runs, output=tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    assert page.fetched == []
    assert set(re.findall(r"url\((.)", (tmp_path / "page.html").read_text())) == {"#"}
    assert not (tmp_path / "report").exists()


@pytest.mark.usefixtures("one_chart")
def test_runs_stand_side_by_side(two_runs, tmp_path):
    report.run(two_runs)
    rows = {row[0]: row[1:] for row in page_of(tmp_path / "report/index.html").rows}
    assert rows[""] == ["one", "<two>"]
    assert rows["steps"] == ["1,200 of 100,000"] * 2
    assert rows["target tokens"] == ["480,000"] * 2
    assert rows["time in steps"] == ["0 h 10 min"] * 2
    assert rows["target tokens per second"] == ["800"] * 2
    assert rows["waiting for data"] == ["0.2%"] * 2
    assert rows["best validation loss"] == ["3.2500 (step 100)"] * 2
    assert rows["best validation BLEU"] == ["20.50 (step 100)"] * 2
    assert rows["device"] == ["8 x cuda:0, bf16"] * 2
    assert rows["model.dropout"] == ["0.1", "0.3"]
    assert "parameters" not in rows  # no checkpoint yet
    assert "model.num_heads" not in rows  # the same in both


@pytest.mark.usefixtures("one_chart")
def test_a_run_without_a_recipe_stands_beside_others(two_runs, tmp_path):
    unknown = write_run(tmp_path / "unknown", [step_record(1)])
    (unknown / "recipe.yaml").unlink()
    report.run([unknown, *two_runs])
    rows = {row[0]: row[1:] for row in page_of(tmp_path / "report/index.html").rows}
    assert rows["model.dropout"] == ["–", "0.1", "0.3"]
    assert rows["steps"][0] == "1"
    assert rows["best validation loss"][0] == "–"


def test_the_same_figures_give_the_same_bytes(two_runs, tmp_path):
    for name in ("first.html", "second.html"):
        report.run(two_runs, output=tmp_path / name)
    assert (tmp_path / "first.html").read_bytes() == (tmp_path / "second.html").read_bytes()


@pytest.mark.usefixtures("one_chart")
def test_a_report_is_replaced_with_force_only(two_runs):
    page = two_runs[0] / "report/index.html"
    report.run(two_runs[:1])
    before = page.read_bytes()
    with (two_runs[0] / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps(step_record(1300)) + "\n")
    with pytest.raises(UserError, match="add --force"):
        report.run(two_runs[:1])
    assert page.read_bytes() == before
    report.run(two_runs[:1], force=True)
    assert "1,300 of" in page.read_text()


@pytest.mark.parametrize("name", ["notes", "one", "page.html"])
def test_force_replaces_nothing_but_a_report(two_runs, tmp_path, name):
    for folder in ("notes", "page.html"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "thesis.tex").write_text("years of work")
    message = (
        "is a directory; give" if name == "page.html" else "and is not a report; choose another"
    )
    with pytest.raises(UserError, match=message):
        report.run(two_runs, output=tmp_path / name, force=True)
    assert (tmp_path / "notes/thesis.tex").exists()
    assert (tmp_path / "one/metrics.jsonl").exists()


def test_force_is_not_proposed_for_what_is_no_report(two_runs, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").touch()
    with pytest.raises(UserError) as caught:
        report.run(two_runs, output=tmp_path / "notes")
    assert str(caught.value) == (
        f"{tmp_path / 'notes'} exists and is not a report; choose another --output."
    )


@pytest.mark.usefixtures("one_chart")
def test_a_second_report_into_the_same_folder_is_refused(two_runs):
    output = two_runs[0] / "report"
    with claimed(output, "--output"), pytest.raises(UserError, match="report is in use: process"):
        report.run(two_runs[:1])
    report.run(two_runs[:1], output=Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
    assert not output.exists()


def test_the_run_that_was_meant_is_named(two_runs):
    one, two = two_runs
    with pytest.raises(UserError) as caught:
        report.run([one.parent])
    assert str(caught.value) == f"{one.parent} holds runs; give one of them: {two}, {one}."


def test_without_matplotlib_the_way_to_get_it_is_named(two_runs, monkeypatch):
    for module in [name for name in sys.modules if re.match(r"nmt_cli\.report|matplotlib", name)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(cli.main, ["report", str(two_runs[0])])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert f"{sys.executable} -m pip install matplotlib" in result.stderr


def test_what_was_written_is_logged_on_stderr(two_runs):
    result = CliRunner().invoke(cli.main, ["report", str(two_runs[0])])
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "one/report/index.html with 5 charts" in result.stderr


def test_a_run_is_needed():
    assert CliRunner().invoke(cli.main, ["report"]).exit_code == 2
