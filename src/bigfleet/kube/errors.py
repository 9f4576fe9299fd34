"""The errors of calls to an API server. Each names the verb, the object and what the server said.

What the server said is foreign text: it is cut and made printable before it reaches a log.
"""

# Characters of the server's text that an error shows, and that it keeps.
_SHOWN = 500
_KEPT = 4000


class KubeConfigError(Exception):
    """A kubeconfig, or a file that it names, cannot be used. The text says what to do, and holds no secret."""


class ApiError(Exception):
    """A call that was refused or got no answer. `code` is the HTTP status, 0 where there was no answer.

    `retry_after` is the number of seconds after which the server wants the call again; None where it did not say.
    """

    CODE = 0
    REASON = ""

    def __init__(
        self,
        verb: str,
        subject: str,
        message: str = "",
        *,
        code: int | None = None,
        reason: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.verb, self.subject = verb, subject
        self.message = message[:_KEPT]
        self.code = self.CODE if code is None else code
        self.reason = self.REASON if reason is None else reason
        self.retry_after = retry_after
        said = " ".join(part for part in (str(self.code or ""), quoted(self.reason)) if part)
        super().__init__(": ".join(part for part in (f"{verb} {subject}", said, quoted(self.message)) if part))


class NotFoundError(ApiError):
    """There is no such object, or no such kind."""

    CODE, REASON = 404, "NotFound"


class ConflictError(ApiError):
    """A precondition does not hold: the object's version or UID has changed, or the object exists already."""

    CODE, REASON = 409, "Conflict"


class AlreadyExistsError(ConflictError):
    """An object of that name exists already."""

    REASON = "AlreadyExists"


class GoneError(ApiError):
    """The version asked for is no longer kept, or the page token has expired: list anew."""

    CODE, REASON = 410, "Expired"


class InvalidError(ApiError):
    """The server finds the object malformed."""

    CODE, REASON = 422, "Invalid"


class TooManyRequestsError(ApiError):
    """The server wants the call later. For an eviction: a disruption budget does not allow it now."""

    CODE, REASON = 429, "TooManyRequests"


class UnauthorizedError(ApiError):
    """The server does not accept our credentials, not even fresh ones."""

    CODE, REASON = 401, "Unauthorized"


class ForbiddenError(ApiError):
    """This program may not do that: a role or its binding is missing."""

    CODE, REASON = 403, "Forbidden"


class UnreachableError(ApiError):
    """There was no answer, or none of an API server. Whether a change took effect is unknown."""


class SilentError(UnreachableError):
    """A watch that brought nothing for too long, not even a bookmark."""


class UnreadableError(ApiError):
    """An answer in which the object asked for cannot be read."""


_BY_CODE: dict[int, type[ApiError]] = {
    error.CODE: error
    for error in (
        UnauthorizedError,
        ForbiddenError,
        NotFoundError,
        ConflictError,
        GoneError,
        InvalidError,
        TooManyRequestsError,
    )
}


def error_of(code: int, reason: str) -> type[ApiError]:
    """The class of error for an answer with this HTTP status and reason."""
    if code == ConflictError.CODE and reason == AlreadyExistsError.REASON:
        return AlreadyExistsError
    return _BY_CODE.get(code, ApiError)


def quoted(text: str) -> str:
    """Foreign text, cut and made printable for one line of a log."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")
