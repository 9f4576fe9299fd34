"""The errors of calls to a provider. Each names the provider, the method, the machine and the cause.

A provider's text is foreign: it is quoted and cut before it reaches a log.
"""

from collections.abc import Mapping
from types import MappingProxyType

import grpc

from bigfleet.provider.records import Ack

_SHOWN = 200


class ProviderError(Exception):
    """A call without a usable answer. `code` is the gRPC status, None where the provider sent none."""

    def __init__(self, provider: str, method: str, machine_id: str, problem: str, code: str | None = None) -> None:
        self.provider, self.method, self.machine_id, self.code = provider, method, machine_id, code
        machine = f" of machine {quoted(machine_id)}" if machine_id else ""
        super().__init__(f"provider {provider}: {method}{machine}: {problem}")


class NotFoundError(ProviderError):
    """The provider knows no such machine."""


class UnsupportedError(ProviderError):
    """The provider does not offer this call, as a data centre does not take its own machines back."""


class FencedError(ProviderError):
    """The provider has seen a newer token of this shard for this machine. The call is not tried again."""


class InvalidError(ProviderError):
    """The provider finds the request malformed."""


class RefusedError(ProviderError):
    """The provider refused: the call is illegal in the machine's state (ABORTED), or failed for another reason."""


class ForbiddenError(ProviderError):
    """The provider does not accept this call from this shard."""


class ExhaustedError(ProviderError):
    """The provider is out of stock, or a limit of the provider is reached."""


class UnavailableError(ProviderError):
    """No attempt was answered. Whether the call took effect is unknown until the next Get."""


class BrokenContractError(ProviderError):
    """The answer breaks the contract; nothing in it was taken."""


class AckMismatchError(ProviderError):
    """The machine in the ack is not as the call asked. The call has done nothing; `ack` shows the machine as it is."""

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
    """The class of error for a gRPC status."""
    return _ERRORS.get(code, RefusedError)


def quoted(text: str) -> str:
    """A peer's text, quoted and cut for a log."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
