"""``nmt-cli doctor``: the facts of the machine for bug reports, and advice on what is slow."""

import json
from typing import Any

from nmt_cli.commands.inspection.machine_advice import advice_on
from nmt_cli.commands.lines.pipes import StandardOutput
from nmt_cli.hardware.busy_machine import LoadMeter
from nmt_cli.hardware.system_facts import system_facts
from nmt_cli.messages import logs


def run(*, output_format: str = "text") -> None:
    """Write the facts, then the advice, to stdout. Raises OutputError if that fails."""
    meter = LoadMeter()
    facts = {**system_facts(), **_torch_facts()}
    others = meter.others()
    facts["cpu.used_by_others"] = round(others, 1) if others is not None else None
    advice = advice_on(facts)
    if output_format == "json":
        text = json.dumps({"facts": facts, "advice": advice}, indent=2, ensure_ascii=False)
    else:
        lines = [f"{name}: {_as_text(value)}" for name, value in facts.items()]
        lines += [f"advice: {sentence}" for sentence in advice or ["none"]]
        text = "\n".join(logs.printable(line) for line in lines)
    StandardOutput().write(f"{text}\n".encode(errors="replace"))


def _torch_facts() -> dict[str, Any]:
    """Return the facts of torch, or only the reason why torch cannot be imported."""
    try:
        from nmt_cli.hardware.torch_facts import torch_facts
    except (ImportError, OSError) as error:  # OSError is a shared library that does not load
        return {"torch.problem": " ".join(str(error).split())}
    return torch_facts()


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("\n", " ")
