"""Random edits of a world: what providers, operators, clocks and people do to a fleet between two decisions."""

from collections.abc import Callable
from dataclasses import replace

from tests.engine.oracle.generate import (
    DOLLAR,
    RACK,
    Source,
    Taste,
    chance,
    cluster,
    in_some_state,
    machine,
    pick,
    policy,
    row,
    some_stamp,
)
from tests.engine.oracle.keeper import arrived
from tests.engine.oracle.world import PINNED, Cluster, Machine, Need, State, Unrequested, World

Edit = Callable[[Source, World], World]
ANY = Taste()
FREE = (State.IDLE, State.SPECULATIVE)


def edited(source: Source, world: World, edits: tuple[Edit, ...], count: int) -> tuple[World, str]:
    """The world after so many of these edits, and their names. Arrivals are as a shard counts them."""
    after = world
    chosen = [pick(source, edits) for _ in range(count)]
    for edit in chosen:
        after = edit(source, after)
    after = replace(after, needs=arrived(world.needs, after.needs))
    return after, ", ".join(edit.__name__ for edit in chosen)


# Machines


def some(source: Source, world: World, states: tuple[State, ...] = tuple(State)) -> Machine | None:
    """One machine in one of these states, if there is any."""
    there = [m for m in world.machines if m.state in states]
    return pick(source, there) if there else None


def put(world: World, old: Machine | None, **changes: object) -> World:
    """The world with one machine changed."""
    if old is None:
        return world
    new = replace(old, **changes)  # type: ignore[arg-type]
    return replace(world, machines=tuple(new if m.id == old.id else m for m in world.machines))


def a_machine_fails(source: Source, world: World) -> World:
    """Any state with a host may turn into Failed; what was promised ends with it."""
    old = some(source, world, tuple(set(State) - {State.SPECULATIVE, State.FAILED}))
    return put(world, old, state=State.FAILED, cluster="", committed_to="", stamp=None, empty=False, unrequested=None)


def a_failed_machine_recovers(source: Source, world: World) -> World:
    """Failed has a way out."""
    state = pick(source, [State.IDLE, State.SPECULATIVE])
    return put(world, some(source, world, (State.FAILED,)), state=state, idle_since=world.now)


def a_machine_vanishes(source: Source, world: World) -> World:
    """A full list lacks it."""
    old = some(source, world)
    return replace(world, machines=tuple(m for m in world.machines if old is None or m.id != old.id))


def a_machine_appears(source: Source, world: World) -> World:
    """A new id, or one that was there before; anywhere in the order of ids."""
    taken = {m.id for m in world.machines}
    free = [name for i in range(40) for name in (f"m{i:03}", f"m{i:03}a") if name not in taken]
    name = pick(source, [*free[:6], *free[-3:]])
    memory = any("memory" in m.allocatable for m in world.machines)
    new = machine(source, ANY, name, list(world.clusters), list(world.needs), memory, world.next_binding)
    return replace(world, machines=(*world.machines, new), next_binding=world.next_binding + 1)


def a_twin_appears(source: Source, world: World) -> World:
    """A free machine like another, so that one of two equals is new."""
    old = some(source, world)
    taken = {m.id for m in world.machines}
    if old is None or f"{old.id}b" in taken:
        return world
    twin = replace(old, id=f"{old.id}b", state=State.SPECULATIVE, cluster="", committed_to="", stamp=None, empty=False)
    twin = replace(twin, unrequested=None, protected=False, ready_failed=False)
    return replace(world, machines=(*world.machines, twin))


def a_price_moves(source: Source, world: World) -> World:
    """The provider asks other prices, or rates risks anew, mostly of what can be bought."""
    for _ in range(source.integer(1, 3)):
        old = some(source, world, FREE) or some(source, world)
        if chance(source, 30):
            world = put(world, old, interruption_probability=pick(source, [0, 1_000, 10_000, 100_000]))
        else:
            world = put(world, old, price=pick(source, [0, 1, 2, 3, 5, 9]) * DOLLAR)
    return world


def a_machine_is_rebound(source: Source, world: World) -> World:
    """A binding for some cluster with the newest number."""
    old = some(source, world)
    if old is None:
        return world
    owner = pick(source, world.clusters).id
    stamp = some_stamp(source, list(world.needs), owner, world.next_binding)
    state = pick(source, [State.CONFIGURED, State.CONFIGURING])
    world = replace(world, next_binding=world.next_binding + 1)
    return put(world, old, state=state, cluster=owner, committed_to="", stamp=stamp)


def a_stamp_is_lost(source: Source, world: World) -> World:
    """Somebody wiped the metadata."""
    return put(world, some(source, world, (State.CONFIGURED, State.CONFIGURING)), stamp=None)


def a_machine_is_in_another_state(source: Source, world: World) -> World:
    """Whatever happened, it is now in some state that the contract allows."""
    old = some(source, world)
    if old is None:
        return world
    bare = replace(old, cluster="", committed_to="", stamp=None, empty=False, unrequested=None, protected=False)
    bare = replace(bare, ready_failed=False)
    new = in_some_state(source, ANY, bare, list(world.clusters), list(world.needs), world.next_binding)
    world = replace(world, next_binding=world.next_binding + 1)
    return replace(world, machines=tuple(new if m.id == old.id else m for m in world.machines))


def a_step_completes(source: Source, world: World) -> World:
    """Created, configured, drained or deleted, as asked for."""
    old = some(source, world, (State.CREATING, State.CONFIGURING, State.DRAINING, State.DELETING))
    if old is None:
        return world
    match old.state:
        case State.CONFIGURING:
            return put(world, old, state=State.CONFIGURED)
        case State.DELETING:
            return put(world, old, state=State.SPECULATIVE)
        case _:
            stamp = old.stamp if old.committed_to else None
            return put(world, old, state=State.IDLE, cluster="", stamp=stamp, idle_since=world.now, empty=False)


def pods_come_or_go(source: Source, world: World) -> World:
    """What the operator says of a node: empty or not, pods without requests or none."""
    old = some(source, world, (State.CONFIGURED,))
    if old is None:
        return world
    if chance(source, 30):
        pods = Unrequested(pick(source, [0, 5, 200_000]), 0, pick(source, [0, PINNED]))
        return put(world, old, unrequested=None if old.unrequested else pods, empty=False)
    return put(world, old, empty=not old.empty, unrequested=None)


def a_machine_is_protected_or_not_ready(source: Source, world: World) -> World:
    """Flags of one machine turn over."""
    old = some(source, world, (State.CONFIGURED,))
    if old is None:
        return world
    if chance(source, 50):
        return put(world, old, protected=not old.protected)
    return put(world, old, ready_failed=not old.ready_failed)


def a_machine_is_held_out(source: Source, world: World) -> World:
    """For a while it is no candidate, or may not be given back."""
    until = world.now + pick(source, [10, 40, 100])
    if chance(source, 50):
        return put(world, some(source, world), not_before=until)
    return put(world, some(source, world, (State.CONFIGURED,)), reclaim_hold_until=until)


def a_machine_is_another_one(source: Source, world: World) -> World:
    """Another size, type or drain time under the old name."""
    old = some(source, world, pick(source, [tuple(State), FREE]))
    if old is None:
        return world
    match source.integer(0, 2):
        case 0:
            return put(world, old, allocatable={**old.allocatable, "cpu": pick(source, [2, 4, 8, 16])})
        case 1:
            return put(world, old, instance_type=pick(source, ["t", "u", "v"]))
        case _:
            return put(world, old, drain_seconds=pick(source, [1, 60, 600]))


def a_machine_is_elsewhere(source: Source, world: World) -> World:
    """Another zone or rack: domains gain and lose."""
    old = some(source, world, pick(source, [tuple(State), FREE]))
    if chance(source, 50):
        return put(world, old, zone=pick(source, ["z0", "z1", "z2"]))
    return put(world, old, labels={RACK: pick(source, ["r0", "r1", "r2"])})


# Demand


def a_need_changes(source: Source, world: World) -> World:
    """It grows or shrinks, by units or at all."""
    if not world.needs:
        return world
    old = pick(source, world.needs)
    factor, over = pick(source, [(1, 2), (2, 1), (1, 3), (3, 2)])
    aggregate = {name: -(-amount * factor // over) for name, amount in old.aggregate.items()}
    return with_needs(world, [replace(n, aggregate=aggregate) if n is old else n for n in world.needs])


def a_need_vanishes(source: Source, world: World) -> World:
    """A row is withdrawn."""
    gone = source.integer(0, max(0, len(world.needs) - 1))
    return with_needs(world, [n for i, n in enumerate(world.needs) if i != gone])


def a_need_appears(source: Source, world: World) -> World:
    """A new row of a cluster that reports, or a second row equal to one that is there."""
    reporting = [c.id for c in world.clusters if c.reported]
    if not reporting:
        return world
    if world.needs and chance(source, 15):
        return with_needs(world, [*world.needs, pick(source, world.needs)])
    memory = any("memory" in m.allocatable for m in world.machines)
    return with_needs(world, [*world.needs, row(source, ANY, pick(source, reporting), memory, 0)])


def with_needs(world: World, needs: list[Need]) -> World:
    """The world with this demand."""
    return replace(world, needs=tuple(needs))


# Clusters, policy, clock


def a_session_changes(source: Source, world: World) -> World:
    """A cluster falls silent or comes back, its demand becomes partial or whole, its excess older or younger."""
    old = pick(source, world.clusters)
    match source.integer(0, 4):
        case 0:
            return put_cluster(world, replace(old, live=not old.live))
        case 1:
            return put_cluster(world, replace(old, partial=not old.partial))
        case 2:
            return put_cluster(world, replace(old, excess_since=pick(source, [None, world.now, world.now - 100])))
        case 3:
            return put_cluster(world, replace(old, reclaimed_in_window=source.integer(0, 2)))
        case _:
            # What has not reported has no needs (ADR 9.27).
            world = with_needs(world, [n for n in world.needs if n.cluster != old.id])
            return put_cluster(world, replace(old, reported=not old.reported))


def a_daemon_set_changes(source: Source, world: World) -> World:
    """A cluster runs another set of daemons."""
    old = pick(source, world.clusters)
    return put_cluster(world, replace(old, daemons=cluster(source, ANY, old.id).daemons))


def a_cluster_appears(source: Source, world: World) -> World:
    """A cluster that nobody knew, anywhere in the order of ids."""
    taken = {c.id for c in world.clusters}
    free = [name for name in ("c9", "b0", "c0a") if name not in taken]
    if not free:
        return world
    return replace(world, clusters=(*world.clusters, cluster(source, ANY, pick(source, free))))


def a_row_is_held_out(source: Source, world: World) -> World:
    """A row may not act for a while, or may again."""
    if not world.needs:
        return world
    need = pick(source, world.needs)
    old = next(c for c in world.clusters if c.id == need.cluster)
    held = {} if old.held_out else {need.fingerprint: world.now + pick(source, [10, 40, 100])}
    return put_cluster(world, replace(old, held_out=held))


def put_cluster(world: World, new: Cluster) -> World:
    """The world with one cluster changed."""
    return replace(world, clusters=tuple(new if c.id == new.id else c for c in world.clusters))


def the_policy_changes(source: Source, world: World) -> World:
    """Somebody edits the shard's configuration, or a shape is held out."""
    new = policy(source, ANY)
    shapes = {shape: world.now + pick(source, [10, 40]) for shape in new.held_out_shapes}
    weights = [0, 100_000_000, 1_000_000_000]
    return replace(
        world,
        policy=replace(
            new,
            held_out_shapes=shapes,
            weight_priority=pick(source, weights[::-1]),
            weight_drain=pick(source, weights[1:]),
        ),
    )


def the_clock_runs(source: Source, world: World) -> World:
    """Nothing else happens; holds run out."""
    return replace(world, now=world.now + pick(source, [1, 10, 40, 100, 400]))


MACHINES: tuple[Edit, ...] = (
    a_machine_fails,
    a_failed_machine_recovers,
    a_machine_vanishes,
    a_machine_appears,
    a_twin_appears,
    a_price_moves,
    pods_come_or_go,
    a_machine_is_protected_or_not_ready,
    a_machine_is_held_out,
)
"""Churn: what may happen to a fleet while a shard runs it."""

SESSIONS: tuple[Edit, ...] = (a_session_changes, a_daemon_set_changes, a_row_is_held_out, the_policy_changes)

DEMAND: tuple[Edit, ...] = (a_need_changes, a_need_vanishes, a_need_appears)

ALL: tuple[Edit, ...] = (
    *MACHINES,
    a_machine_is_rebound,
    a_stamp_is_lost,
    a_machine_is_in_another_state,
    a_step_completes,
    a_machine_is_another_one,
    a_machine_is_elsewhere,
    *SESSIONS,
    a_cluster_appears,
    *DEMAND,
    *DEMAND,
    the_clock_runs,
)
"""Anything at all, whether a shard could come to see it or not: law 6 holds for every input."""
