"""``nmt-cli report``: the figures of one run or several, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nmt_cli import logs
from nmt_cli.atomic_files import directory_appearing_whole, file_appearing_whole, read_manifest
from nmt_cli.errors import DamagedError, UserError
from nmt_cli.report.run_history import read_runs

REPORT = "report"
PAGE = "index.html"
PAGE_SUFFIXES = {".html", ".htm"}


def run(run_dirs: Sequence[Path], *, output: Path | None = None, force: bool = False) -> None:
    """Write a page and its charts as PNG files to the directory ``output``, or the page alone.

    Raises UserError where a run cannot be read, or matplotlib is missing.
    """
    try:
        from nmt_cli.report.charts import draw_charts
        from nmt_cli.report.page import as_html
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise UserError(
            "report draws with matplotlib, which is not installed; "
            "run: pip install 'nmt-cli[report]'"
        ) from None
    output = output or (run_dirs[0] / REPORT if len(run_dirs) == 1 else Path(REPORT))
    _refuse_output(output, force=force)
    runs = read_runs(run_dirs)
    charts = draw_charts(runs)
    page = as_html(runs, charts).encode()
    if output.suffix in PAGE_SUFFIXES:
        with file_appearing_whole(output, replace=force) as stream:
            stream.write(page)
        written = output
    else:
        with directory_appearing_whole(output, replace=force) as partial:
            partial.facts.update(kind=REPORT, runs=[run.label for run in runs])
            (partial.path / PAGE).write_bytes(page)
            for chart, png in charts.items():
                (partial.path / f"{chart.name}.png").write_bytes(png)
        written = output / PAGE
    logs.info(f"Wrote {written} with {len(charts)} charts of {', '.join(r.label for r in runs)}.")


def _refuse_output(output: Path, *, force: bool) -> None:
    """Refuse before the work what would be refused after it, and what --force shall not remove."""
    if not output.exists():
        return
    if not force:
        raise UserError(f"{output} already exists; add --force to replace it.")
    if output.is_dir() and not _is_report(output):
        raise UserError(f"{output} is not a report, so --force does not replace it.")


def _is_report(directory: Path) -> bool:
    try:
        return read_manifest(directory).get("kind") == REPORT
    except DamagedError:
        return False
