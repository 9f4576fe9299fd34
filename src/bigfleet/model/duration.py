"""Lengths of time as people write them (`500ms`, `90s`, `1h30m`), in seconds, to the nanosecond."""

import math
import re
from decimal import Decimal

MAX_SECONDS = 366 * 86_400.0
"""The longest time that can be written."""

_UNITS = {"d": Decimal(86_400), "h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_TEXT = re.compile(rf"(?:{_PART.pattern})+")
# A number with its unit forgotten is negative all the same.
_NEGATIVE = re.compile(rf"-(?:{_TEXT.pattern}|[0-9]+(?:\.[0-9]+)?)")
_MAX_TEXT = 64
_SHOWN_TEXT = 40
_DIGITS = 9
_NANOSECOND = Decimal(10) ** -_DIGITS


class DurationError(ValueError):
    """What was given is no length of time; the message shows it and says what one looks like."""


def parse(given: object) -> float:
    """The seconds that a text with units, or a number of seconds, stands for; DurationError for anything else."""
    if isinstance(given, str) and len(given) <= _MAX_TEXT and _TEXT.fullmatch(given):
        # In decimal, since with binary fractions 1100ms would not equal 1.1s.
        seconds = float(sum(Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(given)))
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given) if abs(given) <= MAX_SECONDS else math.inf
    elif isinstance(given, str) and len(given) <= _MAX_TEXT and _NEGATIVE.fullmatch(given):
        seconds = -1.0
    else:
        raise DurationError(f"{_shown(given)!r} is no length of time: give its unit, as in 500ms, 90s, 1h30m or 2d")
    if seconds < 0:
        raise DurationError(f"{_shown(given)!r} is negative: a length of time is 0 or more, as in 500ms, 90s or 1h30m")
    if not seconds <= MAX_SECONDS:
        raise DurationError(f"{_shown(given)!r} is not between 0 and 366 days")
    return round(seconds, _DIGITS)


def written(seconds: float) -> str:
    """The text that `parse` reads as these seconds: whole in the largest unit that allows it."""
    exact = Decimal(seconds).quantize(_NANOSECOND)
    for unit, length in _UNITS.items():
        if exact and exact % length == 0:
            return f"{exact / length:.0f}{unit}"
    return f"{exact.normalize():f}s"


def _shown(given: object) -> str:
    # Python refuses to write out an integer of thousands of digits.
    if isinstance(given, int) and given.bit_length() > 256:
        return f"an integer of {given.bit_length()} bits"
    text = str(given)
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
