"""`bigfleet demo`: the story told by real processes, how it ends, and that it does not tell what is not so."""

import io
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from bigfleet.cli.bigfleet import app
from bigfleet.cli.demo import command as demo_module
from bigfleet.cli.demo.screen import Row, View, screen_on
from bigfleet.cli.demo.words import in_words
from bigfleet.model.labels import CAPACITY_TYPE, RACK
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.shard.persistence.audit_log import Record
from bigfleet.sim import story
from bigfleet.sim.catalog import FAMILY, GIB, GPU
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.world import World
from bigfleet.sim.story import StoryError
from bigfleet.transport.address import AddressError
from tests.shared.program import child

SCRIPT = Path(sys.executable).parent / "bigfleet"
S = MachineState

pytestmark = pytest.mark.timeout(300)


@contextmanager
def playing(folder: Path, *flags: str) -> Iterator["subprocess.Popen[str]"]:
    """A demo with its files in the folder. However the test ends, none of its processes goes on."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    pipe = subprocess.PIPE
    try:
        with child([SCRIPT, "demo", "--fast", *flags], stdout=pipe, stderr=pipe, env=environment) as demo:
            yield demo
    finally:
        for left in running(folder):
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)


def running(folder: Path) -> list[int]:
    """The processes that have the folder in their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def wait_for_end(pid: int) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        assert select.select([process], [], [], 60) != ([], [], [])
        os.close(process)


class TestProcess:
    def test_the_story_is_told_and_true_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        with playing(tmp_path) as demo:
            out, err = demo.communicate()
            left = running(tmp_path)
        assert (demo.returncode, err) == (0, ""), out
        said = [
            "bigfleetctl status --shard unix:",
            "Morning:",
            "buy 6 c.16 Spot for data",
            "All run, on ",
            "Spot:",
            "data's operator empties it",
            "All of batch runs again",
            "Noon:",
            "take 2 m.16 OnDemand back from shop: no need took it",
            " machines went back to the cloud",
            "Training:",
            "buy 4 p.32 OnDemand for lab, $8.160 an hour each: lab needs training",
            "kill -9 of the shard with 4 machines half made",
            "no machine bought twice, and all 16 pods of the training run on rack gpu-r",
            "Payday:",
            "take 3 c.16 OnDemand from data for bank: bank at 1000000 outranks 50, 10 s to leave",
            "Payroll runs on 3 machines taken from batch",
            "Night:",
            "give 4 p.32 OnDemand back to the cloud",
            "the cloud has no host left",
            "The end.",
            "Play on yourself",
            "bigfleet all-in-one\n",
            "bigfleet dev demand examples/demo/requests.yaml --cluster mine\n",
            "bigfleetctl needs --cluster mine\n",
            "bigfleetctl status\n",
        ]
        places = [out.find(text) for text in said]
        assert -1 not in places, said[places.index(-1)] + out
        assert places == sorted(places)
        assert re.search(r"pods: .*training 0 \(\+16 pending\)", out)
        assert re.search(r"shard up, epoch \d+, decision \d+ in \d+\.\d ms", out)
        assert list(tmp_path.iterdir()) == []
        assert left == []

    def test_held_it_stays_up_for_the_commands_that_it_prints_until_it_is_ended(self, tmp_path: Path) -> None:
        with playing(tmp_path, "--hold") as demo:
            assert demo.stdout is not None
            assert any("stay up until Ctrl-C" in line for line in demo.stdout)
            demand, needs, status = (shlex.split(next(demo.stdout)) for _ in range(3))
            with child(demand, stdout=subprocess.PIPE) as asking:
                assert asking.stdout is not None
                assert any("pods: 4 of 4 run" in line for line in asking.stdout)
                assert "cluster mine: 2 needs, 0 short" in run(needs)
                assert "shard demo at unix:" in run(status)
                asking.send_signal(signal.SIGINT)
                assert asking.wait() == 0
            demo.send_signal(signal.SIGINT)
            out, err = demo.communicate()
            left = running(tmp_path)
        assert (demo.returncode, err) == (0, "")
        assert out.rstrip().endswith("Stopped.")
        assert list(tmp_path.iterdir()) == []
        assert left == []

    @pytest.mark.parametrize(
        ("number", "code"),
        [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)],
        ids=["SIGINT", "SIGKILL"],
    )
    def test_however_it_is_ended_no_process_is_left(
        self, tmp_path_factory: pytest.TempPathFactory, number: signal.Signals, code: int
    ) -> None:
        # A folder with a short name: a socket's path has at most 107 bytes.
        folder = tmp_path_factory.mktemp(number.name)
        with playing(folder) as demo:
            assert demo.stdout is not None
            assert any("Morning:" in line for line in demo.stdout)
            (shard,) = running(folder)
            demo.send_signal(number)
            _, err = demo.communicate()
            wait_for_end(shard)
            left = running(folder)
        assert (demo.returncode, err, left) == (code, "", [])
        # Nobody can clear up after kill -9.
        assert number is signal.SIGKILL or list(folder.iterdir()) == []

    def test_a_folder_too_deep_for_a_socket_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        folder = tmp_path / ("deep" * 25)
        folder.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        result = CliRunner().invoke(app, ["demo"])
        assert isinstance(result.exception, AddressError)
        assert "needs a path of 1 to 107 bytes" in str(result.exception)
        assert list(folder.iterdir()) == []

    def test_what_is_not_true_ends_it_with_a_sentence_and_its_logs(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        async def play(*_: object, **__: object) -> None:
            raise StoryError("the training sits on 2 racks")

        monkeypatch.setattr(demo_module, "_play", play)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        result = CliRunner().invoke(app, ["demo"])
        (folder,) = tmp_path.iterdir()
        assert result.exit_code == 1
        assert result.stderr == (
            f"bigfleet demo: what was told did not come true: the training sits on 2 racks; logs are in {folder}\n"
        )


class AuditRecord(msgspec.Struct, frozen=True):
    event: str
    kind: str
    cluster: str = ""
    leaves: str = ""
    reason: str = ""


class Told:
    """A stage where whatever is waited for happens at once, in ways that a test chooses."""

    def __init__(self, happens: Mapping[str, Callable[["Told"], object]]) -> None:
        self.clusters = {name: Cluster(name, World()) for name in story.CAST}
        self.machines: Sequence[Machine] = ()
        self.audit_records: list[AuditRecord] = []
        self.hosts, self.epoch, self.dollars = 0, 1, 0.0
        self.said: list[str] = []
        self._happens = happens

    def act(self, title: str, text: str) -> None:
        self.said.append(title)

    def say(self, text: str) -> None:
        self.said.append(text)

    async def until(self, what: str, is_so: Callable[[], bool]) -> None:
        for part, happens in self._happens.items():
            if part in what:
                happens(self)
        assert is_so(), what

    async def linger(self) -> None:
        if "linger" in self._happens:
            self._happens["linger"](self)

    async def kill_shard(self) -> None:
        pass

    async def start_shard(self) -> None:
        self.epoch += 1


def machine(name: str, state: MachineState, capacity: CapacityType = CapacityType.ON_DEMAND, **more: Any) -> Machine:
    host = None if state in (S.SPECULATIVE, S.CREATING) else Host("sim", name)
    return Machine(
        id=name, state=state, instance_type=more.pop("instance_type", "m.16"), capacity_type=capacity, host=host
    )


def add_nodes(world: World, names: Iterable[str], labels: Mapping[str, str] | None = None) -> None:
    room = (("cpu", 32000), ("memory", 256 * GIB), (GPU, 4), ("pods", 110))
    for name in names:
        world.register(name, f"sim://{name}", {CAPACITY_TYPE: "OnDemand", FAMILY: "c", **(labels or {})}, room)
        world.become_ready(name)


def training(stage: Told, rack: str = "r0", made: int = 4) -> None:
    names = [f"gpu-{number}" for number in range(4)]
    add_nodes(stage.clusters["lab"].world, names, {RACK: rack})
    stage.machines = [machine(f"gpu-{number}", S.CONFIGURED, instance_type="p.32") for number in range(made)]


def begun(stage: Told) -> None:
    stage.audit_records.append(AuditRecord("decided", "Provision", "lab"))
    stage.machines = [machine(f"gpu-{number}", S.CREATING) for number in range(4)]


class TestTruth:
    """Each check of the story, by a world in which it does not hold."""

    async def test_a_gang_on_one_rack_is_told(self) -> None:
        stage = Told({"decided": begun, "pods of lab run": training})
        await story.crash(stage)
        assert stage.said[-1].endswith("run on rack r0.")

    async def test_a_machine_bought_twice(self) -> None:
        stage = Told({"decided": begun, "pods of lab run": lambda stage: training(stage, made=5)})
        with pytest.raises(StoryError, match="5 machines were made for the training"):
            await story.crash(stage)

    async def test_a_gang_on_two_racks(self) -> None:
        def two_racks(stage: Told) -> None:
            training(stage)
            # No scheduler of ours would: the labels change under it.
            stage.clusters["lab"].world.nodes["gpu-0"].labels = {RACK: "r1"}

        with pytest.raises(StoryError, match="sits on 2 racks: r0, r1"):
            await story.crash(Told({"decided": begun, "pods of lab run": two_racks}))

    async def test_pods_that_stop_with_the_shard(self) -> None:
        stage = Told({"decided": begun, "linger": lambda stage: stage.clusters["data"].world.remove("n")})
        stage.clusters["data"].world.deploy(story.WORK, 1)
        add_nodes(stage.clusters["data"].world, ["n"])
        with pytest.raises(StoryError, match="stopped while the shard was dead"):
            await story.crash(stage)

    @pytest.mark.parametrize(
        ("leaves", "shared", "said"),
        [("shop", False, "somebody else than batch"), ("data", True, "n is a node of bank and of data at once")],
    )
    async def test_a_preemption_that_is_none(self, leaves: str, shared: bool, said: str) -> None:
        def preempted(stage: Told) -> None:
            stage.audit_records.append(AuditRecord("decided", "Preempt", "bank", leaves))
            for cluster in ("bank", "data") if shared else ("bank",):
                add_nodes(stage.clusters[cluster].world, ["n", *(f"{cluster}-{number}" for number in range(3))])

        with pytest.raises(StoryError, match=said):
            await story.payday(Told({"pods of bank run": preempted}))

    async def test_a_host_that_is_left(self) -> None:
        stage = Told({})
        stage.machines, stage.hosts = [machine("a", S.SPECULATIVE)], 1
        with pytest.raises(StoryError, match="1 hosts are left in the cloud"):
            await story.night(stage)

    async def test_services_on_spot(self) -> None:
        def cheap(stage: Told) -> None:
            for cluster in ("shop", "data"):
                for family in "mr":
                    names = (f"{cluster}-{family}{number}" for number in range(9))
                    add_nodes(stage.clusters[cluster].world, names, {FAMILY: family, CAPACITY_TYPE: "Spot"})

        with pytest.raises(StoryError, match="sit on spot"):
            await story.morning(Told({"run": cheap}))


def record(machine_id: str, kind: str, **more: Any) -> Record:
    fields: dict[str, Any] = {"at": "", "cycle": 1, "shard": "demo", "epoch": 1, "event": "decided", "provider": "sim"}
    return Record(machine=machine_id, kind=kind, **(fields | more))


class TestScreen:
    def test_what_was_done_alike_is_one_line_in_words(self) -> None:
        print_of_batch = story.WORK.profile.fingerprint
        fleet = {f"s{n}": machine(f"s{n}", S.IDLE, CapacityType.SPOT, instance_type="c.16") for n in range(3)}
        bought = {"cluster": "data", "fingerprint": print_of_batch, "reason": f"data needs {print_of_batch}"}
        lines = in_words(
            [
                *(record(name, "Provision", price_per_hour=0.25, **bought) for name in fleet),
                record("s0", "Delete", reason="idle for more than 5 s"),
                record("gone", "Reclaim", leaves="shop", reason="no need took it"),
                record("s0", "Bootstrap", **bought),
                record("s1", "Provision", event="ended", outcome="success", **bought),
                record("s2", "Provision", event="ended", outcome="failed", detail="out of stock", **bought),
            ],
            fleet,
        )
        assert lines == [
            "Provision of s2 came to nothing (failed): out of stock",
            "buy 3 c.16 Spot for data, $0.250 an hour each: data needs batch",
            "give 1 c.16 Spot back to the cloud: idle for more than 5 s",
            "take 1 machine back from shop: no need took it",
            "hand 1 c.16 Spot that stand idle to data: data needs batch",
        ]

    VIEW = View(
        rows=[Row("shop", "web", 1000, 3, 4)],
        nodes={"shop": 2},
        sessions={"shop": "no session"},
        machines={(CapacityType.SPOT, S.IDLE): 5},
        shard="shard up",
        dollars=1.25,
    )

    def show(self, *, terminal: bool) -> str:
        out = io.StringIO()
        screen = screen_on(
            Console(file=out, force_terminal=terminal, width=100, height=40, color_system=None, markup=False)
        )
        screen.tell(1.0, "Morning: begins", loud=True)
        screen.did(2.0, "buy [bold]something[/bold]")
        screen.show(2.0, self.VIEW)
        screen.show(2.1, self.VIEW)
        screen.close()
        return out.getvalue()

    def test_a_terminal_shows_a_picture_and_a_pipe_lines_of_the_same(self) -> None:
        lines = self.show(terminal=False)
        assert lines.count("pods: web 3 (+4 pending) | nodes: shop 2 | machines: 5 Spot Idle | $1.25 an hour") == 1
        assert "shop: no session | shard up" in lines
        picture = self.show(terminal=True)
        for text in ("shop", "web", "1,000", "no session", "Spot machines", "5 Idle", "shard up", "$1.25 an hour"):
            assert text in picture
        for text in ("  1.0 s  Morning: begins", "  2.0 s  ", "buy [bold]something[/bold]"):
            assert text in lines
            assert text in picture
