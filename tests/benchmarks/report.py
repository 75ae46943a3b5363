"""A record as Markdown: tables of figures, and beside each target whether it is met."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from tests.benchmarks import commands, targets
from tests.benchmarks.decoding import table as decoding_table
from tests.benchmarks.memory_of_a_step import Peak, memory_at
from tests.benchmarks.processes import EOLE, HUGGING_FACE, OURS, PEERS, TORCH
from tests.benchmarks.serving import part as serving
from tests.benchmarks.shapes import DROPOUT, PRECISIONS, SHAPES
from tests.benchmarks.targets import verdict

GB, MB = 1e9, 1e6
PLAIN = tuple(peer.name for peer in (HUGGING_FACE, EOLE, TORCH))
ALL_PEERS = tuple(peer.name for peer in PEERS)
# The targets were set against the first. The others show whether we are the fastest of all.
OPPONENTS = {
    "Hugging Face": (HUGGING_FACE.name,),
    "the best plain loop": PLAIN,
}

Record = dict[str, Any]


def markdown(record: Record) -> str:
    """Return the whole record as Markdown."""
    parts = [_head(record)]
    if "speed" in record:
        parts += [_targets(record), *map(_speed, record["speed"], record["speed"].values())]
    if record.get("commands"):
        parts.append(commands.markdown(record["commands"], table))
    if record.get("decoding"):
        kind = targets.kind_of(record["hardware"]["flag"])
        parts.append(decoding_table.markdown(record["decoding"], kind, table))
    if record.get("serving"):
        parts.append(serving.markdown(record["serving"], table))
    parts_below = (
        ("kernels", _kernels),
        ("waiting", _waiting),
        ("memory", _memory),
        ("loss", _loss),
        ("data", _data),
    )
    for part, write in parts_below:
        if record.get(part):
            parts.append(write(record[part]))
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def best_peer(rows: Record, precision: str, names: Sequence[str]) -> tuple[str, float] | None:
    """Return the fastest of these peers and its rate; None where none ran."""
    rates = [(rows[n][precision]["rate"], n) for n in names if precision in rows.get(n, {})]
    if not rates:
        return None
    rate, name = max(rates)
    return name, rate


def ratio_to_best(measured: Record, precision: str, names: Sequence[str]) -> float | None:
    """Return our rate over that of the fastest of these peers; None where either did not run."""
    rows = measured["rows"]
    best = best_peer(rows, precision, names)
    ours = rows.get(OURS.name, {}).get(precision)
    return ours["rate"] / best[1] if best and ours else None


def _head(record: Record) -> str:
    hardware = record["hardware"]
    machine = hardware["gpu"] or f"{hardware['cpu']} ({hardware['flag']})"
    warning = "**A trial of a few small steps: no figure counts.** " if record["is_quick"] else ""
    return (
        f"# {record['date']}, {machine}\n\n{warning}"
        f"{hardware['cores']} cores, {record['threads']} threads, "
        f"{hardware['memory'] / GB:.0f} GB of memory, torch {record['torch']}. "
        f"Dropout {DROPOUT}; rates are real target tokens a second, the median of rounds in which "
        "every toolkit trains on the same batches in turn. Absolute figures differ between "
        "machines and between days: compare only within a table."
    )


def _targets(record: Record) -> str:
    title = "## Speed against the best Python peer of the same run\n\n"
    if record["hardware"]["gpu"]:
        return title + "The targets are for CPUs; no peer runs on a GPU here."
    here, rows = targets.kind_of(record["hardware"]["flag"]), []
    for kind, wanted in targets.SPEED.items():
        rows.append(
            [f"{kind}: to reach (aim)", *(f"{t.least:g} ({t.aim:g})" for t in wanted.values())]
        )
        if kind != here:
            rows.append([f"{kind}: reached", *["not run"] * len(wanted)])
            continue
        for label, names in OPPONENTS.items():
            cells = [_reached(record["speed"], column, names, t) for column, t in wanted.items()]
            rows.append([f"{kind}: reached, against {label}", *cells])
    tuned = {column: targets.TUNED[column[0]] for column in targets.COLUMNS}
    rows.append(["the best, tuned ones too: to reach", *(f"{t.least:g}" for t in tuned.values())])
    cells = [_reached(record["speed"], column, ALL_PEERS, t) for column, t in tuned.items()]
    rows.append(["the best, tuned ones too: reached", *cells])
    rows += _ceiling_shares(record["speed"])
    head = ["", *(f"{shape} {precision}" for shape, precision in targets.COLUMNS)]
    return title + table(head, rows)


def _ceiling_shares(speed: Record) -> list[list[str]]:
    wanted, cells = targets.CEILING_SHARE, []
    for shape, precision in targets.COLUMNS:
        ours = speed.get(shape, {}).get("rows", {}).get(OURS.name, {})
        ceiling = _ceiling(ours, precision)
        if precision != "fp32" or ceiling is None or precision not in ours:
            cells.append("")
            continue
        share = ours[precision]["rate"] / ceiling["rate"]
        cells.append(f"{share:.0%} {verdict(share >= wanted[shape].least)}")
    least = [
        f"{wanted[shape].least:.0%}" if precision == "fp32" else ""
        for shape, precision in targets.COLUMNS
    ]
    return [["share of the fp32 ceiling: to reach", *least], ["share: reached", *cells]]


def _ceiling(ours: Record, precision: str) -> Record | None:
    """Return the figures of the products alone, by the faster library; None if not measured."""
    measured = [
        figures
        for variant, figures in ours.items()
        if variant.startswith("ceiling ") and variant.endswith(f" {precision}")
    ]
    return max(measured, key=lambda figures: figures["rate"], default=None)


def _reached(
    speed: Record, column: tuple[str, str], names: Sequence[str], target: targets.Target
) -> str:
    shape, precision = column
    ratio = ratio_to_best(speed[shape], precision, names) if shape in speed else None
    return "not run" if ratio is None else f"{ratio:.2f} {verdict(ratio >= target.least)}"


def _speed(shape: str, measured: Record) -> str:
    rows, facts = measured["rows"], measured["facts"]
    ours = rows.get(OURS.name, {})
    names = [OURS.name, *(name for name in ALL_PEERS if name in rows)]
    lines = [_speed_line(name, rows.get(name, {}), measured) for name in names]
    for variant, library in {"mkl fp32": "MKL", "onednn fp32": "oneDNN"}.items():
        if variant in ours:
            of_it = f"nmt-cli, fp32 products by {library}"
            lines.insert(1, [of_it, _rate(ours[variant]), *[""] * 6])
    ceiling = [_rate(_ceiling(ours, precision)) for precision in PRECISIONS]
    lines.append(["ceiling", ceiling[0], "", "", ceiling[1], "", "", "the products alone"])
    lines += [[name, *["failed"] * 6, reason] for name, reason in measured["failures"].items()]
    head = ["target tokens/s"]
    for precision in PRECISIONS:
        head += [precision, "of best peer", "of ceiling"]
    waits = [f"{ours[p]['wait_share']:.2%} in {p}" for p in PRECISIONS if p in ours]
    reached = all(ours[p]["wait_share"] < targets.MAX_WAIT_SHARE for p in PRECISIONS if p in ours)
    flops = facts[OURS.name]["flops_per_target_token"] if OURS.name in facts else 0.0
    return (
        f"## {shape}: {_as_words(shape)}\n\n{table([*head, ''], lines)}\n\n"
        f"{measured['data']}, {measured['rounds']} rounds; "
        f"{measured['padding_of_peers']:.1%} of the peers' places are padding. "
        f"{flops / 1e6:.0f} MFLOP a target token. Our share of time waiting for data: "
        f"{', '.join(waits)} (under {targets.MAX_WAIT_SHARE:.0%}: {verdict(reached)})."
    )


def _speed_line(name: str, row: Record, measured: Record) -> list[str]:
    ours = measured["rows"].get(OURS.name, {})
    line = [name]
    for precision in PRECISIONS:
        best = best_peer(measured["rows"], precision, ALL_PEERS)
        ceiling = _ceiling(ours, precision)
        rate = row[precision]["rate"] if precision in row else None
        line += [
            _rate(row.get(precision)),
            f"{rate / best[1]:.2f}" if rate and best else "",
            f"{rate / ceiling['rate']:.0%}" if rate and ceiling else "",
        ]
    return [*line, _remark(name, row, measured["facts"].get(name, {}))]


def _remark(name: str, row: Record, facts: Record) -> str:
    """Return a version; on a GPU also the share of its datasheet's FLOPs."""
    remarks = [facts.get("version", "")]
    for precision, peak in facts.get("peak_flops", {}).items():
        if peak and precision in row:
            mfu = row[precision]["rate"] * facts["flops_per_target_token"] / peak
            remarks.append(f"MFU {mfu:.1%} in {precision}")
    if name in ALL_PEERS and name not in PLAIN:
        remarks.append("settings: README")
    return ", ".join(remarks)


def _rate(figures: Record | None) -> str:
    """Return the median, and in brackets the slowest and the fastest round."""
    if figures is None:
        return ""
    return f"{figures['rate']:,.0f} ({min(figures['rates']):,.0f} to {max(figures['rates']):,.0f})"


def _as_words(name: str) -> str:
    shape = SHAPES[name]
    return (
        f"d_model {shape.d_model}, d_ff {shape.d_ff}, {shape.num_heads} heads, "
        f"{shape.num_layers}+{shape.num_layers} layers, vocabulary {shape.vocabulary_size:,}, "
        f"{shape.tokens:,} tokens a side"
    )


def _kernels(measured: Record) -> str:
    names = list(dict.fromkeys(name for rates in measured["rates"].values() for name in rates))
    rows = [
        [shape, *(f"{rates[name]:,.0f}" if name in rates else "" for name in names)]
        for shape, rates in measured["rates"].items()
    ]
    errors = ", ".join(f"{name} {error:.1e}" for name, error in measured["errors"].items())
    return (
        "## Single products on one thread\n\n"
        f"{table(['GFLOP/s of rows x in x out, or batch x rows x in x out', *names], rows)}\n\n"
        f"Largest relative error of fp32 products against float64: {errors}."
    )


def _waiting(measured: Record) -> str:
    rates = measured["rates"]
    situations = next(iter(rates.values()))
    best = {name: max(median(of[name]) for of in rates.values()) for name in situations}
    rows = []
    for policy, of_policy in rates.items():
        medians = ((median(of_policy[name]), best[name]) for name in situations)
        rows.append([policy, *(f"{rate:,.0f} ({rate / most:.0%})" for rate, most in medians)])
    return (
        f"## How threads wait: S in {measured['precision']}\n\n"
        f"{table(['target tokens/s', *situations], rows)}\n\n"
        "Of two trainings at once the slower one counts. Shares are of the best in each situation; "
        f"to reach with 8,000 spins: {targets.MIN_OF_BEST_WAITING:.0%}. 100 spins are those that "
        "GNU's library takes when it has more threads than there are cores."
    )


def _memory(measured: Record) -> str:
    title = "## Memory of one base step as one micro-batch, vocabulary 37,000\n\n"
    if "skipped" in measured:
        return title + measured["skipped"]
    tokens, peaks, lines = measured["tokens"], measured["peaks"], []
    for precision in PRECISIONS:
        theirs = peaks[HUGGING_FACE.name].get(precision)
        for name in (OURS.name, HUGGING_FACE.name):
            if precision in peaks[name]:
                lines.append(
                    [name, precision, *_memory_cells(peaks[name][precision], tokens, theirs)]
                )
    head = [
        "peak RSS",
        "",
        "tokens",
        "GB",
        f"scaled to {tokens:,}",
        "of Hugging Face",
        "by the line",
    ]
    return (
        f"{title}{table(head, lines)}\n\nScaled by tokens, to reach at most "
        f'{targets.MAX_MEMORY_RATIO:g} of Hugging Face\'s; "by the line" scales only what grows '
        "with the tokens, from a smaller step. No recomputation of activations."
    )


def _memory_cells(peaks: Record, tokens: int, theirs: Record | None) -> list[str]:
    if "failure" in peaks:
        return ["failed", peaks["failure"], "", "", ""]
    scaled, by_line = scaled_memory(peaks, tokens)
    large = peaks["large"]
    cells = [f"{large['tokens']:,}", f"{large['memory'] / GB:.2f}", f"{scaled / GB:.2f} GB"]
    if theirs is None or theirs is peaks or "failure" in theirs:
        return [*cells, "", f"{by_line / GB:.2f} GB"]
    their_scaled, their_by_line = scaled_memory(theirs, tokens)
    ratio = scaled / their_scaled
    met = verdict(ratio <= targets.MAX_MEMORY_RATIO)
    return [*cells, f"{ratio:.2f} {met}", f"{by_line / GB:.2f} GB, {by_line / their_by_line:.2f}"]


def scaled_memory(peaks: Record, tokens: int) -> tuple[float, float]:
    """Return the memory of ``tokens``: in proportion, and on the line through both peaks."""
    small, large = Peak(**peaks["small"]), Peak(**peaks["large"])
    by_line = memory_at(tokens, small, large) if large.tokens > small.tokens else large.memory
    return large.memory * tokens / large.tokens, by_line


def _loss(measured: Record) -> str:
    title = "## What bf16 does to the loss\n\n"
    if "skipped" in measured:
        return title + measured["skipped"]
    lines = []
    for shape, figures in measured.items():
        if "skipped" in figures:
            lines.append([shape, "", "", "", f"not run: {figures['skipped']}"])
            continue
        fp32, bf16 = (figures["losses"][precision] for precision in PRECISIONS)
        difference = bf16 / fp32 - 1.0
        met = verdict(abs(difference) <= targets.MAX_LOSS_DIFFERENCE)
        cells = [f"{figures['steps']}", f"{fp32:.4f}", f"{bf16:.4f}", f"{difference:+.2%} {met}"]
        lines.append([f"{shape}, {figures['data']}", *cells])
    head = ["", "steps", "fp32", "bf16", f"difference, at most {targets.MAX_LOSS_DIFFERENCE:.0%}"]
    after = "Mean training loss of the last tenth of the steps; same seed, batches and dropout."
    return f"{title}{table(head, lines)}\n\n{after}"


def _data(measured: Record) -> str:
    planner, rates, workers, padding = (
        measured[key] for key in ("planner", "preprocessing", "workers", "padding")
    )
    ratio = rates["ours"] / rates["sentencepiece"]
    is_planned = (
        planner["seconds"] <= targets.MAX_PLANNER_SECONDS
        and planner["memory"] <= targets.MAX_PLANNER_MEMORY
    )
    lines = [
        [
            "an epoch of 36 million pairs planned",
            f"{planner['seconds']:.1f} s, peak {planner['memory'] / GB:.2f} GB",
            f"{targets.MAX_PLANNER_SECONDS:g} s, {targets.MAX_PLANNER_MEMORY / GB:g} GB: "
            f"{verdict(is_planned)}",
        ],
        [
            "sentences encoded a second and core",
            f"{rates['ours']:,.0f}; SentencePiece's batches {rates['sentencepiece']:,.0f}",
            f"{ratio:.0%}, at least {targets.MIN_ENCODING_RATIO:.0%}: "
            f"{verdict(ratio >= targets.MIN_ENCODING_RATIO)}",
        ],
        ["the whole of preprocess, by CPU time", f"{rates['whole']:,.0f}", ""],
        [
            f"two --workers against one, {workers['pairs']:,} short pairs",
            f"{workers['times_as_fast']:.2f} times as fast, by CPU time {workers['by_cpu']:.2f}; "
            f"{workers['microseconds_a_pair']:.1f} µs a pair, "
            f"{workers['serial_microseconds_a_pair']:.1f} of them in one process only; "
            f"at most {workers['memory'] / MB:.0f} MB each",
            f"{targets.MIN_SPEED_OF_TWO_WORKERS:g} times: "
            f"{verdict(workers['times_as_fast'] >= targets.MIN_SPEED_OF_TWO_WORKERS)}",
        ],
        *(
            [
                f"padding in attention, of {what}",
                f"{share:.2%}",
                f"under {targets.MAX_ATTENTION_PADDING:.0%}: "
                f"{verdict(share < targets.MAX_ATTENTION_PADDING)}",
            ]
            for what, share in (
                ("places", padding["attention_places"]),
                ("query-key pairs", padding["attention_pairs"]),
            )
        ),
        ["padding in the packed part: fp32, bf16", f"none, {padding['spare_rows']:.2%}", ""],
    ]
    return f"## Data: {measured['text']}\n\n{table(['', 'measured', 'target'], lines)}"
