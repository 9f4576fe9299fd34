"""A shard's settings: flags over file over defaults, every mistake named, and nothing lost on the way out and back."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine.records import Policy
from bigfleet.model import duration
from bigfleet.model.machine import CapacityType
from bigfleet.shard.config import MAX_BYTES, Config, ConfigError, Provider, flag, load, plain, read, shown
from bigfleet.telemetry.logs import Level
from bigfleet.transport.address import TCPAddress, UnixAddress
from bigfleet.transport.tls import TLSFiles

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "shard").glob("*.yaml"))
TLS = {"tls_cert": "a.pem", "tls_key": "a.key", "tls_ca": "ca.pem"}
KEYS = [*plain(read("", "", TLS))]


def refusal(text: str, flags: dict[str, object] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, "shard.yaml", flags or {})
    return str(caught.value)


def test_nothing_said_gives_the_defaults_that_are_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    data_dir = Path("/state/bigfleet/shard-0")
    config = load(None, {})
    assert config == Config(data_dir=data_dir, audit_log=data_dir / "audit.jsonl")
    assert plain(config) == {
        "shard_id": "shard-0",
        "listen": "127.0.0.1:7780",
        "metrics_listen": "127.0.0.1:8780",
        "advertise_address": "",
        "coordinator_addr": "",
        "providers": {},
        "data_dir": "/state/bigfleet/shard-0",
        "cycle_interval": "10s",
        "full_list_interval": "5m",
        "bootstrap_timeout": "30s",
        "ready_timeout": "10m",
        "provider_concurrency": 64,
        "topology_keys": ["topology.bigfleet.lucy.sh/rack", "topology.kubernetes.io/zone"],
        "weight_priority": 1.0,
        "weight_drain": 0.1,
        "weight_interrupt": 0.1,
        "weight_reclaim": 0.1,
        "idle_hold_on_demand": "5m",
        "idle_hold_spot": "1m",
        "reclaim_after": "30s",
        "reclaim_percent": 5,
        "draining_percent": 25,
        "actuation_paused": False,
        "dry_run": False,
        "audit_log": "/state/bigfleet/shard-0/audit.jsonl",
        "audit_log_size": "64Mi",
        "audit_log_files": 10,
        "trace_endpoint": "",
        "log_level": "info",
    }


def test_the_policy_by_default_is_the_engines_own() -> None:
    assert load(None, {}).policy() == Policy()


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "shard.yaml"
    file.write_text("cycle_interval: 2s\nreclaim_percent: 9\nproviders: {a: 'h:1', b: 'h:2'}\ndry_run: true\n")
    flags = {"cycle_interval": "500ms", "providers": ["c=unix:/run/c.sock"], "dry_run": False, "reclaim_percent": None}
    config = load(file, flags)
    assert config.cycle_interval == 0.5
    assert config.reclaim_percent == 9
    assert config.draining_percent == 25
    assert config.providers == (Provider("c", UnixAddress("/run/c.sock")),)
    assert config.dry_run is False


def test_one_flag_may_replace_one_of_the_three_files_of_tls() -> None:
    config = read("{tls_cert: a.pem, tls_key: a.key, tls_ca: ca.pem}", "shard.yaml", {"tls_ca": "other.pem"})
    assert config.tls == TLSFiles(Path("a.pem"), Path("a.key"), Path("other.pem"))


def test_a_flag_can_take_back_an_address_of_the_file() -> None:
    text = "{coordinator_addr: 'c:7790', advertise_address: 's:7780', trace_endpoint: 'http://t:4317'}"
    config = read(text, "shard.yaml", {"coordinator_addr": "", "advertise_address": "", "trace_endpoint": ""})
    assert (config.coordinator_addr, config.advertise_address, config.trace_endpoint) == (None, None, "")


def test_values_are_typed() -> None:
    text = "{listen: 'unix:/run/s.sock', metrics_listen: '[::1]:0', log_level: debug, audit_log_size: 1Gi}"
    config = read(text, "shard.yaml", {"providers": ["a=h:1", "b=h:2"], "advertise_address": "s:7780"})
    assert config.listen == UnixAddress("/run/s.sock")
    assert config.metrics_listen == TCPAddress("::1", 0)
    assert config.advertise_address == TCPAddress("s", 7780)
    assert config.log_level is Level.DEBUG
    assert config.audit_log_size == 1 << 30
    assert config.providers == (Provider("a", TCPAddress("h", 1)), Provider("b", TCPAddress("h", 2)))


def test_the_engine_is_given_each_setting_as_its_own() -> None:
    text = """
        {weight_priority: 0.2, weight_drain: 0.3, weight_interrupt: 0.4, weight_reclaim: 0.5, reclaim_after: 6s,
         reclaim_percent: 7, draining_percent: 8, idle_hold_on_demand: 9s, idle_hold_spot: 10s}"""
    assert read(text, "shard.yaml", {}).policy() == Policy(
        weight_priority=0.2,
        weight_drain=0.3,
        weight_interrupt=0.4,
        weight_reclaim=0.5,
        idle_hold={CapacityType.ON_DEMAND: 9, CapacityType.SPOT: 10},
        reclaim_after=6,
        reclaim_percent=7,
        draining_percent=8,
    )


def test_a_part_of_a_second_counts_as_a_whole_one_to_the_engine() -> None:
    config = read("{reclaim_after: 500ms, idle_hold_on_demand: 1.2s, idle_hold_spot: 0s}", "shard.yaml", {})
    assert config.reclaim_after == 0.5
    assert config.policy().reclaim_after == 1
    assert config.policy().idle_hold == {CapacityType.ON_DEMAND: 2, CapacityType.SPOT: 0}


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_STATE_HOME": "/state"}, "/state/bigfleet/eu-1"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/people/ann"}, "/people/ann/.local/state/bigfleet/eu-1"),
        ({"XDG_STATE_HOME": "", "HOME": "/people/ann"}, "/people/ann/.local/state/bigfleet/eu-1"),
    ],
)
def test_state_is_kept_by_shard_where_the_user_keeps_state(
    environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = read("", "", {"shard_id": "eu-1"})
    assert config.data_dir == Path(folder)
    assert config.audit_log == Path(folder, "audit.jsonl")


def test_without_a_home_the_folder_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setattr(Path, "home", homeless)
    assert refusal("") == "--data-dir: there is no home directory to put it in; name one"
    assert read("data_dir: /d", "", {}).data_dir == Path("/d")


def test_a_data_directory_is_made_in_a_folder_that_is_there(tmp_path: Path) -> None:
    read("", "", {"data_dir": str(tmp_path / "d")}).make_data_dir()
    assert (tmp_path / "d").is_dir()
    with pytest.raises(ConfigError) as refused:
        read("", "", {"data_dir": str(tmp_path / "typo" / "d")}).make_data_dir()
    said = f"--data-dir {tmp_path}/typo/d: its folder {tmp_path}/typo is not there; create it, or name another"
    assert str(refused.value) == said
    assert not (tmp_path / "typo").exists()


def test_the_default_data_directory_is_made_with_all_folders_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    read("", "", {"shard_id": "eu-1"}).make_data_dir()
    assert (tmp_path / "state" / "bigfleet" / "eu-1").is_dir()


def test_the_audit_log_goes_with_the_data_unless_it_is_put_elsewhere() -> None:
    assert read("data_dir: /var/lib/bigfleet", "", {}).audit_log == Path("/var/lib/bigfleet/audit.jsonl")
    assert read("{data_dir: /d, audit_log: /log/a.jsonl}", "", {}).audit_log == Path("/log/a.jsonl")


@pytest.mark.parametrize(
    ("listen", "tls", "exposed"),
    [
        ("127.0.0.1:7780", {}, False),
        ("127.8.8.8:7780", {}, False),
        ("localhost:7780", {}, False),
        ("[::1]:7780", {}, False),
        ("unix:/run/s.sock", {}, False),
        (":7780", {}, True),
        ("0.0.0.0:7780", {}, True),
        ("[::]:7780", {}, True),
        ("10.0.0.1:7780", {}, True),
        ("shard.example.com:7780", {}, True),
        (":7780", TLS, False),
    ],
)
def test_it_is_known_whether_strangers_may_connect(listen: str, tls: dict[str, object], exposed: bool) -> None:
    assert read("", "", {"listen": listen, **tls}).exposed is exposed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("relcaim_after: 5s", "shard.yaml: relcaim_after: is not known; is it 'reclaim_after'?"),
        ("zzz: 5s", "shard.yaml: zzz: is not known; --print-config shows every setting there is"),
        ("tls: {}", "shard.yaml: tls: is not known; is it 'tls_"),
        ("idle_hold_bare_metal: 5m", "shard.yaml: idle_hold_bare_metal: is not known"),
        ("listen:", "shard.yaml: listen: has no value: give it one, or leave it out"),
        ("listen: 7780", "shard.yaml: listen: 7780 is no text"),
        ("listen: nowhere", "shard.yaml: listen: address 'nowhere': expected HOST:PORT"),
        ("metrics_listen: 'unix:/x'", "shard.yaml: metrics_listen: address 'unix:/x': needs HOST:PORT here"),
        ("advertise_address: 'h:0'", "shard.yaml: advertise_address: address 'h:0': port 0 cannot be connected to"),
        ("coordinator_addr: ':7790'", "shard.yaml: coordinator_addr: address ':7790': names no host"),
        ("shard_id: a b", "shard.yaml: shard_id: bigfleet://shard/<id> needs an id"),
        ("shard_id: ../x", "shard.yaml: shard_id: bigfleet://shard/<id> needs an id"),
        ("data_dir: ''", "shard.yaml: data_dir: '' is no path"),
        (r'data_dir: "a\0b"', r"shard.yaml: data_dir: 'a\x00b' is no path"),
        ("tls_cert: ''", "shard.yaml: tls_cert: '' is no path"),
        ("tls_cert: x.pem", "--tls-cert, --tls-key, --tls-ca go together; also set --tls-key and --tls-ca"),
        ("cycle_interval: soon", "shard.yaml: cycle_interval: 'soon' is no length of time: give its unit, as in 500ms"),
        ("cycle_interval: '10'", "shard.yaml: cycle_interval: '10' is no length of time"),
        ("cycle_interval: 0s", "shard.yaml: cycle_interval: '0s' is too short: 10ms at least"),
        ("full_list_interval: 9ms", "shard.yaml: full_list_interval: '9ms' is too short: 10ms at least"),
        ("bootstrap_timeout: 0", "shard.yaml: bootstrap_timeout: 0 is too short: 1ms at least"),
        ("ready_timeout: 0", "shard.yaml: ready_timeout: 0 is too short: 1ms at least"),
        ("reclaim_after: 400d", "shard.yaml: reclaim_after: '400d' is not between 0 and 366 days"),
        ("reclaim_percent: 101", "shard.yaml: reclaim_percent: 101 does not fit: write a whole number from 0 to 100"),
        ("draining_percent: 5.5", "shard.yaml: draining_percent: 5.5 does not fit: write a whole number"),
        ("draining_percent: true", "shard.yaml: draining_percent: True does not fit: write a whole number"),
        ("provider_concurrency: 0", "shard.yaml: provider_concurrency: 0 does not fit: write a whole number from 1"),
        ("weight_drain: 2.1", "shard.yaml: weight_drain: 2.1 does not fit: write a number from 0 to 2"),
        ("weight_drain: .nan", "shard.yaml: weight_drain: nan does not fit: write a number from 0 to 2"),
        ("weight_drain: yes", "shard.yaml: weight_drain: True does not fit: write a number from 0 to 2"),
        ("dry_run: 1", "shard.yaml: dry_run: 1 does not fit: write true or false"),
        ("audit_log_size: big", "shard.yaml: audit_log_size: 'big' is no quantity"),
        ("audit_log_size: 1Ki", "shard.yaml: audit_log_size: '1Ki' does not fit: write a size from 64Ki to 1Ti"),
        ("audit_log_size: []", "shard.yaml: audit_log_size: [] is no size"),
        ("audit_log_files: 0", "shard.yaml: audit_log_files: 0 does not fit: write a whole number from 1 to 1000"),
        ("log_level: loud", "shard.yaml: log_level: 'loud' is no level: write one of debug, info, warning, error"),
        ("trace_endpoint: 'h:4317'", "shard.yaml: trace_endpoint: 'h:4317' is no endpoint: write http://HOST:PORT"),
        ("trace_endpoint: 'http://h'", "shard.yaml: trace_endpoint: address 'h': expected HOST:PORT"),
        ("trace_endpoint: 'http://unix:/x'", "is no endpoint"),
        ("trace_endpoint: 0", "shard.yaml: trace_endpoint: 0 is no text"),
        ("topology_keys: zone", "shard.yaml: topology_keys: 'zone' does not fit: write a list of label keys"),
        ("topology_keys: ['a b']", "shard.yaml: topology_keys: 'a b' is no label key"),
        ("topology_keys: [a, b, a]", "shard.yaml: topology_keys: 'a' stands there twice"),
        ("providers: ['a=h:1']", "shard.yaml: providers: ['a=h:1'] does not fit: write NAME: ADDRESS"),
        ("providers: {a: 'h:1', a: 'h:2'}", "shard.yaml: line 1: the key 'a' stands twice in one mapping"),
        ("providers: {'a b': 'h:1'}", "shard.yaml: providers: bigfleet://provider/<id> needs an id"),
        ("providers: {a: here}", "shard.yaml: providers: address 'here': expected HOST:PORT"),
        ("providers: {a: }", "shard.yaml: providers: None is no text"),
        ("- a", "shard.yaml: must hold one document, a mapping of settings"),
        ("dry_run: true\n---\ndry_run: false", "shard.yaml: must hold one document, a mapping of settings"),
        ("listen: [", "shard.yaml: line "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_what_fits(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"reclaim_after": "soon"}, "--reclaim-after: 'soon' is no length of time"),
        ({"providers": ["a"]}, "--provider: 'a' does not fit: write NAME=ADDRESS"),
        ({"providers": ["=h:1"]}, "--provider: bigfleet://provider/<id> needs an id"),
        ({"providers": ["a=h:1", "a=h:2"]}, "--provider: 'a' is named twice"),
        ({"topology_keys": ["a", ""]}, "--topology-key: '' is no label key"),
        ({"data_dir": "\udcff"}, r"--data-dir: '\udcff' is not UTF-8"),
        ({"tls_key": "a.key"}, "also set --tls-cert and --tls-ca"),
    ],
)
def test_a_mistake_on_the_command_line_is_named_by_its_flag(flags: dict[str, object], said: str) -> None:
    assert said in refusal("", flags)


def test_a_mistake_in_the_file_is_one_even_where_a_flag_wins() -> None:
    assert "shard.yaml: reclaim_after: " in refusal("reclaim_after: soon", {"reclaim_after": "5s"})


def test_a_mistake_is_told_briefly_however_long_it_is() -> None:
    assert len(refusal(f"listen: {'x' * 100_000}")) < 400
    assert len(refusal(f"{'x' * 1000}: 1")) < 400
    assert len(refusal(f"dry_run: [{'x, ' * 10_000}]")) < 400


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    big, binary = tmp_path / "big.yaml", tmp_path / "binary.yaml"
    big.write_text("#" * (MAX_BYTES + 1))
    binary.write_bytes(b"\xff\xfe")
    for path, said in (
        (big, "is larger than"),
        (binary, "is not UTF-8"),
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(ConfigError, match=f"{path.name}: {said}"):
            load(path, {})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_good(path: Path) -> None:
    config = load(path, {})
    # all-in-one brings its own provider.
    assert bool(config.providers) != (path.name == "playground.yaml")
    assert not config.exposed


def test_the_guide_tells_every_setting_with_its_default() -> None:
    guide = (ROOT / "docs" / "running-a-shard.md").read_text()
    for key, value in plain(load(None, {})).items():
        (row,) = [line for line in guide.splitlines() if line.startswith("|") and f"`{flag(key)}`" in line]
        if isinstance(value, str | int | float) and value and key not in {"data_dir", "audit_log"}:
            assert f"`{value}`" in row, row


names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
hosts = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z0-9]+){0,2}", fullmatch=True) | st.just("[::1]")
unix = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20).map("unix:{}".format)
dialled = st.builds("{}:{}".format, hosts, st.integers(1, 65535)) | unix
paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
times = st.floats(0.01, duration.MAX_SECONDS) | st.builds(
    "{}{}".format, st.integers(1, 300), st.sampled_from(["s", "m", "h", "d"])
)
labels = st.from_regex(
    r"([a-z0-9]([a-z0-9.-]{0,9}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,9}[A-Za-z])?", fullmatch=True
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "shard_id": names,
    "listen": st.builds("{}:{}".format, hosts | st.just(""), st.integers(0, 65535)) | unix,
    "metrics_listen": st.builds("{}:{}".format, hosts | st.just(""), st.integers(0, 65535)),
    "advertise_address": dialled | st.just(""),
    "coordinator_addr": dialled | st.just(""),
    "providers": st.dictionaries(names, dialled, max_size=4).map(lambda all_: [f"{k}={v}" for k, v in all_.items()]),
    "data_dir": paths,
    "provider_concurrency": st.integers(1, 10_000),
    "topology_keys": st.lists(labels, max_size=4, unique=True),
    **dict.fromkeys(
        (
            "cycle_interval",
            "full_list_interval",
            "bootstrap_timeout",
            "ready_timeout",
            "idle_hold_on_demand",
            "idle_hold_spot",
            "reclaim_after",
        ),
        times,
    ),
    **dict.fromkeys(
        ("weight_priority", "weight_drain", "weight_interrupt", "weight_reclaim"), st.floats(0, 2) | st.integers(0, 2)
    ),
    **dict.fromkeys(("reclaim_percent", "draining_percent"), st.integers(0, 100)),
    **dict.fromkeys(("actuation_paused", "dry_run"), st.booleans()),
    "audit_log": paths,
    "audit_log_size": st.integers(1 << 16, 1 << 40) | st.sampled_from(["64Ki", "5Mi", "1Ti", "70k", "1e9"]),
    "audit_log_files": st.integers(1, 1000),
    "trace_endpoint": st.just("") | st.builds("{}://{}:1".format, st.sampled_from(["http", "https"]), hosts),
    "log_level": st.sampled_from([*Level]),
}
files = paths.filter(lambda path: path.strip() != "")
flags_ = st.builds(
    lambda some, tls: {**some, **tls},
    st.fixed_dictionaries({}, optional=VALUES),
    st.just({}) | st.fixed_dictionaries(dict.fromkeys(TLS, files)),
)


def test_the_laws_below_look_at_every_setting() -> None:
    assert {*VALUES, *TLS} == {*KEYS}


@settings(max_examples=300, deadline=None)
@given(flags_)
def test_what_is_shown_loads_back_to_the_same(flags: dict[str, object]) -> None:
    config = read("", "", flags)
    assert read(shown(config), "shown", {}) == config


@settings(max_examples=300, deadline=None)
@given(flags_)
def test_the_engine_takes_whatever_the_loader_took(flags: dict[str, object]) -> None:
    assert read("", "", flags).policy().held_out_shapes == {}


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
# Values near the right ones reach further in than arbitrary ones do.
near = st.sampled_from(
    ["unix:", ":", "1", "5s", "64Mi", "http://", "a=b", "=", "[::1]:1", "info", "a/b", "\0", "\ud800"]
)


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=10), anything | near, max_size=5))
def test_any_document_is_a_configuration_or_a_refusal(document: dict[str, object]) -> None:
    class NoAliases(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    try:
        config = read(yaml.dump(document, Dumper=NoAliases), "shard.yaml", {})
    except ConfigError as error:
        assert str(error).startswith(("shard.yaml: ", "TLS: "))
    else:
        assert read(shown(config), "shown", {}) == config


@settings(max_examples=500, deadline=None)
@given(
    st.text() | st.lists(st.sampled_from([*KEYS, ": ", "\n", "- ", "{", "}", "&a ", "*a", "!!", "'", '"'])).map("".join)
)
def test_any_text_is_a_configuration_or_a_refusal(text: str) -> None:
    try:
        assert isinstance(read(text, "shard.yaml", {}), Config)
    except ConfigError as error:
        assert str(error).startswith(("shard.yaml: ", "TLS: "))
