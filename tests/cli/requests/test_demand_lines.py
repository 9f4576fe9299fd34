"""What happens to a simulated cluster, in the lines that `bigfleet dev demand` prints."""

from typing import Any

import pytest

from bigfleet.cli.requests.demand_lines import DemandLines, row_line
from bigfleet.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from bigfleet.sim.clusters.operator import SimOperator
from bigfleet.sim.clusters.world import World
from bigfleet.transport.address import UnixAddress
from bigfleet.transport.session_stream import Ending
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.sim.clusters.frames import Kind, Mind, S, reclaim, state, withdrawal, workload


def lines_of(mind: Mind) -> tuple[SimOperator, DemandLines]:
    operator = SimOperator(mind, UnixAddress("/nowhere"))
    lines = DemandLines(operator)
    lines.look()
    return operator, lines


def machine(mind: Mind, name: str, in_state: S) -> None:
    frame = state(name, in_state)
    labels = {INSTANCE_TYPE: "m.8", CAPACITY_TYPE: "Spot", ZONE: "eu-1a"}
    frame.node_state_update.labels.update(labels)
    mind.hear(frame)


async def test_machines_alike_share_a_line_at_each_step_of_their_way() -> None:
    mind = Mind(ready_seconds=0.0)
    mind.world.deploy(workload(), 8)
    _, lines = lines_of(mind)
    said = []
    for step in (S.CREATING, S.CONFIGURING, S.CONFIGURED, S.IDLE):
        for name in ("a", "b"):
            machine(mind, name, step)
        said.append(lines.look())
    assert said == [
        ["on the way: 2 m.8 Spot in eu-1a (a, b) being created"],
        ["on the way: 2 m.8 Spot in eu-1a (a, b) joining"],
        ["Ready: 2 nodes: a, b", "pods: 8 of 8 run"],
        ["given back: 2 m.8 Spot in eu-1a (a, b)", "pods: 0 of 8 run"],
    ]
    assert lines.look() == []


async def test_many_machines_are_counted_and_some_are_named() -> None:
    mind = Mind()
    _, lines = lines_of(mind)
    for name in "abcdef":
        machine(mind, name, S.CREATING)
    assert lines.look() == ["on the way: 6 m.8 Spot in eu-1a (a, b, c, d and 2 more) being created"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Kind.KIND_RECLAIM, "nobody here needs it any more"),
        (Kind.KIND_PREEMPT, "more important work takes it"),
        (Kind.KIND_PROVIDER_TAKES_BACK, "the provider takes it back"),
    ],
)
async def test_a_node_that_leaves_says_why_and_one_that_stays_says_so(kind: Any, why: str) -> None:
    mind = Mind()
    mind.bind("a")
    mind.world.deploy(workload(), 1)
    _, lines = lines_of(mind)
    mind.hear(reclaim("i", "a", kind=kind))
    assert lines.look() == [f"leaving: 1 node, because {why}: a"]
    mind.hear(withdrawal("i"))
    assert lines.look() == ["stays after all: 1 node: a"]


async def test_a_machine_that_failed_says_what_its_provider_said() -> None:
    mind = Mind()
    _, lines = lines_of(mind)
    machine(mind, "a", S.CREATING)
    lines.look()
    mind.hear(state("a", S.FAILED, last_error="out of \x1b[31mstock"))
    assert lines.look() == ["failed: 1 machine: a: out of \ufffd[31mstock"]


async def test_demand_is_said_to_be_taken_or_why_it_is_not() -> None:
    world = World()
    mind = Mind(world)
    _, lines = lines_of(mind)
    world.deploy(workload(), 1)
    mind.tick(1.0)
    mind.hear(pb.ShardMessage(ack=pb.Acknowledgement(rejection_reason="cpu from 9 to 1")))
    assert lines.look() == ["the shard does not take the demand yet: cpu from 9 to 1", "pods: 0 of 1 run"]
    mind.hear(pb.ShardMessage(ack=pb.Acknowledgement(rejection_reason="cpu from 9 to 1, again")))
    assert lines.look() == []
    mind.hear(pb.ShardMessage(ack=pb.Acknowledgement(echo="8")))
    assert lines.look() == ["the shard has taken the demand: 1 row"]


async def test_a_shard_that_is_away_is_told_once_and_so_is_its_return() -> None:
    mind = Mind()
    operator, lines = lines_of(mind)
    mind.closed("gone", 1.0)
    operator.endings.extend([Ending("UNAVAILABLE", "nobody listens")] * 2)
    assert lines.look() == ["no session with the shard: UNAVAILABLE: nobody listens; trying again"]
    operator.endings.append(Ending("UNAVAILABLE", "nobody listens"))
    assert lines.look() == []
    operator.endings.append(Ending("ABORTED", "replaced"))
    (line,) = lines.look()
    assert "another operator speaks for this cluster now" in line
    mind.opened(2.0)
    assert lines.look() == ["connected to the shard"]


def test_a_row_says_what_it_asks_for() -> None:
    world = World()
    world.deploy(workload(priority=7), 3)
    (need,) = world.needs()
    assert row_line(need) == "3 units of cpu 1, memory 1Gi at priority 7; machines must have: anything"
