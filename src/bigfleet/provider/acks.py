"""Whether an ack shows what was asked for (protocol.md 3)."""

from collections.abc import Mapping
from types import MappingProxyType

from bigfleet.model.machine import ASKS, Call, Machine, MachineState

SHOWN: Mapping[Call, frozenset[MachineState]] = MappingProxyType(
    {call: frozenset(state for ask in ASKS if ask.call is call for state in (ask.via, ask.end)) for call in Call}
)
"""The states that an ack of each call may show: on its way or, from a fast provider or to a repeat, there already.

Failed is not among them: the provider was quick to fail, and nothing was done for us.
"""


def misfit(call: Call, machine: Machine, cluster_id: str = "", metadata: Mapping[str, str] | None = None) -> str | None:
    """What of the ack's machine is not as the call asked, or None. Cluster and metadata are Configure's."""
    if machine.state not in SHOWN[call]:
        expected = " or ".join(state.label for state in sorted(SHOWN[call]))
        return f"the ack shows state {machine.state.label}, expected {expected}"
    if call is not Call.CONFIGURE:
        return None
    if machine.cluster != cluster_id:
        return f"the ack shows cluster {machine.cluster[:200]!r}, expected {cluster_id!r}"
    if machine.shard_metadata != metadata:
        return "the ack does not echo the shard_metadata of this call"
    return None
