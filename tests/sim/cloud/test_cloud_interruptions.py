"""Interruptions: as often as declared, to whom it may concern, however many come and go."""

import math
import random
from collections import Counter

import pytest

from bigfleet.sim.cloud.interruptions import PoolInterruptions

HOUR = 3600.0


def strikes(interruptions: PoolInterruptions, now: float, end: float) -> list[tuple[float, str]]:
    """All interruptions until a time, while nothing else happens."""
    struck = []
    while (wait := interruptions.wait(now)) <= end - now:
        now += wait
        struck.append((now, interruptions.strike(now)))
    interruptions.wait(end)
    return struck


@pytest.mark.parametrize("probability", [0.01, 0.3, 0.9])
def test_of_hosts_that_run_for_an_hour_the_declared_share_is_interrupted(probability: float) -> None:
    hosts = 20_000
    interruptions = PoolInterruptions(-math.log1p(-probability) / HOUR, "seed")
    for n in range(hosts):
        interruptions.enter(f"h{n}", 0.0)
    struck = strikes(interruptions, 0.0, HOUR)
    deviation = math.sqrt(hosts * probability * (1 - probability))
    assert abs(len(struck) - hosts * probability) < 4 * deviation
    assert len({host for _, host in struck}) == len(struck), "a host is taken once"
    assert len(interruptions) == hosts - len(struck)


def test_the_rate_holds_while_hosts_come_and_go() -> None:
    rng, rate = random.Random(5), 0.2 / HOUR
    interruptions = PoolInterruptions(rate, "seed")
    running: list[str] = []
    now, host_seconds, struck = 0.0, 0.0, 0
    for n in range(40_000):
        step = rng.expovariate(1 / 30)
        taken = strikes(interruptions, now, now + step)
        ends = [time for time, _ in taken]
        host_seconds += (len(running) - len(taken)) * step + sum(end - now for end in ends)
        struck += len(taken)
        gone = {host for _, host in taken}
        running = [host for host in running if host not in gone] if gone else running
        now += step
        if running and rng.random() < 0.45:
            interruptions.leave(running.pop(rng.randrange(len(running))), now)
        else:
            interruptions.enter(f"h{n}", now)
            running.append(f"h{n}")
    assert len(interruptions) == len(running)
    expected = rate * host_seconds
    assert expected > 500
    assert abs(struck - expected) < 4 * math.sqrt(expected)


def test_every_host_is_as_likely() -> None:
    interruptions = PoolInterruptions(1 / HOUR, "seed")
    for n in range(10):
        interruptions.enter(f"h{n}", 0.0)
    now, counts = 0.0, Counter[str]()
    for _ in range(5000):
        now += interruptions.wait(now)
        host = interruptions.strike(now)
        counts[host] += 1
        interruptions.enter(host, now)
    assert all(400 < counts[f"h{n}"] < 600 for n in range(10)), counts


def test_an_empty_herd_waits_for_ever_and_uses_up_nothing() -> None:
    interruptions, other = PoolInterruptions(1.0, "seed"), PoolInterruptions(1.0, "seed")
    assert interruptions.wait(1e6) == math.inf
    interruptions.enter("h", 1e6)
    other.enter("h", 0.0)
    assert interruptions.wait(1e6) == other.wait(0.0)


def test_a_host_that_left_is_not_struck() -> None:
    interruptions = PoolInterruptions(1.0, "seed")
    for host in ("a", "b", "c"):
        interruptions.enter(host, 0.0)
    interruptions.leave("a", 0.0)
    interruptions.leave("a", 0.0)
    interruptions.leave("never seen", 0.0)
    assert {interruptions.strike(1.0), interruptions.strike(1.0)} == {"b", "c"}
    assert interruptions.wait(1.0) == math.inf
