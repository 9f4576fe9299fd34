"""Complaints: what a pod asks for that a request cannot express. People read them as Events on the pod."""

import msgspec


class Complaint(msgspec.Struct, frozen=True, order=True):
    """A reason in one word for programs, and a sentence for people on what was done and what to write instead."""

    reason: str
    note: str


UNTRANSLATABLE = "CapacityNotRequested"
"""No request is made for the pod."""

APPROXIMATE = "CapacityApproximated"
"""A request is made that leaves a condition of the pod out."""

MALFORMED = "MalformedPenalty"
"""A penalty annotation cannot be read; the default is used."""

REFUSED = "CapacityRequestRefused"
"""The API server does not take the pod's request."""
