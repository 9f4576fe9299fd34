"""What a call to a provider can come to besides an answer. Each error names provider, method, machine and cause.

A provider's words are not ours: they are quoted and cut before they reach a log.
"""

from collections.abc import Mapping
from types import MappingProxyType

import grpc

from bigfleet.provider.records import Ack

_SHOWN = 200


class ProviderError(Exception):
    """A call that brought no answer to use. `code` is the gRPC status, None where the provider sent none."""

    def __init__(self, provider: str, method: str, machine_id: str, problem: str, code: str | None = None) -> None:
        self.provider, self.method, self.machine_id, self.code = provider, method, machine_id, code
        machine = f" of machine {quoted(machine_id)}" if machine_id else ""
        super().__init__(f"provider {provider}: {method}{machine}: {problem}")


class NotFoundError(ProviderError):
    """The provider knows no such machine."""


class UnsupportedError(ProviderError):
    """The provider cannot do this at all, as giving hardware back that is ours."""


class FencedError(ProviderError):
    """The provider has seen a newer token of this shard on this machine. Never tried again."""


class InvalidError(ProviderError):
    """The provider finds the request malformed."""


class RefusedError(ProviderError):
    """The provider did not do it: illegal in the machine's present state (ABORTED), or failed in its own way."""


class ForbiddenError(ProviderError):
    """The provider does not take this call from us."""


class ExhaustedError(ProviderError):
    """The provider is out of stock, or we are beyond a limit of its."""


class UnavailableError(ProviderError):
    """No answer within all attempts. Whether the call took effect is unknown; the next Get tells."""


class BrokenContractError(ProviderError):
    """An answer that the contract does not allow; nothing in it was taken."""


class AckMismatchError(ProviderError):
    """An ack whose machine is not what was asked for: nothing was done for us, and `ack` is how it really stands."""

    def __init__(self, provider: str, method: str, ack: Ack, problem: str) -> None:
        self.ack = ack
        super().__init__(provider, method, ack.machine.id, problem)


_ERRORS: Mapping[grpc.StatusCode, type[ProviderError]] = MappingProxyType(
    {
        grpc.StatusCode.NOT_FOUND: NotFoundError,
        grpc.StatusCode.UNIMPLEMENTED: UnsupportedError,
        grpc.StatusCode.FAILED_PRECONDITION: FencedError,
        grpc.StatusCode.INVALID_ARGUMENT: InvalidError,
        grpc.StatusCode.PERMISSION_DENIED: ForbiddenError,
        grpc.StatusCode.UNAUTHENTICATED: ForbiddenError,
        grpc.StatusCode.RESOURCE_EXHAUSTED: ExhaustedError,
        grpc.StatusCode.UNAVAILABLE: UnavailableError,
        grpc.StatusCode.DEADLINE_EXCEEDED: UnavailableError,
    }
)


def error_of(code: grpc.StatusCode) -> type[ProviderError]:
    """The error that a status stands for."""
    return _ERRORS.get(code, RefusedError)


def quoted(text: str) -> str:
    """A peer's text as it may stand in a log: quoted and cut."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
