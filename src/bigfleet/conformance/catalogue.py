"""Every behaviour of docs/internals/provider-behaviours.md, in the order of the ids."""

from bigfleet.conformance.checks import (
    concurrency,
    durability,
    failure,
    fencing,
    fields,
    fuzz,
    lifecycle,
    listing,
    matrix,
    metadata,
    scale,
)
from bigfleet.conformance.suite import Area, Behaviour

AREAS: tuple[Area, ...] = (
    lifecycle.AREA,
    matrix.AREA,
    fencing.AREA,
    concurrency.AREA,
    metadata.AREA,
    failure.AREA,
    fields.AREA,
    listing.AREA,
    durability.AREA,
    scale.AREA,
    fuzz.AREA,
)

BEHAVIOURS: tuple[Behaviour, ...] = tuple(
    sorted((behaviour for area in AREAS for behaviour in area.behaviours), key=lambda behaviour: behaviour.number)
)

TITLES = {area.number: area.title for area in AREAS}
