import io
import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from nmt_cli.report.charts import all_charts, charts_of
from nmt_cli.report.drawing import draw_charts, figure_of, style_of
from nmt_cli.report.run_history import read_runs
from tests.fake_runs import step_record, validation_record, write_run

BY_NAME = {
    chart.name: chart
    for whole in all_charts([None])
    for chart in (
        whole,
        *(whole._replace(title=title, curves={title: of}) for title, of in whole.curves.items()),
    )
}
MEASURED = ["validation_loss", "validation_perplexity", "validation_bleu"]
TRAINED = ["training_loss", "learning_rate", "speed"]


@pytest.fixture
def runs(tmp_path):
    """Write runs of these records and read them."""

    def write_and_read(*all_records, names=None):
        names = names or [f"run{i}" for i in range(len(all_records))]
        return read_runs(
            [
                write_run(tmp_path / name, records)
                for name, records in zip(names, all_records, strict=True)
            ]
        )

    return write_and_read


def long_run(num_steps, every=10):
    for step in range(1, num_steps + 1):
        yield step_record(step)
        if step % every == 0:
            yield validation_record(step, 3 + 50 / step, 40 - 100 / step)


def long_run_with(figure, num_steps, every):
    """Yield the records of a run that has another figure in place of BLEU."""
    for record in long_run(num_steps, every):
        if (figures := record.get("validation")) is not None:
            figures[figure] = figures.pop("bleu")
        yield record


def drawn(chart_name, runs):
    """Return the axes after drawing, which is when ticks get their labels."""
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = figure_of(BY_NAME[chart_name], runs)
        figure.canvas.draw()
    return figure.axes[0]


def tick_labels(axis):
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if tick.label1.get_text() and low <= tick.get_loc() <= high
    ]


def test_only_what_was_measured_is_drawn(runs):
    trained, measured, both = runs(
        [step_record(1)], [validation_record(5, 3.0, 7.0)], list(long_run(30))
    )
    merged = {"loss", *MEASURED[1:], *TRAINED[1:]}
    for run, names in ((trained, TRAINED), (measured, MEASURED), (both, merged)):
        assert {chart.name for chart in charts_of([run])} == set(names)
    assert {chart.name for chart in charts_of([both, trained])} == {*MEASURED, *TRAINED}
    assert "validation_bleu" not in {
        chart.name for chart in charts_of(runs([validation_record(5, 3.0)], names=["loss only"]))
    }


def test_lines_hold_the_figures(runs):
    found = runs(list(long_run(40)))
    (line, ring) = drawn("validation_bleu", found).lines
    assert line.get_xdata().tolist() == [10, 20, 30, 40]
    assert line.get_ydata().tolist() == [30, 35, 40 - 100 / 30, 37.5]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (40, 37.5)
    (speed, smooth) = drawn("speed", found).lines
    assert set(speed.get_ydata()) == {800}
    assert np.allclose(smooth.get_ydata(), 800)
    raw, smooth = drawn("training_loss", found).lines
    assert raw.get_ydata().tolist() == [2 + 6 / step for step in range(1, 41)]


def test_the_best_loss_is_the_lowest(runs):
    records = [validation_record(step, loss) for step, loss in ((1, 5.0), (2, 3.0), (3, 4.0))]
    _, ring = drawn("validation_loss", runs(records)).lines
    assert ring.get_xdata()[0] == 2


def test_missing_figures_leave_a_gap_and_the_rest(runs):
    records = [step_record(s, loss=None if 5 <= s <= 8 else 3.0) for s in range(1, 21)]
    _, smooth = drawn("training_loss", runs(records)).lines
    assert smooth.get_xdata().tolist() == [*range(1, 5), *range(9, 21)]


def test_steps_have_separators_and_a_unit(runs):
    axes = drawn("training_loss", runs(list(long_run(3000, every=1000))))
    assert axes.get_xlabel() == "step"
    assert axes.get_ylabel() == "nats per target token"
    assert "1,000" in [label.get_text() for label in tick_labels(axes.xaxis)]


def test_runs_of_very_different_lengths_share_a_logarithmic_axis(runs):
    axes = drawn("training_loss", runs(list(long_run(2000)), [step_record(s) for s in (1, 2)]))
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "step (logarithmic)"
    axes = drawn("training_loss", runs(list(long_run(300)), list(long_run(100)), names=["a", "b"]))
    assert axes.get_xscale() == "linear"


@pytest.mark.parametrize(
    ("losses", "scale"), [([90.0, 30.0, 3.0], "log"), ([3.4, 3.2, 3.1], "linear")]
)
def test_a_wide_range_of_perplexity_is_logarithmic(runs, losses, scale):
    axes = drawn(
        "validation_perplexity",
        runs([validation_record(i + 1, loss) for i, loss in enumerate(losses)]),
    )
    assert axes.get_yscale() == scale
    assert ("(logarithmic)" in axes.get_ylabel()) == (scale == "log")
    for label in tick_labels(axes.yaxis):
        assert label.get_text().replace(",", "").replace(".", "").isdecimal()


@pytest.mark.parametrize(
    "perplexities",
    [
        [8.0, 1e30, None, 1e304],  # null is infinite
        [8.0, 1e5, 3e20],
        [9e99, 8e99],
        [1e15, 2e15],
    ],
)
def test_what_diverged_is_drawn_with_short_labels(runs, perplexities):
    records = [validation_record(10 * i, 17_918.0) for i in range(1, len(perplexities) + 1)]
    for record, perplexity in zip(records, perplexities, strict=True):
        record["validation"]["perplexity"] = perplexity
    axes = drawn("validation_perplexity", runs(records))
    shown = [p for p in perplexities if p is not None and p < 1e100]
    assert axes.lines[0].get_ydata().tolist() == shown
    labels = [label.get_text() for label in tick_labels(axes.yaxis)]
    assert len(labels) > 1
    assert max(map(len, labels)) <= len("100,000,000")


def test_a_perplexity_beyond_all_drawing_has_no_chart(runs):
    record = validation_record(10, 17_918.0)
    record["validation"]["perplexity"] = 1e304
    assert {chart.name for chart in charts_of(runs([record]))} == {"validation_loss"}


def test_a_spike_does_not_press_the_rest_flat(runs):
    records = [step_record(s, loss=3.0) for s in range(1, 1001)]
    records[0]["loss"], records[500]["loss"] = 9.0, 500.0
    bottom, top = drawn("training_loss", runs(records)).get_ylim()
    assert bottom < 3
    assert 9 < top < 100


def test_names_that_matplotlib_would_read_as_its_own_are_shown(runs):
    names = ["_hidden", "$x^2$", "a" * 100]
    axes = drawn("learning_rate", runs(*[[step_record(1), step_record(2)]] * 3, names=names))
    shown = [text.get_text().strip() for text in axes.figure.legends[0].get_texts()]
    assert shown[:2] == names[:2]
    assert len(shown[2]) == 40


@pytest.mark.parametrize(
    ("chart_name", "num_runs"), [*((name, 8) for name in BY_NAME), ("speed", 1)]
)
def test_no_text_overlaps_or_is_cut(runs, num_runs, chart_name):
    names = [f"a-run-with-a-name-of-some-length-{i}" for i in range(num_runs)]
    figure = {"validation_f1": "parseval", "validation_script": "script"}.get(chart_name, "bleu")
    records = list(long_run_with(figure, 1200, 100))
    axes = drawn(chart_name, runs(*[records] * num_runs, names=names))
    figure = axes.figure
    texts = [*tick_labels(axes.xaxis), *tick_labels(axes.yaxis), axes.xaxis.label, axes.title]
    texts += [axes.yaxis.label, *[t for legend in figure.legends for t in legend.get_texts()]]
    boxes = [text.get_window_extent() for text in texts]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    assert min(text.get_fontsize() for text in texts) >= 10  # of 390 points of width


def with_stages(*starts, num_steps=300):
    """Yield the records of a run whose stages after the first begin after these steps."""
    for record in long_run(num_steps):
        stage = 1 + sum(record["step"] > start for start in starts)
        yield record if "validation" in record else {**record, "stage": stage}


def test_the_beginnings_of_stages_are_marked_by_name(runs):
    (run,) = runs(list(with_stages(100, 295)))
    for name in ("training_loss", "validation_bleu"):
        axes = drawn(name, [run])
        labels = {text.get_text(): text.get_position()[0] for text in axes.texts}
        assert labels == {"stage 2": 100, "stage 3": 295}
        marks = [line.get_xdata() for line in axes.lines if line.get_linestyle() == ":"]
        assert marks == [[100, 100], [295, 295]]
        for text in axes.texts:
            box, inside = text.get_window_extent(), axes.bbox
            assert inside.x0 <= box.x0
            assert box.x1 <= inside.x1
            assert inside.y0 <= box.y0
            assert box.y1 <= inside.y1
    one, other, plain = runs(
        list(with_stages(100)), list(with_stages(100)), list(long_run(300)), names="abc"
    )
    axes = drawn("training_loss", [one, other, plain])
    assert [text.get_text() for text in axes.texts] == ["stage 2"]
    assert not drawn("training_loss", [plain]).texts


def test_a_stage_before_the_first_point_does_not_stretch_the_axis(runs):
    (run,) = runs(
        [*with_stages(2, num_steps=9), validation_record(5000, 3), validation_record(6000, 2)]
    )
    assert drawn("validation_loss", [run]).get_xlim()[0] > 4000


def test_colours_differ_also_to_the_colour_blind():
    """Machado et al. (2009): how deuteranopes and protanopes see sRGB."""
    deuteranope = [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    protanope = [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    colours = np.array([to_rgb(style_of(i)[0]) for i in range(8)])
    for seen in (colours, colours @ np.transpose(deuteranope), colours @ np.transpose(protanope)):
        for one, other in itertools.combinations(seen, 2):
            assert np.abs(one - other).max() > 0.15


def test_thirty_runs_have_styles_of_their_own():
    assert len({style_of(i) for i in range(32)}) == 32


def test_pictures_are_twice_800_wide_and_the_same_each_time(runs, monkeypatch):
    found = runs([step_record(1), validation_record(1, 3.0)])
    first = draw_charts(found)
    monkeypatch.setitem(
        matplotlib.rcParams, "axes.facecolor", "black"
    )  # as a user's matplotlibrc may
    assert draw_charts(found) == first
    for drawing in first:
        assert Image.open(io.BytesIO(drawing.png)).width == 1600
        assert "stroke-opacity" not in drawing.html  # it would add up in a browser
