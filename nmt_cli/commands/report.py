"""``nmt-cli report``: draws the figures of one run or several."""

from collections.abc import Sequence
from pathlib import Path

from nmt_cli.commands.experiments.run_details import details_of
from nmt_cli.files.atomic_files import (
    directory_appearing_whole,
    file_appearing_whole,
    refuse_file,
    sha256,
)
from nmt_cli.files.file_names import DISTILLATION, MANIFEST, METRICS, PAGE, SCORES, STUDENT_TABLE
from nmt_cli.files.folders import REPORT, refuse_output
from nmt_cli.files.locks import claimed
from nmt_cli.files.output_streams import is_stream
from nmt_cli.messages import logs
from nmt_cli.messages.extras import importing
from nmt_cli.messages.figures import counted
from nmt_cli.report.run_history import read_runs

DRAWN = (Path(METRICS), Path(SCORES) / MANIFEST, Path(DISTILLATION) / STUDENT_TABLE / MANIFEST)
PAGE_SUFFIXES = {".html", ".htm"}


def drawn_from(run_dirs: Sequence[Path]) -> list[dict[str, str]]:
    """Return what the report of these runs depends on."""
    return [
        {str(name): sha256(run_dir / name) for name in DRAWN if (run_dir / name).exists()}
        for run_dir in run_dirs
    ]


def run(run_dirs: Sequence[Path], *, output: Path | None = None, force: bool = False) -> None:
    """Write a page and its charts as PNG files to the directory ``output``, or the page alone.

    Raises UserError if a run cannot be read, if matplotlib is missing, or if ``output`` exists
    without ``force`` or is not a report.
    """
    with importing("matplotlib", "report draws"):
        from nmt_cli.report.drawing import draw_charts
        from nmt_cli.report.page import as_html
    made_from, runs = drawn_from(run_dirs), read_runs(run_dirs)
    output = output or (run_dirs[0] / REPORT if len(run_dirs) == 1 else Path(REPORT))
    is_page = output.suffix in PAGE_SUFFIXES or is_stream(output)
    if is_page:
        refuse_file(output, replace=force)
    else:
        refuse_output(output, REPORT, "a report", force=force)
    with claimed(output, "--output"):
        charts = draw_charts(runs)
        details = details_of(run_dirs[0]) if len(runs) == 1 else None
        page = as_html(runs, charts, details).encode()
        if is_page:
            with file_appearing_whole(output, replace=force) as stream:
                stream.write(page)
        else:
            with directory_appearing_whole(output, replace=force) as partial:
                labels = [run.label for run in runs]
                partial.manifest.update(kind=REPORT, runs=labels, made_from=made_from)
                (partial.path / PAGE).write_bytes(page)
                for chart in charts:
                    (partial.path / f"{chart.name}.png").write_bytes(chart.png)
    written = output if is_page else output / PAGE
    drawn = f"{counted(len(charts), 'chart')} of {', '.join(run.label for run in runs)}"
    logs.info(f"Wrote {written} with {drawn}.")
