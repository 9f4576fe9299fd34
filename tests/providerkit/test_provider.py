"""The kit around a substrate that fails, hangs, answers late and forgets: what is shown, and what no host outlives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from bigfleet.model.machine import Call
from bigfleet.providerkit import BackendError, Change, Job, Known, Limits, Notice
from bigfleet.providerkit.ledger.fence import Mark, Token
from bigfleet.providerkit.ledger.ledger import FencedError, IllegalError, Request
from bigfleet.providerkit.provider import Ack, BackendIncompleteError
from bigfleet.providerkit.store import StateError
from tests.providerkit.driving import (
    Remembering,
    S,
    ask,
    configured,
    created,
    provider,
    reaches,
    until,
)
from tests.providerkit.toy import Hardware, Toy


class TestTransitions:
    async def test_a_round_trip_leaves_nothing_behind(self) -> None:
        backend = Toy()
        async with provider(backend) as subject:
            entry = await configured(subject)
            assert (entry.cluster, entry.metadata, backend.blobs) == ("c", {"k": "v"}, [b"secret"])
            await ask(subject, Call.DRAIN)
            entry = await reaches(subject, S.IDLE)
            assert (entry.cluster, entry.metadata, entry.last_error) == ("", {}, "")
            await ask(subject, Call.DELETE)
            await reaches(subject, S.SPECULATIVE)
            assert backend.hosts == {}
        assert backend.closed

    async def test_a_machine_is_not_configured_before_its_node_is_ready(self) -> None:
        backend = Toy()
        backend.nodes_ready = False
        async with provider(backend) as subject:
            await created(subject)
            await ask(subject, Call.CONFIGURE, cluster="c")
            await until(lambda: backend.calls["ready"] > 3)
            assert subject.ledger.get("m-0").state is S.CONFIGURING
            backend.nodes_ready = True
            await reaches(subject, S.CONFIGURED)

    async def test_many_equal_calls_at_once_are_one_transition(self) -> None:
        backend = Toy()
        async with provider(backend) as subject:
            acks: list[Ack] = await asyncio.gather(*(ask(subject, Call.CREATE) for _ in range(50)))
            await reaches(subject, S.IDLE)
        assert len({ack.operation_id for ack in acks}) == 1
        assert backend.calls["create"] == 1

    async def test_an_error_of_the_substrate_fails_the_machine_in_its_words(self) -> None:
        backend = Toy()
        backend.errors["configure"] = "host key mismatch"
        async with provider(backend) as subject:
            await created(subject)
            await ask(subject, Call.CONFIGURE, cluster="c")
            entry = await reaches(subject, S.FAILED)
            assert entry.last_error == "Configure: host key mismatch"
            assert (entry.cluster, bool(entry.host)) == ("c", True)
            await ask(subject, Call.DRAIN)
            assert (await reaches(subject, S.IDLE)).cluster == ""

    async def test_a_mistake_of_the_author_fails_one_machine_and_not_the_provider(self) -> None:
        class Broken(Toy):
            async def configure(self, job: Job, blob: bytes) -> None:
                raise KeyError(job.machine)

        async with provider(Broken()) as subject:
            await created(subject)
            await ask(subject, Call.CONFIGURE, cluster="c")
            assert "KeyError" in (await reaches(subject, S.FAILED)).last_error
            await ask(subject, Call.CREATE, "m-1")
            await reaches(subject, S.IDLE, "m-1")

    async def test_a_refused_call_starts_nothing(self) -> None:
        backend = Toy()
        async with provider(backend) as subject:
            with pytest.raises(IllegalError):
                await ask(subject, Call.DRAIN)
        assert not backend.calls


class Hasty(Toy):
    """Gives up on a create almost at once."""

    limits = Limits(create=0.01, configure=30, drain=30, delete=30)


class TestNoHostOutlivesItsMachine:
    async def test_rule_4_a_late_host_of_a_timed_out_create_is_ended_before_the_machine_leaves_failed(self) -> None:
        backend = Hasty()
        backend.gates["create"] = asyncio.Event()
        async with provider(backend) as subject:
            await ask(subject, Call.CREATE)
            entry = await reaches(subject, S.FAILED)
            assert entry.last_error == "Create: did not end within 0.01 s"
            backend.hosts[entry.token] = "late"
            assert (await ask(subject, Call.DELETE)).entry.host == "late"
            await reaches(subject, S.SPECULATIVE)
            assert backend.hosts == {}

    async def test_rule_4_a_new_create_out_of_failed_ends_the_late_host_first(self) -> None:
        backend = Hasty()
        backend.gates["create"] = asyncio.Event()
        async with provider(backend) as subject:
            await ask(subject, Call.CREATE)
            first = await reaches(subject, S.FAILED)
            backend.hosts[first.token] = "late"
            backend.gates["create"].set()
            await ask(subject, Call.CREATE)
            entry = await reaches(subject, S.IDLE)
            assert backend.hosts == {entry.token: entry.host}
            assert entry.host != "late"

    async def test_rule_4_a_host_that_comes_to_light_after_the_machine_moved_on_is_swept(self) -> None:
        backend = Hasty()
        backend.gates["create"] = asyncio.Event()
        async with provider(backend) as subject:
            await ask(subject, Call.CREATE)
            token = (await reaches(subject, S.FAILED)).token
            await ask(subject, Call.DELETE)
            await reaches(subject, S.SPECULATIVE)
            backend.hosts[token] = "very late"
            await until(lambda: backend.hosts == {})
            await until(lambda: not subject.ledger.get("m-0").doubts)

    async def test_rule_4_a_machine_does_not_leave_failed_while_the_substrate_cannot_be_asked(self) -> None:
        backend = Toy()
        backend.errors |= {"create": "no", "describe": "the cloud is down"}
        async with provider(backend) as subject:
            await ask(subject, Call.CREATE)
            await reaches(subject, S.FAILED)
            with pytest.raises(IllegalError, match=r"'m-0'.*the cloud is down"):
                await ask(subject, Call.DELETE)
            assert subject.ledger.get("m-0").state is S.FAILED
            del backend.errors["describe"]
            await ask(subject, Call.DELETE)
            await reaches(subject, S.SPECULATIVE)

    async def test_rule_4_the_token_is_durable_before_the_substrate_hears_of_it(self) -> None:
        store = Remembering()
        tokens: list[tuple[str, str]] = []

        class Watchful(Toy):
            async def create(self, job: Job) -> str:
                tokens.append((job.token, store.entries[job.machine].token))
                return await super().create(job)

        async with provider(Watchful(), store) as subject:
            await created(subject)
        ((told, kept),) = tokens
        assert told
        assert told == kept

    async def test_a_create_that_made_nothing_is_no_success(self) -> None:
        class Silent(Toy):
            async def create(self, job: Job) -> str:
                return ""

        async with provider(Silent()) as subject:
            await ask(subject, Call.CREATE)
            assert "must name the host" in (await reaches(subject, S.FAILED)).last_error

    def test_rule_4_a_backend_that_creates_must_describe_and_delete(self) -> None:
        class NoDescribe(Hardware):
            async def create(self, job: Job) -> str:
                return "h"

            async def delete(self, job: Job) -> None:
                """Nothing to do."""

        class NoDelete(Hardware):
            async def create(self, job: Job) -> str:
                return "h"

        for kind, missing in ((NoDescribe, "describe"), (NoDelete, "delete")):
            with pytest.raises(BackendIncompleteError, match=missing):
                provider(kind())


class TestUnaskedChanges:
    async def test_taken_back_drains_and_gone_makes_it_a_slot_again(self) -> None:
        backend = Toy()
        backend.gates["drain"] = asyncio.Event()
        async with provider(backend) as subject:
            await configured(subject)
            await backend.notices.put(Notice("m-0", Change.TAKEN_BACK, "spot"))
            entry = await reaches(subject, S.DRAINING)
            assert entry.cluster == "c"
            assert entry.running is not None
            assert (await ask(subject, Call.DRAIN)).operation_id == entry.running.id
            await backend.notices.put(Notice("m-0", Change.GONE))
            assert (await reaches(subject, S.SPECULATIVE)).cluster == ""
            backend.gates["drain"].set()
            await ask(subject, Call.CREATE, "m-1")
            await reaches(subject, S.IDLE, "m-1")
            assert subject.ledger.get("m-0").state is S.SPECULATIVE

    async def test_broken_fails_it_and_says_why(self) -> None:
        backend = Toy()
        async with provider(backend) as subject:
            await configured(subject)
            await backend.notices.put(Notice("m-0", Change.BROKEN, "kernel panic"))
            assert (await reaches(subject, S.FAILED)).last_error == "broken: kernel panic"

    async def test_hardware_that_is_gone_fails_and_stays(self) -> None:
        class Watched(Hardware):
            async def watch(self, known: Known) -> AsyncIterator[Notice]:
                yield Notice("b-0", Change.GONE)
                await asyncio.Event().wait()

        async with provider(Watched()) as subject:
            await reaches(subject, S.FAILED, "b-0")

    async def test_a_watch_that_breaks_is_taken_up_again(self) -> None:
        class Flaky(Toy):
            async def watch(self, known: Known) -> AsyncIterator[Notice]:
                self.calls["watch"] += 1
                if self.calls["watch"] == 1:
                    raise BackendError("connection reset")
                yield Notice("m-0", Change.BROKEN)
                await asyncio.Event().wait()

        async with provider(Flaky()) as subject:
            await created(subject)
            await reaches(subject, S.FAILED)

    async def test_the_watch_is_told_which_hosts_there_should_be(self) -> None:
        class Census(Toy):
            async def watch(self, known: Known) -> AsyncIterator[Notice]:
                for machine, host in known().items():
                    if host not in self.hosts.values():
                        yield Notice(machine, Change.GONE, host=host)
                await asyncio.Event().wait()

        store, backend = Remembering(), Toy()
        async with provider(backend, store) as subject:
            await configured(subject)
        async with provider(Census(hosts={}), store) as subject:
            await reaches(subject, S.SPECULATIVE)


class TestDurability:
    async def test_rule_4_an_interrupted_create_adopts_the_host_that_its_token_made(self) -> None:
        store, hosts = Remembering(), dict[str, str]()
        backend = Toy(hosts=hosts)
        backend.gates["create"] = asyncio.Event()
        async with provider(backend, store) as subject:
            ack = await ask(subject, Call.CREATE)
            hosts[ack.entry.token] = "h-found"
        async with provider(Toy(hosts=hosts), store) as subject:
            entry = await reaches(subject, S.IDLE)
            assert entry.host == "h-found"
            assert (await ask(subject, Call.CREATE)).operation_id == ack.operation_id

    async def test_an_interrupted_create_without_a_host_fails(self) -> None:
        store, backend = Remembering(), Toy()
        backend.gates["create"] = asyncio.Event()
        async with provider(backend, store) as subject:
            await ask(subject, Call.CREATE)
        async with provider(Toy(), store) as subject:
            assert "restarted" in (await reaches(subject, S.FAILED)).last_error

    async def test_a_configure_goes_on_once_the_host_had_its_blob_and_fails_if_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bigfleet.providerkit.carrier._HAND_OVER_SECONDS", 0.01)
        store, backend = Remembering(), Toy()
        backend.nodes_ready = False
        async with provider(backend, store) as subject:
            await created(subject)
            await ask(subject, Call.CONFIGURE, cluster="c")
            await until(lambda: backend.calls["ready"])
            await ask(subject, Call.CREATE, "m-1")
            await reaches(subject, S.IDLE, "m-1")
            backend.gates["configure"] = asyncio.Event()
            await ask(subject, Call.CONFIGURE, "m-1", cluster="c")
        second = Toy(hosts=backend.hosts)
        async with provider(second, store) as subject:
            entry = await reaches(subject, S.CONFIGURED)
            assert (entry.cluster, entry.metadata, second.blobs) == ("c", {"k": "v"}, [])
            assert "before the host had its bootstrap blob" in (await reaches(subject, S.FAILED, "m-1")).last_error

    async def test_drains_and_deletes_are_carried_on(self) -> None:
        store, backend = Remembering(), Toy()
        backend.gates |= {"drain": asyncio.Event(), "delete": asyncio.Event()}
        async with provider(backend, store) as subject:
            await configured(subject)
            await ask(subject, Call.DRAIN)
            await ask(subject, Call.CREATE, "m-1")
            await reaches(subject, S.IDLE, "m-1")
            await ask(subject, Call.DELETE, "m-1")
        async with provider(Toy(hosts=backend.hosts), store) as subject:
            await reaches(subject, S.IDLE)
            await reaches(subject, S.SPECULATIVE, "m-1")

    async def test_marks_survive(self) -> None:
        store = Remembering()
        request = Request(call=Call.CREATE, machine="m-0", mark=Mark("m-0", "s", Token(3, 1)))
        async with provider(Toy(), store) as subject:
            await subject.ask(request)
        async with provider(Toy(), store) as subject:
            with pytest.raises(FencedError):
                await subject.ask(request)

    async def test_a_call_that_cannot_be_written_changes_nothing_and_can_be_made_again(self) -> None:
        store, backend = Remembering(), Toy()
        request = Request(call=Call.CREATE, machine="m-0", mark=Mark("m-0", "s", Token(1, 1)))
        async with provider(backend, store) as subject:
            store.full = True
            with pytest.raises(StateError):
                await subject.ask(request)
            assert subject.ledger.get("m-0").state is S.SPECULATIVE
            store.full = False
            await subject.ask(request)
            await reaches(subject, S.IDLE)
        assert backend.calls["create"] == 1

    async def test_what_happened_is_written_as_soon_as_it_can_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bigfleet.providerkit.provider._RETRY_SECONDS", 0.001)
        store, backend = Remembering(), Toy()
        backend.gates["create"] = asyncio.Event()
        async with provider(backend, store) as subject:
            await ask(subject, Call.CREATE)
            store.full = True
            backend.gates["create"].set()
            await until(lambda: subject._metrics.state_write_failures._value.get() > 2)
            assert subject.ledger.get("m-0").state is S.CREATING
            store.full = False
            await reaches(subject, S.IDLE)

    async def test_a_caller_that_goes_away_leaves_what_is_durable_and_what_is_shown_alike(self) -> None:
        store = Remembering()
        async with provider(Toy(), store) as subject:
            store.gate = asyncio.Event()
            call = asyncio.create_task(ask(subject, Call.CREATE))
            await until(lambda: store.waiting)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            store.gate.set()
            await reaches(subject, S.IDLE)
            await until(lambda: store.entries["m-0"].state is S.IDLE)

    async def test_nothing_is_shown_before_it_is_durable(self) -> None:
        store = Remembering()
        async with provider(Toy(), store) as subject:
            store.gate = asyncio.Event()
            call = asyncio.create_task(ask(subject, Call.CREATE))
            await until(lambda: store.waiting)
            assert subject.ledger.get("m-0").state is S.SPECULATIVE
            store.gate.set()
            await call


class TestRefresh:
    async def test_offers_are_taken_anew(self) -> None:
        class Growing(Toy):
            refresh_seconds = 0.001

        backend = Growing(1)
        async with provider(backend) as subject:
            backend.machines.append("m-9")
            await until(lambda: subject.ledger.find("m-9"))
            backend.machines.remove("m-0")
            await until(lambda: subject.ledger.find("m-0") is None)
