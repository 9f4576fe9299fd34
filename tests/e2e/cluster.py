"""What tests do with a real cluster: put manifests in, wait for what must come of them, make tokens to join with."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from bigfleet.kube.client import Client
from bigfleet.sim.controlplane.cluster import ControlPlane

_LOOK_SECONDS = 0.2
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


async def until(probe: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """What the probe returns, or its coroutine, once that is true; a failure that names `what` if it never is."""
    found: Any = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                answer = probe()
                found = await answer if isinstance(answer, Awaitable) else answer
                if found:
                    return found
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {found!r:.500}") from None


async def apply(plane: ControlPlane, *manifests: str | Mapping[str, object]) -> None:
    """Put objects into the cluster as its admin: YAML text, or dicts; ControlPlaneError with kubectl's words if not."""
    texts = [each if isinstance(each, str) else yaml.safe_dump(dict(each)) for each in manifests]
    await plane.kubectl("apply", "--filename=-", stdin="\n---\n".join(texts))


@asynccontextmanager
async def admin(plane: ControlPlane, qps: float = 500.0, burst: int = 1000) -> AsyncIterator[Client]:
    """A client that may do everything."""
    async with Client(plane.config, qps=qps, burst=burst) as client:
        yield client


async def bootstrap_token(plane: ControlPlane, lives: timedelta = timedelta(minutes=60)) -> str:
    """A token that nodes may join with until it expires."""
    id_, secret = ("".join(secrets.choice(_ALPHABET) for _ in range(length)) for length in (6, 16))
    await apply(
        plane,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": f"bootstrap-token-{id_}", "namespace": "kube-system"},
            "stringData": {
                "token-id": id_,
                "token-secret": secret,
                "expiration": (datetime.now(UTC) + lives).isoformat(timespec="seconds"),
                "usage-bootstrap-authentication": "true",
            },
        },
    )
    return f"{id_}.{secret}"
