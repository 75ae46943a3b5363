"""The figures of the part ``decoding`` as Markdown, with each target and whether it is met."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.benchmarks import targets
from tests.benchmarks.decoding.costs import LINES_OF_STARTING, START
from tests.benchmarks.decoding.part import TRANSLATOR
from tests.benchmarks.decoding.sample import BEAM_SIZE
from tests.benchmarks.targets import verdict

Figures = dict[str, Any]
EQUAL = "lines as our fp32"
WriteTable = Callable[[list[str], list[list[str]]], str]


def markdown(measured: Figures, kind: str, write_table: WriteTable) -> str:
    """Return one table for each shape and text, and one of the targets of this ``kind`` of CPU."""
    parts = []
    for name, figures in measured.items():
        parts.append(_of_text(name, figures, write_table))
        if "costs" in figures:  # records of before have none
            parts.append(_costs(name, figures["costs"], write_table))
    head = ["output tokens/s against", "", *measured]
    lines = [_target_line(target, measured) for target in targets.DECODING[kind]]
    reached = f"## Translating against the other engines\n\n{write_table(head, lines)}"
    return "\n\n".join([reached, *parts])


def _target_line(target: targets.DecodingTarget, measured: Figures) -> list[str]:
    ours, theirs = target.ours, f"{target.peer} {target.theirs}"
    wanted = f"to reach {target.least:g}" + (f" ({target.aim:g})" if target.aim else "")
    cells = []
    for name, figures in measured.items():
        rates = dict(_rates(figures))
        if target.shape != name.split()[0]:
            cells.append("")
        elif theirs in rates and f"{TRANSLATOR.name} {ours}" in rates:
            ratio = rates[f"{TRANSLATOR.name} {ours}"] / rates[theirs]
            cells.append(f"{ratio:.2f} {verdict(ratio >= target.least)}")
        else:
            cells.append("not run")
    return [f"{target.shape} {ours} / {theirs}", wanted, *cells]


def _rates(figures: Figures) -> Iterator[tuple[str, float]]:
    """Yield the rate of each engine and precision."""
    for toolkit, variants in figures["rows"].items():
        for variant, row in variants.items():
            if not variant.startswith("ceiling"):
                yield f"{toolkit} {variant.split()[0]}", row["rate"]


def _of_text(name: str, figures: Figures, write_table: WriteTable) -> str:
    ceilings = {
        variant.split()[1]: row["rate"]
        for variant, row in figures["rows"].get(TRANSLATOR.name, {}).items()
        if variant.startswith("ceiling")
    }
    lines = []
    for toolkit, variants in figures["rows"].items():
        for variant, row in variants.items():
            if variant.startswith("ceiling"):
                continue
            precision, _, setting = variant.partition(" ")
            compared = figures["outputs"][toolkit][variant]
            is_ours = toolkit == TRANSLATOR.name
            ceiling = ceilings.get(precision) if is_ours else None
            low, high = min(row["rates"]), max(row["rates"])
            lines.append(
                [
                    f"{toolkit} {precision}",
                    f"{row['rate']:,.0f} ({low:,.0f} to {high:,.0f})",
                    f"{row['cpu_rate']:,.0f}" if "cpu_rate" in row else "",  # new in the records
                    setting,
                    f"{row['rate'] / ceiling:.0%}" if ceiling else "",
                    f"{compared['bleu']:.2f}",
                    f"{compared['equal']:.1%}",
                ]
            )
    failures = figures["failures"].items()
    lines += [[name, "failed", "", reason, "", "", ""] for name, reason in failures]
    head = ["", "output tokens/s", "by CPU time", "best setting", "of ceiling", "BLEU", EQUAL]
    limits = ", ".join(f"{rate:,.0f} in {precision}" for precision, rate in ceilings.items())
    return (
        f"### {name}: {figures['lines']} lines of {figures['text']}\n\n{write_table(head, lines)}"
        f"\n\nBeam {BEAM_SIZE}, start-up excluded, {figures['rounds']} rounds; settings are "
        "processes x threads and batch size. By CPU time: output tokens in a second of all CPU "
        f"time of the engine's processes. The ceiling is the products alone: {limits}."
    )


def _costs(name: str, costs: Figures, write_table: WriteTable) -> str:
    shape, lines = name.split()[0], []
    limits = (targets.MAX_LATENCY.least, targets.MAX_TRANSLATING_MEMORY[shape])
    for engine in costs["seconds"]:
        toolkit, _, precision = engine.rpartition(" ")
        peer = f"{targets.CTRANSLATE2} {targets.OF_PEER.get(precision)}"
        cells = [f"{1000 * costs['seconds'][engine]:,.1f}", ""]
        memory = costs["bytes"].get(engine)
        cells += [f"{memory / 1e6:,.0f}" if memory is not None else "", ""]
        for column, figures, most in ((1, "seconds", limits[0]), (3, "bytes", limits[1])):
            is_ours = toolkit == TRANSLATOR.name
            if is_ours and {engine, peer} <= costs[figures].keys():
                ratio = costs[figures][engine] / costs[figures][peer]
                cells[column] = f"{ratio:.2f} {verdict(ratio <= most)}"
        lines.append([engine, *cells])
    torch_alone, one_line, one, two = (costs["starts"][name] for name in START)
    start, later = one_line / torch_alone, two - one
    head = [
        "",
        "ms of a sentence",
        f"of CTranslate2's, at most {limits[0]:g}",
        "MB",
        f"of CTranslate2's, at most {limits[1]:g}",
    ]
    return (
        f"### {name}: sentences alone, memory, starting\n\n{write_table(head, lines)}\n\n"
        "A sentence takes one thread or all, whichever is faster. Memory is that of one process, "
        "with all threads, after the lines, above `import torch`. "
        f"One line from the shell: {one_line:.2f} s, {start:.2f} times `import torch` "
        f"({verdict(start <= targets.MAX_START)}: at most {targets.MAX_START:g}). "
        f"{LINES_OF_STARTING} lines: one process {one:.2f} s, two {two:.2f} s "
        f"({verdict(later <= targets.MAX_SECONDS_LATER)}: at most {targets.MAX_SECONDS_LATER:g} s "
        "later)."
    )
