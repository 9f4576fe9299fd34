"""The world of a simulated cluster: where its pods go, and what is asked for them."""

from typing import TYPE_CHECKING

from bigfleet.model.demand.need import Daemon, UnrequestedNode
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.labels import RACK, ZONE
from bigfleet.sim.clusters.world import Cordon, Pods, World

if TYPE_CHECKING:
    pass
from tests.sim.clusters.frames import GIB, add_node, placed, workload, world_of


class TestWorld:
    def test_pods_wait_until_a_node_is_ready_and_fill_the_first_first(self) -> None:
        world = World()
        world.deploy(workload(), 6)
        assert world.pods() == Pods(pending=6, running=0)
        add_node(world, "a", ready=False)
        assert world.pods() == Pods(6, 0)
        world.become_ready("a")
        add_node(world, "b")
        assert placed(world) == {"a": {"web": 4}, "b": {"web": 2}}
        assert world.pods("web") == Pods(0, 6)

    def test_scaling_down_takes_those_that_wait_first_and_then_the_last_placed(self) -> None:
        world = world_of("a", "b")
        world.deploy(workload(), 12)
        world.scale("web", 9)
        assert world.pods() == Pods(1, 8)
        world.scale("web", 5)
        assert placed(world) == {"a": {"web": 4}, "b": {"web": 1}}
        world.scale("web", 3)
        assert world.empty_nodes() == ("b",)

    def test_a_removed_nodes_pods_find_another_place_or_wait(self) -> None:
        world = world_of("a", "b")
        world.deploy(workload(), 6)
        world.remove("a")
        assert placed(world) == {"b": {"web": 4}}
        assert world.pods() == Pods(2, 4)
        world.remove("never there")

    def test_nothing_is_put_on_nodes_that_are_cordoned_or_leaving(self) -> None:
        world = world_of("a", "b")
        world.cordon("a", Cordon("i", 0.0, 0))
        world.leave("b", leaving=True)
        world.deploy(workload(), 1)
        assert world.pods() == Pods(1, 0)
        world.leave("b", leaving=False)
        assert placed(world)["b"] == {"web": 1}
        world.scale("web", 6)
        world.uncordon("a")
        assert placed(world)["a"] == {"web": 2}

    def test_daemons_and_pod_slots_are_taken_from_each_node_that_they_match(self) -> None:
        gpu = Requirement("gpu", Operator.EXISTS)
        world = World([Daemon((), (("cpu", 500),)), Daemon((gpu,), (("cpu", 1000),))])
        add_node(world, "plain")
        add_node(world, "gpu", {"gpu": "yes"})
        world.deploy(workload(unit=(("cpu", 100),)), 40)
        assert placed(world) == {"plain": {"web": 9}, "gpu": {"web": 8}}
        world.scale("web", 0)
        world.deploy(workload("big"), 9)
        assert placed(world) == {"plain": {"big": 3}, "gpu": {"big": 2}}

    def test_requirements_and_machine_limits_hold(self) -> None:
        world = World()
        add_node(world, "a", {"zone": "1"})
        add_node(world, "b", {"zone": "2"})
        wanted = (Requirement("zone", Operator.IN, ("2",)),)
        world.deploy(workload("one", requirements=wanted, max_per_machine=1), 2)
        world.deploy(workload("other", requirements=wanted, max_per_machine=1), 1)
        assert placed(world) == {"a": {}, "b": {"one": 1}}
        assert world.pods() == Pods(2, 1)

    def test_a_gang_runs_whole_in_one_domain_or_not_at_all(self) -> None:
        world = World()
        for rack, names in (("r1", "abc"), ("r2", "de")):
            for name in names:
                add_node(world, name, {RACK: rack})
        add_node(world, "no rack")
        gang = workload("job", requirements=(Requirement(RACK, Operator.SAME, ("r2", "r3")),))
        world.deploy(gang, 9)
        assert world.pods("job") == Pods(9, 0)
        world.scale("job", 8)
        assert placed(world) == {"a": {}, "b": {}, "c": {}, "d": {"job": 4}, "e": {"job": 4}, "no rack": {}}
        world.remove("e")
        assert world.pods("job") == Pods(8, 0)
        assert (world.needs()[0].group, world.needs()[0].units) == ("job", 8)

    def test_a_gang_pushes_lesser_pods_off_where_it_then_fits_whole(self) -> None:
        world = World()
        for name in "ab":
            add_node(world, name, {RACK: "r"})
        world.deploy(workload(), 8)
        same = (Requirement(RACK, Operator.SAME),)
        world.deploy(workload("job", requirements=same, unit=(("cpu", 2000),)), 3)
        world.deploy(workload("large", requirements=same, priority=1, unit=(("cpu", 2000),)), 5)
        assert placed(world) == {"a": {"web": 4}, "b": {"web": 4}}
        world.deploy(workload("job", requirements=same, priority=1, unit=(("cpu", 2000),)), 3)
        assert placed(world) == {"a": {"job": 2}, "b": {"web": 2, "job": 1}}

    def test_hard_spread_keeps_domains_even_and_goes_on_when_one_gets_room(self) -> None:
        world = World()
        for name, zone in (("a", "1"), ("b", "1"), ("c", "2")):
            add_node(world, name, {ZONE: zone})
        world.deploy(workload("filler", requirements=(Requirement(ZONE, Operator.IN, ("2",)),), priority=1), 3)
        even = Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
        world.deploy(workload(spread=(even,)), 6)
        assert placed(world) == {"a": {"web": 2}, "b": {}, "c": {"filler": 3, "web": 1}}
        add_node(world, "d", {ZONE: "2"})
        assert placed(world) == {"a": {"web": 3}, "b": {}, "c": {"filler": 3, "web": 1}, "d": {"web": 2}}

    def test_what_is_more_important_goes_first_and_pushes_no_more_off_than_it_must(self) -> None:
        world = world_of("a")
        world.deploy(workload("mid"), 2)
        world.deploy(workload("low", priority=-1), 2)
        world.deploy(workload("top", priority=10), 1)
        assert placed(world) == {"a": {"mid": 2, "low": 1, "top": 1}}
        world.deploy(workload("too big", priority=11, unit=(("cpu", 5000),)), 1)
        world.deploy(workload("one a node", priority=12, max_per_machine=1), 2)
        assert placed(world) == {"a": {"mid": 2, "top": 1, "one a node": 1}}
        # In the order in which they came: nobody was moved for the second, which may not be there.
        assert list(world.nodes["a"].pods) == ["mid", "top", "one a node"]
        add_node(world, "b")
        assert world.pods() == Pods(1, 7)

    def test_equals_are_not_pushed_off(self) -> None:
        world = World()
        add_node(world, "a", {"zone": "1"})
        add_node(world, "b", {"zone": "2"})
        world.deploy(workload("mid"), 4)
        world.deploy(workload("low", priority=-1), 1)
        world.deploy(workload("late", requirements=(Requirement("zone", Operator.IN, ("1",)),)), 1)
        assert placed(world) == {"a": {"mid": 4}, "b": {"low": 1}}

    def test_the_demand_is_that_of_all_pods_that_have_requests(self) -> None:
        world = world_of("a")
        world.deploy(workload("one"), 3)
        world.deploy(workload("twin"), 4)
        world.deploy(workload("other", priority=5), 1)
        world.deploy(workload("gone"), 0)
        world.deploy(workload("bare", requested=False), 50)
        rows = {need.profile.priority: need for need in world.needs()}
        assert (rows[0].units, rows[0].aggregate, rows[5].units) == (7, (("cpu", 7000), ("memory", 7 * GIB)), 1)
        assert len(world.needs()) == 2

    def test_nodes_with_pods_that_have_no_request_are_named_with_the_highest_stakes(self) -> None:
        world = world_of("a", "b")
        world.deploy(workload("bare", requested=False, priority=3), 2)
        world.deploy(workload("dear", requested=False, interruption=PenaltyBucket.P_4), 1)
        assert world.unrequested_nodes() == (UnrequestedNode("a", 3, PenaltyBucket.P_4, PenaltyBucket.ZERO),)
        assert world.empty_nodes() == ("b",)
