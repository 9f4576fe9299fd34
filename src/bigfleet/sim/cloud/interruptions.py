"""Which host is taken back next, at the rate that its pool declares.

The interruptions of a pool are one Poisson process whose rate is the sum of its hosts' rates. What is drawn is an
amount of hazard, which every host uses up at its rate. So hosts may come and go, and a pool of any size costs one draw.
"""

import math
import random

# A wait in seconds that counts as none: added to a large clock, a shorter one might not change it.
_NOW = 1e-6


class PoolInterruptions:
    """The hosts of one pool that may be interrupted, and when. `now` never goes back from call to call."""

    def __init__(self, rate: float, seed: str) -> None:
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311 - a simulation must repeat, not surprise
        self._hosts: list[str] = []
        self._places: dict[str, int] = {}
        self._hazard = self._random.expovariate(1.0)
        self._last = 0.0

    def __len__(self) -> int:
        return len(self._hosts)

    def enter(self, host: str, now: float) -> None:
        """The host may be interrupted from now on."""
        self._pass(now)
        if host not in self._places:
            self._places[host] = len(self._hosts)
            self._hosts.append(host)

    def leave(self, host: str, now: float) -> None:
        """The host cannot be interrupted any more: it has ended, or its interruption is announced."""
        self._pass(now)
        place = self._places.pop(host, None)
        if place is not None:
            last = self._hosts.pop()
            if last != host:
                self._hosts[place] = last
                self._places[last] = place

    def wait(self, now: float) -> float:
        """Seconds until the next interruption, if no host comes or goes until then."""
        self._pass(now)
        if not self._hosts:
            return math.inf
        wait = self._hazard / (self._rate * len(self._hosts))
        return wait if wait > _NOW else 0.0

    def strike(self, now: float) -> str:
        """Choose the host that is interrupted now, and draw the hazard until the next interruption."""
        host = self._random.choice(self._hosts)
        self.leave(host, now)
        self._hazard = self._random.expovariate(1.0)
        return host

    def _pass(self, now: float) -> None:
        self._hazard -= (now - self._last) * self._rate * len(self._hosts)
        self._last = now
