"""Faults: machines on which the provider under test lets a call fail, so that the suite can see failures."""

from enum import StrEnum

from bigfleet.model.labels import CONFORMANCE_FAULT, CONFORMANCE_SECONDS
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

_LONGEST_SECONDS = 3600


class Fault(StrEnum):
    """A fault, by the value of its label."""

    CREATE_ERROR = "create-error"
    CONFIGURE_ERROR = "configure-error"
    DRAIN_ERROR = "drain-error"
    DELETE_ERROR = "delete-error"
    CREATE_HANG = "create-hang"
    CONFIGURE_HANG = "configure-hang"
    CREATE_LATE = "create-late"
    JOIN_LATE = "join-late"


def fault_of(record: pb.Machine) -> str:
    """The fault that a machine is offered with. Empty for an ordinary machine."""
    return record.labels.get(CONFORMANCE_FAULT, "")


def seconds_of(record: pb.Machine) -> float | None:
    """By how many seconds the fault makes the machine late. None if its label is missing or cannot be used."""
    try:
        seconds = float(record.labels.get(CONFORMANCE_SECONDS, ""))
    except ValueError:
        return None
    return seconds if 0 < seconds < _LONGEST_SECONDS else None


def how_to_offer(*faults: Fault) -> str:
    """What an author has to do so that a behaviour which needs one of these faults can be checked."""
    late = [fault for fault in faults if fault in {Fault.CREATE_LATE, Fault.JOIN_LATE}]
    also = f" and {CONFORMANCE_SECONDS}=<how late>" if late else ""
    return f"no machine offers it: list one with the label {CONFORMANCE_FAULT}={' or '.join(faults)}{also}"
