"""Hunts for worlds that break a law: `python search.py --seconds 60 [--seed N]`. Prints each violation shrunk."""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from oracle import laws
from oracle.bridge import decide
from oracle.generate import Seeded, Taste, changed, world
from oracle.loop import Latency, Loop, fixed, scattered
from oracle.world import Machine, Need, World


@dataclass(frozen=True)
class Case:
    """A world, the demand that follows, and a seed for latencies."""

    world: World
    then: tuple[Need, ...]
    seed: int


Check = Callable[[Case], list[str]]


def latencies(seed: int) -> dict[str, Latency]:
    """Plans that differ a lot: at once, slow drains, slow creates, all scattered."""
    return {
        "none": fixed(0, 0, 0),
        "slow": fixed(3, 2, 6),
        "very slow": fixed(30, 60, 45),
        "scattered": scattered(seed, 60),
    }


def plan(seed: int) -> Latency:
    """One latency plan, by the seed."""
    plans = latencies(seed)
    return plans[sorted(plans)[seed % len(plans)]]


def one_decision(case: Case) -> list[str]:
    """Laws 1 (at once), 3, 4, 5 on a world in mid-flight."""
    return laws.static_laws(case.world, case.seed)


def some_fail(seed: int) -> Callable[[str, str, int], bool]:
    """A third of the first two operations of each machine fail."""
    return lambda operation, name, nth: nth <= 2 and random.Random(f"{seed}{operation}{name}").random() < 0.3


def loop_rests(case: Case) -> list[str]:
    """Law 1 in the closed loop, through a change of demand while things are in flight; 3 to 5 on every 7th decision."""
    cycle = (10, 10, 4)[case.seed % 3]
    loop = Loop.of(case.world, plan(case.seed), cycle)
    if case.seed % 5 == 0:
        loop.fails = some_fail(case.seed)
    wrong: list[str] = []
    for i in range(case.seed % 12):
        if i % 7 == case.seed % 7:
            wrong += laws.static_laws(loop.world(), case.seed)
        loop.step()
    loop.change(case.then)
    wrong += laws.static_laws(loop.world(), case.seed)
    wrong += laws.comes_to_rest(loop)
    return wrong


def buying_ignores_latency(case: Case) -> list[str]:
    """Law 2: from a settled fleet, one change of demand under four latency plans."""
    loop = Loop.of(case.world, fixed(0, 0, 0))
    wrong = laws.comes_to_rest(loop)
    if wrong:
        return wrong
    return laws.buys_the_same(loop.world(), case.then, latencies(case.seed))


CHECKS: dict[str, tuple[Check, Taste]] = {
    "one decision": (one_decision, Taste()),
    "loop": (loop_rests, Taste()),
    "loop, crowded": (loop_rests, Taste(machines=(6, 20), clusters=(2, 4), rows=(1, 4))),
    "one cluster": (loop_rests, Taste(machines=(2, 9), clusters=(1, 1), rows=(2, 5))),
    "latency": (buying_ignores_latency, Taste(calm=True)),
    "latency, crowded": (buying_ignores_latency, Taste(machines=(6, 16), clusters=(2, 4), rows=(1, 3), calm=True)),
    "a large world": (one_decision, Taste(machines=(60, 200), clusters=(3, 6), rows=(3, 8))),
}


def draw(name: str, seed: int) -> Case:
    """The case of a check and a seed."""
    source = Seeded(random.Random(f"{name}/{seed}"))
    taste = CHECKS[name][1]
    first = world(source, taste)
    return Case(first, changed(source, taste, first, 1), seed)


# Shrinking


def smaller(case: Case) -> Iterator[Case]:
    """Simpler cases, boldest first: fewer machines, needs and clusters, then plainer ones."""
    w = case.world
    for i in range(len(w.machines)):
        yield replace(case, world=replace(w, machines=w.machines[:i] + w.machines[i + 1 :]))
    for i in range(len(w.needs)):
        yield replace(case, world=replace(w, needs=w.needs[:i] + w.needs[i + 1 :]))
    for i in range(len(case.then)):
        yield replace(case, then=case.then[:i] + case.then[i + 1 :])
    if case.then != w.needs:
        yield replace(case, then=w.needs)
    for i, cluster in enumerate(w.clusters):
        used = {n.cluster for n in (*w.needs, *case.then)} | {m.cluster for m in w.machines}
        if cluster.id not in used | {m.committed_to for m in w.machines}:
            yield replace(case, world=replace(w, clusters=w.clusters[:i] + w.clusters[i + 1 :]))
    for i, need in enumerate(w.needs):
        for simple in plainer_need(need):
            changed_then = tuple(simple if n == need else n for n in case.then)
            yield replace(case, world=replace(w, needs=(*w.needs[:i], simple, *w.needs[i + 1 :])), then=changed_then)
    for i, need in enumerate(case.then):
        for simple in plainer_need(need):
            yield replace(case, then=(*case.then[:i], simple, *case.then[i + 1 :]))
    for i, machine in enumerate(w.machines):
        for plain in plainer_machine(machine):
            yield replace(case, world=replace(w, machines=(*w.machines[:i], plain, *w.machines[i + 1 :])))
    for i, cluster in enumerate(w.clusters):
        for field, value in (("daemons", ()), ("partial", False), ("live", True), ("reported", True)):
            if getattr(cluster, field) != value:
                plain_cluster = replace(cluster, **{field: value})  # type: ignore[arg-type]
                yield replace(case, world=replace(w, clusters=(*w.clusters[:i], plain_cluster, *w.clusters[i + 1 :])))


def plainer_need(need: Need) -> Iterator[Need]:
    """The same need with one thing less. The fingerprint stays: it names the row."""
    for field, value in (("requirements", ()), ("spread", ()), ("max_per_machine", 0), ("interruption", 0)):
        if getattr(need, field) != value:
            yield replace(need, **{field: value})  # type: ignore[arg-type]
    if need.reclamation:
        yield replace(need, reclamation=0)
    if "memory" in need.unit and len(need.unit) > 1:
        yield replace(need, unit={"cpu": need.unit["cpu"]}, aggregate={"cpu": need.aggregate.get("cpu", 0)})
    if need.unit and need.aggregate.get("cpu", 0) > need.unit["cpu"]:
        yield replace(need, aggregate={n: max(0, a - need.unit.get(n, 0)) for n, a in need.aggregate.items()})


def plainer_machine(machine: Machine) -> Iterator[Machine]:
    """The same machine with one field at its default."""
    for field in fields(Machine):
        if field.name in ("id", "state", "allocatable", "cluster", "committed_to"):
            continue
        default = field.default if field.name != "labels" else {}
        if getattr(machine, field.name) != default:
            yield replace(machine, **{field.name: default})  # type: ignore[arg-type]


def shrink(check: Check, case: Case, kind: str, seconds: float = 60) -> Case:
    """The smallest case found that breaks the same law."""
    deadline = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for candidate in smaller(case):
            if time.monotonic() > deadline:
                break
            if breaks(check, candidate, kind):
                case = candidate
                progress = True
                break
    return case


def breaks(check: Check, case: Case, kind: str) -> bool:
    """Whether the case breaks this law; a candidate that makes no sense breaks nothing."""
    try:
        return any(v.startswith(kind) for v in check(case))
    except (ValueError, KeyError, ZeroDivisionError):
        return False


def describe(case: Case) -> str:
    """A case for a person to read, only what is not default."""
    lines = ["  " + brief(value) for value in (*case.world.clusters, *case.world.machines, *case.world.needs)]
    lines.append("  then:" if case.then != case.world.needs else "  then the same")
    lines += ["    " + brief(need) for need in case.then if case.then != case.world.needs]
    lines.append(f"  seed {case.seed}, {case.world.policy}")
    lines.append(f"  first decision: {laws.names(decide(case.world).actions)}")
    return "\n".join(lines)


def brief(value: object) -> str:
    """A dataclass without its defaults."""
    parts = []
    for field in fields(value):  # type: ignore[arg-type]
        own = getattr(value, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if own != default:
            parts.append(f"{field.name}={getattr(own, 'value', own)!r}")
    return f"{type(value).__name__}({', '.join(parts)})"


def main() -> int:
    """Search until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", help="checks whose name contains this")
    parser.add_argument("--most", type=int, default=5, help="violations to print")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    chosen = [name for name in CHECKS if arguments.only in name]
    tried: Counter[str] = Counter()
    found: Counter[str] = Counter()
    seed = arguments.seed
    while time.monotonic() < deadline and sum(found.values()) < arguments.most:
        name = chosen[seed % len(chosen)]
        if name == "a large world" and seed % 5:
            name = chosen[0]
        seed += 1
        tried[name] += 1
        case = draw(name, seed)
        check = CHECKS[name][0]
        for violation in check(case)[:1]:
            kind = violation.split(":")[0]
            found[kind] += 1
            small = shrink(check, case, kind)
            out(f"\n{name}, seed {seed}: {violation.splitlines()[0]}\nshrunk: {check(small)[0]}\n{describe(small)}")
    out(f"tried {dict(tried)} from seed {arguments.seed}; found {dict(found) or 'nothing'}")
    return 1 if found else 0


def out(text: str) -> None:
    """To the terminal."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
