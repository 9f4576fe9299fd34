"""A cluster's pods and nodes, as its API server would show them: what runs where, and what waits. No clock, no network.

Pods of one workload are alike, so they are counted, not named. A stand-in for the scheduler puts pods on Ready nodes,
first fit, highest priority first, and lets them push pods of lower priority off. It knows requirements, machine limits,
gangs and hard spread, and no other rule.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from bigfleet.model.demand.need import Daemon, Need, NeedKey, UnrequestedNode
from bigfleet.model.demand.profile import Operator, Profile, Spread, WhenUnsatisfiable
from bigfleet.model.labels import satisfies
from bigfleet.model.resources import PODS, Resources, total

_DEFAULT_PODS = 110
_NO_LIMIT = 2**31


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one kind; with SAME in the profile they are a gang, which runs whole or not at all."""

    name: str
    unit: Resources
    """What one pod requests."""
    profile: Profile = Profile()
    leave_seconds: float | None = 5.0
    """How long its pods take to leave a node; None: a disruption budget never lets them go."""
    requested: bool = True
    """Whether there are CapacityRequests for its pods (protocol rule 13)."""

    @property
    def size(self) -> Resources:
        """What one pod takes from a node."""
        return tuple((dict(self.unit) | {PODS: 1}).items())


class Pods(msgspec.Struct, frozen=True):
    """How many pods wait for a node, and how many have one."""

    pending: int
    running: int


class Cordon(msgspec.Struct, frozen=True):
    """What the operator writes on a node beside the cordon (protocol rule 22)."""

    instruction: str
    """The id of the reclaim instruction."""
    deadline: float
    kind: int
    """Why the node is to be emptied: the wire number of the instruction's kind."""


class Node:
    """One Node object. `pods` counts pods by workload; `leaving` says that its machine is draining or has failed."""

    __slots__ = ("cordon", "free", "labels", "leaving", "name", "pods", "provider_id", "ready")

    def __init__(self, name: str, provider_id: str, labels: Mapping[str, str], free: dict[str, int]) -> None:
        self.name, self.provider_id, self.labels, self.free = name, provider_id, labels, free
        self.pods: Counter[str] = Counter()
        self.ready = self.leaving = False
        self.cordon: Cordon | None = None

    @property
    def schedulable(self) -> bool:
        """Whether pods may be put on it."""
        return self.ready and not self.leaving and self.cordon is None


class World:
    """One cluster. After every change the stand-in for the scheduler places the pods that wait."""

    def __init__(self, daemons: Sequence[Daemon] = ()) -> None:
        self.daemons = tuple(daemons)
        self.nodes: dict[str, Node] = {}
        """The nodes by name, in the order in which they joined."""
        self.version = 0
        """Grows with every change of the demand."""
        self.changed: Callable[[], None] = lambda: None
        """Called when pods or nodes have come or gone; the cluster's operator sets it."""
        self._workloads: dict[str, Workload] = {}
        self._replicas: Counter[str] = Counter()
        self._running: Counter[str] = Counter()

    # Demand.

    def deploy(self, workload: Workload, replicas: int) -> None:
        """Add a workload, or replace the one of the same name."""
        self._stop_all(workload.name)
        self._workloads[workload.name] = workload
        self._workloads = dict(sorted(self._workloads.items(), key=lambda item: -item[1].profile.priority))
        self.scale(workload.name, replicas)

    def scale(self, name: str, replicas: int) -> None:
        """Set how many pods a workload has. Surplus pods go, the last placed first; a gang that changes starts anew."""
        workload = self._workloads[name]
        self._replicas[name] = replicas
        surplus = self._running[name] - replicas
        if workload.profile.same and surplus:
            self._stop_all(name)
            surplus = 0
        for node in reversed(self.nodes.values()):
            if surplus <= 0:
                break
            count = min(surplus, node.pods[name])
            self._stop(node, workload, count)
            surplus -= count
        self.version += 1
        self._place(self.nodes.values())
        self.changed()

    def owners(self) -> tuple[tuple[str, ...], ...]:
        """Some of those who ask for each row; empty where the pods have no names."""
        return ()

    def needs(self) -> tuple[Need, ...]:
        """The rows of a roll-up: what all pods that have requests ask for, running or not."""
        rows: dict[NeedKey, Need] = {}
        for name, workload in self._workloads.items():
            if workload.requested and self._replicas[name]:
                asked = total([(workload.unit, self._replicas[name])])
                group = name if workload.profile.same else ""
                need = Need(workload.profile, asked, workload.unit, group)
                if (twin := rows.get(need.key)) is not None:
                    need = Need(need.profile, total([(asked, 1), (twin.aggregate, 1)]), need.unit, group)
                rows[need.key] = need
        return tuple(rows.values())

    def pods(self, name: str = "") -> Pods:
        """The pods of one workload, or of all workloads without a name."""
        names = [name] if name else list(self._workloads)
        running = sum(self._running[each] for each in names)
        return Pods(sum(self._replicas[each] for each in names) - running, running)

    # Nodes.

    def register(self, name: str, provider_id: str, labels: Mapping[str, str], resources: Resources) -> None:
        """A kubelet has registered its Node, which is not Ready yet; it replaces a Node of the same name."""
        self.remove(name)
        free = {PODS: _DEFAULT_PODS, **dict(resources)}
        for daemon in self.daemons:
            if all(satisfies(labels, requirement) for requirement in daemon.requirements):
                for resource, units in (*daemon.resources, (PODS, 1)):
                    free[resource] = free.get(resource, 0) - units
        self.nodes[name] = Node(name, provider_id, labels, free)

    def become_ready(self, name: str) -> None:
        """The node takes pods from now on."""
        node = self.nodes[name]
        node.ready = True
        self._place([node])

    def remove(self, name: str) -> None:
        """The node is gone, and its pods wait for another."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self._evict(node, list(node.pods))
            self._place(self.nodes.values())
            self.changed()

    def cordon(self, name: str, cordon: Cordon) -> None:
        """No further pod is put on the node."""
        self.nodes[name].cordon = cordon

    def uncordon(self, name: str) -> None:
        """Pods may be put on the node again."""
        node = self.nodes[name]
        node.cordon = None
        self._place([node])

    def leave(self, name: str, leaving: bool) -> None:
        """Say whether the node's machine is leaving; a node whose machine leaves takes no more pods."""
        node = self.nodes[name]
        if node.leaving != leaving:
            node.leaving = leaving
            self._place([node])

    def evict(self, name: str, workload: str) -> None:
        """The pods of one workload leave the node for others."""
        self._evict(self.nodes[name], [workload])
        self._place(self.nodes.values())

    def workloads_on(self, name: str) -> list[Workload]:
        """What runs on the node, daemons aside."""
        return [self._workloads[each] for each in self.nodes[name].pods]

    def empty_nodes(self) -> tuple[str, ...]:
        """The nodes on which nothing but daemons runs."""
        return tuple(node.name for node in self.nodes.values() if not node.pods)

    def unrequested_nodes(self) -> tuple[UnrequestedNode, ...]:
        """The nodes that run pods without requests, with the highest priority and penalties among those pods."""
        named = []
        for node in self.nodes.values():
            profiles = [each.profile for each in self.workloads_on(node.name) if not each.requested]
            if profiles:
                priority = max(profile.priority for profile in profiles)
                interruption = max(profile.interruption for profile in profiles)
                reclamation = max(profile.reclamation for profile in profiles)
                named.append(UnrequestedNode(node.name, priority, interruption, reclamation))
        return tuple(named)

    # Placing.

    def _place(self, nodes: Collection[Node]) -> None:
        """Put waiting pods on these nodes, which are the only ones that may have more room than before."""
        for name, workload in self._workloads.items():
            for pushing in (False, True):
                if self._running[name] == self._replicas[name] or (pushing and not self._is_above_others(workload)):
                    break
                if workload.profile.same:
                    self._place_gang(workload, pushing=pushing)
                else:
                    self._place_each(workload, nodes, pushing=pushing)
                if pushing:
                    # Pods that were pushed off may fit on any node, and their turn is still to come.
                    nodes = self.nodes.values()

    def _place_each(self, workload: Workload, nodes: Collection[Node], *, pushing: bool) -> None:
        """Place the pods one by one where a hard spread applies, else as many at a time as fit."""
        spread = _HardSpread(self, workload)
        progress = True
        while progress:
            progress = False
            for node in self.nodes.values() if spread.applies else nodes:
                missing = self._replicas[workload.name] - self._running[workload.name]
                if not missing:
                    return
                if not _admits(node, workload) or not spread.allows(node):
                    continue
                if pushing:
                    self._make_room(node, workload)
                count = min(missing, self._room(node, workload), 1 if spread.applies or pushing else missing)
                if count > 0:
                    self._run(node, workload, count)
                    spread.placed(node)
                    progress = True

    def _place_gang(self, workload: Workload, *, pushing: bool) -> None:
        replicas, keys = self._replicas[workload.name], [same.key for same in workload.profile.same]
        domains: dict[tuple[str, ...], list[Node]] = {}
        for node in self.nodes.values():
            if _admits(node, workload):
                domains.setdefault(tuple(node.labels[key] for key in keys), []).append(node)
        for members in domains.values():
            rooms = [max(0, self._room(node, workload, pushing=pushing)) for node in members]
            if sum(rooms) >= replicas:
                for node, room in zip(members, rooms, strict=True):
                    for _ in range(min(room, replicas - self._running[workload.name])):
                        self._make_room(node, workload)
                        self._run(node, workload, 1)
                return

    def _is_above_others(self, workload: Workload) -> bool:
        priority = workload.profile.priority
        return any(self._running[name] and each.profile.priority < priority for name, each in self._workloads.items())

    def _make_room(self, node: Node, workload: Workload) -> None:
        """Push pods of lower priority off, lowest first, until one more pod fits; none if that would not be enough."""
        if self._room(node, workload, pushing=True) < 1:
            return
        for each in sorted(self._lesser(node, workload), key=lambda other: other.profile.priority):
            while node.pods[each.name] and self._room(node, workload) < 1:
                self._stop_one(node, each)

    def _lesser(self, node: Node, workload: Workload) -> list[Workload]:
        return [each for each in self.workloads_on(node.name) if each.profile.priority < workload.profile.priority]

    def _room(self, node: Node, workload: Workload, *, pushing: bool = False) -> int:
        """How many more pods fit; with `pushing`, how many would if pods of lower priority were pushed off."""
        free = node.free
        for each in self._lesser(node, workload) if pushing else ():
            held = ((resource, units * node.pods[each.name]) for resource, units in each.size)
            free = free | {resource: free[resource] + units for resource, units in held}
        room = min(free.get(resource, 0) // units for resource, units in workload.size)
        return min(room, self._left_of_limit(node, workload))

    def _left_of_limit(self, node: Node, workload: Workload) -> int:
        limit, kind = workload.profile.max_per_machine, workload.profile.fingerprint
        if not limit:
            return _NO_LIMIT
        alike = (each for each in self.workloads_on(node.name) if each.profile.fingerprint == kind)
        return limit - sum(node.pods[each.name] for each in alike)

    def _run(self, node: Node, workload: Workload, count: int) -> None:
        self._running[workload.name] += count
        node.pods[workload.name] += count
        if not node.pods[workload.name]:
            del node.pods[workload.name]
        for resource, units in workload.size:
            node.free[resource] -= units * count

    def _stop(self, node: Node, workload: Workload, count: int) -> None:
        if count:
            self._run(node, workload, -count)

    def _stop_one(self, node: Node, workload: Workload) -> None:
        if workload.profile.same:
            self._stop_all(workload.name)
        else:
            self._stop(node, workload, 1)

    def _stop_all(self, name: str) -> None:
        for node in self.nodes.values():
            if node.pods[name]:
                self._stop(node, self._workloads[name], node.pods[name])

    def _evict(self, node: Node, names: Sequence[str]) -> None:
        for name in names:
            workload = self._workloads[name]
            self._stop(node, workload, node.pods[name])
            if workload.profile.same:
                self._stop_all(name)


class _HardSpread:
    """What the hard spread constraints of a workload allow, kept up to date pod by pod."""

    def __init__(self, world: World, workload: Workload) -> None:
        hard = WhenUnsatisfiable.DO_NOT_SCHEDULE
        self._counts: dict[Spread, Counter[str]] = {
            spread: Counter() for spread in workload.profile.spread if spread.when_unsatisfiable is hard
        }
        for spread, counts in self._counts.items():
            for node in world.nodes.values():
                domain = node.labels.get(spread.topology_key)
                if domain is not None and node.ready and _matches(node, workload):
                    counts[domain] += node.pods[workload.name]

    @property
    def applies(self) -> bool:
        """Whether the workload has a hard spread constraint."""
        return bool(self._counts)

    def allows(self, node: Node) -> bool:
        """Whether one more pod may be put there."""
        for spread, counts in self._counts.items():
            domain = node.labels.get(spread.topology_key)
            if domain is None or counts[domain] + 1 - min(counts.values()) > spread.max_skew:
                return False
        return True

    def placed(self, node: Node) -> None:
        """Count one more pod on the node."""
        for spread, counts in self._counts.items():
            counts[node.labels[spread.topology_key]] += 1


def _admits(node: Node, workload: Workload) -> bool:
    return node.schedulable and _matches(node, workload)


def _matches(node: Node, workload: Workload) -> bool:
    for requirement in workload.profile.requirements:
        if requirement.operator is not Operator.SAME:
            if not satisfies(node.labels, requirement):
                return False
        elif requirement.key not in node.labels or (
            requirement.values and node.labels[requirement.key] not in requirement.values
        ):
            return False
    return True
