"""A backend that makes a host each time, or loses sight of its hosts, is caught where the suite cannot look."""

import pytest

from bigfleet.providerkit import BackendError, Job
from bigfleet.providerkit.cross_check import CrossCheckedBackend
from tests.providerkit.toy import SHAPE, Toy

JOB = Job("m-0", SHAPE, "token-1")


@pytest.fixture(autouse=True)
def _no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigfleet.providerkit.cross_check._LAG_SECONDS", 0.0)


class EachTimeAnother(Toy):
    """Makes a host whenever it is asked, and finds the newest."""

    async def create(self, job: Job) -> str:
        self.calls["create"] += 1
        self.hosts[job.token] = f"h-{self.calls['create']}"
        return self.hosts[job.token]


class HeedsNoHost(Toy):
    """Keeps to the token of a Create, but not to the host that a restart found."""

    async def create(self, job: Job) -> str:
        return "another" if job.host else await super().create(job)


class FindsNothing(Toy):
    async def describe(self, job: Job) -> str:
        return ""


class DeletesNothing(Toy):
    async def delete(self, job: Job) -> None:
        self.calls["delete"] += 1


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        (EachTimeAnother(), r"create made host 'h-1' and then host 'h-2' under the same token"),
        (HeedsNoHost(), r"create made host 'h-0-m-0' and then host 'another' under the same token"),
        (FindsNothing(), r"describe finds nothing under the token of host 'h-0-m-0', which was just made"),
    ],
)
async def test_a_create_that_cannot_be_repeated_or_found_fails(backend: Toy, words: str) -> None:
    with pytest.raises(BackendError, match=words):
        await CrossCheckedBackend(backend).create(JOB)


async def test_hosts_of_a_create_that_fails_here_are_ended() -> None:
    backend = FindsNothing()
    with pytest.raises(BackendError):
        await CrossCheckedBackend(backend).create(JOB)
    assert backend.hosts == {}


async def test_a_delete_that_leaves_the_host_fails() -> None:
    backend = CrossCheckedBackend(DeletesNothing())
    host = await backend.create(JOB)
    with pytest.raises(BackendError, match=r"describe still finds 'h-0-m-0' under the token of host 'h-0-m-0'"):
        await backend.delete(Job("m-0", SHAPE, "token-1", host))


async def test_a_backend_that_is_right_makes_one_host_and_ends_it() -> None:
    inner = Toy()
    backend = CrossCheckedBackend(inner)
    host = await backend.create(JOB)
    assert inner.hosts == {"token-1": host}
    await backend.delete(Job("m-0", SHAPE, "token-1", host))
    assert inner.hosts == {}
