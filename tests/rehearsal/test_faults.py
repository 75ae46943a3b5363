"""A rehearsal finds mistakes that no CPU shows."""

import re

import pytest

from tests.rehearsal.faults import FAULTS
from tests.rehearsal.findings import (
    KNOWN_BESIDE_GRAPHS,
    KNOWN_IN_STEP,
    findings,
    findings_beside_graphs,
)


def kind_of(finding):
    """Return what the rehearsal found, without its place in the product."""
    return re.split(r"[.:]", finding)[0]


FIRST = {kind_of(fault.finding): name for name, fault in reversed(FAULTS.items())}


@pytest.mark.parametrize(
    "name",
    [
        # What is found as another fault is tries the same part of the rehearsal again.
        pytest.param(name, marks=[] if FIRST[kind_of(fault.finding)] == name else pytest.mark.slow)
        for name, fault in FAULTS.items()
    ],
)
def test_a_planted_fault_is_found(name, rehearse):
    fault = FAULTS[name]
    if fault.scenario == "train":
        report = rehearse("train", fault=name, only_a_step=True)
        found = findings(report) - KNOWN_IN_STEP
    else:
        report = rehearse("translate", fault=name, num_lines=2)
        found = findings_beside_graphs(report) - KNOWN_BESIDE_GRAPHS
    assert any(fault.finding in each for each in found), found
