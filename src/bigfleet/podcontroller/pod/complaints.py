"""What a pod asks for and a request cannot say; people read it as an Event on the pod."""

import msgspec


class Complaint(msgspec.Struct, frozen=True, order=True):
    """A reason in one word for machines, and a sentence for people that says what was done and what to write."""

    reason: str
    note: str


UNTRANSLATABLE = "CapacityNotRequested"
"""No request is made for the pod."""

APPROXIMATE = "CapacityApproximated"
"""A request is made, and asks for less than the pod does."""

MALFORMED = "MalformedPenalty"
"""An annotation that cannot be read; the default counts."""

REFUSED = "CapacityRequestRefused"
"""The API server does not take the pod's request."""
