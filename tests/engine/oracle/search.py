"""Hunts for worlds that break a law: `python search.py --seconds 60 [--seed N]`. Prints each violation shrunk."""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from tests.engine.oracle import laws, restart
from tests.engine.oracle.bridge import decide
from tests.engine.oracle.edits import ALL, DEMAND, MACHINES, SESSIONS, a_need_appears, edited
from tests.engine.oracle.generate import Seeded, Taste, chance, changed, pick, world
from tests.engine.oracle.keeper import Keeper, Twins, arrived
from tests.engine.oracle.loop import Latency, Loop, fixed, scattered
from tests.engine.oracle.world import Machine, Need, World


@dataclass(frozen=True)
class Case:
    """A world, the demand that follows, and a seed for latencies."""

    world: World
    then: tuple[Need, ...]
    seed: int


Check = Callable[[Case], list[str]]


def latencies(seed: int) -> dict[str, Latency]:
    """Plans that differ a lot: at once, slow drains, slow creates, any from 0 to 60 cycles, all scattered."""
    source = random.Random(f"latencies/{seed}")
    return {
        "none": fixed(0, 0, 0),
        "slow": fixed(3, 2, 6),
        "very slow": fixed(30, 60, 45),
        "any": fixed(source.randint(0, 60), source.randint(0, 60), source.randint(0, 60)),
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
    """Law 1 in the closed loop, through failures, churn and changes of demand while things are in flight; laws 3 to 5
    on every 7th decision. From the last change on, all is static, and it must come to rest.
    """
    cycle = (10, 10, 4)[case.seed % 3]
    loop = Loop.of(case.world, plan(case.seed), cycle)
    if case.seed % 5 < 2:
        loop.fails = some_fail(case.seed)
    wrong: list[str] = []
    for i in range(case.seed % 12):
        if i % 7 == case.seed % 7:
            wrong += laws.static_laws(loop.world(), case.seed)
        source = seeded("churn", case.seed, i)
        if case.seed % 2 and chance(source, 40):
            loop.take(edited(source, loop.world(), (*MACHINES, *SESSIONS, *DEMAND), source.integer(1, 2))[0])
        loop.step()
    loop.change(arrived(loop.needs, demand_for(case.then, loop)))
    wrong += laws.static_laws(loop.world(), case.seed)
    wrong += laws.comes_to_rest(loop)
    return wrong


def seeded(*parts: object) -> Seeded:
    """Choices of their own for one step of one case, so that shrinking the case does not move all the others."""
    return Seeded(random.Random("/".join(map(str, parts))))


def keeps_up_in_a_loop(case: Case) -> list[str]:
    """Law 6 in the closed loop: latencies, failures, churn, sessions and policies that change, demand in flight."""
    twins = Twins(in_full=case.seed % 2 == 0)
    loop = Loop.of(case.world, scattered(case.seed, 4) if case.seed % 3 else fixed(0, 0, 0), (10, 4)[case.seed % 2])
    loop.decider = twins.decide
    loop.fails = some_fail(case.seed)
    for step in range(10):
        source = seeded("loop", case.seed, step)
        if step == 5:
            loop.change(arrived(loop.needs, demand_for(case.then, loop)))
        elif step and chance(source, 60):
            loop.take(edited(source, loop.world(), (*MACHINES, *SESSIONS, *DEMAND), source.integer(1, 3))[0])
        loop.step()
        if twins.wrong:
            return [f"{twins.wrong[0]} (step {step})"]
    return []


def survives_a_restart(case: Case) -> list[str]:
    """Law 7: with the file, without its since-times, or without the file, by the seed."""
    ways = (restart.with_the_file, restart.without_since_times, restart.without_the_file)
    return ways[case.seed // 6 % 3](*in_mid_flight(case), case.seed, 10)


def in_mid_flight(case: Case) -> tuple[Loop, tuple[Need, ...]]:
    """A closed loop after some cycles with churn, failures and demand that changes; and the demand that follows."""
    cycle_seconds = (10, 4)[case.seed // 2 % 2]
    loop = Loop.of(case.world, scattered(case.seed, 6) if case.seed % 3 else fixed(0, 0, 0), cycle_seconds)
    loop.decider = Keeper().decide
    loop.fails = some_fail(case.seed)
    for step in range(case.seed % 6):
        source = seeded("restart", case.seed, step)
        loop.take(edited(source, loop.world(), DEMAND, 1)[0])
        if step and chance(source, 60):
            loop.take(edited(source, loop.world(), (*MACHINES, *SESSIONS), source.integer(1, 3))[0])
        loop.step()
    return loop, demand_for(case.then, loop)


def demand_for(needs: tuple[Need, ...], loop: Loop) -> tuple[Need, ...]:
    """The rows of clusters that have reported; others have none (ADR 9.27)."""
    return tuple(need for need in needs if loop.clusters[need.cluster].reported)


def keeps_up_with_anything(case: Case) -> list[str]:
    """Law 6 along unrelated edits: between two decisions up to five, or none; and what was decided is carried out,
    or not (paused), or in part.
    """
    twins = Twins(in_full=case.seed % 2 == 0)
    world, done, names = case.world, "", ""
    for step in range(9):
        source = seeded("edits", case.seed, step)
        decision = twins.decide(world)
        if twins.wrong:
            return [f"{twins.wrong[0]} (step {step}, after {done}{names})"]
        carried_out = pick(source, [0, 0, 50, 100])
        done = f"{carried_out} % carried out, "
        loop = Loop.of(world, fixed(0, 0, 0))
        loop.machines = {m.id: m for m in world.machines}  # Loop.of starts what is queued; here nothing starts
        if carried_out:
            kept = tuple(action for action in decision.actions if chance(source, carried_out))
            loop.apply(replace(decision, actions=kept), start=False)
        before = loop.world()
        world, names = edited(source, before, ALL, pick(source, [1, 2, 3, 4, 5, 0]))
        if chance(source, 40):
            # Something to decide anew with whatever else has changed; the engine is told of both at once.
            world, more = edited(source, world, DEMAND, 1)
            world = replace(world, needs=arrived(before.needs, world.needs))
            names += f", {more}"
    return []


def buying_ignores_latency(case: Case) -> list[str]:
    """Law 2: from a settled fleet, one change of demand under five latency plans; rails on, and now and then a row held
    out for a while from the change on, or more demand some cycles later while things are in flight.

    Nothing fails here and nobody interferes: what fails is bought again, and when that happens is a matter of latency.
    """
    loop = Loop.of(case.world, fixed(0, 0, 0))
    wrong = laws.comes_to_rest(loop)
    if wrong:
        return wrong
    settled = loop.world()
    source = seeded("law 2", case.seed)
    if case.then and chance(source, 30):
        settled = hold_out(settled, pick(source, case.then), settled.now + pick(source, [20, 40, 200]))
    elif chance(source, 40):
        grown, _ = edited(source, replace(settled, needs=case.then), (a_need_appears,), source.integer(1, 2))
        growth = source.integer(1, 6), grown.needs
        return laws.buys_the_same(settled, case.then, latencies(case.seed), growth)
    return laws.buys_the_same(settled, case.then, latencies(case.seed))


def hold_out(world: World, need: Need, until: int) -> World:
    """The world in which this row may not act for so long."""
    held = {need.fingerprint: until}
    clusters = (replace(c, held_out=held) if c.id == need.cluster else c for c in world.clusters)
    return replace(world, clusters=tuple(clusters))


RIVALS = Taste(machines=(8, 20), clusters=(2, 3), rows=(1, 3), rivals=True)

CHECKS: dict[str, tuple[Check, Taste]] = {
    "one decision": (one_decision, Taste()),
    "loop": (loop_rests, Taste()),
    "loop, crowded": (loop_rests, Taste(machines=(6, 20), clusters=(2, 4), rows=(1, 4))),
    "one cluster": (loop_rests, Taste(machines=(2, 9), clusters=(1, 1), rows=(2, 5))),
    "latency": (buying_ignores_latency, Taste(calm=True)),
    "latency, crowded": (buying_ignores_latency, Taste(machines=(6, 16), clusters=(2, 4), rows=(1, 3), calm=True)),
    "kept, loop": (keeps_up_in_a_loop, Taste(machines=(8, 20), clusters=(2, 3), rows=(1, 2))),
    "kept, loop, rivals": (keeps_up_in_a_loop, RIVALS),
    "kept, edits": (keeps_up_with_anything, Taste(machines=(8, 20), clusters=(1, 3), rows=(1, 2))),
    "kept, edits, rivals": (keeps_up_with_anything, RIVALS),
    "restart": (survives_a_restart, Taste(machines=(6, 16), clusters=(2, 4), rows=(1, 3))),
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
