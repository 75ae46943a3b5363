"""The part ``serving`` of a run: clients with real sentences, through HTTP.

The clients share the cores with the service, so its speed is compared by CPU time: that of all its
processes while it translates, against that of ``translate`` on the same lines. Latencies are those
that clients see, against CTranslate2 behind Starlette, which gets the same clients in turns.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from nmt_cli.messages import logs
from tests.benchmarks import targets
from tests.benchmarks.cpu_time import cpu_seconds, cpu_seconds_of_all, with_children
from tests.benchmarks.decoding.sample import EXPORTED
from tests.benchmarks.targets import verdict
from tests.serving.load import Client, translate_all

CLIENTS = (1, 8, 64)
ROUNDS = 3  # of each server in turn
LINES_ALONE = 40
# Options by the name of the row; as many processes as cores, of one thread each.
OURS = {
    "nmt-cli fp32": ("--precision=fp32",),
    "nmt-cli int8": ("--precision=int8",),
}
SECONDS_BETWEEN_LOOKS = 0.02  # at the CPU time of processes

Figures = dict[str, Any]


class Server(NamedTuple):
    """A service that runs; ``process`` has started all of its processes."""

    process: int
    port: int

    def cpu_seconds(self) -> float:
        """Return what all of its processes have used so far."""
        return cpu_seconds_of_all(self.process)


def measure(
    model: Path, folder: Path, lines: Sequence[str], threads: int, rounds: int = ROUNDS
) -> Figures:
    """Return the figures of our service and of the peer, each with both settings.

    ``folder`` holds the export for CTranslate2.
    """
    servers: dict[str, Callable[[], AbstractContextManager[Server]]] = {
        name: partial(_ours, model, options) for name, options in OURS.items()
    }
    one_process = ("--workers=1", f"--threads={threads}")
    for name, options in OURS.items():
        servers[f"{name} 1x{threads}"] = partial(_ours, model, (*options, *one_process))
    of_peer = [("float32", f"{threads}x1"), ("float32", f"1x{threads}"), ("int8", f"{threads}x1")]
    # In int8 with several threads it takes many times as long: see costs.py.
    for precision, setting in dict.fromkeys(of_peer):
        name = f"{targets.CTRANSLATE2} {precision} {setting}"
        servers[name] = partial(_peer, model, folder / EXPORTED, precision, setting)
    found: Figures = {name: {str(n): [] for n in CLIENTS} for name in servers}
    shares: dict[str, list[float]] = {name: [] for name in OURS}
    for number in range(1, rounds + 1):
        for name, start in servers.items():
            logs.info(f"serving: {name}, round {number}")
            with start() as server:
                translated(server, 8, lines[:64])  # warms up
                for num_clients in CLIENTS:
                    few = lines[:LINES_ALONE] if num_clients == 1 else lines
                    found[name][str(num_clients)].append(translated(server, num_clients, few))
            if name in OURS:  # at once, because the speed of a machine changes
                of_translate = _cpu_rate_of_translate(model, OURS[name], lines, threads)
                of_service = found[name][str(CLIENTS[-1])][-1]["cpu_rate"]
                shares[name].append(of_service / of_translate)
    return {
        "rows": {
            name: {clients: _medians(of_rounds) for clients, of_rounds in of_server.items()}
            for name, of_server in found.items()
        },
        "shares": {name: median(of_rounds) for name, of_rounds in shares.items()},
        "alone": {
            name: _alone(model, options, lines[:LINES_ALONE]) for name, options in OURS.items()
        },
    }


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: median(each[key] for each in rounds) for key in rounds[0]}


def translated(server: Server, num_clients: int, lines: Sequence[str]) -> dict[str, float]:
    """Let clients translate the lines; return rates and latencies, those in seconds."""
    before, loop = server.cpu_seconds(), asyncio.new_event_loop()
    started = loop.time()
    place = ("127.0.0.1", server.port)
    found = loop.run_until_complete(translate_all(place, num_clients, lines))
    seconds = loop.time() - started
    loop.close()
    latencies = [each for _, _, each in found]
    assert len(latencies) == len(lines)
    return {
        "rate": len(lines) / seconds,
        "cpu_rate": len(lines) / (server.cpu_seconds() - before),
        "median": median(latencies),
        "percentile": quantiles(latencies, n=20, method="inclusive")[-1],
    }


@contextmanager
def _ours(model: Path, options: Sequence[str]) -> Iterator[Server]:
    command = [sys.executable, "-m", "nmt_cli", "serve", str(model), "--port=0", "--device=cpu"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "http://" in line)
            yield Server(process.pid, int(line.rpartition(":")[2]))
        finally:
            process.terminate()


@contextmanager
def _peer(model: Path, exported: Path, precision: str, setting: str) -> Iterator[Server]:
    module = "tests.benchmarks.serving.peer"
    command = [sys.executable, "-m", module, str(model), str(exported), precision, setting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(process.pid, int(process.stdout.readline()))
        finally:
            process.kill()


def _cpu_rate_of_translate(
    model: Path, options: Sequence[str], lines: Sequence[str], threads: int
) -> float:
    """Return lines a second of CPU time by ``translate``, without that of its start.

    As many processes run as in the service, because they share the memory's bandwidth and caches.
    """
    command = [sys.executable, "-m", "nmt_cli", "translate", str(model), "--quiet"]
    processes = (f"--workers={threads}", "--threads=1")

    def seconds_of(lines: Sequence[str]) -> float:
        pipe, found = subprocess.PIPE, dict[int, float]()
        with subprocess.Popen(
            [*command, "--device=cpu", *options, *processes], stdin=pipe, stdout=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            process.stdin.close()
            # The kernel does not add up the time of processes that are killed, as workers are.
            while process.poll() is None:
                with suppress(OSError):
                    found |= {each: cpu_seconds(each) for each in with_children(process.pid)}
                time.sleep(SECONDS_BETWEEN_LOOKS)
        assert process.returncode == 0
        return sum(found.values())

    # A line for each process, so that all of them start.
    start = seconds_of(lines[:threads])
    return (len(lines) - threads) / (seconds_of(lines) - start)


def _alone(model: Path, options: Sequence[str], lines: Sequence[str]) -> Figures:
    """Return the seconds of a line alone by HTTP and by ``Translator``, which take turns.

    ``more`` is the median of the differences.
    """
    command = [sys.executable, "-m", "tests.benchmarks.serving.alone", str(model), *options]
    pipe = subprocess.PIPE

    async def seconds_of_both(server: Server, process: Any) -> list[tuple[float, float]]:
        client, found = Client("127.0.0.1", server.port), []
        for line in lines:
            started = time.perf_counter()
            status, answer = await client.post("/v1/translate", {"text": line})
            by_http = time.perf_counter() - started
            assert status == 200, answer
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            found.append((by_http, float(process.stdout.readline())))
        await client.close()
        return found

    with (
        _ours(model, options) as server,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process,
    ):
        for _ in range(2):  # the second time counts
            found = asyncio.run(seconds_of_both(server, process))
        assert process.stdin is not None
        process.stdin.close()
    by_http, by_translator = zip(*found, strict=True)
    return {
        "http": median(by_http),
        "translator": median(by_translator),
        "more": median(one - other for one, other in found),
    }


def markdown(measured: Figures, write_table: Callable[[list[str], list[list[str]]], str]) -> str:
    """Return a table for each shape, with the targets and whether they are met."""
    parts = ["## Serving by HTTP"]
    for name, figures in measured.items():
        rows = figures["rows"]
        head = ["", *(f"{n} client{'s' * (n > 1)}" for n in CLIENTS)]
        lines = [[server, *(_shown(rows[server][str(n)]) for n in CLIENTS)] for server in rows]
        lines += [
            [f"{ours} of the peer", *(_against_peers(rows, ours, str(n)) for n in CLIENTS)]
            for ours in OURS
        ]
        parts.append(
            f"### {name}: {figures['lines']} lines of {figures['text']}\n\n"
            f"{write_table(head, lines)}\n\n"
            "Sentences/s, those of a second of the server's CPU time, and the median and the 95th "
            "percentile of the latency in milliseconds. The peer is CTranslate2 behind Starlette, "
            "and of both the better of processes of one thread and one process of all threads."
            f"\n\n{_shares(figures, write_table)}"
        )
    return "\n\n".join(parts)


def _shares(figures: Figures, write_table: Callable[[list[str], list[list[str]]], str]) -> str:
    """Return a table of what HTTP costs."""
    least, most = targets.SERVING_SHARE, targets.MOST_MILLISECONDS_OF_HTTP
    lines = []
    for ours in OURS:
        share = figures["shares"][ours]
        more = 1000 * figures["alone"][ours]["more"]
        lines.append(
            [
                ours,
                f"{share:.2f} {verdict(share >= least.least)}",
                f"{more:.1f} {verdict(more <= most)}",
            ]
        )
    head = [
        "",
        "share of the sentences that `translate` does in the same CPU time, with 64 clients, at "
        f"least {least.least:g}, aim {least.aim:g}",
        f"ms of a sentence alone, more than by `Translator`, at most {most:g}",
    ]
    return write_table(head, lines)


def _shown(row: dict[str, float]) -> str:
    rates = f"{row['rate']:,.1f}/s, {row['cpu_rate']:,.1f} by CPU"
    return f"{rates}; {1000 * row['median']:,.0f}, {1000 * row['percentile']:,.0f}"


def _against_peers(rows: Figures, ours: str, num_clients: str) -> str:
    """Return both latencies over those of the peer, each with the setting of the lower one."""
    peer = f"{targets.CTRANSLATE2} {targets.OF_PEER[ours.split()[-1]]}"

    def lowest(name: str, key: str) -> float:
        return min(rows[row][num_clients][key] for row in rows if row.startswith(name))

    ratios = [lowest(ours, key) / lowest(peer, key) for key in ("median", "percentile")]
    return f"{ratios[0]:.2f}, {ratios[1]:.2f} {verdict(max(ratios) <= 1)}"
