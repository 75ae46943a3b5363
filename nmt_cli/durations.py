"""Durations as people write them: 3h30m, 45m, 90s."""

import re

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
NUMBER = r"\d+(?:\.\d+)?"
DURATION = re.compile("".join(rf"(?:({NUMBER}){unit})?" for unit in UNITS))


def parse_duration(text: str) -> float:
    """Return the seconds in ``text``. Raises ValueError with a message for the user."""
    if re.fullmatch(NUMBER, text):
        raise ValueError(f"{text} needs a unit; write {text}h, {text}m or {text}s.")
    match = DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is not a time such as 3h30m, 45m or 90s.")
    parts = [float(part or 0) for part in match.groups()]
    return sum(part * unit for part, unit in zip(parts, UNITS.values(), strict=True))


def duration_text(seconds: float) -> str:
    """Return text such as 3h30m, from which ``parse_duration`` gets the seconds again."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{number:g}{unit}" for number, unit in parts if number) or "0s"
