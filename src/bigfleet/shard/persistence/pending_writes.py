"""What the local file must hold next: changes gathered between two writes, and put back where a write failed."""

from bigfleet.model.machine import Machine
from bigfleet.shard.demand.table import KeptCluster
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.persistence.kept import Batch, Kept, Values


class PendingWrites:
    """Changes since the last write."""

    def __init__(self, kept: Kept) -> None:
        self._batch = Batch()
        self._machines = set(kept.machines)

    def commitment(self, machine_id: str, commitment: Commitment | None) -> None:
        """The machine's commitment has changed; None says that it is over."""
        self._batch.commitments[machine_id] = commitment

    def machine(self, machine_id: str, machine: Machine | None, provider: str) -> None:
        """A machine that is bound or committed was seen like this; None for a machine that is neither."""
        if machine is not None:
            self._batch.machines[machine_id] = provider, machine
            self._machines.add(machine_id)
        elif machine_id in self._machines:
            self._batch.machines[machine_id] = None
            self._machines.discard(machine_id)

    def idle(self, machine_id: str, since: float | None) -> None:
        """The machine has been Idle since then; None says that it is not Idle."""
        self._batch.idle[machine_id] = since

    def ready(self, machine_id: str, number: int | None) -> None:
        """The machine's Node was seen Ready in the binding of that number; None for a binding that is over."""
        self._batch.ready[machine_id] = number

    def cluster(self, cluster: str, kept: KeptCluster | None) -> None:
        """The cluster has changed; None says that it is no longer known."""
        self._batch.clusters[cluster] = kept

    def take(self, values: Values) -> Batch:
        """Take all changes, with the values of the whole shard, for the next write."""
        batch, self._batch = self._batch, Batch()
        batch.values = values
        return batch

    def put_back(self, batch: Batch) -> None:
        """The batch could not be written."""
        batch.merge(self._batch)
        self._batch = batch
