"""The roll-up: everything that the cluster asks for at one moment (protocol rules 13, 20, 23)."""

from collections import Counter
from collections.abc import Callable, Collection

from bigfleet.model.demand.need import Need, NeedKey, Rollup
from bigfleet.model.resources import ResourceError
from bigfleet.operator.rollup.daemons import Daemons
from bigfleet.operator.rollup.nodes import Nodes
from bigfleet.operator.rollup.placement_feedback import PlacementFeedback, PlacementSigns
from bigfleet.operator.rollup.pods import Pods
from bigfleet.operator.rollup.requests import Requests


class Rollups:
    """Makes roll-ups from what the watches show, each with a later timestamp than the one before."""

    def __init__(
        self,
        cluster_id: str,
        requests: Requests,
        pods: Pods,
        nodes: Nodes,
        daemons: Daemons,
        stamp: Callable[[], int],
    ) -> None:
        self._cluster_id, self._stamp = cluster_id, stamp
        self._requests, self._pods, self._nodes, self._daemons = requests, pods, nodes, daemons
        self._stamped = 0
        self.feedback = PlacementFeedback()
        self.partial = False
        """Whether requests are made for some pods only: the others found a place by themselves."""

    def build(self, needs: tuple[Need, ...]) -> Rollup:
        """The roll-up with these rows and the present daemons and nodes."""
        self._stamped = max(self._stamp(), self._stamped + 1)
        owners = self._requests.owners(self._pods.owner_of)
        return Rollup(
            cluster_id=self._cluster_id,
            timestamp_unix_nanos=self._stamped,
            needs=needs,
            daemons=self._daemons.all(),
            empty_nodes=self.empty_nodes(),
            partial_demand=self.partial,
            unrequested_nodes=self._pods.unrequested(),
            owners=tuple(owners.get(need.key, ()) for need in needs),
        )

    def needs(self) -> tuple[Need, ...]:
        """The rows of all requests, raised by placement feedback; ResourceError where they cannot be summed."""
        needs = self._requests.needs()
        try:
            return self.feedback.apply(needs)
        except ResourceError:
            # Without what placement feedback adds, the sums may still fit.
            return needs

    def judge(self, covered: Collection[NeedKey] | None, moving: bool, now: float) -> list[NeedKey]:
        """Raise or lower rows. Returns the rows for which it has just become clear that raising does not help."""
        rows = Counter[NeedKey]()
        for uid in self._pods.unschedulable():
            row = self._requests.row_of_pod(uid)
            if row is not None:
                rows[row] += 1
        empty = len(self.empty_nodes()) if self.feedback.units else 0
        return self.feedback.judge(PlacementSigns(unschedulable=rows, covered=covered, moving=moving, empty=empty), now)

    def empty_nodes(self) -> tuple[str, ...]:
        """Nodes on which nothing but daemons and mirror pods runs."""
        return tuple(sorted(name for name in self._nodes.names() if self._pods.is_empty(name)))
