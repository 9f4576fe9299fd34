"""Sections 8 and 9: phase 3. Reclaim what a cluster does not need, release what nobody took, within the rails."""

from dataclasses import dataclass

from tests.engine.oracle.gangs import credit_only
from tests.engine.oracle.picture import Picture
from tests.engine.oracle.serve import credit
from tests.engine.oracle.world import Action, Cluster, Kind, Machine, State

RECLAIM_GRACE = 600


@dataclass(frozen=True)
class Reclaim:
    """What a cluster gives back this cycle."""

    excess: bool
    machines: tuple[Machine, ...] = ()
    capped: bool = False


def reclaim(picture: Picture, cluster: Cluster) -> Reclaim:
    """Section 8, Reclaim, on the picture after phase 2."""
    left = untaken(picture, cluster.id)
    if not left or not cluster.reported:
        return Reclaim(excess=False)
    if not cluster.live or not had_excess_long_enough(picture, cluster):
        return Reclaim(excess=True)
    rail = rail_of(picture, cluster)
    fallback = emission(picture, cluster, left)
    if all(picture.met(row) for row in picture.facts.rows_of(cluster.id)):
        candidates = emission(picture, cluster, untaken(keep_credit(picture, cluster.id), cluster.id))
        head = candidates[:rail]
        if candidates and leaves_all_covered(picture, cluster.id, head):
            return Reclaim(True, tuple(head), capped=len(candidates) > len(head))
    # "the head of what the ordinary order left untaken goes instead"; also where the keep order leaves nothing that may
    # go, or its excess would stay for ever (ADR 9.3)
    return Reclaim(True, tuple(fallback[:rail]), capped=len(fallback) > rail)


def untaken(picture: Picture, cluster: str) -> list[Machine]:
    """Section 8: "A cluster with a Configured machine that no need took has excess"."""
    return [m for m in picture.of_cluster(cluster) if is_configured_for(picture, m) and not picture.on[m.id]]


def is_configured_for(picture: Picture, machine: Machine) -> bool:
    """Configured and neither a victim of this cycle nor committed elsewhere."""
    return machine.state is State.CONFIGURED and not machine.committed_to and not picture.bound[machine.id].bought


def had_excess_long_enough(picture: Picture, cluster: Cluster) -> bool:
    """Section 8: "only once the cluster has had excess for reclaim_after"; excess seen first now starts now."""
    since = picture.facts.world.now if cluster.excess_since is None else cluster.excess_since
    return picture.facts.world.now - since >= picture.facts.policy.reclaim_after


def keep_credit(picture: Picture, cluster: str) -> Picture:
    """Section 8: "credit it once more with machines in keep order (running pods before empty, price ascending,
    reclamation bucket descending, id; in-flight ones too [...]). The keep order replaces "own first" too."

    A gang stays in the domain it picked this cycle (section 6: "one domain per cycle").
    """
    trial = picture.copy()
    order = sorted(trial.of_cluster(cluster), key=lambda m: (m.empty, m.price, -reclamation(m), m.id))
    rows = trial.facts.rows_of(cluster)
    for row in rows:
        trial.untake(row)
    for row in rows:
        credit(trial, row, order, trial.domains.get(row.index) if row.same_keys else None)
    return trial


def reclamation(machine: Machine) -> int:
    """The reclamation bucket stamped at the last binding, 0 for none."""
    return machine.stamp.reclamation if machine.stamp else 0


def emission(picture: Picture, cluster: Cluster, machines: list[Machine]) -> list[Machine]:
    """Section 8: "Emission: empty machines first, then price ascending, reclamation bucket ascending, id", of those
    that may go at all.
    """
    going = [m for m in machines if may_go(picture, cluster, m)]
    return sorted(going, key=lambda m: (not m.empty, m.price, reclamation(m), m.id))


def may_go(picture: Picture, cluster: Cluster, machine: Machine) -> bool:
    """Section 8: never one with pods without requests, only empty ones of a partial cluster. Protocol.md 12: protected
    ones are not drained; 14: one whose reclaim was given up is no candidate for a while.
    """
    if machine.protected or machine.unrequested or machine.reclaim_hold_until > picture.facts.world.now:
        return False
    return machine.empty or not cluster.partial


def leaves_all_covered(picture: Picture, cluster: str, head: list[Machine]) -> bool:
    """Section 8: "credit again in the ordinary order without it; if a need comes out shorter than after phase 2" it
    does not. Every need was covered, so every need must be covered again.
    """
    trial = picture.copy()
    for machine in head:
        trial.give_back(machine)
    rows = trial.facts.rows_of(cluster)
    for row in rows:
        trial.untake(row)
    for row in rows:
        credit_only(trial, row)
    return all(trial.met(row) for row in rows)


def rail_of(picture: Picture, cluster: Cluster) -> int:
    """Section 9: "at most max(1, 5 % of its Configured)", protocol rule 17: per 10 s, and at most 25 % (at least one)
    drains for reclaim at once.
    """
    policy = picture.facts.policy
    configured = sum(1 for m in picture.of_cluster(cluster.id) if is_configured_for(picture, m))
    draining = sum(
        1
        for m in picture.facts.machines.values()
        if m.state is State.DRAINING and m.cluster == cluster.id and m.id not in picture.bound
    )
    per_window = max(1, configured * policy.reclaim_percent // 100) - cluster.reclaimed_in_window
    at_once = max(1, (configured + draining) * policy.draining_percent // 100) - draining
    return max(0, min(per_window, at_once))


def reclaim_action(cluster: str, machine: Machine) -> Action:
    """Section 8: "Grace 10 min"."""
    return Action(Kind.RECLAIM, machine.id, cluster, "no need took it", grace_seconds=RECLAIM_GRACE)


def releases(picture: Picture, dropped: list[str]) -> list[Action]:
    """Section 8, Release: "An Idle machine nobody took, held longer than its type allows, goes back"."""
    world = picture.facts.world
    actions = []
    for machine in picture.facts.machines.values():
        hold = world.policy.idle_hold.get(machine.capacity_type)
        if machine.state is not State.IDLE or machine.id in picture.bound or machine.id in dropped or hold is None:
            continue
        if world.now - machine.idle_since > hold:
            actions.append(Action(Kind.DELETE, machine.id, "", f"idle for more than {hold} s"))
    return actions


def dropped_marks(picture: Picture) -> list[str]:
    """Section 7: "If no need takes anything from a committed machine, bought or preempted, in the first decision that
    sees it Idle, its mark is dropped after phase 2."
    """
    return [
        m.id
        for m in picture.facts.machines.values()
        if m.state is State.IDLE and m.committed_to and not picture.on[m.id]
    ]
