"""Which request for user data and which reclaim instruction stands, for which machine of which cluster.

This is the one index from the ids that operators answer with. Commitments and recoveries enter what they ask; sessions
look up whose an id is.
"""

from typing import NamedTuple


class AskedOf(NamedTuple):
    """Whom a request or an instruction went to, and what it is about."""

    cluster: str
    machine: str


class OperatorRequests:
    """Every request and every instruction that has not been answered or withdrawn."""

    def __init__(self) -> None:
        self._requests: dict[str, AskedOf] = {}
        self._instructions: dict[str, AskedOf] = {}

    def __len__(self) -> int:
        return len(self._requests) + len(self._instructions)

    def requested(self, request_id: str, cluster: str, machine_id: str) -> None:
        """The cluster's operator is asked for user data for the machine."""
        self._requests[request_id] = AskedOf(cluster, machine_id)

    def instructed(self, instruction_id: str, cluster: str, machine_id: str) -> None:
        """The cluster's operator is told to empty the machine's node."""
        self._instructions[instruction_id] = AskedOf(cluster, machine_id)

    def over(self, asked_id: str) -> None:
        """The request or instruction was answered or withdrawn; an id that does not stand is passed over."""
        self._requests.pop(asked_id, None)
        self._instructions.pop(asked_id, None)

    def request(self, request_id: str) -> AskedOf | None:
        """What the request is about, while it stands."""
        return self._requests.get(request_id)

    def instruction(self, instruction_id: str) -> AskedOf | None:
        """What the instruction is about, while it stands."""
        return self._instructions.get(instruction_id)
