"""A world whose pods are those of CapacityRequests, and whose rows are made as a real operator makes them."""

from collections import Counter
from collections.abc import Sequence

from bigfleet.model.crd import CapacityRequest
from bigfleet.model.demand.aggregate import Aggregator
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.request import Reader, Unit
from bigfleet.model.resources import quantities
from bigfleet.sim.clusters.world import Pods, Workload, World
from bigfleet.wire.needs import MAX_OWNERS


class RequestWorld(World):
    """One pod for each request. Equal requests are one workload; each size of a gang's pods is one too."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = Reader()
        self._units: dict[str, Unit] = {}
        """What one pod of each workload asks for, by the workload's name."""
        self._rows: tuple[Need, ...] = ()
        self._owners: dict[NeedKey, set[str]] = {}

    def replace_requests(self, requests: Sequence[CapacityRequest]) -> None:
        """These are all requests from now on; RequestError, and nothing has changed, where one cannot become demand."""
        aggregator = Aggregator()
        for request in requests:
            aggregator.put(request)
        units = [self._reader.unit(each.spec, each.metadata.namespace, each.metadata.name) for each in requests]
        wanted = Counter(map(_name, units))
        self._rows, self._owners = aggregator.needs(), {}
        for request in requests:
            metadata = request.metadata
            owner = next((each.name for each in metadata.owner_references), metadata.name)
            row = aggregator.row(metadata.namespace, metadata.name)
            if row is not None:
                self._owners.setdefault(row, set()).add(f"{metadata.namespace}/{owner}")
        for name in self._units.keys() - wanted.keys():
            del self._units[name]
            self.scale(name, 0)
        for name, unit in {_name(unit): unit for unit in units}.items():
            if name not in self._units:
                self._units[name] = unit
                self.deploy(Workload(name=name, unit=unit.size, profile=unit.profile), wanted[name])
            elif wanted[name] != _replicas(self.pods(name)):
                self.scale(name, wanted[name])

    def needs(self) -> tuple[Need, ...]:
        """The rows that all requests make."""
        return self._rows

    def owners(self) -> tuple[tuple[str, ...], ...]:
        """Some of those who ask for each row."""
        return tuple(tuple(sorted(self._owners[row.key])[:MAX_OWNERS]) for row in self._rows)


def _name(unit: Unit) -> str:
    """A name that stays the same while requests of this kind and size come and go."""
    size = ",".join(f"{name}={amount}" for name, amount in quantities(unit.size).items())
    return ":".join([*unit.place, size])


def _replicas(pods: Pods) -> int:
    return pods.pending + pods.running
