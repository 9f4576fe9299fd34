"""Commitments: what the shard has decided to do with a machine and has not seen done yet.

A machine has at most one commitment. The commitment is durable before its first call, and counts as supply of its
cluster from the decision on. It ends when the machine is seen where it was to go, when the machine cannot get there, or
when the time is over. Its end never sets a machine's state (protocol rules 6, 9).
"""

from collections.abc import Iterator

import msgspec

from bigfleet.engine.records import Kind, Stamp
from bigfleet.shard.execution.operator_requests import AskedOf, OperatorRequests
from bigfleet.shard.execution.steps import Step


class Commitment(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's outstanding work. Times are on the shard's clock."""

    #: What the audit log's lines about the beginning and about the end of the commitment have in common.
    id: str = ""
    #: The machine's id.
    machine: str
    #: The name of the machine's provider.
    provider: str
    #: The kind of the action that was decided.
    kind: Kind
    #: How far the commitment has come.
    step: Step
    #: When the step began.
    began: float
    #: The cluster that the machine is for; empty where the machine goes to nobody.
    cluster: str = ""
    #: The cluster that the machine is drained from; empty once the machine has left it.
    leaves: str = ""
    #: The stamp of the binding that the machine is for.
    stamp: Stamp | None = None
    #: The grace of the drain.
    grace_seconds: int = 0
    #: When the grace of the instruction is over.
    deadline: float = 0.0
    #: The id of the request for user data that stands; empty where none does.
    request_id: str = ""
    #: The id of the reclaim instruction that stands; empty where none does.
    instruction_id: str = ""
    #: When the action was decided.
    decided: float = 0.0
    #: When the first of its calls was made that all brought no answer; None where the last call was answered.
    doubted: float | None = None
    #: Whether an earlier life wrote the commitment and no Get has answered since.
    unsettled: bool = False
    #: Whether user data was asked for a second time, since the first was soon to expire.
    renewed: bool = False
    #: Why the action was decided, in words.
    reason: str = ""


def resumed(commitment: Commitment, written: float, away: float, now: float) -> Commitment:
    """The commitment on the clock of a new life; `written` is when the file was written, on the old life's clock.

    A grace is shortened by the wall seconds since then, `away`, at most by what was left of the grace. Every other time
    goes on from where it was when the file was written (protocol rule 19).
    """
    shift, left = now - written, commitment.deadline - written
    return msgspec.structs.replace(
        commitment,
        began=commitment.began + shift,
        decided=commitment.decided + shift,
        doubted=None if commitment.doubted is None else commitment.doubted + shift,
        deadline=now + left - min(max(away, 0.0), max(left, 0.0)),
    )


class Commitments:
    """Every commitment, by machine. What a commitment asks of operators is entered into the requests that stand."""

    def __init__(self, requests: OperatorRequests) -> None:
        self._requests = requests
        self._all: dict[str, Commitment] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Commitment]:
        return iter(list(self._all.values()))

    def get(self, machine_id: str) -> Commitment | None:
        """The machine's commitment, if it has one."""
        return self._all.get(machine_id)

    def behind_request(self, request_id: str) -> Commitment | None:
        """The commitment that waits for the user data of this request."""
        commitment = self._about(self._requests.request(request_id), Step.BLOB)
        return commitment if commitment is not None and commitment.request_id == request_id else None

    def behind_instruction(self, instruction_id: str) -> Commitment | None:
        """The commitment that waits for the node of this instruction to be empty."""
        commitment = self._about(self._requests.instruction(instruction_id), Step.INSTRUCTED)
        return commitment if commitment is not None and commitment.instruction_id == instruction_id else None

    def put(self, commitment: Commitment) -> None:
        """Have this commitment instead of the machine's earlier one."""
        self.take(commitment.machine)
        self._all[commitment.machine] = commitment
        if commitment.request_id:
            self._requests.requested(commitment.request_id, commitment.cluster, commitment.machine)
        if commitment.instruction_id:
            self._requests.instructed(commitment.instruction_id, commitment.leaves, commitment.machine)

    def take(self, machine_id: str) -> None:
        """Have no commitment for the machine any more."""
        commitment = self._all.pop(machine_id, None)
        if commitment is not None:
            self._requests.over(commitment.request_id)
            self._requests.over(commitment.instruction_id)

    def _about(self, asked: AskedOf | None, step: Step) -> Commitment | None:
        commitment = None if asked is None else self._all.get(asked.machine)
        return commitment if commitment is not None and commitment.step is step else None
