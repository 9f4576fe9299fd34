"""The layers are real: the linter passes on the tree and fails on a planted violation of each contract."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    # The planted tree must win over the installed package.
    code = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports_command as lint; lint()"
    command = [sys.executable, "-c", code, "--no-cache"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=100, check=False)


def broken_contracts(result: subprocess.CompletedProcess[str]) -> list[str]:
    # A contract with imports that it ignores says so after the word.
    lines = [line.partition(" BROKEN") for line in result.stdout.splitlines()]
    return [name for name, broken, _ in lines if broken]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / ".importlinter", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def plant(tree: Path, module: str, line: str) -> None:
    path = tree / "src" / "bigfleet" / module
    path.parent.mkdir(exist_ok=True)
    init = path.parent / "__init__.py"
    if not init.exists():
        init.write_text("")
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")


def test_the_tree_keeps_its_layers(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout
    assert broken_contracts(result) == []


DOWN_ONLY = "Imports go down only"
ALONE = "A shard keeps deciding with the coordinator gone"
PURE = "Model and engine are pure: no network, no Kubernetes, no event loop"
WIRE = "The wire only converts: no sockets, no event loop, no RPC"


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("model/machine.py", "import bigfleet.wire.needs", DOWN_ONLY),
        ("telemetry/__init__.py", "import bigfleet.cli", DOWN_ONLY),
        ("operator/agent.py", "import bigfleet.shard", DOWN_ONLY),
        ("model/machine.py", "import asyncio", PURE),
        ("model/demand/need.py", "import grpc", PURE),
        ("model/demand/need.py", "import kubernetes_asyncio", PURE),
        ("engine/engine.py", "import asyncio", PURE),
        ("engine/engine.py", "import grpc", PURE),
        ("engine/engine.py", "import bigfleet.wire.needs", PURE),
        ("shard/core/core.py", "import bigfleet.coordinator", ALONE),
        ("wire/needs.py", "import asyncio", WIRE),
        ("wire/machines.py", "import grpc", WIRE),
        ("wire/hello.py", "import bigfleet.transport.dial", WIRE),
    ],
)
def test_a_planted_violation_fails_the_build(tree: Path, module: str, line: str, contract: str) -> None:
    plant(tree, module, line)
    result = lint(tree)
    assert result.returncode == 1, result.stdout
    assert contract in broken_contracts(result)


def test_a_shard_that_reaches_the_coordinator_by_a_detour_fails_the_build(tree: Path) -> None:
    plant(tree, "provider/detour.py", "import bigfleet.coordinator")
    plant(tree, "shard/core/core.py", "import bigfleet.provider.detour")
    assert ALONE in broken_contracts(lint(tree))


def test_importing_model_and_engine_brings_in_no_network_and_no_event_loop() -> None:
    code = (
        "import importlib, pkgutil, sys, bigfleet.engine, bigfleet.model\n"
        "for package in (bigfleet.model, bigfleet.engine):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(*sorted({'asyncio', 'grpc', 'google.protobuf', 'uvloop'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert result.stdout.strip() == ""


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("operator/core.py", "import bigfleet.operator.run"),
        ("operator/rollup/pods.py", "import bigfleet.operator.core"),
        ("operator/rollup/pods.py", "import bigfleet.operator.node_life.holds"),
        ("operator/node_life/holds.py", "import bigfleet.operator.rollup.pods"),
        ("operator/node_life/drains.py", "import bigfleet.operator.mirrors.upcoming_nodes"),
        ("operator/node_life/left_nodes.py", "import bigfleet.operator.bootstrap.answers"),
        ("operator/mirrors/mirror.py", "import bigfleet.operator.node_life.machines"),
        ("operator/new_room.py", "import bigfleet.model.machine"),
    ],
)
def test_a_room_of_the_operator_that_reaches_beside_or_above_itself_fails_the_build(
    tree: Path, module: str, line: str
) -> None:
    plant(tree, module, line)
    result = lint(tree)
    assert result.returncode == 1, result.stdout
    assert "Inside the operator, rooms meet in core" in broken_contracts(result)


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("engine/verdicts.py", "import bigfleet.engine.engine", "Inside the engine, tables meet walks in load"),
        (
            "engine/tables/needs.py",
            "import bigfleet.engine.heap.columns",
            "Inside the engine, tables meet walks in load",
        ),
        (
            "engine/walks/credit.py",
            "import bigfleet.engine.tables.arrays",
            "Walks and heap know no table and no record",
        ),
        ("engine/heap/values.py", "import bigfleet.engine.records", "Walks and heap know no table and no record"),
        ("engine/walks/capacity.py", "import bigfleet.engine.walks.phases", "Walks build on each other, phases on top"),
        (
            "engine/load/rows.py",
            "import bigfleet.engine.load.pool",
            "The layout of the heap is made of parts that do not know each other",
        ),
        (
            "engine/tables/shapes.py",
            "import bigfleet.engine.tables.needs",
            "Needs stand on machines, machines on shapes",
        ),
    ],
)
def test_a_planted_violation_inside_the_engine_fails_the_build(
    tree: Path, module: str, line: str, contract: str
) -> None:
    plant(tree, module, line)
    assert contract in broken_contracts(lint(tree))


SHARD_ROOMS = "Rooms of the shard import downwards only"
SHARD_NO_IO = "The shard's parts do no I/O"
SHARD_CORE = "In the core, events stand above reactions and reactions above parts"
SHARD_EXECUTION = "In execution, the table of steps stands at the bottom"


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("shard/shell/shard.py", "import bigfleet.shard.api.answers", SHARD_ROOMS),
        ("shard/core/core.py", "import bigfleet.shard.shell.gauges", SHARD_ROOMS),
        ("shard/sessions/sender.py", "import bigfleet.shard.orders", SHARD_ROOMS),
        ("shard/supply/table.py", "import bigfleet.shard.demand.table", SHARD_ROOMS),
        ("shard/sessions/session.py", "import asyncio", SHARD_NO_IO),
        ("shard/execution/recovery.py", "import time", SHARD_NO_IO),
        ("shard/core/parts.py", "import bigfleet.shard.persistence.journal", SHARD_NO_IO),
        ("shard/core/parts.py", "import bigfleet.shard.core.reactions", SHARD_CORE),
        ("shard/execution/steps.py", "import bigfleet.shard.execution.commitment", SHARD_EXECUTION),
        ("shard/execution/recovery.py", "import bigfleet.shard.execution.lifecycle", SHARD_EXECUTION),
    ],
)
def test_a_violation_planted_in_the_shard_fails_the_build(tree: Path, module: str, line: str, contract: str) -> None:
    plant(tree, module, line)
    assert contract in broken_contracts(lint(tree))
