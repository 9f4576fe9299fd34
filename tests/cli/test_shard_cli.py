"""`bigfleet shard`: its flags reach the shard, and a mistake is one line."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog
import yaml
from typer.testing import CliRunner

from bigfleet.cli.bigfleet import app
from bigfleet.shard.config import Config, flag, load, plain
from tests.shared.command_line import bigfleet

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def logging_ends_with_the_test() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that shards were run with; the shard itself is left out."""
    configs: list[Config] = []

    async def serve(config: Config) -> None:
        configs.append(config)

    stand_in = ModuleType("bigfleet.shard.run")
    stand_in.__dict__["serve"] = serve
    monkeypatch.setitem(sys.modules, "bigfleet.shard.run", stand_in)
    return configs


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["shard", *map(str, arguments)], catch_exceptions=False)


def test_help_has_a_flag_for_every_setting_and_shows_its_default() -> None:
    result = bigfleet("shard", "--help")
    assert result.returncode == 0
    said = " ".join(result.stdout.split())
    for key, value in plain(load(None, {})).items():
        assert f" {flag(key)} " in said
        if isinstance(value, str | int | float) and value and key not in {"data_dir", "audit_log"}:
            after = said.partition(f" {flag(key)} ")[2].partition(" --")[0]
            assert f"[default: {value}]" in after
    for other in ("--config", "--print-config", "--tls-cert", "--tls-key", "--tls-ca", "--no-dry-run"):
        assert f" {other} " in said
    assert "Examples: bigfleet shard --provider sim=127.0.0.1:7760" in " ".join(said.split())


def test_every_flag_reaches_the_shard(served: list[Config], tmp_path: Path) -> None:
    values: dict[str, object] = {
        "shard_id": "eu-1",
        "listen": "unix:/run/s.sock",
        "metrics_listen": "127.0.0.1:0",
        "advertise_address": "eu-1.example.com:7780",
        "coordinator_addr": "c.example.com:7790",
        "providers": {"a": "127.0.0.1:1", "b": "unix:/run/b.sock"},
        "data_dir": str(tmp_path),
        "tls_cert": "a.pem",
        "tls_key": "a.key",
        "tls_ca": "ca.pem",
        "cycle_interval": "2s",
        "full_list_interval": "3m",
        "bootstrap_timeout": "4s",
        "ready_timeout": "5m",
        "provider_concurrency": 6,
        "topology_keys": ["row", "hall"],
        "weight_priority": 0.7,
        "weight_drain": 0.8,
        "weight_interrupt": 0.9,
        "weight_reclaim": 1.1,
        "idle_hold_on_demand": "12s",
        "idle_hold_spot": "13s",
        "reclaim_after": "500ms",
        "reclaim_percent": 15,
        "draining_percent": 16,
        "actuation_paused": True,
        "dry_run": True,
        "audit_log": "/var/log/a.jsonl",
        "audit_log_size": "1Gi",
        "audit_log_files": 17,
        "trace_endpoint": "http://127.0.0.1:4317",
        "log_level": "error",
    }
    arguments: list[str] = []
    for key, value in values.items():
        if value is True:
            arguments.append(flag(key))
        elif isinstance(value, dict):
            arguments += [f"{flag(key)}={name}={address}" for name, address in value.items()]
        else:
            arguments += [f"{flag(key)}={each}" for each in (value if isinstance(value, list) else [value])]
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    (config,) = served
    assert plain(config) == values


def test_the_file_is_read_and_flags_win(served: list[Config], tmp_path: Path) -> None:
    file = tmp_path / "shard.yaml"
    file.write_text(
        "providers: {a: 'h:1'}\ntopology_keys: [row]\ndry_run: true\nreclaim_after: 1m\nready_timeout: 1m\n"
    )
    assert invoke("--config", file, "--no-dry-run", "--ready-timeout", "2m").exit_code == 0
    (config,) = served
    assert [provider.name for provider in config.providers] == ["a"]
    assert config.topology_keys == ("row",)
    assert (config.dry_run, config.reclaim_after, config.ready_timeout) == (False, 60.0, 120.0)


def test_what_is_printed_starts_the_same_shard(served: list[Config], tmp_path: Path) -> None:
    flags = ["--config", str(ROOT / "examples" / "shard" / "production.yaml"), "--reclaim-after", "90s"]
    printed = tmp_path / "printed.yaml"
    printed.write_text(invoke(*flags, "--print-config").stdout)
    assert served == []
    assert yaml.safe_load(printed.read_text())["reclaim_after"] == "90s"
    invoke(*flags)
    invoke("--config", printed)
    first, second = served
    assert first == second


def test_settings_are_printed_without_the_compiler_and_without_leaving_a_trace(tmp_path: Path) -> None:
    program = """
import sys
from bigfleet.cli.bigfleet import main
sys.argv = ["bigfleet", "shard", "--print-config"]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
assert "numba" not in sys.modules and "bigfleet.shard.run" not in sys.modules
"""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment, stdout=subprocess.DEVNULL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--reclaim-after", "soon"], 1, "bigfleet: --reclaim-after: 'soon' is no length of time"),
        (["--provider", "sim"], 1, "bigfleet: --provider: 'sim' does not fit: write NAME=ADDRESS"),
        (["--provider", "a=h:1", "--provider", "a=h:2"], 1, "--provider: 'a' is named twice"),
        (["--config", "none.yaml"], 1, "bigfleet: none.yaml: No such file or directory"),
        (["--tls-cert", "x.pem"], 1, "also set --tls-key and --tls-ca"),
        (["--listen", "nowhere"], 1, "bigfleet: --listen: address 'nowhere'"),
        (["--reclaim-percent", "many"], 2, "bigfleet shard: Invalid value for '--reclaim-percent'"),
        (["--relcaim-after", "5s"], 2, "--relcaim-after"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], code: int, said: str) -> None:
    assert said in bigfleet("shard", *arguments).refusal(code)
