"""Messages that crossed each other, handled in the less usual order: nothing waits for ever, is lost or done twice."""

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.engine.records import Action, Kind, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import Call, CapacityType, Host, Machine, MachineState
from bigfleet.provider.records import Ack, Answer, Listing
from bigfleet.shard.core.core import Core
from bigfleet.shard.core.parts import Clocks, Settings
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.effects import Problem, ProviderCall
from bigfleet.shard.execution.steps import Step
from bigfleet.shard.orders import GetMachine, MakeCall
from bigfleet.shard.persistence.kept import Kept, Values
from bigfleet.shard.sessions.outputs import BlobAnswered, NodeDrained, Opened, SessionEnded
from bigfleet.shard.supply.stamps import Binding, to_metadata
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

S = MachineState
M, P = "m", "p"
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
NOTHING = Kept(
    found=False, written=0.0, wall=0.0, commitments={}, machines={}, idle={}, ready={}, clusters={}, values=Values()
)


def stamp(number: int = 7) -> Stamp:
    return Stamp(NeedKey("f", "", ()), 100, PenaltyBucket.ZERO, PenaltyBucket.ZERO, number)


def machine(state: MachineState, cluster: str = "prod", number: int = 7, epoch: int = 5) -> Machine:
    bound = state in BOUND
    return Machine(
        id=M,
        state=state,
        instance_type="c8",
        capacity_type=CapacityType.SPOT,
        host=None if state in (S.SPECULATIVE, S.CREATING) else Host(P, "h"),
        cluster=cluster if bound else "",
        resources=(("cpu", 8000),),
        shard_metadata=to_metadata(Binding(stamp(number), "eu-1", epoch, 1000)) if bound else {},
        last_error="boom" if state is S.FAILED else "",
    )


class World:
    """A core of which the test is the provider, the operators and the clock."""

    def __init__(self, state: MachineState | None = None, cluster: str = "prod", kept: Kept = NOTHING) -> None:
        self.now = 1000.0
        settings = Settings("eu-1", (P,), 30.0, 600.0, False, False)
        clocks = Clocks(lambda: self.now, lambda: self.now)
        self.core = Core(settings, 5, kept, clocks, ShardMetrics(CollectorRegistry()))
        if state is not None:
            self.listed(machine(state, cluster), full=True)

    @property
    def state(self) -> MachineState:
        found = self.core.parts.supply.find(M)
        assert found is not None
        return found.state

    @property
    def commitment(self) -> Commitment:
        found = self.core.parts.commitments.get(M)
        assert found is not None
        return found

    def listed(self, *rows: Machine, began: float | None = None, full: bool = False) -> None:
        since = self.now if began is None else began
        self.core.listed(P, Listing({row.id: row for row in rows}, (), b"", full=full, began=since))

    def got(self, row: Machine, began: float) -> None:
        self.core.got(P, M, Answer(row), began)

    def opened(self, cluster: str, *features: str) -> None:
        self.core.said([Opened(cluster, frozenset(features), replaced=False)])

    def begin(self, kind: Kind, cluster: str = "prod") -> None:
        goal = None if kind in (Kind.RECLAIM, Kind.DELETE) else stamp()
        assert self.core.commit(Action(kind, M, cluster, "because", 600, goal), self.now)
        self.core.begin([M])

    def calls(self) -> list[ProviderCall]:
        made = [order.call for order in self.core.parts.orders if isinstance(order, MakeCall)]
        self.core.parts.orders.clear()
        return made

    def call(self) -> ProviderCall:
        (ask,) = self.calls()
        return ask

    def looks(self) -> bool:
        return any(isinstance(order, GetMachine) for order in self.core.parts.orders)

    def blob(self, ttl_seconds: int = 0) -> ProviderCall:
        self.core.said([BlobAnswered("prod", self.commitment.request_id, b"x", ttl_seconds)])
        return self.call()

    def lost(self, ask: ProviderCall) -> None:
        self.core.call_failed(ask, Problem.UNAVAILABLE, "no answer")

    def configuring(self) -> None:
        self.opened("prod")
        self.begin(Kind.BOOTSTRAP)
        self.core.acknowledged(self.blob(), Ack("op", machine(S.CONFIGURING)))


def test_rule_6_a_get_that_began_before_a_row_does_not_undo_it() -> None:
    world = World(S.IDLE)
    world.configuring()
    world.now = 1061.2
    world.listed(machine(S.CONFIGURED))
    world.core.parts.orders.clear()
    world.got(machine(S.CONFIGURING), began=1061.1)
    assert world.state is S.CONFIGURED
    assert world.looks()


def test_rule_1_a_machine_out_of_failed_is_not_deleted_on_the_word_of_an_old_get() -> None:
    world = World(S.FAILED)
    world.now = 1000.2
    world.listed(machine(S.IDLE))
    world.got(machine(S.FAILED), began=1000.1)
    world.core.parts.orders.clear()
    world.now += 61
    world.core.tick()
    assert world.calls() == []


def test_rule_6_a_create_that_get_showed_is_not_given_up_for_a_row_from_before() -> None:
    world = World(S.SPECULATIVE)
    world.opened("prod")
    world.begin(Kind.PROVISION)
    ask = world.call()
    world.now = 1001.0
    world.lost(ask)
    world.now = 1001.2
    world.got(machine(S.CREATING), began=1001.1)
    assert world.commitment.step is Step.CREATING
    world.now = 1002.0
    world.listed(machine(S.SPECULATIVE), began=1000.5)
    assert world.commitment.step is Step.CREATING


def test_rule_6_a_drain_of_ours_that_get_showed_is_not_told_as_the_providers() -> None:
    world = World(S.CONFIGURED, "old")
    world.opened("old", "node_drained")
    world.opened("prod")
    world.begin(Kind.PREEMPT)
    world.core.said([NodeDrained("old", world.commitment.instruction_id, empty=True, reason="")])
    ask = world.call()
    world.now = 1001.0
    world.lost(ask)
    world.got(machine(S.DRAINING, "old"), began=1001.1)
    world.now = 1002.0
    world.listed(machine(S.CONFIGURED, "old"), began=1000.5)
    world.now = 1003.0
    world.listed(machine(S.DRAINING, "old"))
    assert (world.commitment.kind, world.commitment.cluster) == (Kind.PREEMPT, "prod")
    assert not world.core.parts.supply.is_taken_back(M)


def test_rule_9_a_get_from_before_a_call_does_not_settle_its_doubt() -> None:
    world = World(S.SPECULATIVE)
    world.opened("prod")
    world.begin(Kind.PROVISION)
    ask = world.call()
    world.now = 1000.3
    world.lost(ask)
    world.core.parts.orders.clear()
    world.got(machine(S.SPECULATIVE), began=1000.1)
    assert world.looks()
    assert world.calls() == []


def test_rule_11_a_reclaim_that_was_decided_as_its_session_ended_is_not_carried_out_later() -> None:
    world = World(S.CONFIGURED)
    world.opened("prod", "node_drained")
    world.core.said([SessionEnded("prod")])
    world.begin(Kind.RECLAIM)
    for _ in range(40):
        world.now += 10
        world.listed()
        world.core.tick()
        assert world.calls() == []


def test_rule_21_the_end_of_an_older_session_does_not_close_the_newer() -> None:
    world = World()
    hello = pb.OperatorMessage(hello=pb.Hello(cluster_id="prod", protocol_version="v1alpha1"))
    first, second = world.core.stream(None), world.core.stream(None)
    world.core.said(first.received(hello))
    # So much is read in a thread, and what it came to is heard of later.
    outputs = first.read(b"\xff" * 100_000)
    world.core.said(second.received(hello))
    world.core.said(outputs)
    assert world.core.parts.sessions.of("prod") is second
    assert world.core.parts.demand.has_session("prod")


def test_rule_2_a_machine_taken_back_after_a_configure_without_answer_is_told() -> None:
    world = World(S.IDLE)
    world.opened("prod", "node_drained", "node_ready")
    world.begin(Kind.BOOTSTRAP)
    ask = world.blob()
    world.now += 60
    world.core.provider_lost(P)
    world.lost(ask)
    world.now += 120
    world.listed(machine(S.DRAINING))
    world.got(machine(S.DRAINING), began=world.now)
    assert (world.commitment.kind, world.commitment.leaves) == (Kind.RECLAIM, "prod")
    assert world.commitment.instruction_id
    assert world.core.parts.supply.is_taken_back(M)


@pytest.mark.parametrize("by_get", [False, True])
def test_rule_10_an_epoch_from_before_is_a_floor_whoever_shows_it_first(by_get: bool) -> None:
    commitment = Commitment(
        machine=M,
        provider=P,
        kind=Kind.BOOTSTRAP,
        step=Step.CONFIGURE,
        began=900.0,
        cluster="prod",
        stamp=stamp(),
    )
    kept = Kept(
        found=True, written=900.0, wall=900.0, commitments={M: commitment}, machines={M: (P, machine(S.IDLE))},
        idle={}, ready={}, clusters={}, values=Values(next_binding=8),
    )  # fmt: skip
    world = World(kept=kept)
    row = machine(S.CONFIGURED, epoch=9)
    if by_get:
        world.now += 1
        world.got(row, began=world.now)
    else:
        world.listed(row, full=True)
    assert not world.core.parts.actuation.stood_down
    assert world.core.parts.supply.highest_epoch == 9


def test_rule_8_an_operator_that_was_away_has_made_no_bootstrap_error() -> None:
    world = World(S.IDLE)
    world.opened("prod")
    world.begin(Kind.BOOTSTRAP)
    world.core.said([SessionEnded("prod")])
    world.now += 31
    world.core.tick()
    world.opened("prod")
    assert world.core.parts.holdouts.held_out("prod", world.now) == {}
    world.now += 31
    world.core.tick()
    assert world.core.parts.holdouts.held_out("prod", world.now)


def test_rule_15_user_data_that_expired_while_its_call_waited_is_not_sent() -> None:
    world = World(S.IDLE)
    world.opened("prod")
    world.begin(Kind.BOOTSTRAP)
    ask = world.blob(ttl_seconds=3600)
    assert ask.call is Call.CONFIGURE
    assert world.core.is_wanted(ask)
    world.now += 1801
    assert not world.core.is_wanted(ask)
