"""Law 7: what a shard has left when it starts again, and the world that it rebuilds from that."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.engine.oracle.decision import phase_one
from tests.engine.oracle.keeper import Keeper, arrived, difference, row_key, with_arrival
from tests.engine.oracle.laws import acts_legally, comes_to_rest, conserves, names
from tests.engine.oracle.loop import Loop
from tests.engine.oracle.rows import Facts
from tests.engine.oracle.world import (
    PINNED,
    Action,
    Cluster,
    Decision,
    Kind,
    Machine,
    Need,
    Policy,
    Stamp,
    State,
    World,
)

GIVING_BACK = (Kind.RECLAIM, Kind.DELETE)


# What is left


@dataclass(frozen=True)
class Mark:
    """What the shard was doing with a machine: how it showed it, for whom it is meant, and as what."""

    state: State
    committed_to: str
    stamp: Stamp | None


@dataclass(frozen=True)
class File:
    """The shard's local file. Beside what engine.md names (arrivals, since-times, marks) a decision also depends on
    hold-outs (protocol rule 8 puts them here), on what the rail has sent in its window, and on the drains seen.

    The counter of binding numbers is not in it: it goes on after the newest stamp that anybody shows.
    """

    arrivals: Mapping[object, int] = field(default_factory=dict)
    excess_since: Mapping[str, int | None] = field(default_factory=dict)
    idle_since: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    not_before: Mapping[str, int] = field(default_factory=dict)
    reclaim_hold_until: Mapping[str, int] = field(default_factory=dict)
    held_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    held_out_shapes: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    reclaimed_in_window: Mapping[str, int] = field(default_factory=dict)
    drain_seconds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What one cluster's operator says in its first frames: the roll-up, and what it sees of its nodes."""

    cluster: Cluster
    rows: tuple[Need, ...]
    nodes: Mapping[str, Machine]


def listed(loop: Loop, machine: Machine, evicting: bool) -> Machine:
    """A machine as its provider lists it, with the stamp of its last Configure.

    While the operator evicts, the provider says Configured of what the shard shows as Draining (ADR 9.33).
    """
    stamp = loop.recorded.get(machine.id, None if machine.committed_to else machine.stamp)
    evicted = machine.state is State.DRAINING and evicting
    return Machine(
        id=machine.id,
        state=State.CONFIGURED if evicted else machine.state,
        allocatable=machine.allocatable,
        cluster=machine.cluster,
        stamp=stamp,
        instance_type=machine.instance_type,
        zone=machine.zone,
        capacity_type=machine.capacity_type,
        labels=machine.labels,
        price=machine.price,
        interruption_probability=machine.interruption_probability,
    )


def file_of(loop: Loop) -> File:
    """What the shard wrote down."""
    machines, clusters = loop.machines.values(), loop.clusters.values()
    arrivals: dict[object, int] = {}
    for need in loop.needs:
        arrivals[row_key(need)] = min(need.arrival, arrivals.get(row_key(need), need.arrival))
    in_flight = [m for m in machines if m.committed_to or m.state is State.DRAINING]
    return File(
        arrivals=arrivals,
        excess_since={c.id: c.excess_since for c in clusters},
        idle_since={m.id: m.idle_since for m in machines},
        marks={m.id: Mark(m.state, m.committed_to, m.stamp) for m in in_flight},
        not_before={m.id: m.not_before for m in machines},
        reclaim_hold_until={m.id: m.reclaim_hold_until for m in machines},
        held_out={c.id: c.held_out for c in clusters},
        held_out_shapes=loop.policy.held_out_shapes,
        reclaimed_in_window={c.id: c.reclaimed_in_window for c in clusters},
        drain_seconds={m.id: m.drain_seconds for m in machines},
    )


def reports_of(loop: Loop) -> list[Report]:
    """One roll-up of each cluster that has ever sent one."""
    return [
        Report(
            Cluster(c.id, c.reported, c.live, c.partial, daemons=c.daemons),
            tuple(with_arrival(n, 0) for n in loop.needs if n.cluster == c.id),
            {m.id: m for m in loop.machines.values() if m.cluster == c.id},
        )
        for c in loop.clusters.values()
    ]


def silent(cluster: str) -> Report:
    """A cluster that has not reported yet: its machines name it, and that is all."""
    return Report(Cluster(cluster, reported=False, live=False), (), {})


# What is rebuilt


def known(listing: Machine, file: File, seen: Mapping[str, Machine], now: int) -> Machine:
    """A machine as the shard shows it: its provider's word, its mark, and what its cluster's operator sees."""
    machine = replace(
        listing,
        idle_since=file.idle_since.get(listing.id, now),
        not_before=file.not_before.get(listing.id, 0),
        reclaim_hold_until=file.reclaim_hold_until.get(listing.id, 0),
        drain_seconds=file.drain_seconds.get(listing.id, 60),
    )
    machine = as_seen(machine, seen.get(listing.id))
    mark = file.marks.get(listing.id)
    if mark:
        machine = replace(machine, state=mark.state, committed_to=mark.committed_to, stamp=mark.stamp)
    return machine


def as_seen(machine: Machine, node: Machine | None) -> Machine:
    """The machine with what its operator says of the node, if it has said anything of this binding."""
    if node is None or node.cluster != machine.cluster:
        return machine
    return replace(
        machine,
        empty=node.empty,
        unrequested=node.unrequested,
        protected=node.protected,
        ready_failed=node.ready_failed,
    )


def rebuilt(listing: Iterable[Machine], file: File, reports: Iterable[Report], policy: Policy, now: int) -> World:
    """All that the engine is told after the restart, in the order in which it came in."""
    reports = list(reports)
    seen = {name: node for report in reports for name, node in report.nodes.items()}
    machines = tuple(known(machine, file, seen, now) for machine in listing)
    clusters = tuple(
        replace(
            r.cluster,
            excess_since=file.excess_since.get(r.cluster.id),
            held_out=file.held_out.get(r.cluster.id, {}),
            reclaimed_in_window=file.reclaimed_in_window.get(r.cluster.id, 0),
        )
        for r in reports
    )
    rows = tuple(with_arrival(n, file.arrivals.get(row_key(n), 0)) for r in reports for n in r.rows)
    newest = max((m.stamp.number for m in machines if m.stamp), default=0)
    return World(machines, rows, clusters, replace(policy, held_out_shapes=file.held_out_shapes), now, newest + 1)


def restarted(loop: Loop, file: File, reports: list[Report], seed: int) -> Loop:
    """The same fleet under a shard that has just started, with this file and these roll-ups, in any order."""
    source = random.Random(f"restart/{seed}")
    listing = [listed(loop, m, source.random() < 0.5) for m in loop.machines.values()]
    source.shuffle(listing)
    reports = [replace(r, rows=tuple(source.sample(r.rows, len(r.rows)))) for r in source.sample(reports, len(reports))]
    again = loop.copy()
    again.take(rebuilt(listing, file, reports, loop.policy, loop.now))
    again.decider = Keeper().decide
    again.log.clear()
    return again


# The law


def renumbered(decision: Decision, by: int) -> Decision:
    """The same decision with all binding numbers moved."""
    return replace(decision, actions=tuple(moved(action, by) for action in decision.actions))


def moved(action: Action, by: int) -> Action:
    """The same action with another number."""
    if action.stamp is None:
        return action
    number = action.number + by
    return replace(action, number=number, stamp=replace(action.stamp, number=number))


def with_the_file(loop: Loop, then: tuple[Need, ...], seed: int, cycles: int) -> list[str]:
    """Law 7: "rebuilt from provider List, the stamped metadata, the shard's local file [...] and one roll-up per
    cluster, the shard decides as it would have without the restart".

    Asserted: for so many cycles after it, through one change of demand, every decision is the same to the byte as
    without the restart, in any order of machines, clusters and rows. Binding numbers may all be lower by one and the
    same amount, as the counter goes on after the newest number that is still in use.
    """
    again = restarted(loop, file_of(loop), reports_of(loop), seed)
    by = loop.next_binding - again.next_binding
    for cycle in range(cycles):
        if cycle == 2:
            for one in (loop, again):
                one.change(arrived(one.needs, then))
        found = difference(renumbered(again.step(), by), loop.step())
        if found:
            return [f"law 7: cycle {cycle} after the restart: {found}"]
    return []


def without_since_times(loop: Loop, then: tuple[Need, ...], seed: int, cycles: int) -> list[str]:
    """Law 7: "if slower to give back".

    Asserted, where only the since-times are lost: decisions stay the same until one of them gives something back. The
    first that differs differs in that alone, and by giving back less.
    """
    again = restarted(loop, replace(file_of(loop), excess_since={}, idle_since={}), reports_of(loop), seed)
    by = loop.next_binding - again.next_binding
    for cycle in range(cycles):
        if cycle == 2:
            for one in (loop, again):
                one.change(arrived(one.needs, then))
        slow, quick = renumbered(again.step(), by), loop.step()
        if difference(slow, quick):
            less = tuple(a for a in quick.actions if a in slow.actions or a.kind not in GIVING_BACK)
            found = difference(replace(slow, capped=frozenset()), replace(quick, actions=less, capped=frozenset()))
            return [f"law 7: cycle {cycle}, without since-times: {found}"] if found else []
    return []


def without_the_file(loop: Loop, then: tuple[Need, ...], seed: int, cycles: int) -> list[str]:
    """Law 7: "without the file it is safe, if slower to give back".

    All is lost: arrivals, since-times, hold-outs, what machines in flight were for. Clusters report one after the
    other, some cycles apart. Asserted of every decision from then on:

    - no machine of a cluster that has not reported is reclaimed;
    - nothing PINNED is preempted: no machine that a PINNED need takes from before anybody is preempted, and, of a
      cluster that has not reported, none that is stamped PINNED, or not stamped, or stamped with a priority that is
      not lower than the preemptor's;
    - no cluster gives a machine back within `reclaim_after` of its report, and no machine is released within its hold
      of the restart, whatever it was before;
    - conservation and legality as ever; and in the end it comes to rest.

    Not asserted: that each single machine goes later than it would have with the file. Rows that all arrive with the
    first roll-up are served in another order, and what was in flight for somebody is now free to all: another
    machine may become the superfluous one.
    """
    again = restarted(loop, File(), [silent(name) for name in loop.clusters], seed)
    start = again.now
    to_come = [report for report in reports_of(loop) if report.cluster.reported]
    random.Random(f"reports/{seed}").shuffle(to_come)
    reported: dict[str, int] = {}
    wrong: list[str] = []
    for cycle in range(cycles):
        if to_come and cycle % 2 == seed % 2:
            hear(again, to_come.pop(), reported)
        elif not to_come and cycle == cycles - 3:
            again.change(arrived(again.needs, tuple(n for n in then if n.cluster in reported)))
        world = again.world()
        decision = again.step()
        wrong += is_safe(world, decision, reported, start)
        if wrong:
            return [f"{wrong[0]} (cycle {cycle} without the file)"]
    for report in to_come:
        hear(again, report, reported)
    return comes_to_rest(again)


def hear(loop: Loop, report: Report, reported: dict[str, int]) -> None:
    """A cluster reports for the first time since the shard started."""
    reported[report.cluster.id] = loop.now
    loop.clusters[report.cluster.id] = report.cluster
    loop.machines = {name: as_seen(m, report.nodes.get(name)) for name, m in loop.machines.items()}
    loop.change(arrived(loop.needs, (*loop.needs, *report.rows)))


def is_safe(world: World, decision: Decision, reported: Mapping[str, int], start: int) -> list[str]:
    """What `without_the_file` asserts of one decision."""
    machines = {m.id: m for m in world.machines}
    hold = world.policy.idle_hold
    wrong = [*conserves(world, decision), *acts_legally(world, decision)]
    needs = {(n.cluster, n.fingerprint): n for n in world.needs}
    for action in decision.actions:
        machine = machines[action.machine]
        early = False
        match action.kind:
            case Kind.RECLAIM:
                early = world.now - reported.get(action.cluster, world.now) < world.policy.reclaim_after
                early = early or action.cluster not in reported
            case Kind.DELETE:
                early = world.now - start <= hold[machine.capacity_type]
            case Kind.PREEMPT:
                priority = needs[action.cluster, action.fingerprint].priority
                if is_pinned(world, machine, reported) or not outranks(priority, machine, reported):
                    wrong.append(f"law 7: {names([action])}, which is PINNED or not lower")
        if early:
            wrong.append(f"law 7: {names([action])} too early")
    return wrong


def is_pinned(world: World, machine: Machine, reported: Mapping[str, int]) -> bool:
    """Whether a machine is nobody's prey."""
    if machine.cluster not in reported:
        return machine.stamp is None or PINNED in (machine.stamp.interruption, machine.stamp.reclamation)
    picture = phase_one(Facts(world))
    rows = [picture.facts.rows[index].need for index in picture.on[machine.id]]
    return any(PINNED in (need.interruption, need.reclamation) for need in rows)


def outranks(priority: int, machine: Machine, reported: Mapping[str, int]) -> bool:
    """Whether so high a need may preempt the machine, by its stamp where nothing else is known."""
    return machine.cluster in reported or machine.stamp is None or priority > machine.stamp.priority
