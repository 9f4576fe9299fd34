"""`bigfleetctl`, run as a person runs it, against the shard's real servicers over loopback gRPC.

Behind the servicers stands a fake: fixed verdicts and standings, and no engine, provider or session.
"""
# ruff: noqa: E501 - what is printed stands here as it is printed

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import msgspec
import pytest
from typer.testing import CliRunner

from bigfleet.cli.ctl.bigfleetctl import app
from bigfleet.engine.records import Kind, UnmetReason, Verdict
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.machine import MachineState
from bigfleet.shard.api.admin import Admin, ClusterStanding, ProviderStanding, ShardStatus
from bigfleet.shard.api.inspection import Inspection, ToldCause
from bigfleet.shard.decision.causes import CauseKind
from bigfleet.shard.demand.table import ForgetError
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.wire.needs import need_to_wire
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb
from bigfleet.wire.v1alpha1.shardread_pb2_grpc import ShardReadServicer, add_ShardReadServicer_to_server

GUIDE = (Path(__file__).parents[3] / "docs" / "why-is-my-need-unmet.md").read_text("utf-8")
ZONE = "topology.kubernetes.io/zone"
DECIDED = 1_700_000_000 * 10**9
UNIT = (("cpu", 4_000), ("memory", 16 << 20))

IN_A_ZONE = Requirement(ZONE, Operator.IN, ("eu-9",))
ONE_RACK = Requirement("example.com/rack", Operator.SAME)
EVENLY = Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
RATHER = Spread("example.com/rack", 2, WhenUnsatisfiable.SCHEDULE_ANYWAY)


def need(priority: int, *requirements: Requirement, units: int = 64, group: str = "", **profile: Any) -> Need:
    asked = tuple((name, amount * units) for name, amount in UNIT)
    return Need(Profile(priority=priority, requirements=requirements, **profile), asked, UNIT, group)


def verdict(of: Need, missing: int = 0, machines: int = 0, cluster: str = "shop", **fields: Any) -> Verdict:
    said: dict[str, Any] = {
        "bootstraps": 0,
        "provisions": 0,
        "preempts": 0,
        "domain": (),
        "same_satisfiable": True,
        "unmet_reason": UnmetReason.NONE,
    }
    residual = tuple((name, amount * missing) for name, amount in of.unit) if missing else ()
    return Verdict(cluster, of.key, missing == 0, missing, residual, machines, **said | fields)


STARVED = need(1000, IN_A_ZONE)
COVERED = need(500, interruption=PenaltyBucket.P_16, units=2)
GANG = need(100, ONE_RACK, group="train")

ROWS = [
    (STARVED, verdict(STARVED, 24, 5, unmet_reason=UnmetReason.PRIORITY_STARVED)),
    (COVERED, verdict(COVERED, 0, 2, bootstraps=1, provisions=1)),
    (
        GANG,
        verdict(GANG, 40, 3, domain=("r7",), same_satisfiable=False, unmet_reason=UnmetReason.TOPOLOGY_UNSATISFIABLE),
    ),
]

CAUSES = {
    STARVED.key: ToldCause(
        CauseKind.OUT_OF_STOCK,
        "The provider is out of stock of OnDemand c.8 in zone eu-9: no c.8 is left. The shard tries again in 2 min.",
        DECIDED - 400 * 10**9,
    ),
    COVERED.key: ToldCause(
        CauseKind.MACHINES_ON_THEIR_WAY, "It waits for 2 machines on the way: 1 being created, 1 to be configured."
    ),
    GANG.key: ToldCause(
        CauseKind.DOMAIN_TOO_SMALL,
        "Enough machines match, but no one example.com/rack holds all 64 units, even if it were empty. Nothing is done for the gang until that changes.",
    ),
}

SHOP = ClusterStanding(
    id="shop",
    connected=True,
    live=True,
    reported=True,
    partial=False,
    forgotten=False,
    quarantined=False,
    seconds_away=0.0,
    needs=3,
    needs_short=2,
    machines=10,
)


def but(cluster: ClusterStanding = SHOP, **fields: Any) -> ClusterStanding:
    return msgspec.structs.replace(cluster, **fields)


CLUSTERS = [
    SHOP,
    but(id="away", connected=False, seconds_away=45.0, partial=True, needs_short=0),
    but(id="gone", connected=False, live=False, seconds_away=3 * 86_400.0 + 4000, forgotten=True, machines=1),
    but(id="new", reported=False, needs=0, needs_short=0, machines=0),
    but(id="odd", quarantined=True, needs_short=0),
    but(id="silent", connected=False, live=False, reported=False, seconds_away=90.0, needs=0, needs_short=0),
]

STATUS = ShardStatus(
    shard_id="eu-1",
    epoch=7,
    cycle=412,
    decided_at_unix_nanos=DECIDED,
    machines={MachineState.CONFIGURED: 1_000, MachineState.IDLE: 2},
    providers=(
        ProviderStanding(name="metal", reachable=False, since_list=312.0, last_error="no route to host", machines=1),
        ProviderStanding(name="cloud", reachable=True, since_list=4.0, last_error="", machines=1_001),
        ProviderStanding(name="dusk", reachable=False, since_list=None, last_error="", machines=0),
    ),
    in_flight={Kind.PROVISION: 2, Kind.PREEMPT: 1},
    paused="",
    dry_run=False,
    fenced="",
    file_problem="",
    file_lost_unix_nanos=0,
    engine="compiled",
    waits_for_engine="",
)


class FakeShard:
    """The books of a shard that never decides. It keeps what it is told."""

    def __init__(self, rows: Iterable[tuple[Need, Verdict]] = (), clusters: Iterable[ClusterStanding] = ()) -> None:
        self.rows, self.known, self.shard = list(rows), list(clusters), STATUS
        self.cycle, self.decided_at_unix_nanos = 412, DECIDED
        self.causes, self.asked_by = CAUSES, {STARVED.key: ("web/cart", "web/search")}
        self.lock = asyncio.Lock()

    def reading(self) -> AbstractAsyncContextManager[None]:
        return self.lock

    @property
    def cycle_seconds(self) -> float:
        return 5.0

    def owners(self, cluster: str, key: NeedKey) -> tuple[str, ...]:
        return self.asked_by.get(key, ())

    def verdict_rows(self, cluster: str) -> tuple[int, Iterator[tuple[Need, Verdict, ToldCause]]]:
        rows = [row for row in self.rows if cluster in ("", row[1].cluster)]
        return len(rows), ((need, verdict, self.causes.get(need.key, ToldCause())) for need, verdict in rows)

    def arrival_unix_nanos(self, cluster: str, key: NeedKey) -> int:
        return DECIDED - 3600 * 10**9

    def unmet_age(self, cluster: str, key: NeedKey) -> int:
        return 37

    def parked_age(self, cluster: str, key: NeedKey) -> int:
        return 0

    def status(self) -> ShardStatus:
        return self.shard

    def clusters(self) -> Iterable[ClusterStanding]:
        return self.known

    async def pause(self, reason: str) -> bool:
        was = bool(self.shard.paused)
        self.shard = msgspec.structs.replace(self.shard, paused=reason)
        return was

    async def resume(self) -> bool:
        was = bool(self.shard.paused)
        self.shard = msgspec.structs.replace(self.shard, paused="")
        return was

    async def forget(self, cluster_id: str) -> int:
        for each in self.known:
            if each.id == cluster_id and not each.connected:
                self.known.remove(each)
                return each.machines
        raise ForgetError(cluster_id, "has a session and would be back with its next roll-up; stop its operator")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs bigfleetctl against one shard."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"

    async def __call__(self, *arguments: str | Path, **environment: str) -> Ran:
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "bigfleetctl",
            *map(str, arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "BIGFLEET_SHARD": self.address, "PYTHONIOENCODING": "utf-8", **environment},
        )
        out, err = await process.communicate()
        assert b"Traceback" not in err, err.decode()
        return Ran(process.returncode or 0, out.decode(), err.decode())


@asynccontextmanager
async def served(shard: FakeShard, tls: LiveTLS | None = None, *, admin: bool = True) -> AsyncIterator[Shell]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    Inspection(shard).add_to(server)
    if admin:
        Admin(shard).add_to(server)
    port = bind(server, TCPAddress("127.0.0.1", 0), None if tls is None else tls.server_credentials())
    await server.start()
    try:
        yield Shell(port)
    finally:
        await server.stop(None)


async def ran(shard: FakeShard, *arguments: str) -> Ran:
    async with served(shard) as shell:
        return await shell(*arguments)


NEEDS = """\
provider dusk does not answer: its machines stay as they are
provider metal does not answer: its machines stay as they are
cluster shop: 3 needs, 2 short, 1 covered and waiting for machines (cycle 412, decided 2023-11-14 22:13:20 UTC)
#  asked by              priority  asks                            machines must have  has                       missing                          unmet for
1  web/cart, web/search      1000  64 units of cpu 4, memory 16Gi  zone eu-9           40 of 64 on 5 machines    24 units: cpu 96, memory 384Gi   37 cycles (up to 3 min 5 s at 5 s each)
2  -                          500  2 units of cpu 4, memory 16Gi   anything            all on 2 machines, 2 new  -                                -
3  -                          100  64 units of cpu 4, memory 16Gi  all in one rack     24 of 64 on 3 machines    40 units: cpu 160, memory 640Gi  37 cycles (up to 3 min 5 s at 5 s each)

1. 64 units of cpu 4, memory 16Gi at priority 1000 is short.
   Why: The provider is out of stock of OnDemand c.8 in zone eu-9: no c.8 is left. The shard tries again in 2 min. This has been so for 6 min 40 s.
   Next: Wait, or let its requirements allow other instance types or zones.

2. 2 units of cpu 4, memory 16Gi at priority 500 is covered and waits.
   Why: It waits for 2 machines on the way: 1 being created, 1 to be configured.
   Next: Wait; `kubectl get upcomingnodes` in the cluster shows how far each one is.

3. 64 units of cpu 4, memory 16Gi at priority 100 is short.
   Why: Enough machines match, but no one example.com/rack holds all 64 units, even if it were empty. Nothing is done for the gang until that changes.
   Next: Make the gang smaller, let it share something wider than one rack, or add machines to one rack.
"""

CLUSTER_TABLE = """\
cluster  operator                       demand              needs  short  machines
away     away for 45 s                  reported, partial       3      0        10
gone     away for 3 d 1 h, not live     forgotten               3      2         1
new      connected                      not yet reported        0      0         0
odd      connected                      reported, in doubt      3      0        10
shop     connected                      reported                3      2        10
silent   away for 1 min 30 s, not live  not yet reported        0      0        10
"""

STATUS_LINES = """\
shard eu-1 at ADDRESS, epoch 7
acting: decisions are carried out
cycle 412, decided 2023-11-14 22:13:20 UTC
machines: 1,002 (Configured 1,000, Idle 2)
actions in flight: 3 (Preempt 1, Provision 2)
provider cloud: reachable, listed 4 s ago, 1,001 machines
provider dusk: UNREACHABLE (no error reported), not listed yet, 0 machines
provider metal: UNREACHABLE (no route to host), listed 5 min 12 s ago, 1 machine
"""


async def test_needs_are_told_in_words_with_reason_and_next_step() -> None:
    assert await ran(FakeShard(ROWS, CLUSTERS), "needs", "--cluster", "shop") == Ran(0, NEEDS, "")


async def test_only_unmet_needs_are_shown_and_counted_against_the_limit() -> None:
    async with served(FakeShard(ROWS, CLUSTERS)) as shell:
        unmet = await shell("needs", "--cluster", "shop", "--unmet", "--limit", "3")
        two_unmet = await shell("needs", "--unmet", "--limit", "2")
        any_two = await shell("needs", "--limit", "2")
    assert "cluster shop: 3 needs, 2 short, 1 covered and waiting for machines (cycle" in unmet.out
    assert "anything" not in unmet.out
    assert unmet.out.count("Why: ") == 2
    assert "all clusters: the first 2 short ones of 3 needs, 1 covered and" in two_unmet.out
    assert two_unmet.out.count("Why: ") == 2
    assert "all clusters: the first 2 of 3 needs, 1 of them short, 1 covered and" in any_two.out
    assert any_two.out.count("Why: ") == 2


async def test_wide_shows_what_a_table_leaves_out() -> None:
    out = (await ran(FakeShard(ROWS, CLUSTERS), "needs", "--output", "wide")).out.splitlines()
    heading, _, covered, gang = ["  ".join(line.split()) for line in out[4:8]]
    assert heading.endswith("new  machines  domain  penalties  $  first  seen  profile  gang")
    assert covered.startswith("2  shop  -  500  2  units")
    seen = "2023-11-14  21:13:20  UTC"
    assert f"1  idle,  1  to  be  created  -  16  /  0  {seen}  {COVERED.profile.fingerprint}  -" in covered
    assert f"-  r7  0  /  0  {seen}  {GANG.profile.fingerprint}  train" in gang


async def test_json_is_one_documented_object_a_line() -> None:
    done = await ran(FakeShard(ROWS, CLUSTERS), "needs", "--cluster", "shop", "--output", "json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    why, after = lines[2].pop("why"), lines[2].pop("next")
    assert lines[2] == {
        "cluster": "shop",
        "cycle": 412,
        "decided_at": "2023-11-14T22:13:20Z",
        "profile": GANG.profile.fingerprint,
        "group": "train",
        "priority": 100,
        "requirements": [{"key": "example.com/rack", "operator": "Same", "values": []}],
        "spread": [],
        "max_per_machine": 0,
        "interruption_penalty": "0",
        "reclamation_penalty": "0",
        "unit": {"cpu": "4", "memory": "16Gi"},
        "units": 64,
        "asked": {"cpu": "256", "memory": "1Ti"},
        "first_seen": "2023-11-14T21:13:20Z",
        "satisfied": False,
        "missing_units": 40,
        "missing": {"cpu": "160", "memory": "640Gi"},
        "machines": 3,
        "machines_idle_chosen": 0,
        "machines_to_create": 0,
        "domain": "r7",
        "domain_exists": False,
        "parked": True,
        "parked_cycles": 37,
        "unmet_cycles": 37,
        "cycle_seconds": 5.0,
        "owners": [],
        "reason": "TOPOLOGY_UNSATISFIABLE",
        "cause": "DOMAIN_TOO_SMALL",
        "cause_since": "",
    }
    assert (why[:23], after[:20]) == ("Enough machines match, ", "Make the gang smalle")
    first, covered = lines[:2]
    assert (first["owners"], first["cause_since"]) == (["web/cart", "web/search"], "2023-11-14T22:06:40Z")
    assert (covered["reason"], covered["cause"], covered["missing"]) == ("", "MACHINES_ON_THEIR_WAY", {})
    assert covered["why"].startswith("It waits for 2 machines")
    assert [name for name in covered if f"`{name}`" not in GUIDE] == []


async def test_every_command_of_the_guide_does_what_the_guide_says() -> None:
    examples = re.findall(r"^(bigfleetctl [^|\n]*?)(?: +#| \||$)", GUIDE, re.MULTILINE)
    assert len(examples) == 10
    shard = FakeShard(ROWS, CLUSTERS)
    async with served(shard) as shell:
        for example in examples:
            done = await shell(*shlex.split(example)[1:])
            assert (done.code, done.err) == (0, ""), example
    shown = re.findall(r"^((?:1\. 64|   Why:|   Next:) .*)", GUIDE, re.MULTILINE)
    assert len(shown) == 3
    assert [line for line in shown if line not in NEEDS.splitlines()] == []


async def test_what_keeps_decisions_from_being_carried_out_is_said_first() -> None:
    shard = FakeShard(ROWS, [but(quarantined=True)])
    shard.shard = msgspec.structs.replace(STATUS, paused="a drill", dry_run=True, fenced="epoch 8", providers=())
    async with served(shard) as shell:
        needs = (await shell("needs", "--cluster", "shop")).out.splitlines()
        status = (await shell("status")).out.splitlines()
    held = [
        "STOOD DOWN: another shard goes by this one's name (epoch 8); nothing is done",
        "PAUSED (a drill): decisions are not carried out until `bigfleetctl resume`",
        "DRY RUN: decisions are only reported, none is carried out",
    ]
    doubt = "a roll-up of shop that asks for far less waits for confirmation; these needs are from the one before"
    assert needs[:4] == [*held, doubt]
    assert status[1:4] == held
    assert status[-1] == "no provider is configured"


async def test_a_cluster_that_is_not_known_is_an_error_and_one_without_needs_is_not() -> None:
    async with served(FakeShard((), [but(needs=0)])) as shell:
        unknown = await shell("needs", "--cluster", "shpo")
        none = await shell("needs", "--cluster", "shop", "--output", "json")
    advice = "`bigfleetctl clusters` lists those that have"
    said = f"bigfleetctl: cluster 'shpo' has not reported to the shard at {shell.address}; {advice}\n"
    assert unknown == Ran(1, "", said)
    assert none == Ran(0, "", "cluster shop asks for nothing\n")


async def test_a_stranger_s_shard_without_the_admin_service_shows_its_needs_all_the_same() -> None:
    async with served(FakeShard(ROWS), admin=False) as shell:
        needs = await shell("needs", "--cluster", "shop")
        status = await shell("status")
    assert needs.out.splitlines() == NEEDS.splitlines()[2:]
    said = "UNIMPLEMENTED: it does not know this call; is it a shard, and not an older one?"
    assert status == Ran(1, "", f"bigfleetctl: the shard at {shell.address}: {said}\n")


async def test_the_clusters_are_listed_with_how_they_stand() -> None:
    assert await ran(FakeShard((), CLUSTERS), "clusters") == Ran(0, CLUSTER_TABLE, "")


async def test_the_status_says_whether_the_shard_acts_and_which_providers_do_not_answer() -> None:
    async with served(FakeShard()) as shell:
        assert await shell("status") == Ran(0, STATUS_LINES.replace("ADDRESS", shell.address), "")


async def test_the_operators_that_are_away_are_named_above_needs_that_are_not_short() -> None:
    away = but(id="bank", connected=False, live=False, seconds_away=200.0, needs=2, needs_short=0, machines=1)
    quiet = but(id="idle", connected=False, live=False, seconds_away=200.0, needs=0, needs_short=0, machines=0)
    shard = FakeShard((), [SHOP, away, quiet])
    shard.shard = msgspec.structs.replace(STATUS, providers=())
    async with served(shard) as shell:
        everybody = (await shell("needs", "--unmet")).out.splitlines()
        other = (await shell("needs", "--unmet", "--cluster", "shop")).out
    said = "the operator of cluster bank has had no session for 3 min 20 s: the cluster (2 needs, 1 machine) keeps what it has, and nothing is acquired for it"
    assert everybody[0] == said
    assert everybody[1].startswith("all clusters: 0 needs, 0 short")
    assert "bank" not in other


async def test_a_full_disk_is_in_the_status_and_above_the_needs() -> None:
    shard = FakeShard(ROWS, CLUSTERS)
    since = DECIDED - 60 * 10**9
    shard.shard = msgspec.structs.replace(STATUS, file_problem="shard.db: disk is full", file_lost_unix_nanos=since)
    said = "LOCAL FILE UNWRITABLE since 2023-11-14 22:12:20 UTC (shard.db: disk is full): no action begins until it can be written"
    async with served(shard) as shell:
        assert (await shell("status")).out.splitlines()[1] == said
        assert (await shell("needs")).out.splitlines()[0] == said


async def test_status_and_clusters_are_json_for_programs() -> None:
    async with served(FakeShard((), CLUSTERS)) as shell:
        status = json.loads((await shell("status", "-o", "json")).out)
        clusters = [json.loads(line) for line in (await shell("clusters", "-o", "json")).out.splitlines()]
    assert (status["address"], status["shard_id"], status["epoch"]) == (shell.address, "eu-1", 7)
    assert status["machines_by_state"] == {"Configured": 1000, "Idle": 2}
    assert (status["actuation_paused"], status["local_file_error"]) == (False, "")
    assert [provider["name"] for provider in status["providers"]] == ["cloud", "dusk", "metal"]
    assert status["providers"][2]["last_error"] == "no route to host"
    assert [cluster["cluster_id"] for cluster in clusters] == ["away", "gone", "new", "odd", "shop", "silent"]
    assert (clusters[0]["live"], clusters[0]["seconds_away"], clusters[1]["forgotten"]) == (True, 45, True)


async def test_a_pause_lasts_until_it_is_resumed() -> None:
    shard = FakeShard()
    async with served(shard) as shell:
        assert await shell("pause", "--reason", "a drill") == Ran(0, "paused\n", "")
        assert shard.shard.paused == "a drill"
        assert (await shell("pause", "--reason", "more")).out == "it was paused already; the reason is now this one\n"
        assert await shell("resume") == Ran(0, "resumed\n", "")
        assert shard.shard.paused == ""
        assert (await shell("resume")).out == "it was not paused\n"
        assert "a pause needs one of 1 to 1000 characters" in (await shell("pause", "--reason", " ")).err


async def test_a_cluster_is_forgotten_only_when_that_is_meant() -> None:
    shard = FakeShard((), CLUSTERS)
    async with served(shard) as shell:
        warned = await shell("clusters", "forget", "away")
        said = "bigfleetctl: to forget cluster 'away' drains its 10 machines; add --yes if that is meant\n"
        assert warned == Ran(1, "", said)
        assert len(shard.known) == len(CLUSTERS)
        done = await shell("clusters", "forget", "away", "--yes")
        assert done.out == "cluster away is forgotten; it has 10 machines, which are drained a few at a time\n"
        assert len(shard.known) == len(CLUSTERS) - 1
        assert "has not reported to the shard" in (await shell("clusters", "forget", "away")).err
        refused = await shell("clusters", "forget", "shop", "--yes")
        assert (refused.code, "FAILED_PRECONDITION: cluster 'shop': has a session" in refused.err) == (1, True)


async def test_a_flag_that_forget_would_not_read_is_refused() -> None:
    done = await Shell(1)("clusters", "--shard", "127.0.0.1:2", "forget", "gone", "--yes")
    said = "bigfleetctl clusters: Invalid value: --shard must come after forget (see bigfleetctl clusters --help)\n"
    assert done == Ran(2, "", said)


def flags(pki: Any, uri: str) -> list[str]:
    files = pki.write(pki.issue(uri), uri.rpartition("/")[2])
    return ["--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca)]


async def test_over_mtls_a_reader_reads_and_only_an_admin_changes(pki: Any) -> None:
    shard = FakeShard(ROWS, CLUSTERS)
    async with served(shard, pki.live("bigfleet://shard/eu-1", "server")) as shell:
        reader = flags(pki, "bigfleet://readonly")
        assert (await shell("needs", "--cluster", "shop", *reader)).out == NEEDS
        denied = await shell("pause", "--reason", "a drill", *reader)
        said = "this call needs a certificate of admin; the peer's says bigfleet://readonly"
        assert denied == Ran(1, "", f"bigfleetctl: the shard at {shell.address}: PERMISSION_DENIED: {said}\n")
        assert (await shell("pause", "--reason", "a drill", *flags(pki, "bigfleet://admin"))).out == "paused\n"
        stranger = await shell("needs", *flags(pki, "bigfleet://cluster/shop"))
        assert (stranger.code, "PERMISSION_DENIED" in stranger.err) == (1, True)


async def test_a_server_that_is_no_shard_is_not_asked(pki: Any) -> None:
    async with served(FakeShard(ROWS), pki.live("bigfleet://provider/cloud", "server")) as shell:
        done = await shell("needs", *flags(pki, "bigfleet://admin"))
    said = "expected a shard, its certificate says bigfleet://provider/cloud"
    assert done == Ran(1, "", f"bigfleetctl: cannot use the server at {shell.address}: {said}\n")


async def test_what_the_wire_holds_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\u009b31m\u202e"
    odd = Need(Profile(requirements=(Requirement(f"{evil}key", Operator.IN, (evil,)),)), (("cpu", 1),), (("cpu", 1),))
    rows = [(odd, verdict(odd, 1, cluster=f"shop{evil}", domain=(evil,), unmet_reason=UnmetReason.PRIORITY_STARVED))]
    shard = FakeShard(rows, [but(id=f"shop{evil}", live=False)])
    loud = ProviderStanding(name=evil, reachable=False, since_list=None, last_error=evil, machines=0)
    shard.shard = msgspec.structs.replace(STATUS, shard_id=evil, paused=evil, fenced=evil, providers=(loud,))
    async with served(shard) as shell:
        for arguments in (
            ["needs", "--output", "wide"],
            ["needs", "--output", "json"],
            ["clusters"],
            ["status"],
            ["clusters", "forget", f"shop{evil}"],
        ):
            done = await shell(*arguments)
            text = (done.out + done.err).replace("\n", "")
            assert text.isprintable(), arguments
            assert text


async def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    async with served(FakeShard(ROWS * 2_000, CLUSTERS)) as shell:
        command = f"{Path(sys.executable).parent / 'bigfleetctl'} needs --shard {shell.address} | head -1"
        process = await asyncio.create_subprocess_shell(
            command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
    assert out.startswith(b"provider dusk")
    assert err == b""


async def test_a_shard_that_is_not_there_is_named(tmp_path: Path) -> None:
    shell = Shell(1)
    assert (await shell("status", "--shard", f"unix:{tmp_path}/none.sock")) == Ran(
        1, "", f"bigfleetctl: cannot use the server at unix:{tmp_path}/none.sock: No such file or directory\n"
    )
    assert (await shell("status", "--shard", "nowhere")).err == (
        "bigfleetctl: address 'nowhere': expected HOST:PORT with a port from 0 to 65535\n"
    )


async def test_an_answer_that_cannot_be_read_is_one_line() -> None:
    class Garbled(ShardReadServicer):
        async def InspectNeeds(  # noqa: N802 - the contract's name
            self, request: pb.InspectNeedsRequest, context: Any
        ) -> AsyncIterator[pb.InspectNeedsResponse]:
            broken = need_to_wire(STARVED)
            broken.aggregate_resources["cpu"] = "plenty"
            yield pb.InspectNeedsResponse(need=pb.NeedView(need=broken))

    server = grpc.aio.server()
    add_ShardReadServicer_to_server(Garbled(), server)
    port = bind(server, TCPAddress("127.0.0.1", 0), None)
    await server.start()
    try:
        done = await Shell(port)("needs")
    finally:
        await server.stop(None)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"bigfleetctl: the shard at 127.0.0.1:{port} tells of a need that cannot be read: need.")


@pytest.mark.parametrize("command", ["", "needs", "clusters", "clusters forget", "pause", "resume", "status"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--help"])
    assert done.exit_code == 0
    assert f": bigfleetctl {command}" in " ".join(done.output.split())


async def test_a_word_that_is_no_command_is_named() -> None:
    said = "bigfleetctl: No such command 'shrads' (see bigfleetctl --help)\n"
    assert await Shell(1)("shrads") == Ran(2, "", said)


def test_without_a_command_the_help_is_shown_as_a_mistake() -> None:
    done = CliRunner().invoke(app)
    assert (done.exit_code, "Usage: bigfleetctl" in done.output) == (2, True)


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == "bigfleetctl 0.1.0\n"
