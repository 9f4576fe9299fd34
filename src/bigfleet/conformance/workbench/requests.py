"""The requests of the suite, as values that can be described in a message, repeated and varied."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

INT64_MAX = 2**63 - 1
_NANOSECONDS = 10**9

Mutation = pb.CreateRequest | pb.ConfigureRequest | pb.DrainRequest | pb.DeleteRequest


@dataclass(frozen=True, slots=True)
class Token:
    """A fencing token. Marks are compared by (epoch, sequence) within one shard."""

    shard: str
    epoch: int
    sequence: int

    @property
    def order(self) -> tuple[int, int]:
        """The pair that a provider compares with its mark."""
        return (self.epoch, self.sequence)

    def __str__(self) -> str:
        return f"token ({self.shard!r}, {self.epoch}, {self.sequence})" if self != NO_TOKEN else "no token"


NO_TOKEN = Token("", 0, 0)
"""The token of a request that has none and is not fenced."""


class Shard:
    """A shard as the provider sees it: an id, an epoch, and a sequence that only grows."""

    def __init__(self, shard_id: str, epoch: int, sequence: int = 0) -> None:
        self.id = shard_id
        self.epoch = epoch
        self._sequence = sequence

    @classmethod
    def by_the_clock(cls, shard_id: str) -> "Shard":
        """A shard whose tokens are newer than those of any earlier run under the same id."""
        return cls(shard_id, *divmod(time.time_ns(), _NANOSECONDS))

    def next(self, skip: int = 0) -> Token:
        """A token newer than all before. `skip` tokens between are left out."""
        self._sequence += 1 + skip
        return Token(self.id, self.epoch, self._sequence)


@dataclass(frozen=True, slots=True)
class Ask:
    """One mutating request. Fields that its call does not have are ignored."""

    call: Call
    machine_id: str
    token: Token
    cluster: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    blob: bytes = b""
    grace: int = 1

    def __str__(self) -> str:
        extras = {
            Call.CONFIGURE: f" for cluster {self.cluster!r} with {len(self.metadata)} metadata keys",
            Call.DRAIN: f" with grace {self.grace}",
        }
        return f"{self.call.value} of machine {self.machine_id!r}{extras.get(self.call, '')} and {self.token}"

    def message(self) -> Mutation:
        """The request as a message of the contract."""
        machine_id, shard_id, epoch, sequence = self.machine_id, self.token.shard, self.token.epoch, self.token.sequence
        match self.call:
            case Call.CREATE:
                return pb.CreateRequest(
                    machine_id=machine_id, shard_id=shard_id, shard_epoch=epoch, sequence_number=sequence
                )
            case Call.CONFIGURE:
                return pb.ConfigureRequest(
                    machine_id=machine_id,
                    cluster_id=self.cluster,
                    bootstrap_blob=self.blob,
                    shard_metadata=self.metadata,
                    shard_id=shard_id,
                    shard_epoch=epoch,
                    sequence_number=sequence,
                )
            case Call.DRAIN:
                return pb.DrainRequest(
                    machine_id=machine_id,
                    grace_period_seconds=self.grace,
                    shard_id=shard_id,
                    shard_epoch=epoch,
                    sequence_number=sequence,
                )
            case Call.DELETE:
                return pb.DeleteRequest(
                    machine_id=machine_id, shard_id=shard_id, shard_epoch=epoch, sequence_number=sequence
                )
