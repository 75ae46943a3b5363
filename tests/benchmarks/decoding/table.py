"""The figures of the part ``decoding`` as Markdown, with each target and whether it is met."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.benchmarks import targets
from tests.benchmarks.decoding.part import TRANSLATOR
from tests.benchmarks.decoding.sample import BEAM_SIZE
from tests.benchmarks.targets import verdict

Figures = dict[str, Any]
WriteTable = Callable[[list[str], list[list[str]]], str]


def markdown(measured: Figures, kind: str, write_table: WriteTable) -> str:
    """Return one table for each shape and text, and one of the targets of this ``kind`` of CPU."""
    parts = [_of_text(name, figures, write_table) for name, figures in measured.items()]
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
        elif f"{TRANSLATOR.name} {ours}" in rates and theirs in rates:
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
            ceiling = ceilings.get(precision) if toolkit == TRANSLATOR.name else None
            low, high = min(row["rates"]), max(row["rates"])
            lines.append(
                [
                    f"{toolkit} {precision}",
                    f"{row['rate']:,.0f} ({low:,.0f} to {high:,.0f})",
                    setting,
                    f"{row['rate'] / ceiling:.0%}" if ceiling else "",
                    f"{compared['bleu']:.2f}",
                    f"{compared['equal']:.1%}",
                ]
            )
    lines += [[name, "failed", reason, "", "", ""] for name, reason in figures["failures"].items()]
    head = ["", "output tokens/s", "best setting", "of ceiling", "BLEU", "lines as our fp32"]
    limits = ", ".join(f"{rate:,.0f} in {precision}" for precision, rate in ceilings.items())
    return (
        f"### {name}: {figures['lines']} lines of {figures['text']}\n\n{write_table(head, lines)}"
        f"\n\nBeam {BEAM_SIZE}, start-up excluded, {figures['rounds']} rounds; settings are "
        f"processes x threads and batch size. The ceiling is the products alone: {limits}."
    )
