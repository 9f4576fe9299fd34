"""Calls to AWS with boto3. A call blocks, so it runs in a thread. What AWS refuses is explained to a person."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import boto3
from bigfleet.providerkit import BackendError
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError

from bigfleet_ec2.config import Config

T = TypeVar("T")

_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_ATTEMPTS = 6

_ADVICE = {
    "InsufficientInstanceCapacity": "the zone has none of this type left at the moment",
    "InsufficientHostCapacity": "the zone has none of this type left at the moment",
    "MaxSpotInstanceCountExceeded": "the account's spot quota is used up; ask AWS to raise it",
    "SpotMaxPriceTooLow": "the spot price is above the price that may be paid",
    "InstanceLimitExceeded": "the account's quota is used up; ask AWS to raise it",
    "VcpuLimitExceeded": "the account's vCPU quota is used up; ask AWS to raise it",
    "RequestLimitExceeded": "AWS throttles this account, also after all retries",
    "Throttling": "AWS throttles this account, also after all retries",
    "UnauthorizedOperation": "the provider's credentials do not allow it; see the policy in the README",
    "AccessDenied": "the provider's credentials do not allow it; see the policy in the README",
    "AuthFailure": "the provider's credentials are not valid",
    "IdempotentParameterMismatch": "the pool was changed while this Create ran; Delete the machine and create it again",
}


class CloudError(BackendError):
    """AWS refused or did not answer. `code` is AWS's name for the reason."""

    def __init__(self, action: str, code: str, text: str) -> None:
        advice = f"{_ADVICE[code]}: " if code in _ADVICE else ""
        super().__init__(f"{action}: {advice}{code}: {text}")
        self.code = code


class Cloud:
    """The two services that the provider uses."""

    def __init__(self, config: Config) -> None:
        options = BotoConfig(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            # Adaptive: when AWS throttles one call, all calls of this process slow down.
            retries={"mode": "adaptive", "total_max_attempts": _ATTEMPTS},
            max_pool_connections=config.parallel,
        )
        session = boto3.session.Session(region_name=config.region)
        connect: Callable[[str], Any] = partial(session.client, endpoint_url=config.endpoint_url, config=options)
        self._clients = {name: connect(name) for name in ("ec2", "s3")}
        self._threads = ThreadPoolExecutor(config.parallel, "aws")

    async def ec2(self, action: str, **arguments: Any) -> Any:
        """One call of EC2, named as in boto3."""
        return await self._run(action, partial(getattr(self._clients["ec2"], action), **arguments))

    async def s3(self, action: str, **arguments: Any) -> Any:
        """One call of S3, named as in boto3."""
        return await self._run(action, partial(getattr(self._clients["s3"], action), **arguments))

    async def read(self, bucket: str, key: str, most: int) -> bytes:
        """The first `most` bytes of an object of S3."""
        get = self._clients["s3"].get_object
        return await self._run("get_object", lambda: get(Bucket=bucket, Key=key)["Body"].read(most))

    async def pages(self, service: str, action: str, **arguments: Any) -> list[Any]:
        """All pages of a call that has several."""
        paginator = self._clients[service].get_paginator(action)
        read: Callable[[], Iterator[Any]] = partial(paginator.paginate, **arguments)
        return await self._run(action, lambda: list(read()))

    def close(self) -> None:
        """Wait for the calls that run, which their time-outs bound, and close the connections."""
        self._threads.shutdown()
        for client in self._clients.values():
            client.close()

    async def _run(self, action: str, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except ClientError as error:
            said = error.response.get("Error", {})
            raise CloudError(action, said.get("Code", "unknown"), said.get("Message", str(error))) from error
        except BotoCoreError as error:
            raise CloudError(action, type(error).__name__, str(error)) from error
