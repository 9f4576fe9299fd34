"""Penalty buckets: dollars rounded up to a power of two, so that few distinct penalties travel.

A bucket counts as its upper bound in all arithmetic, PINNED as infinity.
"""

import enum
from collections.abc import Mapping
from fractions import Fraction

from bigfleet.model.quantity import QuantityError, parse

_NANO = 10**9
_FIRST_POWER = 3  # the wire number of $1; each further power of two is one higher


class PenaltyBucket(enum.IntEnum):
    """The 27 buckets. Values are the wire numbers; order of value is order of dollars."""

    ZERO = 1
    HALF_DOLLAR = 2
    P_1 = 3
    P_2 = 4
    P_4 = 5
    P_8 = 6
    P_16 = 7
    P_32 = 8
    P_64 = 9
    P_128 = 10
    P_256 = 11
    P_512 = 12
    P_1024 = 13
    P_2048 = 14
    P_4096 = 15
    P_8192 = 16
    P_16384 = 17
    P_32768 = 18
    P_65536 = 19
    P_131072 = 20
    P_262144 = 21
    P_524288 = 22
    P_1048576 = 23
    P_2097152 = 24
    P_4194304 = 25
    P_8388608 = 26
    PINNED = 27

    @property
    def dollars(self) -> Fraction | None:
        """The bucket's upper bound, exact; None for PINNED, which is beyond every bound."""
        if self is PenaltyBucket.PINNED:
            return None
        if self is PenaltyBucket.ZERO:
            return Fraction(0)
        return Fraction(2) ** (self - _FIRST_POWER)

    @property
    def label(self) -> str:
        """The bucket as metrics write it: `0`, `0.5`, `1`, `2` … `8388608`, `pinned`."""
        return _LABELS[self]

    @classmethod
    def from_label(cls, label: str) -> "PenaltyBucket":
        """The bucket that a metric label names."""
        try:
            return _BY_LABEL[label]
        except KeyError:
            raise ValueError(f"{label!r} is no penalty bucket; they are {', '.join(_BY_LABEL)}") from None

    @classmethod
    def from_dollars(cls, dollars: str | int) -> "PenaltyBucket":
        """The smallest bucket whose bound is at least `dollars`, given as a Kubernetes quantity."""
        nano = parse(dollars).nano
        if nano < 0:
            raise QuantityError(f"a penalty cannot be negative, but {dollars!r} is")
        if nano == 0:
            return cls.ZERO
        if nano * 2 <= _NANO:
            return cls.HALF_DOLLAR
        whole = -(-nano // _NANO)
        return cls(min(_FIRST_POWER + (whole - 1).bit_length(), cls.PINNED))


def _label(bucket: PenaltyBucket) -> str:
    if bucket is PenaltyBucket.PINNED:
        return "pinned"
    if bucket is PenaltyBucket.HALF_DOLLAR:
        return "0.5"
    return str(bucket.dollars)


_LABELS: Mapping[PenaltyBucket, str] = {bucket: _label(bucket) for bucket in PenaltyBucket}
_BY_LABEL: Mapping[str, PenaltyBucket] = {label: bucket for bucket, label in _LABELS.items()}
