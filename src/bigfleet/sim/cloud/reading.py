"""Reading a cloud's configuration: every mistake is named by file, pool and field, with what fits."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bigfleet.model import plain_yaml
from bigfleet.providerkit.offer import OfferError
from bigfleet.providerkit.server.main import ConfigError
from bigfleet.sim.cloud.config import CloudConfig
from bigfleet.sim.cloud.delays import Delay, Seconds

MAX_BYTES = 1 << 20
"""The largest file that is read."""

_MAX_SHOWN = 300
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def load(path: Path) -> CloudConfig:
    """The cloud that a file describes, or ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{path}: is larger than {MAX_BYTES} bytes")
        return read(data.decode(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None


def read(text: str, source: str) -> CloudConfig:
    """The cloud that a text describes; `source` is what errors call it."""
    try:
        found = [document for _, document in plain_yaml.documents(text)]
    except plain_yaml.PlainYamlError as error:
        raise ConfigError(f"{source}: {error.problem}") from None
    if len(found) != 1 or not isinstance(found[0], dict):
        raise ConfigError(f"{source}: must hold one document, a mapping with `pools`")
    raw = found[0]
    try:
        config = msgspec.convert(raw, CloudConfig, dec_hook=_read_time)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {_said(str(error), raw)[:_MAX_SHOWN]}") from None
    for pool in config.pools:
        try:
            # One rack is enough to check, since racks differ in a label only.
            next(pool.shapes(config.region))
        except OfferError as error:
            raise ConfigError(f"{source}: pool {pool.name!r}: {error}") from None
    return config


def _read_time(kind: type[Any], given: object) -> object:
    readers: Mapping[type[Any], Any] = {Seconds: Seconds.read, Delay: Delay.read}
    return readers[kind](given)


def _said(problem: str, raw: Mapping[str, Any]) -> str:
    """An error of msgspec, which reads `reason - at `$.path``, turned into `where: reason`."""
    reason, _, path = problem.partition(" - at `$")
    path = path.rstrip("`").removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(reason):
        reason = _nearest(unknown[1], path)
    elif reason.startswith("Invalid enum value"):
        reason += f": write one of {', '.join(_at(path).cls)}"
    if in_pool := re.match(r"pools\[(\d+)\]\.?", path):
        number = int(in_pool[1])
        pool = raw["pools"][number]
        named = repr(pool["name"]) if isinstance(pool, dict) and isinstance(pool.get("name"), str) else f"{number + 1}"
        return ": ".join(part for part in (f"pool {named}", path[in_pool.end() :], reason) if part)
    return f"{path}: {reason}" if path else reason


def _nearest(key: str, path: str) -> str:
    known = [field.encode_name for field in _at(path).fields]
    close = difflib.get_close_matches(key, known, 1)
    return f"{key[:60]!r} is not known here; " + (f"is it {close[0]!r}?" if close else f"there are {', '.join(known)}")


def _at(path: str) -> Any:
    """The type that the configuration has at msgspec's path."""
    here: Any = msgspec.inspect.type_info(CloudConfig)
    for step in re.findall(r"\w+", path):
        here = here.item_type if step.isdigit() else {field.encode_name: field.type for field in here.fields}[step]
        if isinstance(here, msgspec.inspect.UnionType):
            here = next(kind for kind in here.types if not isinstance(kind, msgspec.inspect.NoneType))
    return here
