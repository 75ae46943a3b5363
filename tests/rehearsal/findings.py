"""What a rehearsal finds wrong."""

from tests.rehearsal.fake_cuda import Event
from tests.rehearsal.scenarios import Report

# Operations of a step of the toy training, two micro-batches with Adam, that launch a kernel. The
# first micro-batch of a room is launched once, and then recorded.
STEP_BUDGET = 346
# The figures of the step before, which the device has computed before it began this one.
KNOWN_IN_STEP = {"wait in a step: event.synchronize, hardware/device.py: read"}
# Beside graphs the CPU waits only for reports, and for the end of the search.
KNOWN_BESIDE_GRAPHS = {
    "wait beside graphs: event.synchronize, hardware/device.py: read",
    "wait beside graphs: stream.synchronize, hardware/device.py: finish_work",
}
OF_GRAPHS = ("search/graphed/", "hardware/")


def findings(report: Report, budget: int = STEP_BUDGET) -> set[str]:
    """Return what is wrong in a training, and in translating with graphs."""
    found = {*report.illegal, *([report.error] if report.error else [])}
    for step in report.between("step begins", "step ends"):
        found |= {_named(event, "in a step") for event in step if blocks(event)}
        found |= {_named(event, "in a step") for event in step if is_sent_late(event)}
        if num_launches(step) > budget:
            found.add(f"{num_launches(step)} operations in a step")
    return found


def findings_beside_graphs(report: Report) -> set[str]:
    """Return for what the CPU waits in the code of graphs."""
    found = {*report.illegal, *([report.error] if report.error else [])}
    of_graphs = (event for event in report.events if event.where.startswith(OF_GRAPHS))
    return found | {_named(event, "beside graphs") for event in of_graphs if blocks(event)}


def blocks(event: Event) -> bool:
    """Return whether the CPU waits."""
    return event.kind == "wait" or (event.kind == "copy" and event.how == "blocking")


def is_sent_late(event: Event) -> bool:
    """Return whether the training thread sends something, which the loader's could have sent."""
    return event.kind == "copy" and event.what == "to the device" and not event.is_ahead


def num_kernels(events: list[Event]) -> int:
    return sum(event.kind == "kernel" and not event.is_ahead for event in events)


def num_launches(events: list[Event]) -> int:
    """Return how often the CPU launches a kernel or a graph; what is recorded is not launched."""
    num_replays = sum(event.what == "replay" for event in events)
    return num_replays + num_kernels([event for event in events if not event.is_recorded])


def _named(event: Event, when: str) -> str:
    return f"{event.kind} {when}: {event.what}, {event.where}"
