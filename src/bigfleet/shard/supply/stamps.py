"""What a binding was made for, as the `shard_metadata` that Configure stores and every provider echoes byte for byte.

A stamp also says whose a machine is (protocol rule 25).

Four short texts that a person can read, most of them the same for all machines of a need:

    bigfleet.lucy.sh/stamp    1                                              the version of this form
    bigfleet.lucy.sh/shard    eu-1 1767225601                                shard, epoch
    bigfleet.lucy.sh/need     ["5f0c…","gang-7",[["cpu",4000]],100,1,3]      fingerprint, group, unit, priority, buckets
    bigfleet.lucy.sh/binding  8812 1767225744 9be3f1d0                       number, wall seconds, CRC-32 of all of it

What comes back is a provider's word, so reading it never raises: the result says what was found.
"""

import functools
import json
import re
import zlib
from collections.abc import Mapping
from typing import Annotated

import msgspec

from bigfleet.engine.records import MAX_TIME, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import INT32_MAX, INT32_MIN
from bigfleet.model.resources import MAX_UNITS
from bigfleet.provider.epoch import MAX_EPOCH

PREFIX = "bigfleet.lucy.sh/"
"""What every key of ours begins with."""

MAX_BYTES = 64 * 1024
"""The longest stamp that is read. A shard writes no longer one."""

_VERSION, _SHARD, _NEED, _BINDING = (PREFIX + name for name in ("stamp", "shard", "need", "binding"))
_KEYS = frozenset({_VERSION, _SHARD, _NEED, _BINDING})
_THIS_VERSION = "1"
_MOST_DIGITS = 20
_WHOLE = "0|[1-9][0-9]{0,18}"
_SHARD_TEXT = re.compile(rf"([A-Za-z0-9._-]{{1,253}}) ({_WHOLE})")
_BINDING_TEXT = re.compile(rf"(({_WHOLE}) ({_WHOLE})) ([0-9a-f]{{8}})")

_SHARED_NEEDS = 2**14
"""How many texts of needs are remembered with the need that they say. Machines of one need share the text."""

_SHARED_LENGTH = 2**10
"""The longest text of a need that is remembered. A longer one is read each time."""

_Unit = tuple[tuple[str, Annotated[int, msgspec.Meta(ge=1, le=MAX_UNITS)]], ...]
_Priority = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
_NeedText = msgspec.json.Decoder(tuple[str, str, _Unit, _Priority, PenaltyBucket, PenaltyBucket])


class StampTooLongError(ValueError):
    """A stamp that is too long to be read back. Only the group, which an operator names, can be so long."""

    def __init__(self, shard_id: str, key: NeedKey, size: int) -> None:
        self.shard_id, self.key = shard_id, key
        super().__init__(
            f"shard {shard_id!r}: the stamp for need {key.fingerprint[:64]!r} has {size:,} bytes, at most "
            f"{MAX_BYTES:,} are read back; its group {key.group[:64]!r} must be a shorter name"
        )


class Binding(msgspec.Struct, frozen=True, gc=False):
    """One binding of a machine to a cluster."""

    #: What the machine was bound for.
    stamp: Stamp
    #: The shard that bound the machine.
    shard_id: str
    #: The shard's epoch at that time.
    epoch: int
    #: When the machine was bound, in seconds of the wall clock.
    bound_at: int


class NotOurs(msgspec.Struct, frozen=True, gc=False):
    """Metadata that no BigFleet shard wrote, or none at all."""


class Garbled(msgspec.Struct, frozen=True, gc=False):
    """A shard's stamp that was changed since. The shard's id in it cannot be trusted either."""

    reason: str


StampReading = Binding | NotOurs | Garbled
"""What a machine's metadata was read as."""

NOT_OURS = NotOurs()


def to_metadata(binding: Binding) -> dict[str, str]:
    """The metadata to send with Configure, or StampTooLongError."""
    stamp = binding.stamp
    owner, need = f"{binding.shard_id} {binding.epoch}", _need_text(stamp)
    which = f"{stamp.number} {binding.bound_at}"
    metadata = {
        _VERSION: _THIS_VERSION,
        _SHARD: owner,
        _NEED: need,
        _BINDING: f"{which} {_checksum(owner, need, which)}",
    }
    size = _size(metadata)
    if size > MAX_BYTES:
        raise StampTooLongError(binding.shard_id, stamp.key, size)
    return metadata


def from_metadata(metadata: Mapping[str, str]) -> StampReading:
    """What a provider's echo says. A stamp of another shard is a Binding too, with that shard's id."""
    if metadata.keys() != _KEYS:
        ours = any(key.startswith(PREFIX) for key in metadata)
        return Garbled(f"its keys are not {', '.join(sorted(_KEYS))}") if ours else NOT_OURS
    if metadata[_VERSION] != _THIS_VERSION:
        return Garbled(f"{_VERSION} is not {_THIS_VERSION}: a newer release wrote it, or nobody did")
    if _size(metadata) > MAX_BYTES or not all(map(str.isascii, metadata.values())):
        return Garbled(f"it is over {MAX_BYTES:,} bytes or not ASCII")
    owner, binding = _SHARD_TEXT.fullmatch(metadata[_SHARD]), _BINDING_TEXT.fullmatch(metadata[_BINDING])
    if owner is None or int(owner[2]) > MAX_EPOCH:
        return Garbled(f"{_SHARD} is no shard with its epoch")
    if binding is None or int(binding[2]) > MAX_TIME or int(binding[3]) > MAX_TIME:
        return Garbled(f"{_BINDING} is no number with a time and a checksum")
    text = metadata[_NEED]
    need = _shared_need(text) if len(text) <= _SHARED_LENGTH else _need(text)
    if need is None:
        return Garbled(f"{_NEED} is no need")
    if _checksum(metadata[_SHARD], text, binding[1]) != binding[4]:
        return Garbled("its checksum does not match")
    return Binding(Stamp(*need, int(binding[2])), owner[1], int(owner[2]), int(binding[3]))


def number_of(metadata: Mapping[str, str]) -> int:
    """The number of the binding that metadata shows, unchecked: it tells one binding from the next. 0 is none."""
    number = metadata.get(_BINDING, "").partition(" ")[0]
    return int(number) if number.isdecimal() and len(number) < _MOST_DIGITS else 0


def _need_text(stamp: Stamp) -> str:
    # JSON from the standard library with ASCII escapes: one text for one value, on every platform and release.
    key = stamp.key
    parts = [key.fingerprint, key.group, key.unit, stamp.priority, stamp.interruption.value, stamp.reclamation.value]
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=True)


def _need(text: str) -> tuple[NeedKey, int, PenaltyBucket, PenaltyBucket] | None:
    try:
        fingerprint, group, unit, priority, interruption, reclamation = _NeedText.decode(text)
    except msgspec.DecodeError:
        return None
    return NeedKey(fingerprint, group, unit), priority, interruption, reclamation


_shared_need = functools.lru_cache(_SHARED_NEEDS)(_need)


def _checksum(owner: str, need: str, which: str) -> str:
    text = f"{_THIS_VERSION}\n{owner}\n{need}\n{which}"
    return f"{zlib.crc32(text.encode('ascii')):08x}"


def _size(metadata: Mapping[str, str]) -> int:
    return sum(map(len, metadata)) + sum(map(len, metadata.values()))
