"""How long steps take: distributions, and random draws that depend on a key and not on the order of draws."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist

from bigfleet.model import duration

# One draw in a hundred from the normal distribution lies above this.
_P99 = NormalDist().inv_cdf(0.99)
# A draw comes no nearer to 0 or 1 than half of 1 / _STEPS, so that neither is ever drawn.
_STEPS = 1 << 52


class Seconds(float):
    """A length of time, as a configuration writes it."""

    @classmethod
    def read(cls, given: object) -> "Seconds":
        """The time that a number of seconds or a text stands for; ValueError says what fits."""
        return cls(duration.parse(given))


class Delay(ABC):
    """A distribution of times."""

    @abstractmethod
    def at(self, share: float) -> float:
        """The seconds that this share (above 0, below 1) of all draws stay under."""

    @staticmethod
    def read(given: object) -> "Delay":
        """The distribution that a configuration describes; ValueError says what fits."""
        if not isinstance(given, Mapping):
            return Constant(Seconds.read(given))
        parts = {key: Seconds.read(value) for key, value in given.items()}
        match sorted(parts):
            case ["max", "min"] if parts["min"] <= parts["max"]:
                return Uniform(parts["min"], parts["max"])
            case ["median", "p99"] if 0 < parts["median"] <= parts["p99"]:
                return LogNormal(parts["median"], parts["p99"])
        raise ValueError(
            f"{dict(given)} is no distribution: write a time, {{min, max}} with min <= max for a uniform one, "
            "or {median, p99} with 0 < median <= p99 for a lognormal one"
        )


@dataclass(frozen=True, slots=True)
class Constant(Delay):
    """A distribution in which every time is the same."""

    seconds: float

    def at(self, share: float) -> float:  # noqa: ARG002 - the same whatever is drawn
        """The one time of this distribution."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class Uniform(Delay):
    """A distribution in which every time between two bounds is equally likely."""

    least: float
    most: float

    def at(self, share: float) -> float:
        """The time that lies this share of the way from the least to the most."""
        return self.least + share * (self.most - self.least)


@dataclass(frozen=True, slots=True)
class LogNormal(Delay):
    """What real clouds show: most times are near the median, and one in a hundred is longer than `p99`."""

    median: float
    p99: float

    def at(self, share: float) -> float:
        """The time that this share of the lognormal distribution stays under."""
        return self.median * math.exp(NormalDist().inv_cdf(share) * math.log(self.p99 / self.median) / _P99)


def share(*key: object) -> float:
    """A random number between 0 and 1, both excluded. The same key always gives the same number."""
    digest = blake2b("\0".join(map(str, key)).encode(), digest_size=8).digest()
    return ((int.from_bytes(digest, "big") >> 12) + 0.5) / _STEPS
