"""Machines on which a provider under test lets something go wrong, so that failure can be seen without a back door."""

from enum import StrEnum

from bigfleet.model.labels import CONFORMANCE_FAULT, CONFORMANCE_SECONDS
from bigfleet.wire.v1alpha1 import provider_pb2 as pb


class Fault(StrEnum):
    """What goes wrong."""

    CREATE_ERROR = "create-error"
    CONFIGURE_ERROR = "configure-error"
    DRAIN_ERROR = "drain-error"
    DELETE_ERROR = "delete-error"
    CREATE_HANG = "create-hang"
    CONFIGURE_HANG = "configure-hang"
    CREATE_LATE = "create-late"
    JOIN_LATE = "join-late"


def fault_of(record: pb.Machine) -> str:
    """The fault that a machine is offered with, empty for an ordinary one."""
    return record.labels.get(CONFORMANCE_FAULT, "")


def seconds_of(record: pb.Machine) -> float | None:
    """How late the machine's fault makes it, or None where it does not say in a way that can be used."""
    try:
        seconds = float(record.labels.get(CONFORMANCE_SECONDS, ""))
    except ValueError:
        return None
    return seconds if 0 < seconds < 3600 else None


def how_to_offer(*faults: Fault) -> str:
    """What an author does to have a behaviour checked that needs one of these faults."""
    late = [fault for fault in faults if fault in {Fault.CREATE_LATE, Fault.JOIN_LATE}]
    also = f" and {CONFORMANCE_SECONDS}=<how late>" if late else ""
    return f"no machine offers it: list one with the label {CONFORMANCE_FAULT}={' or '.join(faults)}{also}"
