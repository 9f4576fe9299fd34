"""A cloud to test with: moto's server on loopback. It runs no guests, so a thread here plays the agent in each."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
import yaml
from bigfleet.providerkit import Job
from moto.backends import get_backend
from moto.ec2.models.instances import InstanceBackend
from moto.server import ThreadedMotoServer

from bigfleet_ec2.backend import EC2
from bigfleet_ec2.config import load

REGION, ACCOUNT, BUCKET, ROLE = "us-east-1", "123456789012", "mailbox", "AROAEXAMPLEEXAMPLE00"
# Set before any client is made: nothing here may reach a real account.
os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION=REGION)
# Half a second of each test would go into reading the models of AWS's services again.
botocore.session.create_loader = lru_cache(botocore.session.create_loader)


@dataclass
class World:
    """The cloud, and the configuration of a provider in it."""

    folder: Path
    endpoint: str
    ec2: Any
    s3: Any
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "pools.yaml"

    def write(self, **changes: Any) -> Path:
        self.config.write_text(yaml.safe_dump({**self.content, **changes}))
        return self.config

    def backend(self, **changes: Any) -> EC2:
        return EC2(load(self.write(**changes)))

    @property
    def moto(self) -> Any:
        """moto's own EC2, for what only AWS itself can do to an instance."""
        return get_backend("ec2")[ACCOUNT][REGION]

    def instances(self, *states: str) -> list[dict[str, Any]]:
        wanted = [{"Name": "instance-state-name", "Values": list(states)}] if states else []
        pages = self.ec2.get_paginator("describe_instances").paginate(Filters=wanted)
        return [each for page in pages for group in page["Reservations"] for each in group["Instances"]]

    def instance(self, name: str) -> dict[str, Any]:
        return next(each for each in self.instances() if each["InstanceId"] == name)

    def tags(self, name: str) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in self.instance(name).get("Tags", ())}

    def mail(self) -> list[str]:
        return [each["Key"] for each in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())]


class Guests(threading.Thread):
    """Plays the agent in every instance: reads its order from its tags, and gives the word that the order asks for."""

    def __init__(self, world: World) -> None:
        super().__init__(name="guests")
        self._world, self._over = world, threading.Event()
        self.blobs: dict[str, bytes] = {}
        self.words = {"join": "joined", "leave": "left"}
        """What an agent answers to each order; an empty word is silence."""
        self._obeyed: set[str] = set()
        self._ended: dict[str, float] = {}

    def run(self) -> None:
        while not self._over.wait(0.05):
            # An agent reads its tags in the instance. Asking moto's server for them as a client does, twenty times a
            # second, took longer than all that is tested.
            moto = self._world.moto
            for instance in [each for group in list(moto.reservations.values()) for each in group.instances]:
                order = moto.tags.get(instance.id, {}).get("bigfleet:order")
                if order and instance.state == "running":
                    self._obey(instance.id, *order.split()[:2])
            self._forget()

    def _forget(self) -> None:
        """AWS shows an instance for an hour after its end. moto would for ever, and be busy with nothing else."""
        reservations = self._world.moto.reservations
        for name, reservation in reservations.copy().items():
            is_over = all(instance.state == "terminated" for instance in reservation.instances)
            if is_over and time.monotonic() > self._ended.setdefault(name, time.monotonic()) + 5:
                del reservations[name]

    def _obey(self, instance: str, verb: str, order: str) -> None:
        word = self.words[verb]
        if order in self._obeyed or not word:
            return
        folder = f"bigfleet/{ROLE}:{instance}/{order}"
        if verb == "join":
            self.blobs[instance] = self._world.s3.get_object(Bucket=BUCKET, Key=f"{folder}/bootstrap")["Body"].read()
        self._obeyed.add(order)
        self._world.s3.put_object(Bucket=BUCKET, Key=f"{folder}/{word}", Body=b"the guest says so")

    def end(self) -> None:
        self._over.set()
        self.join()


async def eventually(holds: Callable[[], object]) -> None:
    """Wait for what happens in another process or task; the test's time-out is the bound."""
    while not holds():  # noqa: ASYNC110 - there is nothing to wait on but the clock
        await asyncio.sleep(0.02)


def _once_a_token(self: Any, *arguments: Any, **options: Any) -> Any:
    """RunInstances as AWS has it and moto has not: a client token that was used brings the same instance again."""
    for reservation in self.reservations.values():
        if options["client_token"] in {instance.client_token for instance in reservation.instances}:
            # moto gives every answer's instance its profile, and an instance takes one only once.
            for instance in reservation.instances:
                self.iam_instance_profile_associations.pop(instance.id, None)
            return reservation
    return _run_instances(self, *arguments, **options)


_run_instances: Any = InstanceBackend.run_instances
InstanceBackend.run_instances = _once_a_token  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def cloud() -> Iterator[tuple[str, Any, Any]]:
    """The server, with what an operator sets up once: a bucket and an instance profile."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    ec2, s3, iam = (boto3.client(name, endpoint_url=endpoint, region_name=REGION) for name in ("ec2", "s3", "iam"))
    s3.create_bucket(Bucket=BUCKET)
    iam.create_instance_profile(InstanceProfileName="guest")
    yield endpoint, ec2, s3
    for client in (ec2, s3, iam):
        client.close()
    server.stop()


@pytest.fixture
def world(tmp_path: Path, cloud: tuple[str, Any, Any]) -> Iterator[World]:
    endpoint, ec2, s3 = cloud
    pool = {
        "instance_type": "m5.large",
        "zone": "us-east-1a",
        "ami": "ami-12c6146b",
        "price_per_hour": 0.096,
        "resources": {"cpu": "2", "memory": "8Gi"},
        "allocatable": {"cpu": "1900m", "memory": "7Gi"},
    }
    spot = {"capacity": "spot", "price_per_hour": 0.03, "interruption_probability": 0.1}
    content = {
        "name": "test",
        "region": REGION,
        "endpoint_url": endpoint,
        "poll_seconds": 0.15,
        "guest": {"bucket": BUCKET, "instance_profile": "guest", "role_id": ROLE},
        "pools": [
            {**pool, "name": "m5-a", "count": 20, "capacity": "on-demand"},
            {**pool, "name": "m5-a-spot", "count": 4, **spot},
        ],
    }
    world = World(tmp_path, endpoint, ec2, s3, content)
    world.write()
    yield world
    world.moto.reservations.clear()
    world.moto.spot_instance_requests.clear()
    for key in world.mail():
        s3.delete_object(Bucket=BUCKET, Key=key)


@pytest.fixture
def guests(world: World) -> Iterator[Guests]:
    guests = Guests(world)
    guests.start()
    yield guests
    guests.end()


def job(machine: str, host: str = "", cluster: str = "", token: str = "create-1") -> Job:
    return Job(machine=machine, shape=None, token=token, host=host, cluster=cluster)  # type: ignore[arg-type]


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A loopback port that nobody has at the moment."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port: int = server.getsockname()[1]
            return port

    return find
