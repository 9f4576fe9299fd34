"""Kubernetes quantities (`250m`, `1.5Gi`, `12e6`) as exact integers, read and written as apimachinery does.

Engine section 1 needs them exact.

There are a few exceptions. Absurd sizes are refused (over 128 characters, an exponent past 100, a value above 10**100),
and so are numbers with no digit (`.`, `m`). A quantity is always written in its canonical form (Go may echo `+1`), with
the suffix E however large it is (Go writes 1000E as `1`), and in decimal where a binary sum is past 2**63 - 1.
"""

import enum
import functools
import math
import re

import msgspec

_UNIT = 10**9
_MAX_TEXT = 128
_MAX_EXPONENT = 100
_MAX_NANO = 10**_MAX_EXPONENT * _UNIT
_LARGEST = f"1e{_MAX_EXPONENT} at most"
# Kubernetes caps what it reads with a binary suffix here, and nothing else; so larger amounts are written in decimal.
_BINARY_CAP = (2**63 - 1) * _UNIT
_CACHE_ENTRIES = 2**14
_SHOWN_TEXT = 40


class QuantityError(ValueError):
    """What was given is no quantity; the message shows it and says what one looks like."""


class Format(enum.Enum):
    """The family of suffixes that a quantity was written with and is written back in."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SUFFIXES: dict[str, tuple[Format, int]] = {
    **{suffix: (Format.BINARY_SI, _UNIT * 1024**power) for power, suffix in enumerate(_BINARY_SUFFIXES)},
    **{suffix: (Format.DECIMAL_SI, 1000**power) for power, suffix in enumerate(_DECIMAL_SUFFIXES)},
}
# The lookahead demands a digit, as the documented grammar does. Go reads `.` and `m` as 0 but never writes them back.
_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE]|)|[eE](?P<exponent>[+-]?[0-9]+))"
)


class Quantity(msgspec.Struct, frozen=True):
    """An exact amount. Equality covers the format too: to compare amounts, compare `nano`."""

    nano: int
    format: Format

    def ceil(self, unit_nano: int) -> int:
        """The amount in whole units of so many nanos, rounded towards plus infinity: for demand."""
        return -(-self.nano // unit_nano)

    def floor(self, unit_nano: int) -> int:
        """The amount in whole units of so many nanos, rounded towards minus infinity: for supply."""
        return self.nano // unit_nano

    def __str__(self) -> str:
        if self.nano == 0:
            return "0"
        if self.format is Format.BINARY_SI and self.nano % _UNIT == 0 and 1024 * _UNIT <= abs(self.nano) <= _BINARY_CAP:
            mantissa, power = _reduced(self.nano // _UNIT, 1024, len(_BINARY_SUFFIXES) - 1)
            return f"{mantissa}{_BINARY_SUFFIXES[power]}"
        if self.format is Format.DECIMAL_EXPONENT:
            mantissa, power = _reduced(self.nano, 1000, math.inf)
            exponent = 3 * power - 9
            return f"{mantissa}e{exponent}" if exponent else f"{mantissa}"
        mantissa, power = _reduced(self.nano, 1000, len(_DECIMAL_SUFFIXES) - 1)
        return f"{mantissa}{_DECIMAL_SUFFIXES[power]}"


# typed: True and 1.0 equal 1 as keys, and must not find its entry. A refusal raises, so it is never cached.
@functools.lru_cache(maxsize=_CACHE_ENTRIES, typed=True)
def parse(text: str | int) -> Quantity:
    """The quantity that a manifest's string or integer stands for; QuantityError for anything else."""
    return _read(text)


def _read(given: object) -> Quantity:
    if isinstance(given, str):
        return _read_text(given)
    if isinstance(given, int) and not isinstance(given, bool):
        if abs(given) * _UNIT > _MAX_NANO:
            # Python refuses to write out an integer of thousands of digits, so the message gives its size.
            raise QuantityError(f"an integer of {given.bit_length()} bits is too large for a quantity: {_LARGEST}")
        return Quantity(given * _UNIT, Format.DECIMAL_SI)
    raise QuantityError(
        f"a {type(given).__name__} ({_shown(repr(given))}) is no quantity: write a string such as '500m' or an integer"
    )


def _read_text(text: str) -> Quantity:
    if len(text) > _MAX_TEXT:
        raise QuantityError(
            f"{_shown(text)!r} has {len(text)} characters, too long for a quantity: {_MAX_TEXT} at most"
        )
    match = _TEXT.fullmatch(text)
    if match is None:
        raise QuantityError(
            f"{_shown(text)!r} is no quantity: write a number with at most one suffix of n u m k M G T P E, "
            "Ki Mi Gi Ti Pi Ei, or an exponent, such as '500m', '1.5Gi' or '12e6'"
        )
    fraction = match["fraction"] or ""
    divisor = 10 ** len(fraction)
    if match["exponent"] is None:
        format_, nano_each = _SUFFIXES[match["suffix"]]
    else:
        exponent = int(match["exponent"])
        if abs(exponent) > _MAX_EXPONENT:
            raise QuantityError(
                f"{_shown(text)!r} has an exponent out of range: write one from -{_MAX_EXPONENT} to {_MAX_EXPONENT}"
            )
        format_, nano_each = Format.DECIMAL_EXPONENT, _UNIT * 10 ** max(exponent, 0)
        divisor *= 10 ** max(-exponent, 0)

    # Rounding away from zero, so that asking for a little never becomes asking for nothing.
    nano = -(-int(match["whole"] + fraction) * nano_each // divisor)
    if format_ is Format.BINARY_SI:
        nano = min(nano, _BINARY_CAP)
        if 0 < nano < _UNIT:
            format_ = Format.DECIMAL_SI
    if nano > _MAX_NANO:
        raise QuantityError(f"{_shown(text)!r} is too large for a quantity: {_LARGEST}")
    return Quantity(-nano if match["sign"] == "-" else nano, format_)


def _reduced(mantissa: int, base: int, most: float) -> tuple[int, int]:
    """Move factors of `base`, up to `most` of them, out of a mantissa that is not 0."""
    power = 0
    while power < most and mantissa % base == 0:
        mantissa //= base
        power += 1
    return mantissa, power


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
