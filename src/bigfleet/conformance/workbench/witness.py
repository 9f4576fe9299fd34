"""What the whole run has seen, in whichever check: refusals, records, and how long calls took."""

from collections import defaultdict

import grpc

from bigfleet.conformance.workbench.records import JUDGES
from bigfleet.conformance.workbench.requests import NO_TOKEN, Ask
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

# A provider that is wrong everywhere need not be listed whole.
_KEPT_FAULTS = 5


class Witness:
    """Remembers what the calls of all checks have shown."""

    def __init__(self) -> None:
        #: Calls that were fenced though no token as new had been sent.
        self.unfounded_fences: list[str] = []
        self.record_faults: dict[str, list[str]] = {behaviour: [] for behaviour in JUDGES}
        self.states: set[int] = set()
        self.operations: set[str] = set()
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self._started: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)

    def asked(self, ask: Ask) -> None:
        """A mutating call is about to be sent."""
        if ask.token != NO_TOKEN:
            self._started[ask.token.shard, ask.machine_id].append(ask.token.order)

    def acked(self, ack: pb.TransitionAck) -> None:
        """A mutating call was acknowledged."""
        self.operations.add(ack.operation_id)
        self.saw(ack.machine)

    def refused(self, ask: Ask, code: grpc.StatusCode) -> None:
        """A mutating call was refused. Only a token as new, sent before or at the same time, justifies a fence."""
        if code is not grpc.StatusCode.FAILED_PRECONDITION or len(self.unfounded_fences) >= _KEPT_FAULTS:
            return
        others = list(self._started[ask.token.shard, ask.machine_id])
        if ask.token != NO_TOKEN:
            others.remove(ask.token.order)
        if ask.token == NO_TOKEN or all(other < ask.token.order for other in others):
            self.unfounded_fences.append(f"{ask} was refused with FAILED_PRECONDITION, but no token as new came before")

    def saw(self, record: pb.Machine) -> None:
        """A record came in an ack or a Get."""
        self.states.add(record.state)
        for behaviour, judge in JUDGES.items():
            faults = self.record_faults[behaviour]
            if len(faults) < _KEPT_FAULTS:
                faults.extend(fault for fault in judge(record) if fault not in faults)

    def took(self, method: str, seconds: float) -> None:
        """A call was answered, with a result or with an error."""
        self.latencies[method].append(seconds)

    def p99(self, method: str) -> float | None:
        """The time within which 99 of 100 calls of this method were answered."""
        times = sorted(self.latencies.get(method, ()))
        return times[min(len(times) - 1, len(times) * 99 // 100)] if times else None
