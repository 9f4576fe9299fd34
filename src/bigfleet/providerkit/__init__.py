"""What a provider author builds on: one small backend in, the whole contract out.

Generic over backends; the simulated cloud is one of them. An author needs the names below and no others.
"""

import os

# Read by gRPC when it is first imported. With it, a child that a backend starts (ssh, a cloud's own tool) can die of
# gRPC's handlers for fork.
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
