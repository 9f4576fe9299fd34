"""What it costs to disturb a pod: by its annotations, else by the default of its PriorityClass, else nothing."""

import re
from collections.abc import Mapping

import msgspec

from bigfleet.kube.objects.kinds import Pod
from bigfleet.kube.objects.names import INTERRUPTION, RECLAMATION
from bigfleet.model import plain_yaml
from bigfleet.model.crd import Amount
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.podcontroller.pod.complaints import MALFORMED, Complaint

MAX_TEXT = 32
"""The longest amount that is read."""

DOLLARS = re.compile(r"[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-5]?[0-9])?")
"""The amounts that the fields of a CapacityRequest take; a test holds this equal to the CRD's pattern."""

_SHOWN = 64


class PenaltyFileError(Exception):
    """Penalty defaults that cannot be used; the text names the file, the place in it and what fits."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"penalty defaults {source}: {problem}")


class Penalties(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Dollars for an interruption and for a reclamation; None where nothing is stated."""

    interruption_penalty: Amount | None = None
    reclamation_penalty: Amount | None = None

    def over(self, defaults: "Penalties") -> "Penalties":
        """These penalties, with the defaults in place of those that are not stated."""
        return Penalties(
            interruption_penalty=_either(self.interruption_penalty, defaults.interruption_penalty),
            reclamation_penalty=_either(self.reclamation_penalty, defaults.reclamation_penalty),
        )


Defaults = Mapping[str, Penalties]
"""Penalties by the name of the PriorityClass."""


def annotated(pod: Pod) -> tuple[Penalties, tuple[Complaint, ...]]:
    """The penalties in the pod's annotations, and a complaint about each annotation that cannot be read."""
    read: dict[str, str | None] = {}
    complaints = []
    for name in (INTERRUPTION, RECLAMATION):
        text = pod.metadata.annotations.get(name)
        read[name] = text if text is not None and _is_dollars(text) else None
        if text is not None and read[name] is None:
            shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
            note = (
                f"annotation {name}: {shown!a} is no amount of dollars; the default counts; write a quantity that "
                "is not negative, such as 0, 500m, 2.50 or 10k"
            )
            complaints.append(Complaint(MALFORMED, note))
    said = Penalties(interruption_penalty=read[INTERRUPTION], reclamation_penalty=read[RECLAMATION])
    return said, tuple(complaints)


def read_defaults(text: str, source: str) -> dict[str, Penalties]:
    """The defaults in a YAML text: PriorityClass names, each with interruptionPenalty, reclamationPenalty or both."""
    try:
        found = [document for _, document in plain_yaml.documents(text)]
        if len(found) > 1:
            raise PenaltyFileError(source, f"has {len(found)} documents; write one")
        defaults = msgspec.convert(found[0] if found and found[0] is not None else {}, dict[str, Penalties])
    except plain_yaml.PlainYamlError as error:
        raise PenaltyFileError(source, str(error)) from None
    except msgspec.ValidationError as error:
        problem = f"{error}; write PriorityClass names, each with interruptionPenalty, reclamationPenalty or both"
        raise PenaltyFileError(source, problem) from None
    for name, penalties in defaults.items():
        for field, value in msgspec.structs.asdict(penalties).items():
            if value is not None and not _is_dollars(str(value)):
                problem = f"{name}: {field}: {str(value)[:_SHOWN]!a} is no amount of dollars, such as 0, 500m or 10k"
                raise PenaltyFileError(source, problem)
    return defaults


def amount(value: Amount | None) -> Amount:
    """The value as the request holds it. None, and zero however written, become the 0 that a request leaves out."""
    return 0 if value is None or PenaltyBucket.from_dollars(value) is PenaltyBucket.ZERO else value


def _is_dollars(text: str) -> bool:
    return len(text) <= MAX_TEXT and DOLLARS.fullmatch(text) is not None


def _either(one: Amount | None, other: Amount | None) -> Amount | None:
    return other if one is None else one
