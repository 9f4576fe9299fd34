"""Providers with one defect each, and the behaviour that names it. A file for each area of the catalogue."""

from tests.conformance.liars import (
    concurrency,
    failure,
    fencing,
    fields,
    life_cycle,
    lists,
    metadata,
    random_cases,
    refusals,
)
from tests.conformance.liars.durability import DURABLE
from tests.conformance.liars.liar import LIARS

__all__ = [
    "DURABLE",
    "LIARS",
    "concurrency",
    "failure",
    "fencing",
    "fields",
    "life_cycle",
    "lists",
    "metadata",
    "random_cases",
    "refusals",
]
