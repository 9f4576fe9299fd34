"""Whether the machine in an ack is as the call asked (protocol rule 3)."""

from collections.abc import Mapping
from types import MappingProxyType

from bigfleet.model.machine import ASKS, Call, Machine, MachineState

# Characters of a provider's text that an error quotes.
_SHOWN = 200

SHOWN: Mapping[Call, frozenset[MachineState]] = MappingProxyType(
    {call: frozenset(state for ask in ASKS if ask.call is call for state in (ask.via, ask.end)) for call in Call}
)
"""The states that an ack of each call may show: the one in transition, or the one at its end.

A fast provider, or the answer to a repeat, shows the end. Failed is not among the states: the call has done nothing.
"""


def misfit(call: Call, machine: Machine, cluster_id: str = "", metadata: Mapping[str, str] | None = None) -> str | None:
    """What about an ack's machine is not as the call asked, or None. Configure alone has a cluster and metadata."""
    if machine.state not in SHOWN[call]:
        expected = " or ".join(state.label for state in sorted(SHOWN[call]))
        return f"the ack shows state {machine.state.label}, expected {expected}"
    if call is not Call.CONFIGURE:
        return None
    if machine.cluster != cluster_id:
        return f"the ack shows cluster {machine.cluster[:_SHOWN]!r}, expected {cluster_id!r}"
    if machine.shard_metadata != metadata:
        return "the ack does not echo the shard_metadata of this call"
    return None
