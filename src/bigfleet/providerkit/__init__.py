"""What a provider author builds on: one small backend in, the whole contract out.

Generic over backends; the simulated cloud is one of them. An author needs the names below and no others.
"""

from bigfleet.model.machine import CapacityType
from bigfleet.providerkit.backend import Backend, BackendError, Change, Job, Limits, Notice
from bigfleet.providerkit.main import ConfigError, main
from bigfleet.providerkit.offer import Offer, OfferError, Shape

__all__ = [
    "Backend",
    "BackendError",
    "CapacityType",
    "Change",
    "ConfigError",
    "Job",
    "Limits",
    "Notice",
    "Offer",
    "OfferError",
    "Shape",
    "main",
]
