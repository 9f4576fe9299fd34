"""The demo's story: a day of four clusters, told by what they ask for and by what then must come true.

Whoever tells the story gives it a stage: the clusters, a view of the cloud and of the audit log, and the shard to kill.
Each act changes demand, waits until everything is as it should be, and checks every claim before it makes it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from bigfleet.model.demand.penalty_buckets import PenaltyBucket as Bucket
from bigfleet.model.demand.profile import Operator, Profile, Requirement
from bigfleet.model.labels import CAPACITY_TYPE, RACK
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.sim.catalog import BATCH, CRITICAL, FAMILY, GIB, GPU, SERVICE, Family
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.events import EventKind
from bigfleet.sim.clusters.world import Workload, World

SHOP, DATA, LAB, BANK = "shop", "data", "lab", "bank"

_LEAVE_SECONDS = 0.5
_AT_REST = frozenset({MachineState.SPECULATIVE, MachineState.CONFIGURED})


class StoryError(Exception):
    """What was told did not come true; the text is a sentence that says what."""


def _workload(name: str, cores: float, gib: int, gpus: int = 0, *, profile: Profile) -> Workload:
    accelerators = ((GPU, gpus),) if gpus else ()
    unit = (("cpu", round(cores * 1000)), ("memory", gib * GIB), *accelerators)
    return Workload(name=name, unit=unit, profile=profile, leave_seconds=_LEAVE_SECONDS)


# Web and cache pods ask for a family each: on shared nodes a scheduler may pack them otherwise than the shard counted.
CACHE = _workload(
    "cache",
    1,
    20,
    profile=Profile(
        requirements=(Requirement(FAMILY, Operator.IN, (Family.MEMORY,)),),
        priority=2 * SERVICE,
        interruption=Bucket.P_64,
        reclamation=Bucket.P_32,
    ),
)
WEB = _workload(
    "web",
    2,
    6,
    profile=Profile(
        requirements=(Requirement(FAMILY, Operator.IN, (Family.GENERAL,)),),
        priority=SERVICE,
        interruption=Bucket.P_16,
        reclamation=Bucket.P_2,
    ),
)
WORK = _workload("batch", 3.9, 7, profile=Profile(priority=BATCH // 2))
TRAINING = _workload(
    "training",
    7,
    56,
    1,
    profile=Profile(
        requirements=(Requirement(RACK, Operator.SAME),),
        priority=BATCH,
        interruption=Bucket.P_256,
        reclamation=Bucket.P_256,
    ),
)
PAYROLL = _workload(
    "payroll",
    3.9,
    7,
    profile=Profile(
        requirements=(
            Requirement(FAMILY, Operator.IN, (Family.COMPUTE,)),
            Requirement(CAPACITY_TYPE, Operator.NOT_IN, (CapacityType.SPOT.label,)),
        ),
        priority=CRITICAL,
    ),
)

CAST: Mapping[str, tuple[Workload, ...]] = {SHOP: (CACHE, WEB), DATA: (WORK,), LAB: (TRAINING,), BANK: (PAYROLL,)}
"""The clusters, and what runs in each."""


class AuditRecord(Protocol):
    """One line of the audit log, as far as the story reads it."""

    @property
    def event(self) -> str:
        """`decided` or `ended`."""

    @property
    def kind(self) -> str:
        """The kind of action: `Provision`, `Preempt` and so on."""

    @property
    def cluster(self) -> str:
        """The cluster that the machine is for; empty for none."""

    @property
    def leaves(self) -> str:
        """The cluster that the machine is taken from; empty for none."""

    @property
    def reason(self) -> str:
        """Why the shard decided it."""


class Stage(Protocol):
    """The surroundings that a story needs: clusters, a cloud, a shard, and a way to tell people what happens."""

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        """The clusters by name."""

    @property
    def machines(self) -> Sequence[Machine]:
        """Every machine, as the cloud lists them now."""

    @property
    def audit_records(self) -> Sequence[AuditRecord]:
        """The audit log so far."""

    @property
    def hosts(self) -> int:
        """How many hosts exist in the cloud, by the cloud's own count and not by its provider's list."""

    @property
    def dollars(self) -> float:
        """What the shard pays an hour."""

    @property
    def epoch(self) -> int:
        """The shard's epoch, which grows with every restart."""

    def act(self, title: str, text: str) -> None:
        """Tell people that an act begins, and what is about to happen."""

    def say(self, text: str) -> None:
        """Tell people what came true."""

    async def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so`; where that does not come, raise a StoryError that says `what` did not happen."""

    async def linger(self) -> None:
        """Wait a moment, so that people can look."""

    async def kill_shard(self) -> None:
        """End the shard as a power failure would."""

    async def start_shard(self) -> None:
        """Start the shard again."""


async def tell(stage: Stage) -> None:
    """Tell the whole story; StoryError where something did not come true."""
    acts: tuple[Callable[[Stage], Awaitable[None]], ...] = (morning, interruption, noon, crash, payday, night)
    for act in acts:
        await act(stage)
        await stage.linger()


async def morning(stage: Stage) -> None:
    """Demand arrives where there is no machine at all."""
    stage.act("Morning", "shop wants 6 caches and 24 web pods, data 36 pods of batch; no machine exists yet.")
    _world(stage, SHOP).deploy(CACHE, 6)
    _world(stage, SHOP).deploy(WEB, 24)
    _world(stage, DATA).deploy(WORK, 36)
    await _all_run(stage, SHOP, DATA)
    homes = {workload.name: _homes(stage, cluster, workload) for cluster, workload in _running(stage)}
    _check(not homes["web"]["Spot"] and not homes["cache"]["Spot"], "shop's pods, dear to interrupt, sit on spot")
    _check(homes["batch"]["Spot"] > 0, "batch, cheap to interrupt, does not sit on spot")
    stage.say(
        f"All run, on {_hosted(stage)} machines for ${stage.dollars:.2f} an hour: batch on {homes['batch']['Spot']} "
        f"spot and {homes['batch']['OnDemand']} on-demand machines; shop, which is dear to interrupt, on no spot."
    )


async def interruption(stage: Stage) -> None:
    """The cloud takes a spot machine back."""
    stage.act("Spot", "any moment now the cloud takes a spot machine back. Nobody knows which.")
    await stage.until("the cloud takes a spot machine back", lambda: bool(_happened(stage, DATA, EventKind.CORDONED)))
    taken = _happened(stage, DATA, EventKind.CORDONED)[0]
    stage.say(f"It is {taken}: data's operator empties it before the host is gone.")
    await stage.until(f"the node {taken} is gone", lambda: taken in _happened(stage, DATA, EventKind.NODE_GONE))
    await _all_run(stage, DATA)
    homes = _homes(stage, DATA, WORK)
    stage.say(f"All of batch runs again, on {homes['Spot']} spot and {homes['OnDemand']} on-demand machines.")


async def noon(stage: Stage) -> None:
    """Less is needed, and machines that are too many go back."""
    stage.act("Noon", "shop needs 8 web pods instead of 24. What is too much is emptied and goes back.")
    hosts, nodes = _hosted(stage), len(_world(stage, SHOP).nodes)
    _world(stage, SHOP).scale(WEB.name, 8)
    await stage.until("shop gives machines back", lambda: len(_world(stage, SHOP).nodes) < nodes)
    await stage.until("they are the cloud's again", lambda: set(_states(stage)) <= _AT_REST)
    await _all_run(stage, SHOP)
    stage.say(f"{hosts - _hosted(stage)} machines went back to the cloud; ${stage.dollars:.2f} an hour are left.")


async def crash(stage: Stage) -> None:
    """A gang arrives, and the shard is killed with -9 while machines are made for the gang."""
    stage.act("Training", "lab starts a training: 16 pods with a GPU each, all of them on one rack or none.")
    _world(stage, LAB).deploy(TRAINING, 16)
    await stage.until("it is decided what to buy", lambda: any(record.cluster == LAB for record in stage.audit_records))
    await stage.until("a whole rack is being made", lambda: _states(stage)[MachineState.CREATING] == 4)
    before, epoch = _pods(stage, SHOP, DATA), stage.epoch
    await stage.kill_shard()
    stage.say("kill -9 of the shard with 4 machines half made. Clusters go on without it.")
    await stage.linger()
    _check(_pods(stage, SHOP, DATA) == before, "pods of other clusters stopped while the shard was dead")
    await stage.start_shard()
    await _all_run(stage, LAB)
    racks = {node.labels[RACK] for node in _world(stage, LAB).nodes.values() if node.pods[TRAINING.name]}
    _check(len(racks) == 1, f"the training sits on {len(racks)} racks: {', '.join(sorted(racks))}")
    taken = sum(machine.instance_type.startswith(Family.TRAINING) for machine in _with_host(stage))
    _check(taken == len(_world(stage, LAB).nodes), f"{taken} machines were made for the training, and it uses fewer")
    await stage.until("the shard's epoch has grown", lambda: stage.epoch > epoch)
    stage.say(
        f"Restarted, it took up what it had begun: no pod was lost, no machine bought twice, and all 16 pods of the "
        f"training run on rack {racks.pop()}."
    )


async def payday(stage: Stage) -> None:
    """More important work needs machines that batch has."""
    stage.act("Payday", "bank must run payroll now: critical, c.16 and no spot. Batch has every machine of that kind.")
    _world(stage, BANK).deploy(PAYROLL, 12)
    await _all_run(stage, BANK)
    victims = [record for record in stage.audit_records if record.event == "decided" and record.kind == "Preempt"]
    _check({record.leaves for record in victims} == {DATA}, "payroll got its machines from somebody else than batch")
    shared = _world(stage, BANK).nodes.keys() & _world(stage, DATA).nodes.keys()
    _check(not shared, f"{', '.join(sorted(shared))} is a node of bank and of data at once")
    await _all_run(stage, SHOP, DATA, LAB)
    stage.say(
        f"Payroll runs on {len(victims)} machines taken from batch, and batch runs on what was bought for it instead."
    )


async def night(stage: Stage) -> None:
    """Everything ends, and nothing is left behind."""
    stage.act("Night", "all work is done. A shard believes a fall to nothing only when it is said for a while.")
    for cluster, workload in _running(stage):
        _world(stage, cluster).scale(workload.name, 0)
    await stage.until("every node is gone", lambda: not any(_world(stage, name).nodes for name in CAST))
    await stage.until("every machine is Speculative", lambda: set(_states(stage)) == {MachineState.SPECULATIVE})
    await stage.until("the shard pays nothing", lambda: not round(stage.dollars, 2))
    _check(not stage.hosts, f"{stage.hosts} hosts are left in the cloud")
    stage.say(f"All {len(stage.machines)} machines are slots again, the cloud has no host left, nothing is paid for.")


# What the story reads from its stage.


async def _all_run(stage: Stage, *clusters: str) -> None:
    def waiting() -> int:
        return sum(_world(stage, cluster).pods().pending for cluster in clusters)

    await stage.until(f"all pods of {', '.join(clusters)} run", lambda: not waiting())


def _pods(stage: Stage, *clusters: str) -> list[int]:
    return [_world(stage, cluster).pods().running for cluster in clusters]


def _running(stage: Stage) -> list[tuple[str, Workload]]:
    return [
        (cluster, workload)
        for cluster, workloads in CAST.items()
        for workload in workloads
        if _world(stage, cluster).pods(workload.name).running
    ]


def _homes(stage: Stage, cluster: str, workload: Workload) -> Counter[str]:
    """How many machines of each capacity type the workload's pods are on."""
    nodes = _world(stage, cluster).nodes.values()
    return Counter(node.labels[CAPACITY_TYPE] for node in nodes if node.pods[workload.name])


def _world(stage: Stage, cluster: str) -> World:
    return stage.clusters[cluster].world


def _happened(stage: Stage, cluster: str, kind: EventKind) -> list[str]:
    """The nodes to which this kind of event happened, in order."""
    return [event.name for event in stage.clusters[cluster].log.recent if event.kind is kind]


def _states(stage: Stage) -> Counter[MachineState]:
    return Counter(machine.state for machine in stage.machines)


def _with_host(stage: Stage) -> list[Machine]:
    return [machine for machine in stage.machines if machine.host is not None]


def _hosted(stage: Stage) -> int:
    return len(_with_host(stage))


def _check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise StoryError(otherwise)
