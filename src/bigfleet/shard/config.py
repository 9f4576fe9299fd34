"""The configuration of a shard: flags over one YAML file over defaults, read once into typed values.

A setting is one line of `Config`: its name is the key in the file and, with dashes, the flag; the form in its
annotation says how it is written. Whatever cannot be used is answered with where it stands and what fits.
"""

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import yaml

from bigfleet.engine.records import MAX_WEIGHT, Policy
from bigfleet.model import duration, plain_yaml, quantity
from bigfleet.model.labels import RACK, ZONE
from bigfleet.model.machine import CapacityType
from bigfleet.telemetry.logs import Level
from bigfleet.transport.address import Address, TCPAddress, dial_address, listen_address, listen_tcp_address
from bigfleet.transport.identity import Identity, Role
from bigfleet.transport.tls import TLSConfigError, TLSFiles

MAX_BYTES = 1 << 20
"""The largest file that is read."""

_MAX_SHOWN = 300
_MAX_VALUE = 60
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LOCALHOST = "localhost"
_SHARD_ID = "shard-0"


class ConfigError(Exception):
    """A setting or a file that cannot be used: which, what is wrong with it, and what would fit."""

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"{where}: {problem}")


class Provider(msgspec.Struct, frozen=True):
    """A provider that the shard dials. Over TLS, the provider's certificate must have this name."""

    name: str
    address: Address


class _Form(msgspec.Struct, frozen=True):
    """How a setting is written: `read` takes a plain value or raises ValueError saying what fits; `write` undoes it."""

    read: Callable[[object], Any]
    write: Callable[[Any], object] = str


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{_shown(given)} is no text; put it in quotes")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{_shown(given)} is not UTF-8") from None
    return given


def _path(given: object) -> Path:
    text = _text(given)
    if not text or "\0" in text:
        raise ValueError(f"{_shown(given)} is no path")
    return Path(text)


def _address(parse: Callable[[str], Any]) -> _Form:
    return _Form(lambda given: parse(_text(given)))


def _optional(form: _Form) -> _Form:
    """A setting that may be empty for none, so that a flag can undo what the file says."""
    return _Form(
        lambda given: None if given == "" else form.read(given),
        lambda value: "" if value is None else form.write(value),
    )


def _time(least: str) -> _Form:
    def read(given: object) -> float:
        seconds = duration.parse(given)
        if seconds < duration.parse(least):
            raise ValueError(f"{_shown(given)} is too short: {least} at least")
        return seconds

    return _Form(read, duration.written)


def _whole(least: int, most: int) -> _Form:
    def read(given: object) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
            raise ValueError(f"{_shown(given)} does not fit: write a whole number from {least} to {most}")
        return given

    return _Form(read, int)


def _read_weight(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MAX_WEIGHT:
        raise ValueError(f"{_shown(given)} does not fit: write a number from 0 to {MAX_WEIGHT:g}")
    return float(given)


def _read_size(given: object) -> int:
    if not isinstance(given, str | int):
        raise ValueError(f"{_shown(given)} is no size: write bytes, or a text such as 64Mi")
    size = quantity.parse(given).ceil(10**9)
    if not 1 << 16 <= size <= 1 << 40:
        raise ValueError(f"{_shown(given)} does not fit: write a size from 64Ki to 1Ti")
    return size


def _read_switch(given: object) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"{_shown(given)} does not fit: write true or false")
    return given


def _read_level(given: object) -> Level:
    if not isinstance(given, str) or given not in list(Level):
        raise ValueError(f"{_shown(given)} is no level: write one of {', '.join(Level)}")
    return Level(given)


def _read_shard_id(given: object) -> str:
    text = _text(given)
    Identity(Role.SHARD, text)
    return text


def _read_endpoint(given: object) -> str:
    text = _text(given)
    if not text:
        return text
    scheme, _, server = text.partition("://")
    if scheme not in {"http", "https"} or server.startswith("unix:"):
        raise ValueError(f"{_shown(given)} is no endpoint: write http://HOST:PORT or https://HOST:PORT, or '' for none")
    dial_address(server)
    return text


def _read_providers(given: object) -> tuple[Provider, ...]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{_shown(given)} does not fit: write NAME: ADDRESS, one line for each provider")
    for name in given:
        Identity(Role.PROVIDER, name)
    return tuple(Provider(name, dial_address(_text(address))) for name, address in given.items())


def _read_label_keys(given: object) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise ValueError(f"{_shown(given)} does not fit: write a list of label keys, the first that counts first")
    keys: dict[str, None] = {}
    for key in given:
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            raise ValueError(f"{_shown(key)} is no label key")
        if key in keys:
            raise ValueError(f"{_shown(key)} stands there twice; leave one out")
        keys[key] = None
    return tuple(keys)


_PATH = _Form(_path)
_SWITCH = _Form(_read_switch, bool)
_TIMEOUT = _time("1ms")
# With a shorter interval the event loop would do little else.
_INTERVAL = _time("10ms")
_HOLD = _time("0s")
_WEIGHT = _Form(_read_weight, float)
_PERCENT = _whole(0, 100)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a person may set. Times are in seconds and sizes in bytes; None is a setting without a value.

    There is no hold for bare metal, reserved and unspecified machines: those are never given back to their provider.
    """

    shard_id: Annotated[str, _Form(_read_shard_id)] = _SHARD_ID
    listen: Annotated[Address, _address(listen_address)] = TCPAddress("127.0.0.1", 7780)
    metrics_listen: Annotated[TCPAddress, _address(listen_tcp_address)] = TCPAddress("127.0.0.1", 8780)
    advertise_address: Annotated[Address | None, _optional(_address(dial_address))] = None
    coordinator_addr: Annotated[Address | None, _optional(_address(dial_address))] = None
    providers: Annotated[
        tuple[Provider, ...], _Form(_read_providers, lambda all_: {each.name: str(each.address) for each in all_})
    ] = ()
    data_dir: Annotated[Path, _PATH]
    tls: TLSFiles | None = None

    cycle_interval: Annotated[float, _INTERVAL] = 10.0
    full_list_interval: Annotated[float, _INTERVAL] = 300.0
    bootstrap_timeout: Annotated[float, _TIMEOUT] = 30.0
    ready_timeout: Annotated[float, _TIMEOUT] = 600.0
    provider_concurrency: Annotated[int, _whole(1, 10_000)] = 64
    topology_keys: Annotated[tuple[str, ...], _Form(_read_label_keys, list)] = (RACK, ZONE)

    weight_priority: Annotated[float, _WEIGHT] = 1.0
    weight_drain: Annotated[float, _WEIGHT] = 0.1
    weight_interrupt: Annotated[float, _WEIGHT] = 0.1
    weight_reclaim: Annotated[float, _WEIGHT] = 0.1
    idle_hold_on_demand: Annotated[float, _HOLD] = 300.0
    idle_hold_spot: Annotated[float, _HOLD] = 60.0
    reclaim_after: Annotated[float, _HOLD] = 30.0
    reclaim_percent: Annotated[int, _PERCENT] = 5
    draining_percent: Annotated[int, _PERCENT] = 25

    actuation_paused: Annotated[bool, _SWITCH] = False
    dry_run: Annotated[bool, _SWITCH] = False
    audit_log: Annotated[Path, _PATH]
    audit_log_size: Annotated[
        int,
        _Form(_read_size, lambda size: str(quantity.Quantity(size * 10**9, quantity.Format.BINARY_SI))),
    ] = 64 << 20
    audit_log_files: Annotated[int, _whole(1, 1000)] = 10
    trace_endpoint: Annotated[str, _Form(_read_endpoint)] = ""
    log_level: Annotated[Level, _Form(_read_level)] = Level.INFO

    def policy(self) -> Policy:
        """The settings of the engine. A part of a second counts as a whole one."""
        return Policy(
            weight_priority=self.weight_priority,
            weight_drain=self.weight_drain,
            weight_interrupt=self.weight_interrupt,
            weight_reclaim=self.weight_reclaim,
            idle_hold={
                CapacityType.ON_DEMAND: math.ceil(self.idle_hold_on_demand),
                CapacityType.SPOT: math.ceil(self.idle_hold_spot),
            },
            reclaim_after=math.ceil(self.reclaim_after),
            reclaim_percent=self.reclaim_percent,
            draining_percent=self.draining_percent,
        )

    def make_data_dir(self) -> None:
        """Create the data directory where it is missing, or raise ConfigError.

        The folder that it is in must be there, unless it is the default one: a mistyped path or a volume that is not
        mounted is not a new shard.
        """
        above = self.data_dir.absolute().parent
        try:
            if not above.exists() and not _is_default(self.data_dir):
                problem = f"its folder {above} is not there; create it, or name another"
                raise ConfigError(f"--data-dir {self.data_dir}", problem)
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            problem = f"cannot be made: {error.strerror or error}; name a folder that this program may write to"
            raise ConfigError(f"--data-dir {self.data_dir}", problem) from error

    @property
    def exposed(self) -> bool:
        """Whether somebody on another machine may reach the sessions without a certificate."""
        if self.tls is not None or not isinstance(self.listen, TCPAddress):
            return False
        try:
            return not ipaddress.ip_address(self.listen.host).is_loopback
        except ValueError:
            return self.listen.host != _LOCALHOST


_TLS = {"tls_cert": _PATH, "tls_key": _PATH, "tls_ca": _PATH}
_FORMS: dict[str, _Form] = {}
for _name, _hint in get_type_hints(Config, include_extras=True).items():
    _FORMS |= _TLS if _name == "tls" else {_name: _hint.__metadata__[0]}
_FLAGS = {"providers": "--provider", "topology_keys": "--topology-key"}


def load(file: Path | None, flags: Mapping[str, object]) -> Config:
    """The configuration from a file and flags, or ConfigError. A flag of None was not given.

    Flags have the names of `Config` (and tls_cert, tls_key, tls_ca), those of `providers` are a list of NAME=ADDRESS.
    """
    return read("", "", flags) if file is None else read(_content(file), str(file), flags)


def read(text: str, source: str, flags: Mapping[str, object]) -> Config:
    """The configuration from a text and flags. `source` is the name of the text in errors."""
    values = _values(_mapping(text, source), lambda key: f"{source}: {key}")
    given = {key: value for key, value in flags.items() if value is not None}
    if "providers" in given:
        given["providers"] = _by_name(given["providers"])
    values |= _values(given, flag)
    try:
        tls = TLSFiles.from_flags(*(str(values.pop(key)) if key in values else None for key in _TLS))
    except TLSConfigError as error:
        raise ConfigError("TLS", str(error)) from None
    if "data_dir" not in values:
        values["data_dir"] = _state_dir() / values.get("shard_id", _SHARD_ID)
    values.setdefault("audit_log", values["data_dir"] / "audit.jsonl")
    return Config(tls=tls, **values)


def flag(key: str) -> str:
    """The flag of a setting."""
    return _FLAGS.get(key, "--" + key.replace("_", "-"))


def plain(config: Config) -> dict[str, object]:
    """Every setting as it is written in YAML."""
    tls = config.tls
    files = {} if tls is None else {"tls_cert": tls.cert, "tls_key": tls.key, "tls_ca": tls.ca}
    return {
        key: form.write(files[key] if key in _TLS else getattr(config, key))
        for key, form in _FORMS.items()
        if key not in _TLS or files
    }


def shown(config: Config) -> str:
    """The text of a file that loads to this configuration."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(str(path), f"is larger than {MAX_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise ConfigError(str(path), error.strerror or "cannot be read") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not UTF-8 text ({error.reason} at byte {error.start})") from None


def _mapping(text: str, source: str) -> dict[str, object]:
    try:
        found = [document for _, document in plain_yaml.documents(text)] or [None]
    except plain_yaml.PlainYamlError as error:
        raise ConfigError(source, error.problem) from None
    if len(found) != 1 or not isinstance(found[0], dict | None):
        raise ConfigError(source, "must hold one document, a mapping of settings")
    return found[0] or {}


def _values(given: Mapping[str, object], place: Callable[[str], str]) -> dict[str, Any]:
    values = {}
    for key, value in given.items():
        if key not in _FORMS:
            raise ConfigError(place(key[:_MAX_VALUE]), _nearest(key[:_MAX_VALUE]))
        if value is None:
            raise ConfigError(place(key), "has no value: give it one, or leave it out")
        try:
            values[key] = _FORMS[key].read(value)
        except ValueError as error:
            raise ConfigError(place(key), str(error)[:_MAX_SHOWN]) from None
    return values


def _nearest(key: str) -> str:
    close = difflib.get_close_matches(key, _FORMS, 1)
    return "is not known; " + (f"is it {close[0]!r}?" if close else "--print-config shows every setting there is")


def _by_name(given: object) -> dict[str, str]:
    """The mapping that a repeated NAME=ADDRESS stands for."""
    found: dict[str, str] = {}
    for text in given if isinstance(given, list) else [given]:
        name, equals, address = str(text).partition("=")
        if not equals:
            raise ConfigError(flag("providers"), f"{_shown(text)} does not fit: write NAME=ADDRESS")
        if name in found:
            raise ConfigError(flag("providers"), f"{_shown(name)} is named twice; each provider has a name of its own")
        found[name] = address
    return found


def _state_dir() -> Path:
    """Where programs keep state by the XDG base directory specification, which says to pass over a relative path."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        return (named if named.is_absolute() else Path.home() / ".local" / "state") / "bigfleet"
    except RuntimeError:
        raise ConfigError(flag("data_dir"), "there is no home directory to put it in; name one") from None


def _is_default(data_dir: Path) -> bool:
    try:
        return data_dir.parent == _state_dir()
    except ConfigError:
        return False


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
