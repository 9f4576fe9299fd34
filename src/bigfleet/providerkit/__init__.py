"""The provider kit: an author writes one small backend, and the kit does the rest of the contract.

The simulated cloud is a backend like any other. An author needs the names below and no others.
"""

import os

# gRPC reads this when it is first imported. With fork support on, gRPC's fork handlers can kill a child that a backend
# starts, such as ssh or a cloud's own tool.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from bigfleet.model.machine import CapacityType
from bigfleet.providerkit.backend import Backend, BackendError, Change, Job, Known, Limits, Notice
from bigfleet.providerkit.offer import Offer, OfferError, Shape
from bigfleet.providerkit.server.main import ConfigError, main

__all__ = [
    "Backend",
    "BackendError",
    "CapacityType",
    "Change",
    "ConfigError",
    "Job",
    "Known",
    "Limits",
    "Notice",
    "Offer",
    "OfferError",
    "Shape",
    "main",
]
