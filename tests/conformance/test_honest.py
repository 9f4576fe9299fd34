"""Honest providers pass: every behaviour that applies to them, and what does not apply is skipped with its reason."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bigfleet.conformance.catalogue import BEHAVIOURS
from bigfleet.conformance.run import Options, Report, certify
from bigfleet.conformance.suite import Outcome, Profile, Result
from bigfleet.model.machine import Call
from bigfleet.transport.address import TCPAddress
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.reference import (
    CLOUD_FAULTS,
    METAL_FAULTS,
    Context,
    Reference,
    Request,
    S,
    clear_binding,
    copied,
    serving,
)
from tests.conformance.reference import Options as ProviderOptions
from tests.conformance.stand import SEED, SETTLE_SECONDS, Watcher, certified, certified_process, message, outcomes

if TYPE_CHECKING:
    from tests.shared.certificates import PKI

CATALOGUE = [
    *range(101, 111), *range(201, 217), 301, 302, 303, *range(305, 313), *range(401, 410), *range(501, 506),
    *range(701, 709), *range(801, 808), *range(901, 910), *range(1001, 1008), *range(1101, 1110), *range(1201, 1206),
]  # fmt: skip

DURABILITY = {f"B{number}" for number in range(1001, 1008)}
SCALE = {f"B{number}" for number in range(1101, 1110)}
FAULTS = {"B110", "B701", "B702", "B703", "B704", "B705", "B707", "B708"}
WITH_DELETE = {"B102", "B109", "B202", "B401", "B409", "B807"}
WITH_CURSORS = {"B903", "B904", "B905", "B907", "B908"}


def skipped(report: Report) -> set[str]:
    """What was skipped, once it is clear that nothing failed and that each skip says why."""
    assert [result.message for result in report.results if result.outcome is Outcome.FAILED] == []
    assert report.left_behind == ()
    assert all(result.message for result in report.results if result.outcome is Outcome.SKIPPED)
    return {result.behaviour.id for result in report.results if result.outcome is Outcome.SKIPPED}


def test_every_behaviour_of_the_catalogue_has_a_check_of_its_own() -> None:
    assert [behaviour.number for behaviour in BEHAVIOURS] == CATALOGUE


async def test_a_cloud_with_every_fault_passes_all_that_needs_no_restart(tmp_path: Path) -> None:
    report = await certified(Reference, tmp_path, faults=CLOUD_FAULTS, hosts=True, spot=1)
    assert skipped(report) == DURABILITY | SCALE
    assert report.passed
    assert set(report.profiles) == {Profile.CORE, Profile.CLOUD, Profile.SPOT, Profile.FAULT}


async def test_hardware_passes_without_what_delete_alone_can_show(tmp_path: Path) -> None:
    report = await certified(Reference, tmp_path, metal=True, faults=METAL_FAULTS)
    assert skipped(report) == DURABILITY | SCALE | WITH_DELETE | {"B701", "B704", "B708"}
    assert report.passed
    assert set(report.profiles) == {Profile.CORE, Profile.BARE_METAL, Profile.FAULT}


async def test_a_provider_that_offers_no_fault_is_told_how_to(tmp_path: Path) -> None:
    report = await certified(Reference, tmp_path, suite={"only": ("B1", "B7")})
    assert skipped(report) == FAULTS
    assert "conformance.bigfleet.lucy.sh/fault" in message(report, "B701")
    report = await certified(Reference, tmp_path, faults=("create-error",), suite={"only": ("B702", "B708")})
    assert "conformance.bigfleet.lucy.sh/fault=configure-error or drain-error" in message(report, "B702")
    assert "--hosts-cmd" in message(report, "B708")


class Synchronous(Reference):
    """Has done everything by the time it acks."""

    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        self.acting = False
        operation = super().begin(call, request, record)
        if not self.acting:
            return operation
        if call is Call.CREATE:
            self.host_appears(record.id)
        self.finish(record.id, call)
        return operation

    async def carry_out(self, machine_id: str, call: Call, operation: str, fault: str) -> None:
        pass

    def put(self, record: pb.Machine) -> None:
        self.acting = S(record.state) in {S.CREATING, S.CONFIGURING, S.DRAINING, S.DELETING}
        super().put(record)

    acting = False


async def test_a_provider_that_acks_at_the_end_state_passes(tmp_path: Path) -> None:
    report = await certified(Synchronous, tmp_path)
    assert skipped(report) == DURABILITY | SCALE | FAULTS
    assert report.passed


class WithoutCursors(Reference):
    def cursor(self, position: int) -> bytes:
        return b""


async def test_a_small_provider_may_do_without_cursors(tmp_path: Path) -> None:
    report = await certified(WithoutCursors, tmp_path, suite={"only": ("B9",)})
    assert skipped(report) == WITH_CURSORS
    assert report.passed
    assert "6 machines: cursors not needed (bound 10,000)" in message(report, "B903")


async def test_a_large_provider_may_not(tmp_path: Path) -> None:
    report = await certified(WithoutCursors, tmp_path, machines=10_001, suite={"only": ("B903", "B908")})
    assert outcomes(report) == {"B903": Outcome.FAILED, "B908": Outcome.SKIPPED}
    assert "10,001 machines: cursors needed" in message(report, "B903")


async def test_ten_thousand_machines_pass_and_their_latencies_are_recorded(tmp_path: Path) -> None:
    profiles = frozenset({Profile.SCALE})
    suite = {"only": ("B11",), "profiles": profiles, "settle_seconds": 20.0}
    report = await certified(Reference, tmp_path, machines=10_000, suite=suite)
    assert skipped(report) == set()
    recorded = next(result.notes for result in report.results if result.behaviour.id == "B1106")
    assert {note.split()[0] for note in recorded} >= {"Create", "Configure", "Drain", "Delete", "Get", "List"}


async def test_scale_on_a_small_fleet_is_skipped_and_says_so(tmp_path: Path) -> None:
    report = await certified(Reference, tmp_path, suite={"only": ("B11",), "profiles": frozenset({Profile.SCALE})})
    assert skipped(report) == SCALE
    assert message(report, "B1101") == "needs 10,000 machines or more; the target has 6"
    assert report.passed


async def test_a_durable_provider_passes_everything_through_kill_and_restart(tmp_path: Path) -> None:
    report = await certified_process(tmp_path)
    assert skipped(report) == SCALE | FAULTS
    assert report.passed


async def test_four_machines_are_enough_and_fewer_skip_by_name(tmp_path: Path) -> None:
    assert skipped(await certified(Reference, tmp_path, machines=4)) == DURABILITY | SCALE | FAULTS
    few = await certified(Reference, tmp_path, machines=1, suite={"only": ("B4", "B5", "B9")})
    assert skipped(few) == {"B407", "B505", "B905"}
    assert message(few, "B407").startswith("needs 2 ordinary machines")


async def test_a_target_without_machines_is_no_success(tmp_path: Path) -> None:
    report = await certified(Reference, tmp_path, machines=0)
    assert not report.passed
    assert report.problems == (
        "nothing could be shown: the target lists no machine that is Idle or Speculative and unbound",
    )
    assert report.count(Outcome.FAILED) == 0


class WithNeighbours(Reference):
    """Has machines that others use, and remembers whatever is asked of them."""

    def __init__(self, options: ProviderOptions) -> None:
        super().__init__(options)
        self.touched: list[str] = []
        for number, (name, state) in enumerate((("theirs", S.CONFIGURED), ("broken", S.FAILED), ("stamped", S.IDLE))):
            record = copied(self.fleet.machines["m-00000"])
            record.id, record.state = name, pb.MachineState.ValueType(state)
            record.host.provider, record.host.ref = "ref", f"neighbour-{number}"
            record.cluster = "shop" if state is S.CONFIGURED else ""
            record.last_error = "lost" if state is S.FAILED else ""
            record.shard_metadata["shard"] = "s1"
            self.put(record)

    async def mutate(self, call: Call, request: Request, context: Context) -> pb.TransitionAck:
        self.touched += [request.machine_id] if request.machine_id in {"theirs", "broken", "stamped"} else []
        return await super().mutate(call, request, context)


async def test_machines_of_others_are_left_alone_and_the_rest_are_left_as_they_were_found() -> None:
    provider = WithNeighbours(ProviderOptions(machines=6))
    hosted = copied(provider.fleet.machines["m-00001"])
    provider.host_appears(hosted.id)
    hosted.state = pb.MACHINE_STATE_IDLE
    hosted.host.provider, hosted.host.ref = "ref", provider.host_of(hosted.id)
    clear_binding(hosted)
    provider.put(hosted)
    before = {machine: record.state for machine, record in provider.fleet.machines.items()}
    async with serving(provider) as port:
        report = await certify(Options(TCPAddress("127.0.0.1", port), SEED, settle_seconds=SETTLE_SECONDS), Watcher())
    assert skipped(report) == DURABILITY | SCALE | FAULTS
    assert provider.touched == []
    assert {machine: record.state for machine, record in provider.fleet.machines.items()} == before


async def test_over_tls_what_needs_several_shards_is_skipped(pki: "PKI") -> None:
    server, client = pki.live("bigfleet://provider/ref", "server"), pki.live("bigfleet://shard/s1", "client")
    provider = Reference(ProviderOptions(machines=6, tls=True))
    async with serving(provider, credentials=server.server_credentials()) as port:
        options = Options(TCPAddress("127.0.0.1", port), SEED, tls=client, settle_seconds=SETTLE_SECONDS)
        # Twice: the second run's tokens are newer than the first's.
        for _ in range(2):
            report = await certify(options, Watcher())
            several = {"B212", "B302", "B303", "B308", "B310", "B312", "B405", "B1201"}
            assert skipped(report) == DURABILITY | SCALE | FAULTS | several
            assert report.passed
    assert {shard for shard, _ in provider.fleet.marks} == {"s1"}


@pytest.mark.parametrize(
    ("asked", "provider", "sentence"),
    [
        (Profile.CLOUD, {"metal": True}, "Delete is UNIMPLEMENTED on this target, which makes it bare-metal"),
        (Profile.BARE_METAL, {}, "Delete works on this target, which makes it cloud"),
        (Profile.SPOT, {}, "the target lists no spot machine"),
        (Profile.DURABLE, {}, "the suite must start the provider itself: give --launch CMD"),
        (Profile.FAULT, {}, "the target lists no unbound machine with the label conformance.bigfleet.lucy.sh/fault"),
    ],
)
async def test_a_profile_that_the_probes_contradict_fails_the_run(
    asked: Profile, provider: dict[str, bool], sentence: str, tmp_path: Path
) -> None:
    suite = {"profiles": frozenset({asked}), "only": ("B215",)}
    report = await certified(Reference, tmp_path, suite=suite, **provider)
    assert report.problems == (f"profile {asked} was asked for, but {sentence}",)
    assert not report.passed
    assert outcomes(report) == {"B215": Outcome.PASSED}


async def test_a_profile_that_is_not_asked_for_is_skipped(tmp_path: Path) -> None:
    suite = {"profiles": frozenset({Profile.CORE}), "only": ("B109", "B701", "B215")}
    report = await certified(Reference, tmp_path, faults=CLOUD_FAULTS, suite=suite)
    assert skipped(report) == {"B109", "B701"}
    assert message(report, "B109") == "profile cloud: not asked for with --profile"


async def test_a_provider_with_hardware_and_slots_is_judged_by_one_of_them() -> None:
    provider = Reference(ProviderOptions(machines=5))
    metal = replace(provider.options, metal=True)
    provider.put(copied(next(iter(Reference(metal).fleet.machines.values()))))
    asked = Options(TCPAddress("127.0.0.1", 1), SEED, settle_seconds=SETTLE_SECONDS, only=("B1",))
    async with serving(provider) as port:
        report = await certify(replace(asked, address=TCPAddress("127.0.0.1", port)), Watcher())
    assert report.facts.ordinary == 4
    assert report.facts.deletable


@pytest.mark.parametrize(
    ("behaviour", "moment"),
    [
        ("B101", Call.CREATE),
        ("B101", Call.CONFIGURE),
        # The check is over with a Configured machine, which is being drained as it is given back.
        ("B210", Call.DRAIN),
    ],
)
async def test_a_run_that_is_called_off_brings_its_machines_back(behaviour: str, moment: Call) -> None:
    provider = InTheMiddle(ProviderOptions(machines=2, latency=0.02))
    async with serving(provider) as port:
        options = Options(TCPAddress("127.0.0.1", port), SEED, settle_seconds=SETTLE_SECONDS, only=(behaviour,))
        run = asyncio.create_task(certify(options, Watcher()))
        await provider.begun[moment].wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert {S(record.state) for record in provider.fleet.machines.values()} == {S.SPECULATIVE}


class InTheMiddle(Reference):
    """Tells when a call of each kind has been taken."""

    def __init__(self, options: ProviderOptions) -> None:
        self.begun = {call: asyncio.Event() for call in Call}
        super().__init__(options)

    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        operation = super().begin(call, request, record)
        self.begun[call].set()
        return operation


class LookedAtInTheEnd(Reference):
    """Tells when it is asked for a machine though every check is over, and takes its time to answer."""

    def __init__(self, options: ProviderOptions) -> None:
        self.over, self.looked = False, asyncio.Event()
        super().__init__(options)

    async def Get(self, request: pb.MachineRef, context: Context) -> pb.Machine:  # noqa: N802 - the contract's name
        if self.over:
            self.looked.set()
            await asyncio.sleep(0.02)
        return await super().Get(request, context)


class Ending(Watcher):
    """Tells the provider when a check has ended."""

    def __init__(self, provider: LookedAtInTheEnd) -> None:
        super().__init__()
        self._provider = provider

    def finished(self, result: Result) -> None:
        super().finished(result)
        self._provider.over = True


async def test_a_run_that_is_called_off_while_it_tidies_up_does_that_to_the_end() -> None:
    provider = LookedAtInTheEnd(ProviderOptions(machines=2))
    async with serving(provider) as port:
        options = Options(TCPAddress("127.0.0.1", port), SEED, settle_seconds=SETTLE_SECONDS, only=("B108",))
        run = asyncio.create_task(certify(options, Ending(provider)))
        await provider.looked.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert {S(record.state) for record in provider.fleet.machines.values()} == {S.SPECULATIVE}
