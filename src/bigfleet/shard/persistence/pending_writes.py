"""What the local file must hold next: gathered between two writes, put back where one failed."""

from bigfleet.model.machine import Machine
from bigfleet.shard.demand.table import KeptCluster
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.persistence.journal import Batch, Kept, Values


class Filing:
    """Changes since the last write."""

    def __init__(self, kept: Kept) -> None:
        self._batch = Batch()
        self._machines = set(kept.machines)

    def commitment(self, machine_id: str, commitment: Commitment | None) -> None:
        """The machine's commitment stands like this, or is over."""
        self._batch.commitments[machine_id] = commitment

    def machine(self, machine_id: str, machine: Machine | None, provider: str) -> None:
        """A machine that is bound or committed was last seen so; None for one that is neither."""
        if machine is not None:
            self._batch.machines[machine_id] = provider, machine
            self._machines.add(machine_id)
        elif machine_id in self._machines:
            self._batch.machines[machine_id] = None
            self._machines.discard(machine_id)

    def idle(self, machine_id: str, since: float | None) -> None:
        """The machine has been Idle since then, or is so no more."""
        self._batch.idle[machine_id] = since

    def ready(self, machine_id: str, number: int | None) -> None:
        """The machine's Node was seen Ready in the binding of that number; None for a binding that is over."""
        self._batch.ready[machine_id] = number

    def cluster(self, cluster: str, kept: KeptCluster | None) -> None:
        """The cluster stands like this, or is known no more."""
        self._batch.clusters[cluster] = kept

    def take(self, values: Values) -> Batch:
        """All of it, with the small things."""
        batch, self._batch = self._batch, Batch()
        batch.values = values
        return batch

    def put_back(self, batch: Batch) -> None:
        """The batch could not be written."""
        batch.merge(self._batch)
        self._batch = batch
