"""Bootstrap tokens: one Secret for each request, valid for an hour and deleted as soon as it has served.

The public half of a token is made from the request's id. So a request that is asked again finds its own Secret, even
after a restart of the operator, and no second one is left behind. The secret half is random and never logged.
"""

import asyncio
import re
import secrets
import string
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b

import msgspec
import structlog

from bigfleet.kube.client import Client
from bigfleet.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from bigfleet.kube.objects.kinds import Secret
from bigfleet.kube.objects.names import MACHINE, MANAGED_BY, OPERATOR
from bigfleet.kube.objects.resources import SECRETS
from bigfleet.operator.waiting import WaitUntilWoken, until_woken

TTL = timedelta(minutes=60)
NAMESPACE = "kube-system"
GROUP = "system:bootstrappers:bigfleet"
REQUEST = "bigfleet.lucy.sh/bootstrap-request"

_TYPE = "bootstrap.kubernetes.io/token"
_PREFIX = "bootstrap-token-"
# A provider may take half an hour to configure. A token with less than that and a margin left is made anew.
_WORTH_REUSING = timedelta(minutes=40)
_LETTERS = string.ascii_lowercase + string.digits
_ID_LENGTH, _SECRET_LENGTH = 6, 16
# Names that are tried for one token before TokenError.
_ATTEMPTS = 8
# How often expired tokens are looked for.
_SWEEP_SECONDS = 60.0
# Seconds between two tries to list the tokens at the start, at first and at most.
_FIRST_WAIT, _LAST_WAIT = 2.0, 30.0
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)

_log = structlog.get_logger("bigfleet.operator")


class TokenError(Exception):
    """No token could be made for a request."""


class BootstrapToken(msgspec.Struct, frozen=True):
    """A valid token. Its repr leaves the secret half out."""

    text: str
    seconds_left: int

    def __repr__(self) -> str:
        return f"BootstrapToken({self.text.partition('.')[0]}, {self.seconds_left})"


class _Issued(msgspec.Struct, frozen=True):
    """A Secret with a token, as far as it matters when the token is to be deleted."""

    request: str
    machine: str
    name: str
    uid: str
    made: datetime | None
    expires: datetime


class BootstrapTokens:
    """The tokens of one cluster. `load` comes first, then `run`."""

    def __init__(
        self, client: Client, cluster_id: str, wall: Callable[[], datetime], *, wait: WaitUntilWoken = until_woken
    ) -> None:
        self._client, self._cluster_id, self._wall, self._wait = client, cluster_id, wall, wait
        #: By request.
        self._issued: dict[str, _Issued] = {}
        #: Requests by machine.
        self._of_machine: dict[str, set[str]] = {}
        #: Requests whose token is to be deleted.
        self._doomed: set[str] = set()
        self._more = asyncio.Event()

    async def load(self) -> None:
        """Find the tokens that an earlier process of the operator made; asks until the API server answers."""
        for secret in await self._list():
            if secret.type == _TYPE:
                self._note(secret)
        self._more.set()

    def asked_at(self, machine_id: str) -> datetime | None:
        """When the machine's last request came, by the API server's clock; None once its token is gone."""
        requests = self._of_machine.get(machine_id, ())
        return max((made for each in requests if (made := self._issued[each].made) is not None), default=None)

    async def issue(self, request_id: str, machine_id: str) -> BootstrapToken:
        """The request's token: the one that it has, or a new one. Raises TokenError, ApiError."""
        salt = 0
        for _ in range(_ATTEMPTS):
            token_id = _token_id(self._cluster_id, request_id, salt)
            try:
                return await self._make(token_id, request_id, machine_id)
            except AlreadyExistsError:
                there = await self._find(_PREFIX + token_id)
            if there is None:
                continue
            if there.metadata.annotations.get(REQUEST) != request_id:
                salt += 1
            elif (token := self._reusable(there)) is not None:
                return token
            else:
                await self._delete(there.metadata.name, there.metadata.uid)
        raise TokenError(f"no name was free for the token of request {request_id[:80]!r}")

    def withdraw(self, request_id: str) -> None:
        """The request is withdrawn: have its token deleted."""
        if request_id in self._issued:
            self._doomed.add(request_id)
            self._more.set()

    def release(self, machine_id: str) -> None:
        """The machine's Node is Ready: have its tokens deleted."""
        for request_id in self._of_machine.get(machine_id, ()):
            self.withdraw(request_id)

    async def run(self) -> None:
        """Delete tokens that have served, were withdrawn or have expired, until cancelled."""
        while True:
            self._more.clear()
            for request_id in list(self._issued):
                # Decided at its turn: the request may have been asked again meanwhile.
                if request_id in self._doomed or self._is_over(self._issued[request_id]):
                    await self._remove(request_id)
            if not self._more.is_set():
                await self._wait(_SWEEP_SECONDS, self._more)

    # Secrets.

    async def _list(self) -> list[Secret]:
        wait = _FIRST_WAIT
        while True:
            try:
                return await self._client.list(
                    SECRETS, namespace=NAMESPACE, labels=f"{MANAGED_BY}={OPERATOR},{MACHINE}"
                )
            except ApiError as error:
                _log.warning("bootstrap_tokens_not_listed", error=str(error), again_in=wait)
                await self._wait(wait, asyncio.Event())
                wait = min(2 * wait, _LAST_WAIT)

    async def _make(self, token_id: str, request_id: str, machine_id: str) -> BootstrapToken:
        secret = "".join(secrets.choice(_LETTERS) for _ in range(_SECRET_LENGTH))
        expires = self._wall() + TTL
        made = await self._client.create(
            SECRETS,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": _TYPE,
                "metadata": {
                    "name": _PREFIX + token_id,
                    "namespace": NAMESPACE,
                    "labels": {MANAGED_BY: OPERATOR, MACHINE: _label(machine_id)},
                    "annotations": {MACHINE: machine_id, REQUEST: request_id},
                },
                "stringData": {
                    "token-id": token_id,
                    "token-secret": secret,
                    "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "usage-bootstrap-authentication": "true",
                    "auth-extra-groups": GROUP,
                    "description": f"BigFleet: machine {machine_id} joins {self._cluster_id}",
                },
            },
            namespace=NAMESPACE,
        )
        self._note(made, expires)
        self._doomed.discard(request_id)
        _log.info("bootstrap_token_made", secret=made.metadata.name, machine=machine_id, request=request_id)
        return BootstrapToken(f"{token_id}.{secret}", int(TTL.total_seconds()))

    async def _find(self, name: str) -> Secret | None:
        try:
            return await self._client.get(SECRETS, name, namespace=NAMESPACE)
        except NotFoundError:
            return None

    def _reusable(self, there: Secret) -> BootstrapToken | None:
        issued = self._note(there)
        if there.type != _TYPE or issued.request in self._doomed or issued.expires - self._wall() < _WORTH_REUSING:
            return None
        try:
            text = f"{there.data['token-id'].decode()}.{there.data['token-secret'].decode()}"
        except (KeyError, UnicodeDecodeError):
            return None
        return BootstrapToken(text, int((issued.expires - self._wall()).total_seconds()))

    def _note(self, secret: Secret, expires: datetime | None = None) -> _Issued:
        meta = secret.metadata
        request = meta.annotations.get(REQUEST, meta.name)
        made = meta.creation_timestamp
        when = expires or _expiration(secret) or self._wall()
        issued = _Issued(request, meta.annotations.get(MACHINE, ""), meta.name, meta.uid, made, when)
        self._issued[request] = issued
        self._of_machine.setdefault(issued.machine, set()).add(request)
        return issued

    def _is_over(self, issued: _Issued) -> bool:
        return issued.expires <= self._wall()

    async def _remove(self, request_id: str) -> None:
        issued = self._issued[request_id]
        try:
            await self._delete(issued.name, issued.uid)
        except ApiError as error:
            _log.warning("bootstrap_token_not_deleted", secret=issued.name, error=str(error), again_in=_SWEEP_SECONDS)
            return
        # A request that was asked again meanwhile has another Secret by now.
        if self._issued.get(request_id) is issued:
            del self._issued[request_id]
            self._doomed.discard(request_id)
            others = self._of_machine[issued.machine]
            others.discard(request_id)
            if not others:
                del self._of_machine[issued.machine]

    async def _delete(self, name: str, uid: str) -> None:
        with suppress(NotFoundError, ConflictError):
            await self._client.delete(SECRETS, name, namespace=NAMESPACE, uid=uid)
            _log.info("bootstrap_token_deleted", secret=name)


def _token_id(cluster_id: str, request_id: str, salt: int) -> str:
    number = int.from_bytes(blake2b(f"{cluster_id}\0{request_id}\0{salt}".encode(), digest_size=8).digest())
    letters = []
    for _ in range(_ID_LENGTH):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


def _expiration(secret: Secret) -> datetime | None:
    try:
        when = datetime.fromisoformat(secret.data["expiration"].decode())
    except (KeyError, ValueError):
        return None
    return when if when.tzinfo is not None else None


def _label(machine_id: str) -> str:
    """A label's value for the machine: its id where that is allowed, else a hash of the id."""
    if _LABEL_VALUE.fullmatch(machine_id):
        return machine_id
    return blake2b(machine_id.encode(), digest_size=16).hexdigest()
